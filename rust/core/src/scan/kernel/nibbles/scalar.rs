//! The portable kernel: one table per pair of codebooks, indexed by whole bytes.

use super::Pair;
use crate::codes::packed::Line;
use crate::scan::kernel::scalar;

/// See [`ScanKernel::filter`](crate::scan::kernel::ScanKernel::filter) and `filter_long`.
pub(in crate::scan::kernel) fn filter(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u16,
    hits: &mut [u64],
) {
    // With 8 bits a sum of 255 passes no limit.
    let sums = pairs.iter().map(|[low, high]| -> [u8; 256] {
        std::array::from_fn(|byte| low[byte & 15].saturating_add(high[byte >> 4]))
    });
    let tables: Vec<_> = sums.chain(bytes.iter().copied()).collect();
    scalar::filter(lines, &tables, limit, hits);
}
