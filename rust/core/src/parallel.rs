//! How work is cut into chunks: the same cuts for any number of threads, so that results do not depend on it.

use std::sync::OnceLock;

/// `default` rows, or what `COMPCODES_CHUNK` says: tests set it to a small number so that every boundary is met.
pub(crate) fn chunk_rows(default: usize) -> usize {
    static FORCED: OnceLock<Option<usize>> = OnceLock::new();
    let forced = FORCED
        .get_or_init(|| std::env::var("COMPCODES_CHUNK").ok()?.parse().ok().filter(|&rows: &usize| rows > 0));
    forced.unwrap_or(default)
}
