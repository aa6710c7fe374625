//! AVX-512 VBMI: a whole byte table fits in four registers.
//!
//! `vpermi2b` looks up 64 codes at once in 128 entries, so two of them and a blend on the codes' top bit look up all
//! 256. Byte sums saturate at 255, which passes no limit.
#![allow(unsafe_code)]

use super::in_groups;
use crate::codes::packed::{BLOCK, Line};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 32.
const GROUP: usize = 8;

/// See [`ScanKernel::filter`](super::ScanKernel::filter).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limit: u8, ahead: isize, hits: &mut [u64]) {
    let group = |lines: &[Line]| filter_blocks::<GROUP>(lines, tables, limit, ahead);
    in_groups(lines, tables.len(), hits, group, |lines| filter_blocks(lines, tables, limit, ahead));
}

/// `N` blocks at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn filter_blocks<const N: usize>(lines: &[Line], tables: &[[u8; 256]], limit: u8, ahead: isize) -> [u64; N] {
    let m = tables.len();
    assert!(lines.len() == N * m);
    let mut sums = [_mm512_setzero_si512(); N];
    for (column, table) in tables.iter().enumerate() {
        let quarters = quarters(table);
        for (block, sum) in sums.iter_mut().enumerate() {
            let codes = load(&lines[block * m + column]);
            let asked = lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
            _mm_prefetch::<_MM_HINT_T0>(asked.cast());
            *sum = _mm512_adds_epu8(*sum, look_up(&quarters, codes));
        }
    }
    // An array's `map` is not compiled for AVX-512.
    let mut hits = [0; N];
    for (hits, &sum) in hits.iter_mut().zip(&sums) {
        *hits = _mm512_cmplt_epu8_mask(sum, _mm512_set1_epi8(limit as i8));
    }
    hits
}

/// A table in four registers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn quarters(table: &[u8; 256]) -> [__m512i; 4] {
    let quarters: &[Line; 4] = table.as_chunks().0.first_chunk().expect("256 = 4 · 64");
    [load(&quarters[0]), load(&quarters[1]), load(&quarters[2]), load(&quarters[3])]
}

/// The entries of the table for 64 codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn look_up(&[t0, t1, t2, t3]: &[__m512i; 4], codes: __m512i) -> __m512i {
    let low = _mm512_permutex2var_epi8(t0, codes, t1);
    let high = _mm512_permutex2var_epi8(t2, codes, t3);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high)
}

/// See [`ScanKernel::filter_long`](super::ScanKernel::filter_long).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) fn filter_long(lines: &[Line], tables: &[[u8; 256]], limit: u16, ahead: isize, hits: &mut [u64]) {
    let group = |lines: &[Line]| filter_long_blocks::<GROUP>(lines, tables, limit, ahead);
    in_groups(lines, tables.len(), hits, group, |lines| filter_long_blocks(lines, tables, limit, ahead));
}

/// `N` blocks at once. The 16-bit sums are split into those of even and odd vectors, by masks and shifts, which leave
/// the shuffle unit to the lookups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn filter_long_blocks<const N: usize>(
    lines: &[Line],
    tables: &[[u8; 256]],
    limit: u16,
    ahead: isize,
) -> [u64; N] {
    let m = tables.len();
    assert!(lines.len() == N * m);
    let even = _mm512_set1_epi16(0xff);
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    for (column, table) in tables.iter().enumerate() {
        let quarters = quarters(table);
        for (block, sums) in sums.iter_mut().enumerate() {
            let codes = load(&lines[block * m + column]);
            let asked = lines.as_ptr().wrapping_add(column * N + block).wrapping_byte_offset(ahead);
            _mm_prefetch::<_MM_HINT_T0>(asked.cast());
            let values = look_up(&quarters, codes);
            sums[0] = _mm512_adds_epu16(sums[0], _mm512_and_si512(values, even));
            sums[1] = _mm512_adds_epu16(sums[1], _mm512_srli_epi16::<8>(values));
        }
    }
    let mut hits = [0; N];
    for (hits, &sums) in hits.iter_mut().zip(&sums) {
        *hits = mark_long(sums, limit);
    }
    hits
}

/// One bit per 16-bit sum, of even vectors and of odd ones: whether it is below the limit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn mark_long([of_even, of_odd]: [__m512i; 2], limit: u16) -> u64 {
    let limit = _mm512_set1_epi16(limit as i16);
    let of_even = _mm512_movm_epi16(_mm512_cmplt_epu16_mask(of_even, limit));
    let of_odd = _mm512_movm_epi16(_mm512_cmplt_epu16_mask(of_odd, limit));
    _mm512_movepi8_mask(_mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, of_even, of_odd))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(line: &Line) -> __m512i {
    const { assert!(size_of::<Line>() == BLOCK && BLOCK == size_of::<__m512i>()) };
    // SAFETY: a line is 64 readable bytes, and an unaligned load has no other requirement.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}
