//! The portable kernel: the reference, and the fallback of the others.

use crate::packed::{BLOCK, Line};
use crate::tables::Table;

/// Vectors whose sums are kept in general registers at once; with 64 sums in memory it takes 1.4 times as long.
const LANES: usize = 8;

/// See [`Kernel::filter`](super::kernel::Kernel::filter).
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limits: &[u16], hits: &mut [u64]) {
    let blocks = lines.chunks_exact(tables.len()).zip(limits);
    for ((lines, &limit), hits) in blocks.zip(hits) {
        *hits = 0;
        for part in 0..BLOCK / LANES {
            let mut sums = [0u32; LANES];
            for (line, table) in lines.iter().zip(tables) {
                let codes: &[u8; LANES] = &line.as_chunks().0[part];
                for lane in 0..LANES {
                    sums[lane] += u32::from(table[usize::from(codes[lane])]);
                }
            }
            for (lane, &sum) in sums.iter().enumerate() {
                *hits |= u64::from(sum < u32::from(limit)) << (part * LANES + lane);
            }
        }
    }
}

/// Scores all vectors of a block: entries of the f32 tables added in order, from 0.
pub(super) fn score_block(lines: &[Line], tables: &[Table]) -> [f32; BLOCK] {
    let mut sums = [0.0; BLOCK];
    for (line, table) in lines.iter().zip(tables) {
        for (sum, &code) in sums.iter_mut().zip(line) {
            *sum += table[usize::from(code)];
        }
    }
    sums
}

/// Scores one vector of a block, as [`score_block`] does.
#[inline]
pub(super) fn score_lane(lines: &[Line], tables: &[Table], lane: usize) -> f32 {
    lines.iter().zip(tables).fold(0.0, |sum, (line, table)| sum + table[usize::from(line[lane % BLOCK])])
}
