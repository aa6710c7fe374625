//! The paper's greedy encoder: at each step the codebook *and* codeword that leave the smallest error.
//!
//! With the score S[m, k] = ‖c_mk‖² − 2⟨x, c_mk⟩ of every codeword, choosing c adds 2⟨c, c_mk⟩, a row of the Gram
//! matrix, to the scores that remain; the smallest of those is then the next choice. That is O(MKd + M²K) a vector,
//! where computing residuals anew takes O(M²Kd).
//!
//! Ties go to the lower codebook, then the lower codeword. Where all sums lie far from the origin the encoder centres the
//! codebooks first (see `normalise`); the greedy choice is then that of the centred problem.

use super::lanes::{self, Lanes};
use crate::isa;

/// Vectors taken through the steps together: while one adds its Gram row (from beyond the L2 cache for M = 8, K = 256)
/// the rows of the others are on their way. On Zen 5, 4 vectors take 12 % less time than 1; more gain nothing.
const TOGETHER: usize = 4;

/// The scores of one chunk of vectors, and the Gram rows that change them.
pub(super) struct Scores<'a> {
    /// `columns` for each vector, of which the first `books · stride` count; padding is +∞.
    pub(super) scores: &'a mut [f32],
    pub(super) gram: &'a [f32],
    pub(super) columns: usize,
    /// Codewords of a codebook, padded to whole lanes.
    pub(super) stride: usize,
    pub(super) n_codebooks: usize,
}

/// One codeword from each codebook; writes `n_codebooks` codes for each vector.
#[inline(always)]
pub(super) fn group(scores: &mut Scores<'_>, minima: &mut Vec<Lanes>, codes: &mut [u8]) {
    let m = scores.n_codebooks;
    minima.resize(TOGETHER * m, [0.0; lanes::LANES]);
    let vectors = scores.scores.chunks_mut(TOGETHER * scores.columns).zip(codes.chunks_mut(TOGETHER * m));
    for (together, codes) in vectors {
        group_together(together, scores.gram, scores.columns, scores.stride, minima, codes, m);
    }
}

#[inline(always)]
fn group_together(
    scores: &mut [f32],
    gram: &[f32],
    columns: usize,
    stride: usize,
    minima: &mut [Lanes],
    codes: &mut [u8],
    m: usize,
) {
    let mut left = [[0u8; crate::codebooks::MAX_CODEBOOKS]; TOGETHER];
    let mut chosen = [0usize; TOGETHER];
    let vectors = codes.len() / m;
    for v in 0..vectors {
        for b in 0..m {
            left[v][b] = b as u8;
            minima[v * m + b] = lanes::minima(&scores[v * columns + b * stride..][..stride]);
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
            let holds =
                |&b: &u8| minima[usize::from(b)].iter().fold(false, |any, &here| any | (here == smallest));
            let at = left[..=remaining].iter().position(holds).unwrap_or(0);
            let b = usize::from(left[at]);
            left.copy_within(at + 1..=remaining, at);
            let k = lanes::find(&scores[v * columns + b * stride..][..stride], smallest);
            codes[v * m + b] = k as u8;
            chosen[v] = (b * stride + k) * columns;
            for &b in &left[..remaining] {
                isa::prefetch(&gram[chosen[v] + usize::from(b) * stride..][..stride]);
            }
        }
        for v in 0..vectors {
            for &b in &left[v][..remaining] {
                let b = usize::from(b);
                let row = &gram[chosen[v] + b * stride..][..stride];
                minima[v * m + b] = lanes::add_minima(&mut scores[v * columns + b * stride..][..stride], row);
            }
        }
    }
}

/// M codewords from the one shared codebook; `distinct` ones for M-combination.
#[inline(always)]
pub(super) fn shared(scores: &mut Scores<'_>, distinct: bool, codes: &mut [u8]) {
    let Scores { gram, columns, stride, n_codebooks, .. } = *scores;
    for (scores, code) in scores.scores.chunks_mut(columns).zip(codes.chunks_mut(n_codebooks)) {
        let scores = &mut scores[..stride];
        let mut minima = lanes::minima(scores);
        for (remaining, code) in (0..n_codebooks).rev().zip(code) {
            let k = lanes::find(scores, lanes::fold(&minima));
            *code = k as u8;
            if distinct {
                scores[k] = f32::INFINITY;
            }
            if remaining > 0 {
                minima = lanes::add_minima(scores, &gram[k * columns..][..stride]);
            }
        }
    }
}
