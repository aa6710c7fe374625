//! NEON: byte tables of 256 entries built from `tbl` and `tbx`, which look up 64 entries in four registers.
//!
//! Both treat an index of 64 or above as out of range: `tbl` returns 0 for it, `tbx` keeps the previous value. So four
//! lookups, each with the index lowered by 64, look up all 256 entries.
#![allow(unsafe_code)]

use crate::codes::packed::{BLOCK, Line};
use std::arch::aarch64::*;

/// Codes per register.
const LANES: usize = 16;
/// Registers for the sums of a block.
pub(super) const PARTS: usize = BLOCK / LANES;
/// Blocks that share each load of a table.
const GROUP: usize = 2;

/// See [`ScanKernel::filter`](super::ScanKernel::filter).
#[target_feature(enable = "neon")]
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limit: u8, hits: &mut [u64]) {
    let m = tables.len();
    for (lines, hits) in lines.chunks(GROUP * m).zip(hits.chunks_mut(GROUP)) {
        let mut sums = [[vdupq_n_u8(0); PARTS]; GROUP];
        for (column, table) in tables.iter().enumerate() {
            let quarters: [uint8x16x4_t; 4] = std::array::from_fn(|i| load(&table.as_chunks().0[i]));
            for (lines, sums) in lines.chunks_exact(m).zip(&mut sums) {
                let uint8x16x4_t(a, b, c, d) = load(&lines[column]);
                for (sum, codes) in sums.iter_mut().zip([a, b, c, d]) {
                    *sum = vqaddq_u8(*sum, look_up(&quarters, codes));
                }
            }
        }
        for (sums, hit) in sums.into_iter().zip(hits) {
            *hit = mark(sums, vdupq_n_u8(limit));
        }
    }
}

/// See [`ScanKernel::filter_long`](super::ScanKernel::filter_long).
#[target_feature(enable = "neon")]
pub(super) fn filter_long(lines: &[Line], tables: &[[u8; 256]], limit: u16, hits: &mut [u64]) {
    let m = tables.len();
    for (lines, hit) in lines.chunks_exact(m).zip(hits) {
        let mut sums = [[vdupq_n_u16(0); 2]; PARTS];
        for (line, table) in lines.iter().zip(tables) {
            let quarters: [uint8x16x4_t; 4] = std::array::from_fn(|i| load(&table.as_chunks().0[i]));
            let uint8x16x4_t(a, b, c, d) = load(line);
            for (sums, codes) in sums.iter_mut().zip([a, b, c, d]) {
                let values = look_up(&quarters, codes);
                // 258 entries of 255 may exceed 16 bits.
                sums[0] = vqaddq_u16(sums[0], vmovl_u8(vget_low_u8(values)));
                sums[1] = vqaddq_u16(sums[1], vmovl_high_u8(values));
            }
        }
        *hit = mark_long(sums, limit);
    }
}

/// One bit per 16-bit sum: whether it is below the limit.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn mark_long(sums: [[uint16x8_t; 2]; PARTS], limit: u16) -> u64 {
    // As bytes, 0 if a sum is below the limit, and 1 otherwise; the zeros are below 1.
    let sums = sums.map(|[low, high]| {
        let reached = |sums| vshrq_n_u16::<15>(vcgeq_u16(sums, vdupq_n_u16(limit)));
        vmovn_high_u16(vmovn_u16(reached(low)), reached(high))
    });
    mark(sums, vdupq_n_u8(1))
}

/// The entries of the table for 16 codes.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn look_up(quarters: &[uint8x16x4_t; 4], codes: uint8x16_t) -> uint8x16_t {
    let lowered = |by| vsubq_u8(codes, vdupq_n_u8(by));
    let values = vqtbl4q_u8(quarters[0], codes);
    let values = vqtbx4q_u8(values, quarters[1], lowered(64));
    let values = vqtbx4q_u8(values, quarters[2], lowered(128));
    vqtbx4q_u8(values, quarters[3], lowered(192))
}

/// One bit per sum: whether it is below the limit.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn mark(sums: [uint8x16_t; PARTS], limit: uint8x16_t) -> u64 {
    const BITS: [u8; LANES] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: 16 readable bytes.
    let bits = unsafe { vld1q_u8(BITS.as_ptr()) };
    let [a, b, c, d] = sums.map(|sum| vandq_u8(vcltq_u8(sum, limit), bits));
    // Eight bytes that hold one bit each become one byte, in three rounds of adding neighbours.
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(line: &Line) -> uint8x16x4_t {
    const { assert!(BLOCK == 4 * LANES) };
    // SAFETY: a line is 64 readable bytes, and the load requires no alignment.
    unsafe { vld1q_u8_x4(line.as_ptr()) }
}
