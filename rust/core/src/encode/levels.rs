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
}

/// The level of codeword `k` in `table`.
#[inline(always)]
pub(super) fn get(table: &[Levels], k: usize) -> i16 {
    table[k / LEVELS].0[k % LEVELS]
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
