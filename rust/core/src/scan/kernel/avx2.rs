//! AVX2: byte tables of 256 entries built from `pshufb`, which looks up 16, and returns 0 if an index has its top bit
//! set.
//!
//! A table T is cut into 16 rows of 16. For a code below 128, its lower four bits give the place in a row, and its
//! upper four bits the row h. Take row 0 and the *changes* between rows, C_r = T_r xor T_{r−1}: then T_h is the xor of
//! T_0 and C_1 … C_h. The index code − 16 r has the code's lower four bits, and its top bit is set exactly if r > h: so
//! the xor of eight lookups is the entry. Rows from 8 on work the same way, with the same indices; the code's top bit
//! chooses between the two.
//!
//! That is 8 subtractions, 16 lookups, 15 xor and a blend for 32 codes. A tree of 15 blends needs fewer instructions,
//! but `pblendvb` competes with `pshufb` for the same units: 1030 µs for 10⁶ codes of 8 bytes (Zen 5), against 850 µs.
//!
//! A first pass that bounds each entry by the best of the 16 that share its upper nibble, at a tenth of the cost, would
//! save nothing: nearly every block contains a vector that passes (`benches/upper.py`).
#![allow(unsafe_code)]

use crate::codes::packed::{BLOCK, Line};
use std::arch::x86_64::*;

/// Blocks that share the rows of a table.
const GROUP: usize = 8;

/// See [`ScanKernel::filter`](super::ScanKernel::filter).
#[target_feature(enable = "avx2")]
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limit: u8, ahead: isize, hits: &mut [u64]) {
    let m = tables.len();
    let limit = _mm256_set1_epi8(limit as i8);
    for (lines, hits) in lines.chunks(GROUP * m).zip(hits.chunks_mut(GROUP)) {
        let mut sums = [[_mm256_setzero_si256(); 2]; GROUP];
        for (column, table) in tables.iter().enumerate() {
            let changes = changes(table);
            let asked = lines.as_ptr().wrapping_byte_offset(ahead).wrapping_add(column * GROUP);
            for (block, (block_lines, sums)) in lines.chunks_exact(m).zip(&mut sums).enumerate() {
                _mm_prefetch::<_MM_HINT_T0>(asked.wrapping_add(block).cast());
                for (half, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_adds_epu8(*sum, look_up(&changes, load(&block_lines[column], half)));
                }
            }
        }
        for (sums, hits) in sums.iter().zip(hits) {
            *hits = mark(*sums, limit);
        }
    }
}

/// See [`ScanKernel::filter_long`](super::ScanKernel::filter_long). The 16-bit sums are split into those of even and
/// odd vectors.
#[target_feature(enable = "avx2")]
pub(super) fn filter_long(lines: &[Line], tables: &[[u8; 256]], limit: u16, ahead: isize, hits: &mut [u64]) {
    let m = tables.len();
    let even = _mm256_set1_epi16(0xff);
    for (lines, hits) in lines.chunks(GROUP * m).zip(hits.chunks_mut(GROUP)) {
        let mut sums = [[[_mm256_setzero_si256(); 2]; 2]; GROUP];
        for (column, table) in tables.iter().enumerate() {
            let changes = changes(table);
            let asked = lines.as_ptr().wrapping_byte_offset(ahead).wrapping_add(column * GROUP);
            for (block, (block_lines, sums)) in lines.chunks_exact(m).zip(&mut sums).enumerate() {
                _mm_prefetch::<_MM_HINT_T0>(asked.wrapping_add(block).cast());
                for (half, sums) in sums.iter_mut().enumerate() {
                    let values = look_up(&changes, load(&block_lines[column], half));
                    sums[0] = _mm256_adds_epu16(sums[0], _mm256_and_si256(values, even));
                    sums[1] = _mm256_adds_epu16(sums[1], _mm256_srli_epi16::<8>(values));
                }
            }
        }
        for (&sums, hits) in sums.iter().zip(hits) {
            *hits = mark_long(sums, limit);
        }
    }
}

/// One bit per 16-bit sum: whether it is below the limit. For each half of a line, sums of even vectors and of odd ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn mark_long(sums: [[__m256i; 2]; 2], limit: u16) -> u64 {
    let (limit, even) = (_mm256_set1_epi16(limit as i16), _mm256_set1_epi16(0xff));
    let fails = |sums| _mm256_cmpeq_epi16(_mm256_max_epu16(sums, limit), sums);
    let of_half = |[of_even, of_odd]: [__m256i; 2]| {
        let fails = _mm256_blendv_epi8(fails(of_odd), fails(of_even), even);
        u64::from(!_mm256_movemask_epi8(fails) as u32)
    };
    of_half(sums[1]) << 32 | of_half(sums[0])
}

/// One bit per sum: whether it is below the limit.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn mark(sums: [__m256i; 2], limit: __m256i) -> u64 {
    // sum < limit ⇔ max(sum, limit) ≠ sum, for unsigned bytes. (An array's `map` is not compiled for AVX2.)
    let fails = |sum| _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(sum, limit), sum)) as u32;
    let (low, high) = (fails(sums[0]), fails(sums[1]));
    !(u64::from(high) << 32 | u64::from(low))
}

/// T_0, C_1 … C_7, then T_8, C_9 … C_15, each twice to fill a register.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn changes(table: &[u8; 256]) -> [__m256i; 16] {
    let rows: [__m256i; 16] = std::array::from_fn(|row| broadcast(&table.as_chunks().0[row]));
    std::array::from_fn(
        |row| if row % 8 == 0 { rows[row] } else { _mm256_xor_si256(rows[row], rows[row - 1]) },
    )
}

/// The entries of the table for 32 codes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn look_up(changes: &[__m256i; 16], codes: __m256i) -> __m256i {
    let mut index = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    let mut low = _mm256_shuffle_epi8(changes[0], index);
    let mut high = _mm256_shuffle_epi8(changes[8], index);
    for row in 1..8 {
        index = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
        low = _mm256_xor_si256(low, _mm256_shuffle_epi8(changes[row], index));
        high = _mm256_xor_si256(high, _mm256_shuffle_epi8(changes[8 + row], index));
    }
    _mm256_blendv_epi8(low, high, codes)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn broadcast(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: there are 16 readable bytes, and an unaligned load has no other requirement.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// Half `half` of a line, 32 codes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(line: &Line, half: usize) -> __m256i {
    const { assert!(BLOCK == 2 * size_of::<__m256i>()) };
    let codes: &[u8; 32] = &line.as_chunks().0[half];
    // SAFETY: there are 32 readable bytes, and an unaligned load has no other requirement.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}
