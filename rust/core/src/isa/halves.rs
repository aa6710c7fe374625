//! Arithmetic on 16 numbers of 16 bits, half the width of [`Words`](super::Words): one register of AVX2.
//!
//! For tables of 16 numbers whose minimum and its place are needed again and again: a wider register would be half
//! empty. As in `Words`, the portable form is the definition.

#![allow(unsafe_code)] // to call intrinsics

use super::Portable;

/// Numbers handled together.
pub(crate) const HALF: usize = 16;

/// The operations of an instruction set. They are called only from kernels that run on it: see [`run`](super::run).
pub(crate) trait Halves {
    /// [`HALF`] numbers.
    type H: Copy;

    fn load_half(from: &[i16; HALF]) -> Self::H;
    fn store_half(v: Self::H, to: &mut [i16; HALF]);
    fn splat_half(value: i16) -> Self::H;
    /// a + b, for sums that do not overflow.
    fn add_half(a: Self::H, b: Self::H) -> Self::H;
    /// a + b, saturating at 16 bits.
    fn add_saturating_half(a: Self::H, b: Self::H) -> Self::H;
    fn max_half(a: Self::H, b: Self::H) -> Self::H;
    /// ⌊a · b / 2¹⁶⌋.
    fn multiply_high_half(a: Self::H, b: Self::H) -> Self::H;
    /// ⌊a / 2ᵇ⌋, b < 16.
    fn shift_right_half(a: Self::H, by: u32) -> Self::H;
    /// The least number and the first place where it occurs.
    fn least_half(v: Self::H) -> (i16, usize);
}

impl Halves for Portable {
    type H = [i16; HALF];

    #[inline(always)]
    fn load_half(from: &[i16; HALF]) -> Self::H {
        *from
    }

    #[inline(always)]
    fn store_half(v: Self::H, to: &mut [i16; HALF]) {
        *to = v;
    }

    #[inline(always)]
    fn splat_half(value: i16) -> Self::H {
        [value; HALF]
    }

    #[inline(always)]
    fn add_half(mut a: Self::H, b: Self::H) -> Self::H {
        for l in 0..HALF {
            a[l] = a[l].wrapping_add(b[l]);
        }
        a
    }

    #[inline(always)]
    fn add_saturating_half(mut a: Self::H, b: Self::H) -> Self::H {
        for l in 0..HALF {
            a[l] = a[l].saturating_add(b[l]);
        }
        a
    }

    #[inline(always)]
    fn max_half(mut a: Self::H, b: Self::H) -> Self::H {
        for l in 0..HALF {
            a[l] = a[l].max(b[l]);
        }
        a
    }

    #[inline(always)]
    fn multiply_high_half(mut a: Self::H, b: Self::H) -> Self::H {
        for l in 0..HALF {
            a[l] = ((i32::from(a[l]) * i32::from(b[l])) >> 16) as i16;
        }
        a
    }

    #[inline(always)]
    fn shift_right_half(mut a: Self::H, by: u32) -> Self::H {
        for value in &mut a {
            *value >>= by;
        }
        a
    }

    #[inline(always)]
    fn least_half(v: Self::H) -> (i16, usize) {
        // Number and place combined: among equal numbers the lower place is less.
        let mut least = i32::MAX;
        for (l, &value) in v.iter().enumerate() {
            least = least.min((i32::from(value) << 8) + l as i32);
        }
        ((least >> 8) as i16, (least & 0xFF) as usize)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::x86::{Avx2, Avx512};
    use super::{HALF, Halves};
    use std::arch::x86_64::*;

    macro_rules! halves {
        ($level:ty) => {
            // SAFETY of all intrinsics below: `super::super::run` detected AVX2, which every AVX-512 machine has too,
            // before it entered the kernel; loads and stores access whole arrays, at any alignment.
            impl Halves for $level {
                type H = __m256i;

                #[inline(always)]
                fn load_half(from: &[i16; HALF]) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
                }

                #[inline(always)]
                fn store_half(v: Self::H, to: &mut [i16; HALF]) {
                    // SAFETY: as above.
                    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) }
                }

                #[inline(always)]
                fn splat_half(value: i16) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_set1_epi16(value) }
                }

                #[inline(always)]
                fn add_half(a: Self::H, b: Self::H) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_add_epi16(a, b) }
                }

                #[inline(always)]
                fn add_saturating_half(a: Self::H, b: Self::H) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_adds_epi16(a, b) }
                }

                #[inline(always)]
                fn max_half(a: Self::H, b: Self::H) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_max_epi16(a, b) }
                }

                #[inline(always)]
                fn multiply_high_half(a: Self::H, b: Self::H) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_mulhi_epi16(a, b) }
                }

                #[inline(always)]
                fn shift_right_half(a: Self::H, by: u32) -> Self::H {
                    // SAFETY: as above.
                    unsafe { _mm256_sra_epi16(a, _mm_cvtsi32_si128(by as i32)) }
                }

                #[inline(always)]
                fn least_half(v: Self::H) -> (i16, usize) {
                    // SAFETY: as above.
                    unsafe {
                        // The instruction works on unsigned numbers, and returns the least number below its place.
                        let v = _mm256_xor_si256(v, _mm256_set1_epi16(i16::MIN));
                        let of = |v| (_mm_cvtsi128_si32(_mm_minpos_epu16(v)) as u32).rotate_left(16);
                        let (low, high) =
                            (of(_mm256_castsi256_si128(v)), of(_mm256_extracti128_si256::<1>(v)));
                        // No branch: it would be mispredicted every other time.
                        let least = low.min(high + 8);
                        (((least >> 16) as i16) ^ i16::MIN, (least & 0xF) as usize)
                    }
                }
            }
        };
    }
    halves!(Avx2);
    halves!(Avx512);
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Kernel, Level, run};
    use super::*;
    use proptest::prelude::*;

    type Numbers = [i16; HALF];

    /// Every operation on some numbers.
    struct All<'a>(&'a [Numbers; 2], u32);

    impl Kernel for All<'_> {
        type Output = (Vec<Numbers>, (i16, usize));
        #[inline(always)]
        fn run<L: Level>(self) -> Self::Output {
            let [a, b] = self.0.map(|numbers| L::load_half(&numbers));
            let results = [
                L::add_half(L::shift_right_half(a, 1), L::shift_right_half(b, 1)),
                L::splat_half(self.0[0][0]),
                L::add_saturating_half(a, b),
                L::max_half(a, b),
                L::multiply_high_half(a, b),
                L::shift_right_half(a, self.1),
            ];
            let store = |result| {
                let mut numbers = [0; HALF];
                L::store_half(result, &mut numbers);
                numbers
            };
            (results.map(store).to_vec(), L::least_half(a))
        }
    }

    proptest! {
        #[test]
        fn every_isa_computes_the_same(seed in any::<u64>(), by in 0..16u32, equal in any::<bool>()) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = (state >> 40) as i16;
                if equal { value % 3 } else { value }
            };
            let numbers: [Numbers; 2] = std::array::from_fn(|_| std::array::from_fn(|_| next()));
            let want = run(Isa::Scalar, All(&numbers, by));
            let least = *numbers[0].iter().min().unwrap();
            prop_assert_eq!(want.1, (least, numbers[0].iter().position(|&value| value == least).unwrap()));
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                prop_assert_eq!(run(isa, All(&numbers, by)), want.clone(), "{}", isa.name());
            }
        }
    }
}
