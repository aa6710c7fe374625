//! AVX-512 VBMI: a whole byte table lives in four registers.
//!
//! `vpermi2b` looks up 64 codes at once in 128 entries, so two of them and a blend on the codes' upper bit look up all
//! 256. Byte sums saturate: at most 255 is ever compared with (limits are at most 255), so a sum cut off there fails as
//! it should.
#![allow(unsafe_code)]

use crate::packed::{BLOCK, Line};
use std::arch::x86_64::*;

/// Blocks that share each load of a table: their sums are eight registers of the 32.
const GROUP: usize = 8;
/// How far ahead, in lines, codes are asked for, at least: the kernel goes from block to block for each table, which
/// the hardware does not foresee. One query over 10⁶ codes: 16 bytes 345 → 257 µs, 32 bytes 1330 → 940 µs; over
/// 16 · 10⁶ codes of 8 bytes 6.6 → 3.9 ms.
const AHEAD: usize = 128;

/// See [`Kernel::filter`](super::kernel::Kernel::filter).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) fn filter(lines: &[Line], tables: &[[u8; 256]], limits: &[u8], hits: &mut [u64]) {
    let m = tables.len();
    let (groups, rest) = hits.as_chunks_mut::<GROUP>();
    let (limit_groups, rest_limits) = limits.as_chunks::<GROUP>();
    let done = groups.len() * GROUP * m;
    for ((hits, limits), lines) in groups.iter_mut().zip(limit_groups).zip(lines.chunks_exact(GROUP * m)) {
        filter_blocks(lines, tables, limits, hits);
    }
    let rest = rest.iter_mut().zip(rest_limits).zip(lines[done..].chunks_exact(m));
    for ((hits, limit), lines) in rest {
        filter_blocks(lines, tables, &[*limit], std::array::from_mut(hits));
    }
}

/// `N` blocks at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn filter_blocks<const N: usize>(
    lines: &[Line],
    tables: &[[u8; 256]],
    limits: &[u8; N],
    hits: &mut [u64; N],
) {
    let m = tables.len();
    assert!(lines.len() == N * m);
    let mut sums = [_mm512_setzero_si512(); N];
    for (column, table) in tables.iter().enumerate() {
        let [t0, t1, t2, t3]: [Line; 4] = *table.as_chunks().0.first_chunk().expect("256 = 4 · 64");
        let (t0, t1, t2, t3) = (load(&t0), load(&t1), load(&t2), load(&t3));
        for (block, sum) in sums.iter_mut().enumerate() {
            let codes = load(&lines[block * m + column]);
            let ahead = lines.as_ptr().wrapping_add(column * N + block + AHEAD.max(N * m));
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            let low = _mm512_permutex2var_epi8(t0, codes, t1);
            let high = _mm512_permutex2var_epi8(t2, codes, t3);
            let values = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
            *sum = _mm512_adds_epu8(*sum, values);
        }
    }
    for ((hits, sum), &limit) in hits.iter_mut().zip(sums).zip(limits) {
        *hits = _mm512_cmplt_epu8_mask(sum, _mm512_set1_epi8(limit as i8));
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &Line) -> __m512i {
    const { assert!(size_of::<Line>() == BLOCK && BLOCK == size_of::<__m512i>()) };
    // SAFETY: a line is 64 readable bytes, and an unaligned load asks for no more.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}
