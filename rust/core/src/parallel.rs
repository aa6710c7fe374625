//! How many rows loops process at a time.

use std::sync::OnceLock;

/// The most rows that can be forced.
const LARGEST: usize = 1 << 16;

/// `default`, or the number in `COMPCODES_CHUNK`: with a tiny one, tests cover every boundary. Results do not change.
///
/// Read once per process; anything but a positive number is ignored.
pub(crate) fn rows(default: usize) -> usize {
    static ROWS: OnceLock<Option<usize>> = OnceLock::new();
    let forced =
        ROWS.get_or_init(|| std::env::var("COMPCODES_CHUNK").ok()?.parse().ok().filter(|&rows| rows > 0));
    // Buffers have room for every row of a chunk: an absurdly large number would not fit the memory.
    forced.map_or(default, |rows| rows.min(LARGEST))
}
