//! AVX-512: a line of 64 bytes at once.
//!
//! With VBMI, `vpermb` looks up by the lower six bits of each byte. The 16 entries are repeated four times, so bits 4
//! to 7 do not matter and no nibble needs to be masked: a line, which holds 128 codes, takes a load, a shift, two
//! lookups and two sums. With BW alone, `vpshufb` returns 0 if bit 7 is set, which two ands prevent.
#![allow(unsafe_code)]

use super::{Pair, TOGETHER, gather};
use crate::codes::packed::Line;
use crate::scan::kernel::{avx2, avx512};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 32.
const GROUP: usize = 8;

/// A filter for some subset of AVX-512: how each half of 64 bytes looks up a table, and how whole bytes do.
macro_rules! filter {
    ($name:ident, $features:literal, $lower:ident, $upper:ident, $tables:path, $look_up:path) => {
        /// See [`ScanKernel::filter`](crate::scan::kernel::ScanKernel::filter).
        #[target_feature(enable = $features)]
        pub(in crate::scan::kernel) fn $name(
            lines: &[Line],
            pairs: &[Pair],
            bytes: &[[u8; 256]],
            limit: u8,
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
                limit: u8,
                ahead: isize,
            ) -> [u64; N] {
                let n_lines = pairs.len() + bytes.len();
                assert!(lines.len() == N * n_lines);
                let mut sums = [_mm512_setzero_si512(); N];
                for (column, [low, high]) in pairs.iter().enumerate() {
                    let (low, high) = (broadcast(low), broadcast(high));
                    for (block, sum) in sums.iter_mut().enumerate() {
                        let codes = avx512::load(&lines[block * n_lines + column]);
                        let asked =
                            lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
                        _mm_prefetch::<_MM_HINT_T0>(asked.cast());
                        *sum = _mm512_adds_epu8(*sum, $lower(codes, low));
                        *sum = _mm512_adds_epu8(*sum, $upper(codes, high));
                    }
                }
                for (column, table) in (pairs.len()..).zip(bytes) {
                    let tables = $tables(table);
                    for (block, sum) in sums.iter_mut().enumerate() {
                        let codes = avx512::load(&lines[block * n_lines + column]);
                        *sum = _mm512_adds_epu8(*sum, $look_up(&tables, codes));
                    }
                }
                // An array's `map` is not compiled for AVX-512.
                let mut hits = [0; N];
                for (hits, &sum) in hits.iter_mut().zip(&sums) {
                    *hits = _mm512_cmplt_epu8_mask(sum, _mm512_set1_epi8(limit as i8));
                }
                hits
            }

            let n_lines = pairs.len() + bytes.len();
            let (groups, rest) = hits.as_chunks_mut::<GROUP>();
            let (group_lines, rest_lines) = lines.split_at(groups.len() * GROUP * n_lines);
            for (hits, lines) in groups.iter_mut().zip(group_lines.chunks_exact(GROUP * n_lines)) {
                *hits = filter_blocks(lines, pairs, bytes, limit, ahead);
            }
            for (hits, lines) in rest.iter_mut().zip(rest_lines.chunks_exact(n_lines)) {
                [*hits] = filter_blocks(lines, pairs, bytes, limit, ahead);
            }
        }
    };
}

filter!(
    filter_vbmi,
    "avx512f,avx512bw,avx512vl,avx512vbmi",
    lower_vbmi,
    upper_vbmi,
    avx512::quarters,
    avx512::look_up
);
filter!(filter_bw, "avx2,avx512f,avx512bw", lower_bw, upper_bw, avx2::changes, look_up_halves);

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
pub(in crate::scan::kernel) fn sums<const P: usize>(
    lines: &[Line],
    vectors: &[u16],
    tables: &[[[f32; 16]; 2]; P],
    base: f32,
    scores: &mut Vec<f32>,
) {
    let (blocks, mut codes) = (lines.as_chunks().0, [[0; TOGETHER]; P]);
    for vectors in vectors.chunks(TOGETHER) {
        gather(blocks, vectors, &mut codes);
        let mut sums = _mm512_set1_ps(base);
        for p in 0..P {
            // SAFETY: there are 16 readable bytes, and twice 16 readable numbers; unaligned loads have no other
            // requirement.
            let (codes, low, high) = unsafe {
                let [low, high] = &tables[p];
                (
                    _mm_loadu_si128(codes[p].as_ptr().cast()),
                    _mm512_loadu_ps(low.as_ptr()),
                    _mm512_loadu_ps(high.as_ptr()),
                )
            };
            let codes = _mm512_cvtepu8_epi32(codes);
            sums = _mm512_add_ps(sums, _mm512_permutexvar_ps(codes, low));
            sums = _mm512_add_ps(sums, _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(codes), high));
        }
        let mut found = [0.0; TOGETHER];
        // SAFETY: there is room for 16 numbers.
        unsafe { _mm512_storeu_ps(found.as_mut_ptr(), sums) };
        scores.extend_from_slice(&found[..vectors.len()]);
    }
}
