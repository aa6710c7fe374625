//! What is done with the best of each query before they are returned.

use super::topk::Key;
use crate::error::Result;
use crate::monitor::Counter;

/// What becomes of the best that a query found, before the next queries are gone through.
pub(crate) trait Finish: Sync {
    /// Bytes that finishing one of the best reads.
    fn n_bytes(&self) -> usize;
    /// Asks for them.
    fn prefetch(&self, key: Key);
    /// What is returned of a query in the place of the best. `are_asked`: [`prefetch`](Self::prefetch) was called for each of them.
    fn finish(&self, query: usize, best: &[Key], are_asked: bool, counter: &Counter<'_>) -> Result<Vec<Key>>;
}
