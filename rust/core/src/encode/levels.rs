//! Vertical operations on scores in 16 bits, whole multiples of a step: 32 of them fit a register of AVX-512, and sums of
//! them are exact.

use crate::isa::{Level, WORDS};

/// Levels handled together.
pub(super) const LEVELS: usize = WORDS;

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
pub(super) fn round<L: Level>(to: &mut [Levels], values: &[f32], middle: f32, factor: f32) {
    for (to, values) in to.iter_mut().zip(values.as_chunks::<LEVELS>().0) {
        L::store(L::round(values, middle, factor), &mut to.0);
    }
}
