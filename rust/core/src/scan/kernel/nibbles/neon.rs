//! NEON: `tbl` looks up 16 nibbles at once.
//!
//! For 16 bytes, which hold 32 codes: an and, a shift, two lookups, two sums, and a quarter of a load; if sums have 16
//! bits, another sum.
#![allow(unsafe_code)]

use super::Pair;
use crate::codes::packed::Line;
use crate::scan::kernel::neon::{PARTS, load, look_up, mark, mark_long};
use std::arch::aarch64::*;

/// Blocks that share each load of a table: their sums are 16 registers of the 32.
const GROUP: usize = 4;
/// The same for sums of 16 bits.
const LONG_GROUP: usize = 2;

/// See [`ScanKernel::filter`](crate::scan::kernel::ScanKernel::filter).
#[target_feature(enable = "neon")]
pub(in crate::scan::kernel) fn filter(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u8,
    hits: &mut [u64],
) {
    let n_lines = pairs.len() + bytes.len();
    let limit = vdupq_n_u8(limit);
    for (lines, hits) in lines.chunks(GROUP * n_lines).zip(hits.chunks_mut(GROUP)) {
        let mut sums = [[vdupq_n_u8(0); PARTS]; GROUP];
        for (column, [low, high]) in pairs.iter().enumerate() {
            let (low, high) = (load_table(low), load_table(high));
            for (lines, sums) in lines.chunks_exact(n_lines).zip(&mut sums) {
                let uint8x16x4_t(a, b, c, d) = load(&lines[column]);
                for (sum, codes) in sums.iter_mut().zip([a, b, c, d]) {
                    *sum = vqaddq_u8(*sum, vqtbl1q_u8(low, vandq_u8(codes, vdupq_n_u8(15))));
                    *sum = vqaddq_u8(*sum, vqtbl1q_u8(high, vshrq_n_u8::<4>(codes)));
                }
            }
        }
        for (column, table) in (pairs.len()..).zip(bytes) {
            let quarters: [uint8x16x4_t; 4] = std::array::from_fn(|i| load(&table.as_chunks().0[i]));
            for (lines, sums) in lines.chunks_exact(n_lines).zip(&mut sums) {
                let uint8x16x4_t(a, b, c, d) = load(&lines[column]);
                for (sum, codes) in sums.iter_mut().zip([a, b, c, d]) {
                    *sum = vqaddq_u8(*sum, look_up(&quarters, codes));
                }
            }
        }
        for (sums, hit) in sums.into_iter().zip(hits) {
            *hit = mark(sums, limit);
        }
    }
}

/// See [`ScanKernel::filter_long`](crate::scan::kernel::ScanKernel::filter_long).
#[target_feature(enable = "neon")]
pub(in crate::scan::kernel) fn filter_long(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u16,
    hits: &mut [u64],
) {
    let n_lines = pairs.len() + bytes.len();
    for (lines, hits) in lines.chunks(LONG_GROUP * n_lines).zip(hits.chunks_mut(LONG_GROUP)) {
        let mut sums = [[[vdupq_n_u16(0); 2]; PARTS]; LONG_GROUP];
        for (column, [low, high]) in pairs.iter().enumerate() {
            let (low, high) = (load_table(low), load_table(high));
            for (lines, sums) in lines.chunks_exact(n_lines).zip(&mut sums) {
                let uint8x16x4_t(a, b, c, d) = load(&lines[column]);
                for (sums, codes) in sums.iter_mut().zip([a, b, c, d]) {
                    let values = vqtbl1q_u8(low, vandq_u8(codes, vdupq_n_u8(15)));
                    add(sums, vqaddq_u8(values, vqtbl1q_u8(high, vshrq_n_u8::<4>(codes))));
                }
            }
        }
        for (column, table) in (pairs.len()..).zip(bytes) {
            let quarters: [uint8x16x4_t; 4] = std::array::from_fn(|i| load(&table.as_chunks().0[i]));
            for (lines, sums) in lines.chunks_exact(n_lines).zip(&mut sums) {
                let uint8x16x4_t(a, b, c, d) = load(&lines[column]);
                for (sums, codes) in sums.iter_mut().zip([a, b, c, d]) {
                    add(sums, look_up(&quarters, codes));
                }
            }
        }
        for (sums, hit) in sums.into_iter().zip(hits) {
            *hit = mark_long(sums, limit);
        }
    }
}

/// Adds 16 bytes to sums of 16 bits, of which none exceeds that.
#[inline]
#[target_feature(enable = "neon")]
fn add([low, high]: &mut [uint16x8_t; 2], values: uint8x16_t) {
    *low = vaddw_u8(*low, vget_low_u8(values));
    *high = vaddw_high_u8(*high, values);
}

#[inline]
#[target_feature(enable = "neon")]
fn load_table(table: &[u8; 16]) -> uint8x16_t {
    // SAFETY: there are 16 readable bytes, and the load requires no alignment.
    unsafe { vld1q_u8(table.as_ptr()) }
}
