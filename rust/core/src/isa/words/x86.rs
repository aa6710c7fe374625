//! The operations in AVX2 and AVX-512.

use super::super::x86::{Avx2, Avx512};
use super::{LARGEST, WORDS, Words, ZERO};
use std::arch::x86_64::*;

// SAFETY of all intrinsics below: `super::super::run` detected the instruction set before it entered the kernel, and
// loads read whole arrays, at any alignment.
impl Words for Avx2 {
    type V = [__m256i; 2];

    #[inline(always)]
    fn load(from: &[i16; WORDS]) -> Self::V {
        let halves = from.as_ptr().cast::<__m256i>();
        // SAFETY: as above.
        unsafe { [_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1))] }
    }

    #[inline(always)]
    fn round(values: &[f32; WORDS], middle: f32, factor: f32) -> Self::V {
        // SAFETY: as above.
        unsafe {
            let (middle, factor) = (_mm256_set1_ps(middle), _mm256_set1_ps(factor));
            let mut parts = [_mm256_setzero_si256(); 4];
            for (p, part) in parts.iter_mut().enumerate() {
                let values = _mm256_loadu_ps(values.as_ptr().add(8 * p));
                let scaled = _mm256_mul_ps(_mm256_sub_ps(values, middle), factor);
                let level = _mm256_add_ps(scaled, _mm256_set1_ps(ZERO + 0.5));
                let level = _mm256_min_ps(level, _mm256_set1_ps(LARGEST));
                let level = _mm256_cvttps_epi32(_mm256_max_ps(level, _mm256_setzero_ps()));
                *part = _mm256_sub_epi32(level, _mm256_set1_epi32(ZERO as i32));
            }
            // Packing works within halves of a register, so quarters are swapped back.
            [
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(parts[0], parts[1])),
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(parts[2], parts[3])),
            ]
        }
    }

    #[inline(always)]
    fn store(v: Self::V, to: &mut [i16; WORDS]) {
        let halves = to.as_mut_ptr().cast::<__m256i>();
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_si256(halves, v[0]);
            _mm256_storeu_si256(halves.add(1), v[1]);
        }
    }

    #[inline(always)]
    fn scale(v: Self::V, step: f32, start: f32, values: &[f32; WORDS], out: &mut [f32; WORDS]) {
        // SAFETY: as above.
        unsafe {
            let (step, start) = (_mm256_set1_ps(step), _mm256_set1_ps(start));
            let parts = [
                _mm256_castsi256_si128(v[0]),
                _mm256_extracti128_si256::<1>(v[0]),
                _mm256_castsi256_si128(v[1]),
                _mm256_extracti128_si256::<1>(v[1]),
            ];
            for (p, part) in parts.into_iter().enumerate() {
                let numbers = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(part));
                let scaled = _mm256_add_ps(start, _mm256_mul_ps(numbers, step));
                let sum = _mm256_add_ps(_mm256_loadu_ps(values.as_ptr().add(8 * p)), scaled);
                _mm256_storeu_ps(out.as_mut_ptr().add(8 * p), sum);
            }
        }
    }

    #[inline(always)]
    fn splat(value: i16) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_set1_epi16(value); 2] }
    }

    #[inline(always)]
    fn add(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_add_epi16(a[0], b[0]), _mm256_add_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn subtract(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_sub_epi16(a[0], b[0]), _mm256_sub_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn add_saturating(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_adds_epi16(a[0], b[0]), _mm256_adds_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn min(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_min_epi16(a[0], b[0]), _mm256_min_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn max(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_max_epi16(a[0], b[0]), _mm256_max_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply_high(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { [_mm256_mulhi_epi16(a[0], b[0]), _mm256_mulhi_epi16(a[1], b[1])] }
    }

    #[inline(always)]
    fn shift_right(a: Self::V, by: u32) -> Self::V {
        // SAFETY: as above.
        unsafe {
            let by = _mm_cvtsi32_si128(by as i32);
            [_mm256_sra_epi16(a[0], by), _mm256_sra_epi16(a[1], by)]
        }
    }

    #[inline(always)]
    fn select_less(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe {
            [
                _mm256_blendv_epi8(no[0], yes[0], _mm256_cmpgt_epi16(b[0], a[0])),
                _mm256_blendv_epi8(no[1], yes[1], _mm256_cmpgt_epi16(b[1], a[1])),
            ]
        }
    }

    #[inline(always)]
    fn least(levels: Self::V, keys: Self::V) -> (i16, i16) {
        // SAFETY: as above.
        unsafe {
            let level = least_of(levels);
            let all = _mm256_set1_epi16(level);
            // Keys are not negative: with all other lanes set to all ones except the sign, those are never the least.
            let other = |levels, keys| {
                let equal = _mm256_cmpeq_epi16(levels, all);
                _mm256_blendv_epi8(_mm256_set1_epi16(i16::MAX), keys, equal)
            };
            (level, least_of([other(levels[0], keys[0]), other(levels[1], keys[1])]))
        }
    }
}

/// The least of 32 numbers.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn least_of(v: [__m256i; 2]) -> i16 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let v = _mm256_min_epi16(v[0], v[1]);
        let v = _mm_min_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        // The instruction works on unsigned numbers.
        let sign = _mm_set1_epi16(i16::MIN);
        (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(v, sign))) as i16) ^ i16::MIN
    }
}

impl Words for Avx512 {
    type V = __m512i;

    #[inline(always)]
    fn load(from: &[i16; WORDS]) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn round(values: &[f32; WORDS], middle: f32, factor: f32) -> Self::V {
        // SAFETY: as above.
        unsafe {
            let (middle, factor) = (_mm512_set1_ps(middle), _mm512_set1_ps(factor));
            let mut halves = [_mm256_setzero_si256(); 2];
            for (p, half) in halves.iter_mut().enumerate() {
                let values = _mm512_loadu_ps(values.as_ptr().add(16 * p));
                let scaled = _mm512_mul_ps(_mm512_sub_ps(values, middle), factor);
                let level = _mm512_add_ps(scaled, _mm512_set1_ps(ZERO + 0.5));
                let level = _mm512_min_ps(level, _mm512_set1_ps(LARGEST));
                let level = _mm512_cvttps_epi32(_mm512_max_ps(level, _mm512_setzero_ps()));
                *half = _mm512_cvtepi32_epi16(_mm512_sub_epi32(level, _mm512_set1_epi32(ZERO as i32)));
            }
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(halves[0]), halves[1])
        }
    }

    #[inline(always)]
    fn store(v: Self::V, to: &mut [i16; WORDS]) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn scale(v: Self::V, step: f32, start: f32, values: &[f32; WORDS], out: &mut [f32; WORDS]) {
        // SAFETY: as above.
        unsafe {
            let (step, start) = (_mm512_set1_ps(step), _mm512_set1_ps(start));
            let halves = [_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v)];
            for (p, half) in halves.into_iter().enumerate() {
                let numbers = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(half));
                let scaled = _mm512_add_ps(start, _mm512_mul_ps(numbers, step));
                let sum = _mm512_add_ps(_mm512_loadu_ps(values.as_ptr().add(16 * p)), scaled);
                _mm512_storeu_ps(out.as_mut_ptr().add(16 * p), sum);
            }
        }
    }

    #[inline(always)]
    fn splat(value: i16) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi16(value) }
    }

    #[inline(always)]
    fn add(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_add_epi16(a, b) }
    }

    #[inline(always)]
    fn subtract(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_sub_epi16(a, b) }
    }

    #[inline(always)]
    fn add_saturating(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_adds_epi16(a, b) }
    }

    #[inline(always)]
    fn min(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_min_epi16(a, b) }
    }

    #[inline(always)]
    fn max(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_max_epi16(a, b) }
    }

    #[inline(always)]
    fn multiply_high(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_mulhi_epi16(a, b) }
    }

    #[inline(always)]
    fn shift_right(a: Self::V, by: u32) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_sra_epi16(a, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    fn select_less(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: as above.
        unsafe { _mm512_mask_mov_epi16(no, _mm512_cmplt_epi16_mask(a, b), yes) }
    }

    #[inline(always)]
    fn least(levels: Self::V, keys: Self::V) -> (i16, i16) {
        // SAFETY: as above.
        unsafe {
            let halves = |v| [_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v)];
            let level = least_of(halves(levels));
            let equal = _mm512_cmpeq_epi16_mask(levels, _mm512_set1_epi16(level));
            let keys = _mm512_mask_mov_epi16(_mm512_set1_epi16(i16::MAX), equal, keys);
            (level, least_of(halves(keys)))
        }
    }
}
