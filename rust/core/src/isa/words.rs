//! Arithmetic on 32 numbers of 16 bits: one register of AVX-512, two of AVX2.
//!
//! Local search spends its time here, and the operations it needs (a minimum and its place, the upper half of a
//! product) are what compilers vectorise least reliably. The portable form is the definition of each operation; the
//! others must agree with it, and a test compares them.

#![allow(unsafe_code)] // to call intrinsics

use super::Portable;

/// Numbers handled together.
pub(crate) const WORDS: usize = 32;

/// The offset that is added before a number is rounded: above 0, truncating a number plus a half rounds it.
const ZERO: f32 = 32_768.0;
/// The largest 16-bit number, plus that offset.
const LARGEST: f32 = 65_535.0;

/// The operations of an instruction set. They are called only from kernels that run on it: see [`run`](super::run).
pub(crate) trait Words {
    /// [`WORDS`] numbers.
    type V: Copy;

    fn load(from: &[i16; WORDS]) -> Self::V;
    /// (values − middle) · factor rounded to integers, halves up; the largest integer for larger values and for NaN.
    fn round(values: &[f32; WORDS], middle: f32, factor: f32) -> Self::V;
    fn store(v: Self::V, to: &mut [i16; WORDS]);
    /// `out = values + (start + step · v)`.
    fn scale(v: Self::V, step: f32, start: f32, values: &[f32; WORDS], out: &mut [f32; WORDS]);
    fn splat(value: i16) -> Self::V;
    /// a + b, for sums that do not overflow.
    fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a − b, for differences that do not overflow.
    fn subtract(a: Self::V, b: Self::V) -> Self::V;
    /// a + b, saturating at 16 bits.
    fn add_saturating(a: Self::V, b: Self::V) -> Self::V;
    fn min(a: Self::V, b: Self::V) -> Self::V;
    fn max(a: Self::V, b: Self::V) -> Self::V;
    /// ⌊a · b / 2¹⁶⌋.
    fn multiply_high(a: Self::V, b: Self::V) -> Self::V;
    /// ⌊a / 2ᵇ⌋, b < 16.
    fn shift_right(a: Self::V, by: u32) -> Self::V;
    /// The elements of `yes` where `a < b`, and those of `no` elsewhere.
    fn select_less(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The least of `levels` (first), and the least of `keys` among the elements equal to it.
    fn least(levels: Self::V, keys: Self::V) -> (i16, i16);
}

impl Words for Portable {
    type V = [i16; WORDS];

    #[inline(always)]
    fn load(from: &[i16; WORDS]) -> Self::V {
        *from
    }

    #[inline(always)]
    fn round(values: &[f32; WORDS], middle: f32, factor: f32) -> Self::V {
        values.map(|value| {
            let level = (value - middle) * factor + (ZERO + 0.5);
            // Like `min` of the instruction sets: NaN becomes the largest.
            let level = if level < LARGEST { level } else { LARGEST };
            (level.max(0.0) as i32 - ZERO as i32) as i16
        })
    }

    #[inline(always)]
    fn store(v: Self::V, to: &mut [i16; WORDS]) {
        *to = v;
    }

    #[inline(always)]
    fn scale(v: Self::V, step: f32, start: f32, values: &[f32; WORDS], out: &mut [f32; WORDS]) {
        for l in 0..WORDS {
            out[l] = values[l] + (start + f32::from(v[l]) * step);
        }
    }

    #[inline(always)]
    fn splat(value: i16) -> Self::V {
        [value; WORDS]
    }

    #[inline(always)]
    fn add(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = a[l].wrapping_add(b[l]);
        }
        a
    }

    #[inline(always)]
    fn subtract(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = a[l].wrapping_sub(b[l]);
        }
        a
    }

    #[inline(always)]
    fn add_saturating(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = a[l].saturating_add(b[l]);
        }
        a
    }

    #[inline(always)]
    fn min(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = a[l].min(b[l]);
        }
        a
    }

    #[inline(always)]
    fn max(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = a[l].max(b[l]);
        }
        a
    }

    #[inline(always)]
    fn multiply_high(mut a: Self::V, b: Self::V) -> Self::V {
        for l in 0..WORDS {
            a[l] = ((i32::from(a[l]) * i32::from(b[l])) >> 16) as i16;
        }
        a
    }

    #[inline(always)]
    fn shift_right(mut a: Self::V, by: u32) -> Self::V {
        for value in &mut a {
            *value >>= by;
        }
        a
    }

    #[inline(always)]
    fn select_less(a: Self::V, b: Self::V, yes: Self::V, mut no: Self::V) -> Self::V {
        for l in 0..WORDS {
            // A bit mask: the compiler turns it into vector code, but `if` into branches.
            let less = -i16::from(a[l] < b[l]);
            no[l] ^= (no[l] ^ yes[l]) & less;
        }
        no
    }

    #[inline(always)]
    fn least(levels: Self::V, keys: Self::V) -> (i16, i16) {
        let level = levels.iter().fold(i16::MAX, |least, &level| least.min(level));
        let mut key = i16::MAX;
        for l in 0..WORDS {
            key = key.min(keys[l] | -i16::from(levels[l] != level) & i16::MAX);
        }
        (level, key)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests {
    use super::super::{Isa, Kernel, Level, run};
    use super::*;
    use proptest::prelude::*;

    type Numbers = [i16; WORDS];

    /// Every operation, applied to some numbers.
    struct All<'a>(&'a [Numbers; 4], u32, [f32; WORDS]);

    impl Kernel for All<'_> {
        type Output = (Vec<Vec<i16>>, [u32; WORDS]);
        #[inline(always)]
        fn run<L: Level>(self) -> Self::Output {
            let [a, b, c, d] = self.0.map(|numbers| L::load(&numbers));
            let halved = L::add(L::shift_right(a, 1), L::shift_right(b, 1));
            let results = [
                halved,
                L::subtract(L::shift_right(a, 1), L::shift_right(b, 1)),
                L::splat(self.0[0][0]),
                L::add_saturating(a, b),
                L::min(a, b),
                L::max(a, b),
                L::multiply_high(a, b),
                L::shift_right(a, self.1),
                L::select_less(a, b, c, d),
                L::round(&self.2, f32::from(self.0[0][0]), f32::from(self.0[0][1]) * 1e-4),
            ];
            let (level, key) = L::least(a, L::max(b, L::splat(0)));
            let mut all = vec![vec![level, key]];
            for result in results {
                let mut numbers = [0; WORDS];
                L::store(result, &mut numbers);
                all.push(numbers.to_vec());
            }
            let mut out = [0.0; WORDS];
            L::scale(a, self.2[7], self.2[6], &self.2, &mut out);
            (all, out.map(|x| if x.is_nan() { 0 } else { x.to_bits() }))
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
            let numbers: [Numbers; 4] = std::array::from_fn(|_| std::array::from_fn(|_| next()));
            let mut values: [f32; WORDS] = std::array::from_fn(|_| f32::from(next()) * 0.5 + 0.25 * f32::from(next() % 3));
            values[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38]);
            let want = run(Isa::Scalar, All(&numbers, by, values));
            prop_assert_eq!(want.0.last().unwrap()[0], i16::MAX);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                prop_assert_eq!(run(isa, All(&numbers, by, values)), want.clone(), "{}", isa.name());
            }
        }
    }
}
