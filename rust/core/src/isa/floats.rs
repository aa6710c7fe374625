//! Arithmetic on as many 32-bit numbers as fit one register, for the matrix product and what is computed from it.
//!
//! Whether a compiler vectorises the product's plain loops depends on the build settings, both the crate's own and
//! those of programs that depend on it; when it did not, AVX2 took ten times as long. Loops over a few arrays also
//! became gathers from sixteen places each, which again took ten times as long. Results are those of the portable form:
//! `multiply_add` is rounded once, the other operations round each result.

#![allow(unsafe_code)] // to call intrinsics

use super::{Level, Portable};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The operations of an instruction set. They are called only from kernels that run on it: see [`run`](super::run).
pub(crate) trait Floats {
    /// [`LANES`](Self::LANES) numbers.
    type F: Copy;
    /// Numbers per register.
    const LANES: usize;

    /// Loads the first numbers of `from`, which must be long enough.
    fn load_floats(from: &[f32]) -> Self::F;
    /// Loads the first numbers of `from`, which must be long enough, from 16 bits; values are preserved exactly.
    fn load_f16(from: &[f16]) -> Self::F;
    /// Writes to the first numbers of `to`, which must be long enough.
    fn store_floats(v: Self::F, to: &mut [f32]);
    fn splat_float(value: f32) -> Self::F;
    /// a · b + c, rounded once.
    fn multiply_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn add_floats(a: Self::F, b: Self::F) -> Self::F;
    fn subtract_floats(a: Self::F, b: Self::F) -> Self::F;
    fn multiply_floats(a: Self::F, b: Self::F) -> Self::F;
    /// The elements of `v` where `a` is less than `b`, and 0 elsewhere.
    fn where_less(a: Self::F, b: Self::F, v: Self::F) -> Self::F;
}

impl Floats for Portable {
    type F = [f32; 8];
    const LANES: usize = 8;

    #[inline(always)]
    fn load_floats(from: &[f32]) -> Self::F {
        *from.first_chunk().expect("as many numbers")
    }

    #[inline(always)]
    fn load_f16(from: &[f16]) -> Self::F {
        let mut numbers = [0.0; Self::LANES];
        from[..Self::LANES].convert_to_f32_slice(&mut numbers);
        numbers
    }

    #[inline(always)]
    fn store_floats(v: Self::F, to: &mut [f32]) {
        to[..Self::LANES].copy_from_slice(&v);
    }

    #[inline(always)]
    fn splat_float(value: f32) -> Self::F {
        [value; Self::LANES]
    }

    #[inline(always)]
    fn multiply_add(a: Self::F, b: Self::F, mut c: Self::F) -> Self::F {
        for l in 0..Self::LANES {
            c[l] = if Self::FMA { a[l].mul_add(b[l], c[l]) } else { fused(a[l], b[l], c[l]) };
        }
        c
    }

    #[inline(always)]
    fn add_floats(mut a: Self::F, b: Self::F) -> Self::F {
        for l in 0..Self::LANES {
            a[l] += b[l];
        }
        a
    }

    #[inline(always)]
    fn subtract_floats(mut a: Self::F, b: Self::F) -> Self::F {
        for l in 0..Self::LANES {
            a[l] -= b[l];
        }
        a
    }

    #[inline(always)]
    fn multiply_floats(mut a: Self::F, b: Self::F) -> Self::F {
        for l in 0..Self::LANES {
            a[l] *= b[l];
        }
        a
    }

    #[inline(always)]
    fn where_less(a: Self::F, b: Self::F, mut v: Self::F) -> Self::F {
        for l in 0..Self::LANES {
            v[l] = if a[l] < b[l] { v[l] } else { 0.0 };
        }
        v
    }
}

/// `a · b + c`, rounded once: the result of `f32::mul_add`, without a function call if the processor has no such
/// instruction.
///
/// In f64 the product is exact. Its sum with `c` is rounded to odd: if inexact, to the neighbour whose last bit is 1.
/// No such number lies half-way between two f32, so rounding it again gives the right result (Boldo & Melquiond,
/// *Emulation of FMA and correctly rounded sums*, 2008).
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let back = sum - product;
    // The rounding error of the sum, exactly; NaN if the sum is not finite.
    let error = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    let even = u64::from((error > 0.0) | (error < 0.0)) & !bits;
    let (step, toward_zero) = (even & 1, (error.to_bits() ^ bits) >> 63);
    f64::from_bits(bits.wrapping_add(step).wrapping_sub((step & toward_zero) << 1)) as f32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::x86::{Avx2, Avx512};
    use super::Floats;
    use half::f16;
    use std::arch::x86_64::*;

    macro_rules! floats {
        ($level:ty, $register:ty, $lanes:literal, $load:ident, ($load_half:ident, $widen:ident), $store:ident, $splat:ident, $multiply_add:ident, $add:ident, $subtract:ident, $multiply:ident, |$a:ident, $b:ident, $v:ident| $where_less:expr) => {
            // SAFETY of all intrinsics below: `super::super::run` detected the instruction set before it entered the
            // kernel; loads and stores access slices that were checked to be long enough, at any alignment.
            impl Floats for $level {
                type F = $register;
                const LANES: usize = $lanes;

                #[inline(always)]
                fn load_floats(from: &[f32]) -> Self::F {
                    let from = &from[..Self::LANES];
                    // SAFETY: as above.
                    unsafe { $load(from.as_ptr()) }
                }

                #[inline(always)]
                fn load_f16(from: &[f16]) -> Self::F {
                    let from = &from[..Self::LANES];
                    // SAFETY: as above.
                    unsafe { $widen($load_half(from.as_ptr().cast())) }
                }

                #[inline(always)]
                fn store_floats(v: Self::F, to: &mut [f32]) {
                    let to = &mut to[..Self::LANES];
                    // SAFETY: as above.
                    unsafe { $store(to.as_mut_ptr(), v) }
                }

                #[inline(always)]
                fn splat_float(value: f32) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $splat(value) }
                }

                #[inline(always)]
                fn multiply_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $multiply_add(a, b, c) }
                }

                #[inline(always)]
                fn add_floats(a: Self::F, b: Self::F) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $add(a, b) }
                }

                #[inline(always)]
                fn subtract_floats(a: Self::F, b: Self::F) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $subtract(a, b) }
                }

                #[inline(always)]
                fn multiply_floats(a: Self::F, b: Self::F) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $multiply(a, b) }
                }

                #[inline(always)]
                fn where_less($a: Self::F, $b: Self::F, $v: Self::F) -> Self::F {
                    // SAFETY: as above.
                    unsafe { $where_less }
                }
            }
        };
    }
    floats!(
        Avx2,
        __m256,
        8,
        _mm256_loadu_ps,
        (_mm_loadu_si128, _mm256_cvtph_ps),
        _mm256_storeu_ps,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        |a, b, v| _mm256_and_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b), v)
    );
    floats!(
        Avx512,
        __m512,
        16,
        _mm512_loadu_ps,
        (_mm256_loadu_si256, _mm512_cvtph_ps),
        _mm512_storeu_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_mul_ps,
        |a, b, v| _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), v)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn fused_rounds_once(a: f32, b: f32, c: f32, near in -40i32..40, bit in 0u32..24) {
            let near = 2f32.powi(near);
            // Numbers with few significant bits often meet the middle between two f32; those of any size overflow and
            // underflow.
            let few = |x: f32| f32::from_bits(x.to_bits() & (!0 << bit));
            let ordinary = |x: f32| f32::from_bits(x.to_bits() & 0x807F_FFFF | 0x3F80_0000);
            for (a, b, c) in [
                (a, b, c),
                (few(a), few(b), few(c)),
                (ordinary(a), ordinary(b), ordinary(c) * near),
                (ordinary(few(a)), ordinary(few(b)), ordinary(few(c)) * near),
                (ordinary(a), ordinary(b), f32::INFINITY),
                (a, f32::MIN_POSITIVE, f32::from_bits(c.to_bits() & 0x807F_FFFF)),
            ] {
                let (got, want) = (fused(a, b, c), a.mul_add(b, c));
                prop_assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{a:e} · {b:e} + {c:e}: {got:e}, not {want:e}");
            }
        }
    }
}
