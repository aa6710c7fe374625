//! AVX-512 VBMI: `vpermb` looks up 64 bytes at once by the lower six bits of each.
//!
//! With the 16 entries repeated four times, bits 4 to 7 of an index do not matter: no nibble needs to be masked. For 64
//! bytes, which are 128 codes: a load, a shift, two lookups and two sums.
#![allow(unsafe_code)]

use super::Pair;
use crate::codes::packed::Line;
use crate::scan::kernel::AHEAD;
use crate::scan::kernel::avx512::{load, look_up, quarters};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 32.
const GROUP: usize = 8;

/// See [`Kernel::filter`](crate::scan::kernel::Kernel::filter).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(in crate::scan::kernel) fn filter(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u8,
    hits: &mut [u64],
) {
    let n_lines = pairs.len() + bytes.len();
    let (groups, rest) = hits.as_chunks_mut::<GROUP>();
    let (group_lines, rest_lines) = lines.split_at(groups.len() * GROUP * n_lines);
    for (hits, lines) in groups.iter_mut().zip(group_lines.chunks_exact(GROUP * n_lines)) {
        *hits = filter_blocks(lines, pairs, bytes, limit);
    }
    for (hits, lines) in rest.iter_mut().zip(rest_lines.chunks_exact(n_lines)) {
        [*hits] = filter_blocks(lines, pairs, bytes, limit);
    }
}

/// `N` blocks at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn filter_blocks<const N: usize>(lines: &[Line], pairs: &[Pair], bytes: &[[u8; 256]], limit: u8) -> [u64; N] {
    let n_lines = pairs.len() + bytes.len();
    assert!(lines.len() == N * n_lines);
    let mut sums = [_mm512_setzero_si512(); N];
    for (column, [low, high]) in pairs.iter().enumerate() {
        let (low, high) = (broadcast(low), broadcast(high));
        for (block, sum) in sums.iter_mut().enumerate() {
            let codes = load(&lines[block * n_lines + column]);
            let ahead = lines.as_ptr().wrapping_add(column * N + block + AHEAD.max(N * n_lines));
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            *sum = _mm512_adds_epu8(*sum, _mm512_permutexvar_epi8(codes, low));
            *sum = _mm512_adds_epu8(*sum, _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(codes), high));
        }
    }
    for (column, table) in (pairs.len()..).zip(bytes) {
        let quarters = quarters(table);
        for (block, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_adds_epu8(*sum, look_up(&quarters, load(&lines[block * n_lines + column])));
        }
    }
    // An array's `map` is not compiled for AVX-512.
    let mut hits = [0; N];
    for (hits, &sum) in hits.iter_mut().zip(&sums) {
        *hits = _mm512_cmplt_epu8_mask(sum, _mm512_set1_epi8(limit as i8));
    }
    hits
}

/// Four times the table.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(table: &[u8; 16]) -> __m512i {
    // SAFETY: 16 readable bytes, and an unaligned load asks for no more.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}
