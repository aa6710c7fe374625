//! The portable kernel, which the others are tested against.

use crate::codes::packed::{BLOCK, Line};

/// Vectors whose sums are kept in general-purpose registers at once; with 64 sums in memory it takes 1.4 times as long.
const LANES: usize = 8;

/// See [`ScanKernel::filter`](super::ScanKernel::filter).
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limit: u16, hits: &mut [u64]) {
    for (lines, hits) in lines.chunks_exact(tables.len()).zip(hits) {
        let mut marks = 0;
        for part in 0..BLOCK / LANES {
            let mut sums = [0u64; LANES];
            for (line, table) in lines.iter().zip(tables) {
                let codes: &[u8; LANES] = &line.as_chunks().0[part];
                for lane in 0..LANES {
                    sums[lane] += u64::from(table[usize::from(codes[lane])]);
                }
            }
            for (lane, sum) in sums.into_iter().enumerate() {
                // The sign of the difference: a comparison would make LLVM gather the sums into vectors, at 1.4 times
                // the cost.
                let below = sum.wrapping_sub(limit.into()) >> 63;
                marks |= below << (part * LANES + lane);
            }
        }
        *hits = marks;
    }
}
