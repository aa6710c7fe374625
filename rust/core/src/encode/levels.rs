//! Vertical operations on scores in 16 bits, whole multiples of a step: 32 of them fit a register of AVX-512, and sums of
//! them are exact. As in [`lanes`](super::lanes), plain loops that the compiler turns into vector instructions.

use super::lanes::min;

/// Levels handled together.
pub(super) const LEVELS: usize = 32;

/// Levels of as many codewords, on a cache line of their own: one that straddles two is loaded twice.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Levels(pub(super) [i16; LEVELS]);

impl Levels {
    pub(super) const ZERO: Self = Self([0; LEVELS]);

    /// `f` of the levels of each lane. A result of its own and not written in place: the compiler would load and store
    /// them one by one, for fear that they overlap.
    #[inline(always)]
    fn with(&self, other: &Self, f: impl Fn(i16, i16) -> i16) -> Self {
        Self(std::array::from_fn(|l| f(self.0[l], other.0[l])))
    }
}

/// The level of codeword `k` in `table`.
#[inline(always)]
pub(super) fn get(table: &[Levels], k: usize) -> i16 {
    table[k / LEVELS].0[k % LEVELS]
}

/// Makes `level` that of codeword `k` in `table`.
#[inline(always)]
pub(super) fn set(table: &mut [Levels], k: usize, level: i16) {
    table[k / LEVELS].0[k % LEVELS] = level;
}

/// The smallest of each lane over `table`.
#[inline(always)]
pub(super) fn minima(table: &[Levels]) -> Levels {
    let mut minima = Levels([i16::MAX; LEVELS]);
    for levels in table {
        minima = minima.with(levels, i16::min);
    }
    minima
}

/// The smallest of all.
#[inline(always)]
pub(super) fn fold(levels: &Levels) -> i16 {
    levels.0.iter().fold(i16::MAX, |a, &b| a.min(b))
}

/// The first codeword with `level`, which is in `table`.
#[inline(always)]
pub(super) fn find(table: &[Levels], level: i16) -> usize {
    let mut first = [u16::MAX; LEVELS];
    for (i, levels) in table.iter().enumerate() {
        first = std::array::from_fn(|l| {
            let here = if levels.0[l] == level { (i * LEVELS + l) as u16 } else { u16::MAX };
            here.min(first[l])
        });
    }
    usize::from(first.iter().fold(u16::MAX, |a, &b| a.min(b)))
}

/// `table += to >> shift`.
#[inline(always)]
pub(super) fn add(table: &mut [Levels], to: &[Levels], shift: u32) {
    for (levels, to) in table.iter_mut().zip(to) {
        *levels = levels.with(to, |level, new| level.wrapping_add(new >> shift));
    }
}

/// `table += (to >> shift) − (from >> shift)`. Sums do not overflow; differences may on the way.
#[inline(always)]
pub(super) fn add_difference(table: &mut [Levels], to: &[Levels], from: &[Levels], shift: u32) {
    let all = table.iter_mut().zip(to.iter().zip(from));
    if shift == 0 {
        for (levels, (to, from)) in all {
            *levels = levels.with(&to.with(from, i16::wrapping_sub), i16::wrapping_add);
        }
    } else {
        for (levels, (to, from)) in all {
            let difference = to.with(from, |new, old| (new >> shift).wrapping_sub(old >> shift));
            *levels = levels.with(&difference, i16::wrapping_add);
        }
    }
}

/// `out = (table >> shift) + factor · row / 2¹⁶`, kept within 16 bits.
#[inline(always)]
pub(super) fn add_product(out: &mut [Levels], table: &[Levels], factor: i16, row: &[Levels], shift: u32) {
    for (out, (levels, row)) in out.iter_mut().zip(table.iter().zip(row)) {
        *out = levels.with(row, |level, value| {
            let product = (i32::from(factor) * i32::from(value)) >> 16;
            (level >> shift).saturating_add(product as i16)
        });
    }
}

/// `to = (values − middle) · factor` in whole numbers; what is +∞, or no number, becomes the largest.
#[inline(always)]
pub(super) fn round(to: &mut [Levels], values: &[f32], middle: f32, factor: f32) {
    const ZERO: f32 = 32_768.0;
    for (to, values) in to.iter_mut().zip(values.chunks_exact(LEVELS)) {
        for (to, value) in to.0.iter_mut().zip(values) {
            // Above 0, cutting off the fraction of a number and a half rounds it.
            let level = min(2.0 * ZERO - 1.0, (value - middle) * factor + (ZERO + 0.5)).max(0.0);
            *to = (level as i32 - ZERO as i32) as i16;
        }
    }
}
