//! AVX2: byte tables of 256 entries out of `pshufb`, which has 16.
//!
//! The 16 candidates for a code's lower four bits are looked up in 16 sub-tables; its upper four bits then choose
//! between them in a tree of 15 blends, one bit a level. `pblendvb` looks at the top bit of each byte only, so a bit is
//! brought there by one addition of the codes to themselves. Some 40 instructions for 32 codes, none of them a load from a computed
//! address: gathers need four times as long.
#![allow(unsafe_code)]

use crate::packed::{BLOCK, Line};
use std::arch::x86_64::*;

/// See [`Kernel::filter`](super::kernel::Kernel::filter).
#[target_feature(enable = "avx2")]
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limits: &[u16], hits: &mut [u64]) {
    let blocks = lines.chunks_exact(tables.len()).zip(limits);
    for ((lines, &limit), hits) in blocks.zip(hits) {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (line, table) in lines.iter().zip(tables) {
            let codes = load(line);
            let values = look_up(table, codes);
            sums[0] = _mm256_adds_epu8(sums[0], values[0]);
            sums[1] = _mm256_adds_epu8(sums[1], values[1]);
        }
        // sum < limit ⇔ max(sum, limit) ≠ sum, for unsigned bytes.
        let limit = _mm256_set1_epi8(limit as i8);
        let [low, high] = sums.map(|sum| {
            let fails = _mm256_cmpeq_epi8(_mm256_max_epu8(sum, limit), sum);
            u64::from(!_mm256_movemask_epi8(fails) as u32)
        });
        *hits = high << 32 | low;
    }
}

/// The entries of `table` that 64 codes name.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up(table: &[u8; 256], codes: [__m256i; 2]) -> [__m256i; 2] {
    let low_bits = codes.map(|codes| _mm256_and_si256(codes, _mm256_set1_epi8(15)));
    let bit7 = codes;
    let bit6 = bit7.map(|codes| _mm256_add_epi8(codes, codes));
    let bit5 = bit6.map(|codes| _mm256_add_epi8(codes, codes));
    let bit4 = bit5.map(|codes| _mm256_add_epi8(codes, codes));
    let blend = |low: [__m256i; 2], high: [__m256i; 2], bit: [__m256i; 2]| -> [__m256i; 2] {
        std::array::from_fn(|i| _mm256_blendv_epi8(low[i], high[i], bit[i]))
    };
    let sixteen = |at: usize| -> [__m256i; 2] {
        let sub_table = broadcast(table.as_chunks().0[at]);
        low_bits.map(|low_bits| _mm256_shuffle_epi8(sub_table, low_bits))
    };
    let pair = |at: usize| blend(sixteen(at), sixteen(at + 1), bit4);
    let four = |at: usize| blend(pair(at), pair(at + 2), bit5);
    let eight = |at: usize| blend(four(at), four(at + 4), bit6);
    blend(eight(0), eight(8), bit7)
}

#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(bytes: [u8; 16]) -> __m256i {
    // SAFETY: 16 readable bytes, and an unaligned load asks for no more.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(line: &Line) -> [__m256i; 2] {
    const { assert!(size_of::<Line>() == BLOCK && BLOCK == 2 * size_of::<__m256i>()) };
    let halves = line.as_ptr().cast::<__m256i>();
    // SAFETY: a line is 64 readable bytes: two unaligned loads of 32.
    unsafe { [_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1))] }
}
