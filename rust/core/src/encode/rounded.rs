//! The scores of some vectors as local search reads them: integer steps in 16 bits, codebook by codebook.
//!
//! Each vector has its own step, that of the Gram matrix or a power of two times it, such that sums with Gram rows fit.
//! A score is relative to the middle of its codebook's scores: a common offset does not change which codeword is best.

use super::lanes;
use super::levels::{self, LEVELS, LevelBlock};
use super::space::{Space, Vector};
use super::state::State;
use crate::isa::Level;
use std::ops::Range;

/// The largest deviation of the vector's own scores from their middle, in steps. Together with the sums of Gram rows,
/// and half a step for each rounded number, it fits 16 bits.
const OWN: f32 = 12_000.0;

/// Vectors, with their own scores and projections.
#[derive(Default)]
pub(super) struct Rounded {
    pub(super) states: Vec<State>,
    /// The vectors' own scores, in steps: `[codebook][vector]`, one codebook where all share it.
    pub(super) own: Vec<LevelBlock>,
    /// Their projections, relative to the middle of their codebook, as fractions of `reach`; laid out like `own`.
    pub(super) projections: Vec<LevelBlock>,
    /// One vector's scores before they are rounded.
    scores: Vec<f32>,
    /// Middle and half of the width of its numbers, by codebook.
    spreads: Vec<(f32, f32)>,
}

impl Rounded {
    /// Makes room for `n` vectors.
    pub(super) fn prepare(&mut self, space: &Space<'_>, n: usize) {
        let size = space.n_books() * space.stride / LEVELS * n;
        self.states.clear();
        self.states.resize(n, State::default());
        self.own.resize(size, LevelBlock::ZERO);
        if space.beta > 0.0 {
            self.projections.resize(size, LevelBlock::ZERO);
        }
    }

    /// Stores the scores of vector `v`, rounded to integer steps.
    #[inline(always)]
    pub(super) fn fill<L: Level>(&mut self, space: &Space<'_>, v: usize, vector: Vector<'_>) {
        let Self { states, own, projections, scores, spreads } = self;
        let (n, stride) = (states.len(), space.stride);
        let state = &mut states[v];
        let size = space.n_books() * stride;
        scores.clear();
        scores.extend_from_slice(&vector.scores[..size]);
        if space.beta > 0.0 {
            spread(spreads, &vector.projections[..size], stride);
            for &(_, half) in &*spreads {
                state.reach = state.reach.max(half);
            }
            let factor = if state.reach > 0.0 { f32::from(i16::MAX) / state.reach } else { 0.0 };
            state.offset = -vector.target;
            for (book, &(middle, _)) in spreads.iter().enumerate() {
                state.offset += middle * if space.shared { space.n_codebooks as f32 } else { 1.0 };
                let values = &vector.projections[book * stride..][..stride];
                levels::round::<L>(&mut projections[place(space, n, book, v)], values, middle, factor);
                // The scores hold 2βep for e = −‖x‖; a turn adds 2β(e + middle)(p − middle) for the true e.
                let scores = &mut scores[book * stride..][..stride];
                lanes::add_multiple(scores, 2.0 * space.beta * (vector.target - middle), values);
            }
        }
        spread(spreads, scores, stride);
        let half = spreads.iter().fold(0.0f32, |a, &(_, half)| a.max(half));
        let mut step = space.gram.step;
        while half > OWN * step && state.shift < i16::BITS - 1 {
            step *= 2.0;
            state.shift += 1;
        }
        if half > OWN * step {
            // Next to such scores, all products of codewords vanish.
            step = half / OWN;
        }
        state.steps = if step > 0.0 { step.recip() } else { 0.0 };
        for ((book, scores), &(middle, _)) in scores.chunks_exact(stride).enumerate().zip(&*spreads) {
            levels::round::<L>(&mut own[place(space, n, book, v)], scores, middle, state.steps);
        }
    }

    /// The range of the levels of vector `v` for the codewords of `book`.
    #[inline(always)]
    pub(super) fn place(&self, space: &Space<'_>, book: usize, v: usize) -> Range<usize> {
        place(space, self.states.len(), book, v)
    }
}

/// Writes (middle, half of the width) of each `stride` of `values`.
#[inline(always)]
fn spread(spreads: &mut Vec<(f32, f32)>, values: &[f32], stride: usize) {
    spreads.clear();
    for values in values.chunks_exact(stride) {
        spreads.push(lanes::spread(values));
    }
}

/// The range of the levels of vector `v`, out of `n`, for the codewords of `book`.
#[inline(always)]
fn place(space: &Space<'_>, n: usize, book: usize, v: usize) -> Range<usize> {
    let width = space.gram.width();
    (book * n + v) * width..(book * n + v + 1) * width
}
