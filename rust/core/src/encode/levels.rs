//! Vertical operations on scores in 16 bits, which are multiples of a step: 32 of them fit an AVX-512 register, and
//! sums of them are exact.

use crate::isa::{Level, WORDS};

/// Levels handled together.
pub(super) const LEVELS: usize = WORDS;

/// The levels of [`LEVELS`] codewords, aligned to a cache line: a register that straddles two lines is loaded twice.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct LevelBlock(pub(super) [i16; LEVELS]);

impl LevelBlock {
    pub(super) const ZERO: Self = Self([0; LEVELS]);
}

/// The level of codeword `k` in `table`.
#[inline(always)]
pub(super) fn get(table: &[LevelBlock], k: usize) -> i16 {
    table[k / LEVELS].0[k % LEVELS]
}

/// `to = (values − middle) · factor`, rounded to integers; +∞ and NaN become the largest integer.
#[inline(always)]
pub(super) fn round<L: Level>(to: &mut [LevelBlock], values: &[f32], middle: f32, factor: f32) {
    for (to, values) in to.iter_mut().zip(values.as_chunks::<LEVELS>().0) {
        L::store(L::round(values, middle, factor), &mut to.0);
    }
}
