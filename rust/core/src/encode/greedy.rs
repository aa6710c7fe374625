//! The paper's greedy encoder: at each step the codebook *and* codeword that leave the smallest loss.
//!
//! With the score of every codeword as computed in `scores`, choosing c adds 2⟨c, c_mk⟩, a row of the Gram matrix, and
//! 2βpp_mk to the remaining scores; the smallest of those is the next choice. That takes O(MKd + M²K) per vector;
//! recomputing residuals would take O(M²Kd).
//!
//! Ties go to the lower codebook, then the lower codeword. If all sums lie far from the origin the encoder centers the
//! codebooks first (see `normalise`); the greedy choice is then that of the centered problem.

use super::lanes::{self, Lanes};
use crate::codebooks::MAX_TOGETHER;
use crate::isa;

/// Vectors that take each step together: while one adds its Gram row (from beyond the L2 cache for M = 8, K = 256), the
/// rows of the others are being fetched. On Zen 5, 4 vectors take 12 % less time than 1; more gain nothing.
const TOGETHER: usize = 4;

/// The scores of one chunk of vectors, and what updates them.
pub(super) struct Greedy<'a> {
    /// `columns` scores per vector, of which the first `books · stride` count; padding is +∞.
    pub(super) scores: &'a mut [f32],
    /// Projections on the vector's direction, laid out like the scores; empty if β is 0.
    pub(super) projections: &'a [f32],
    pub(super) beta: f32,
    pub(super) gram: &'a [f32],
    pub(super) columns: usize,
    /// Codewords per codebook, padded to whole lanes.
    pub(super) stride: usize,
    pub(super) n_codebooks: usize,
}

impl Greedy<'_> {
    /// Chooses one codeword from each codebook; writes `n_codebooks` codes per vector.
    #[inline(always)]
    pub(super) fn group(&mut self, minima: &mut Vec<Lanes>, codes: &mut [u8]) {
        let m = self.n_codebooks;
        minima.resize(TOGETHER * m, [0.0; lanes::LANES]);
        for (i, codes) in codes.chunks_mut(TOGETHER * m).enumerate() {
            self.group_together(i * TOGETHER, minima, codes);
        }
    }

    #[inline(always)]
    fn group_together(&mut self, first: usize, minima: &mut [Lanes], codes: &mut [u8]) {
        let (m, columns, stride) = (self.n_codebooks, self.columns, self.stride);
        let mut left = [[0u8; MAX_TOGETHER]; TOGETHER];
        let mut chosen = [0usize; TOGETHER];
        let vectors = codes.len() / m;
        for v in 0..vectors {
            for b in 0..m {
                left[v][b] = b as u8;
                minima[v * m + b] =
                    lanes::minima(&self.scores[(first + v) * columns + b * stride..][..stride]);
            }
        }
        for remaining in (0..m).rev() {
            for v in 0..vectors {
                let minima = &minima[v * m..][..m];
                let left = &mut left[v];
                let mut all = [f32::INFINITY; lanes::LANES];
                for &b in &left[..=remaining] {
                    for (all, &here) in all.iter_mut().zip(&minima[usize::from(b)]) {
                        *all = lanes::min(*all, here);
                    }
                }
                let smallest = lanes::fold(&all);
                let holds = |&b: &u8| {
                    minima[usize::from(b)].iter().fold(false, |any, &here| any | (here == smallest))
                };
                let at = left[..=remaining].iter().position(holds).unwrap_or(0);
                let b = usize::from(left[at]);
                left.copy_within(at + 1..=remaining, at);
                let k = lanes::find(&self.scores[(first + v) * columns + b * stride..][..stride], smallest);
                codes[v * m + b] = k as u8;
                chosen[v] = b * stride + k;
                for &b in &left[..remaining] {
                    isa::prefetch(&self.gram[chosen[v] * columns + usize::from(b) * stride..][..stride]);
                }
            }
            for v in 0..vectors {
                for &b in &left[v][..remaining] {
                    let b = usize::from(b);
                    minima[v * m + b] = self.add(first + v, chosen[v], b);
                }
            }
        }
    }

    /// Chooses M codewords from the one shared codebook; different ones if `distinct`, for M-combination.
    #[inline(always)]
    pub(super) fn shared(&mut self, distinct: bool, codes: &mut [u8]) {
        for (v, code) in codes.chunks_mut(self.n_codebooks).enumerate() {
            let start = v * self.columns;
            let mut minima = lanes::minima(&self.scores[start..][..self.stride]);
            for place in 0..code.len() {
                let scores = &mut self.scores[start..][..self.stride];
                let mut k = lanes::find(scores, lanes::fold(&minima));
                if distinct {
                    // If scores are beyond float32 any codeword will do, except one that is already taken.
                    let taken = |k: usize| code[..place].iter().any(|&taken| usize::from(taken) == k);
                    if taken(k) {
                        k = (0..=place).find(|&k| !taken(k)).expect("fewer are taken");
                    }
                    scores[k] = f32::INFINITY;
                }
                code[place] = k as u8;
                if place + 1 < code.len() {
                    minima = self.add(v, k, 0);
                }
            }
        }
    }

    /// Updates the scores of codebook `b` for vector `v` after codeword `chosen`; returns the new minima.
    #[inline(always)]
    fn add(&mut self, v: usize, chosen: usize, b: usize) -> Lanes {
        let at = v * self.columns + b * self.stride;
        let scores = &mut self.scores[at..][..self.stride];
        if self.beta > 0.0 {
            let factor = 2.0 * self.beta * self.projections[v * self.columns + chosen];
            lanes::add_multiple(scores, factor, &self.projections[at..][..self.stride]);
        }
        lanes::add_minima(scores, &self.gram[chosen * self.columns + b * self.stride..][..self.stride])
    }
}
