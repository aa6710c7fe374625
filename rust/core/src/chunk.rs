//! How many rows the loops take at a time.

use std::sync::OnceLock;

/// `default`, or the number in `COMPCODES_CHUNK`: a tiny one makes tests meet every boundary. Results do not change.
///
/// Read once a process; anything but a positive number is as if it were unset.
pub(crate) fn rows(default: usize) -> usize {
    static ROWS: OnceLock<Option<usize>> = OnceLock::new();
    let forced =
        ROWS.get_or_init(|| std::env::var("COMPCODES_CHUNK").ok()?.parse().ok().filter(|&rows| rows > 0));
    forced.unwrap_or(default)
}
