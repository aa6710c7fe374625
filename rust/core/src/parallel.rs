//! How many rows the loops take at a time.

use std::sync::OnceLock;

/// The most rows that can be forced.
const LARGEST: usize = 1 << 16;

/// `default`, or the number in `COMPCODES_CHUNK`: a tiny one makes tests meet every boundary. Results do not change.
///
/// Read once a process; anything but a positive number is as if it were unset.
pub(crate) fn rows(default: usize) -> usize {
    static ROWS: OnceLock<Option<usize>> = OnceLock::new();
    let forced =
        ROWS.get_or_init(|| std::env::var("COMPCODES_CHUNK").ok()?.parse().ok().filter(|&rows| rows > 0));
    // Buffers have a place for every row of a chunk: a number beyond all bounds would not fit the memory.
    forced.map_or(default, |rows| rows.min(LARGEST))
}
