//! AVX2: `pshufb` looks up 32 nibbles at once.
//!
//! For 32 bytes, which hold 64 codes: a load, a shift, two ands, two lookups and two sums; if sums have 16 bits, another
//! sum and a shift.
#![allow(unsafe_code)]

use super::{LINES, Pair, TOGETHER, gather};
use crate::codes::packed::Line;
use crate::scan::kernel::avx2::{broadcast, changes, load, look_up, mark, mark_long};
use crate::scan::kernel::{Blocks, in_groups};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 16.
const GROUP: usize = 4;
/// The same for sums of 16 bits.
const LONG_GROUP: usize = 2;

/// See [`ScanKernel::filter`](crate::scan::kernel::ScanKernel::filter).
#[target_feature(enable = "avx2")]
pub(in crate::scan::kernel) fn filter(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u8,
    ahead: isize,
    hits: &mut [u64],
) {
    let group = |lines: &[Line]| filter_blocks::<GROUP>(lines, pairs, bytes, limit, ahead);
    let one = |lines: &[Line]| filter_blocks(lines, pairs, bytes, limit, ahead);
    in_groups(lines, pairs.len() + bytes.len(), hits, group, one);
}

/// `N` blocks at once.
#[inline]
#[target_feature(enable = "avx2")]
fn filter_blocks<const N: usize>(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u8,
    ahead: isize,
) -> [u64; N] {
    let n_lines = pairs.len() + bytes.len();
    assert!(lines.len() == N * n_lines);
    let lower = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (column, [low, high]) in pairs.iter().enumerate() {
        let (low, high) = (broadcast(low), broadcast(high));
        for (block, sums) in sums.iter_mut().enumerate() {
            let line = &lines[block * n_lines + column];
            let asked = lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
            _mm_prefetch::<_MM_HINT_T0>(asked.cast());
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

/// See [`ScanKernel::filter_long`](crate::scan::kernel::ScanKernel::filter_long).
#[target_feature(enable = "avx2")]
pub(in crate::scan::kernel) fn filter_long(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u16,
    ahead: isize,
    hits: &mut [u64],
) {
    let group = |lines: &[Line]| filter_long_blocks::<LONG_GROUP>(lines, pairs, bytes, limit, ahead);
    let one = |lines: &[Line]| filter_long_blocks(lines, pairs, bytes, limit, ahead);
    in_groups(lines, pairs.len() + bytes.len(), hits, group, one);
}

/// `N` blocks at once. Numbers of 16 bits hold the sums of two vectors, whole, and that of the second alone: the
/// difference is the first, since no sum exceeds 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn filter_long_blocks<const N: usize>(
    lines: &[Line],
    pairs: &[Pair],
    bytes: &[[u8; 256]],
    limit: u16,
    ahead: isize,
) -> [u64; N] {
    let n_lines = pairs.len() + bytes.len();
    assert!(lines.len() == N * n_lines);
    let lower = _mm256_set1_epi8(15);
    let mut sums = [[[_mm256_setzero_si256(); 2]; 2]; N];
    for (column, [low, high]) in pairs.iter().enumerate() {
        let (low, high) = (broadcast(low), broadcast(high));
        for (block, sums) in sums.iter_mut().enumerate() {
            let line = &lines[block * n_lines + column];
            let asked = lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
            _mm_prefetch::<_MM_HINT_T0>(asked.cast());
            for (half, sums) in sums.iter_mut().enumerate() {
                let codes = load(line, half);
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), lower);
                let values = _mm256_shuffle_epi8(low, _mm256_and_si256(codes, lower));
                add(sums, _mm256_adds_epu8(values, _mm256_shuffle_epi8(high, upper)));
            }
        }
    }
    for (column, table) in (pairs.len()..).zip(bytes) {
        let changes = changes(table);
        for (block, sums) in sums.iter_mut().enumerate() {
            let line = &lines[block * n_lines + column];
            for (half, sums) in sums.iter_mut().enumerate() {
                add(sums, look_up(&changes, load(line, half)));
            }
        }
    }
    let mut hits = [0; N];
    for (hits, sums) in hits.iter_mut().zip(sums) {
        // An array's `map` is not compiled for AVX2.
        let [low, high] = sums;
        *hits = mark_long([apart(low), apart(high)], limit);
    }
    hits
}

/// Adds 32 bytes to sums of two vectors each, and to those of the second alone.
#[inline]
#[target_feature(enable = "avx2")]
fn add([both, second]: &mut [__m256i; 2], values: __m256i) {
    *both = _mm256_add_epi16(*both, values);
    *second = _mm256_add_epi16(*second, _mm256_srli_epi16::<8>(values));
}

/// The sums of the first vectors and of the second.
#[inline]
#[target_feature(enable = "avx2")]
fn apart([both, second]: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_sub_epi16(both, _mm256_slli_epi16::<8>(second)), second]
}

/// See [`ScanKernel::sums`](crate::scan::kernel::ScanKernel::sums). `vpermps` looks up 8 numbers, by the lower three
/// bits of each index; the fourth bit chooses between two such lookups.
#[target_feature(enable = "avx2")]
pub(in crate::scan::kernel) fn sums(
    blocks: &Blocks<'_>,
    vectors: &[u16],
    tables: &[[f32; 16]],
    base: f32,
    scores: &mut Vec<f32>,
) {
    let mut codes = [[0; TOGETHER]; LINES];
    for vectors in vectors.chunks(TOGETHER) {
        let mut sums = [_mm256_set1_ps(base); 2];
        for (at, tables) in tables.chunks(2 * LINES).enumerate() {
            let codes = &mut codes[..tables.len().div_ceil(2)];
            gather(blocks, at * LINES, vectors, codes);
            for (codes, tables) in codes.iter().zip(tables.chunks(2)) {
                // SAFETY: there are 16 readable bytes, and an unaligned load has no other requirement.
                let all = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
                let halves = [_mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(all))];
                for (sum, codes) in sums.iter_mut().zip(halves) {
                    *sum = _mm256_add_ps(*sum, look_up_floats(&tables[0], codes));
                    if let Some(high) = tables.get(1) {
                        *sum = _mm256_add_ps(*sum, look_up_floats(high, _mm256_srli_epi32::<4>(codes)));
                    }
                }
            }
        }
        let mut found = [[0.0; TOGETHER / 2]; 2];
        for (found, sum) in found.iter_mut().zip(sums) {
            // SAFETY: there is room for 8 numbers.
            unsafe { _mm256_storeu_ps(found.as_mut_ptr(), sum) };
        }
        scores.extend_from_slice(&found.as_flattened()[..vectors.len()]);
    }
}

/// The entries for the lower four bits of each code.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up_floats(table: &[f32; 16], codes: __m256i) -> __m256 {
    // SAFETY: there are 16 readable numbers; the unaligned loads take the first half and the second.
    let (low, high) = unsafe { (_mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8))) };
    let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
    _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes), is_high)
}
