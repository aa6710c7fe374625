//! AVX2: `pshufb` looks up 32 nibbles at once.
//!
//! For 32 bytes, which are 64 codes: a load, a shift, two ands, two lookups and two sums.
#![allow(unsafe_code)]

use super::Pair;
use crate::codes::packed::Line;
use crate::scan::kernel::AHEAD;
use crate::scan::kernel::avx2::{broadcast, changes, load, look_up, mark};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 16.
const GROUP: usize = 4;

/// See [`Kernel::filter`](crate::scan::kernel::Kernel::filter).
#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
fn filter_blocks<const N: usize>(lines: &[Line], pairs: &[Pair], bytes: &[[u8; 256]], limit: u8) -> [u64; N] {
    let n_lines = pairs.len() + bytes.len();
    assert!(lines.len() == N * n_lines);
    let lower = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (column, [low, high]) in pairs.iter().enumerate() {
        let (low, high) = (broadcast(low), broadcast(high));
        for (block, sums) in sums.iter_mut().enumerate() {
            let line = &lines[block * n_lines + column];
            let ahead = lines.as_ptr().wrapping_add(column * N + block + AHEAD.max(N * n_lines));
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            for (half, sum) in sums.iter_mut().enumerate() {
                let codes = load(line, half);
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), lower);
                *sum = _mm256_adds_epu8(*sum, _mm256_shuffle_epi8(low, _mm256_and_si256(codes, lower)));
                *sum = _mm256_adds_epu8(*sum, _mm256_shuffle_epi8(high, upper));
            }
        }
    }
    for (column, table) in (pairs.len()..).zip(bytes) {
        let changes = changes(table);
        for (block, sums) in sums.iter_mut().enumerate() {
            let line = &lines[block * n_lines + column];
            for (half, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_adds_epu8(*sum, look_up(&changes, load(line, half)));
            }
        }
    }
    let limit = _mm256_set1_epi8(limit as i8);
    let mut hits = [0; N];
    for (hits, &sums) in hits.iter_mut().zip(&sums) {
        *hits = mark(sums, limit);
    }
    hits
}
