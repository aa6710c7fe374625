//! Processing the best of each query before they are returned.

use super::topk::Key;
use crate::error::Result;
use crate::monitor::Counter;

/// Processes the best that a query found, before the next queries are searched.
pub(crate) trait Finish: Sync {
    /// Bytes that are read to finish one of the best.
    fn n_bytes(&self) -> usize;
    /// Prefetches those bytes.
    fn prefetch(&self, key: Key);
    /// Returns what replaces the best of a query. `are_asked`: [`prefetch`](Self::prefetch) was called for each of
    /// them.
    fn finish(&self, query: usize, best: &[Key], are_asked: bool, counter: &Counter<'_>) -> Result<Vec<Key>>;
}
