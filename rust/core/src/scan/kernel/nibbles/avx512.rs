//! AVX-512: a line of 64 bytes at once.
//!
//! With VBMI, `vpermb` looks up by the lower six bits of each byte. The 16 entries are repeated four times, so bits 4
//! to 7 do not matter and no nibble needs to be masked: a line, which holds 128 codes, takes a load, a shift, two
//! lookups and two sums. With BW alone, `vpshufb` returns 0 if bit 7 is set, which two ands prevent.
#![allow(unsafe_code)]

use super::{LINES, Pair, TOGETHER, gather};
use crate::codes::packed::Line;
use crate::scan::kernel::{Blocks, avx2, avx512, in_groups};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 32, or sixteen if they have 16 bits.
const GROUP: usize = 8;

/// The filters for some subset of AVX-512: how each half of 64 bytes looks up a table, and how whole bytes do.
macro_rules! filters {
    ($short:ident, $long:ident, $features:literal, $lower:ident, $upper:ident, $tables:path, $look_up:path) => {
        filter!(
            $short,
            u8,
            $features,
            ($tables, $look_up),
            __m512i,
            _mm512_setzero_si512(),
            mark,
            |sum, codes, low, high| {
                *sum = _mm512_adds_epu8(*sum, $lower(codes, low));
                *sum = _mm512_adds_epu8(*sum, $upper(codes, high));
            },
            |sum, values| *sum = _mm512_adds_epu8(*sum, values)
        );
        filter!(
            $long,
            u16,
            $features,
            ($tables, $look_up),
            [__m512i; 2],
            [_mm512_setzero_si512(); 2],
            mark_long,
            |sum, codes, low, high| add(sum, _mm512_adds_epu8($lower(codes, low), $upper(codes, high))),
            |sum, values| add(sum, values)
        );
    };
}

/// A filter: its sums, what they start from, what a line of nibbles adds to them, and a line of bytes; and how sums are
/// compared with the limit.
macro_rules! filter {
    ($name:ident, $limit:ty, $features:literal, ($tables:path, $look_up:path), $sum:ty, $zero:expr, $mark:ident,
     |$sum_of_pair:ident, $codes:ident, $low:ident, $high:ident| $add_pair:expr,
     |$sum_of_byte:ident, $values:ident| $add_byte:expr) => {
        /// See [`ScanKernel`](crate::scan::kernel::ScanKernel).
        #[target_feature(enable = $features)]
        pub(in crate::scan::kernel) fn $name(
            lines: &[Line],
            pairs: &[Pair],
            bytes: &[[u8; 256]],
            limit: $limit,
            ahead: isize,
            hits: &mut [u64],
        ) {
            /// `N` blocks at once.
            #[inline]
            #[target_feature(enable = $features)]
            fn filter_blocks<const N: usize>(
                lines: &[Line],
                pairs: &[Pair],
                bytes: &[[u8; 256]],
                limit: $limit,
                ahead: isize,
            ) -> [u64; N] {
                let n_lines = pairs.len() + bytes.len();
                assert!(lines.len() == N * n_lines);
                let mut sums: [$sum; N] = [$zero; N];
                for (column, [low, high]) in pairs.iter().enumerate() {
                    let ($low, $high) = (broadcast(low), broadcast(high));
                    for (block, $sum_of_pair) in sums.iter_mut().enumerate() {
                        let $codes = avx512::load(&lines[block * n_lines + column]);
                        let asked =
                            lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
                        _mm_prefetch::<_MM_HINT_T0>(asked.cast());
                        $add_pair;
                    }
                }
                for (column, table) in (pairs.len()..).zip(bytes) {
                    let tables = $tables(table);
                    for (block, $sum_of_byte) in sums.iter_mut().enumerate() {
                        let $values = $look_up(&tables, avx512::load(&lines[block * n_lines + column]));
                        $add_byte;
                    }
                }
                // An array's `map` is not compiled for AVX-512.
                let mut hits = [0; N];
                for (hits, &sum) in hits.iter_mut().zip(&sums) {
                    *hits = $mark(sum, limit);
                }
                hits
            }

            let group = |lines: &[Line]| filter_blocks::<GROUP>(lines, pairs, bytes, limit, ahead);
            let one = |lines: &[Line]| filter_blocks(lines, pairs, bytes, limit, ahead);
            in_groups(lines, pairs.len() + bytes.len(), hits, group, one);
        }
    };
}

filters!(
    filter_vbmi,
    filter_long_vbmi,
    "avx512f,avx512bw,avx512vl,avx512vbmi",
    lower_vbmi,
    upper_vbmi,
    avx512::quarters,
    avx512::look_up
);
filters!(
    filter_bw,
    filter_long_bw,
    "avx2,avx512f,avx512bw",
    lower_bw,
    upper_bw,
    avx2::changes,
    look_up_halves
);

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn mark(sums: __m512i, limit: u8) -> u64 {
    _mm512_cmplt_epu8_mask(sums, _mm512_set1_epi8(limit as i8))
}

/// Adds 64 bytes to the sums of two vectors each, and to those of the second alone: see `avx2.rs`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add([both, second]: &mut [__m512i; 2], values: __m512i) {
    *both = _mm512_add_epi16(*both, values);
    *second = _mm512_add_epi16(*second, _mm512_srli_epi16::<8>(values));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn mark_long([both, second]: [__m512i; 2], limit: u16) -> u64 {
    let first = _mm512_sub_epi16(both, _mm512_slli_epi16::<8>(second));
    avx512::mark_long([first, second], limit)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn lower_vbmi(codes: __m512i, table: __m512i) -> __m512i {
    _mm512_permutexvar_epi8(codes, table)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn upper_vbmi(codes: __m512i, table: __m512i) -> __m512i {
    _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(codes), table)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lower_bw(codes: __m512i, table: __m512i) -> __m512i {
    _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn upper_bw(codes: __m512i, table: __m512i) -> __m512i {
    lower_bw(_mm512_srli_epi16::<4>(codes), table)
}

/// The entries of the table for 64 bytes, without VBMI.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw")]
fn look_up_halves(changes: &[__m256i; 16], codes: __m512i) -> __m512i {
    let low = avx2::look_up(changes, _mm512_castsi512_si256(codes));
    let high = avx2::look_up(changes, _mm512_extracti64x4_epi64::<1>(codes));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// The table, repeated four times.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(table: &[u8; 16]) -> __m512i {
    // SAFETY: there are 16 readable bytes, and an unaligned load has no other requirement.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

/// See [`ScanKernel::sums`](crate::scan::kernel::ScanKernel::sums). `vpermps` looks up 16 numbers by the lower four
/// bits of each index.
#[target_feature(enable = "avx512f")]
pub(in crate::scan::kernel) fn sums(
    blocks: &Blocks<'_>,
    vectors: &[u16],
    tables: &[[f32; 16]],
    base: f32,
    scores: &mut Vec<f32>,
) {
    let mut codes = [[0; TOGETHER]; LINES];
    for vectors in vectors.chunks(TOGETHER) {
        let mut sums = _mm512_set1_ps(base);
        for (at, tables) in tables.chunks(2 * LINES).enumerate() {
            let codes = &mut codes[..tables.len().div_ceil(2)];
            gather(blocks, at * LINES, vectors, codes);
            for (codes, tables) in codes.iter().zip(tables.chunks(2)) {
                // SAFETY: there are 16 readable bytes; an unaligned load has no other requirement.
                let codes = _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(codes.as_ptr().cast()) });
                sums = _mm512_add_ps(sums, _mm512_permutexvar_ps(codes, load(&tables[0])));
                if let Some(high) = tables.get(1) {
                    sums =
                        _mm512_add_ps(sums, _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(codes), load(high)));
                }
            }
        }
        let mut found = [0.0; TOGETHER];
        // SAFETY: there is room for 16 numbers.
        unsafe { _mm512_storeu_ps(found.as_mut_ptr(), sums) };
        scores.extend_from_slice(&found[..vectors.len()]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(table: &[f32; 16]) -> __m512 {
    // SAFETY: there are 16 readable numbers, and an unaligned load has no other requirement.
    unsafe { _mm512_loadu_ps(table.as_ptr()) }
}
