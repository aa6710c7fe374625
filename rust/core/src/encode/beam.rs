//! Beam search: goes through the codebooks in turn and keeps the best `width` partial codes.
//!
//! Each partial code is extended by every codeword of the next codebook. The score of a codeword given a partial code
//! is its score given no codeword, plus one Gram row for each codeword chosen so far. (This is the encoder of residual
//! quantization: Babenko & Lempitsky, *Tree Quantization*, 2015; Liu et al., *Improved Residual Vector Quantization*,
//! 2015.) The time goes into reading Gram rows, many of which the partial codes of a vector have in common.
//!
//! With one shared codebook, the same codewords in a different order give the same sum. Only one order is kept;
//! otherwise the beam would fill with copies.

use super::lanes;
use super::levels::LEVELS;
use super::space::{Space, Vector};
use crate::codebooks::MAX_TOGETHER;
use crate::isa::Level;

/// A partial code.
#[derive(Clone, Copy)]
struct Candidate {
    /// The loss with its codewords, relative to the loss with none.
    loss: f32,
    /// The sum of their projections on the vector's direction.
    along: f32,
    /// A key that is equal for equal sets of codewords, in any order.
    key: u64,
    code: [u8; MAX_TOGETHER],
}

/// A candidate extended by one codeword.
#[derive(Clone, Copy)]
struct Extension {
    loss: f32,
    candidate: u32,
    k: u32,
}

/// The workspace of one thread.
#[derive(Default)]
pub(super) struct Beam {
    candidates: Vec<Candidate>,
    next: Vec<Candidate>,
    /// Losses of a candidate with each codeword of the next codebook.
    losses: Vec<f32>,
    extensions: Vec<Extension>,
}

impl Space<'_> {
    /// The best code that a beam of `width` finds.
    #[inline(always)]
    pub(super) fn beam<L: Level>(&self, vector: Vector<'_>, beam: &mut Beam, width: usize, code: &mut [u8]) {
        beam.candidates.clear();
        beam.candidates.push(Candidate { loss: 0.0, along: 0.0, key: 0, code: [0; MAX_TOGETHER] });
        beam.losses.resize(self.stride, 0.0);
        for book in 0..self.n_codebooks {
            // With a shared codebook, the same sum may arise once for each of its codewords.
            let wanted = if self.shared { width.saturating_mul(book + 1) } else { width };
            self.extend::<L>(vector, beam, book, wanted);
            self.advance(vector, beam, book, width);
        }
        code.copy_from_slice(&beam.candidates[0].code[..self.n_codebooks]);
    }

    /// Collects the `wanted` best extensions by a codeword of `book`, best first.
    #[inline(always)]
    fn extend<L: Level>(&self, vector: Vector<'_>, beam: &mut Beam, book: usize, wanted: usize) {
        let Beam { candidates, losses, extensions, .. } = beam;
        extensions.clear();
        let mut bound = f32::INFINITY;
        for (i, candidate) in candidates.iter().enumerate() {
            self.losses::<L>(vector, candidate, book, losses);
            if i == 0 && wanted <= lanes::LANES {
                // There are at least as many losses below the largest lane minimum as there are lanes.
                let mut minima = lanes::minima(losses);
                minima.sort_unstable_by(f32::total_cmp);
                bound = minima[wanted - 1];
            }
            lanes::for_each_up_to(losses, bound, |k, loss| {
                // Skips padding, and codewords that may not be chosen again.
                if loss < f32::INFINITY {
                    extensions.push(Extension { loss, candidate: i as u32, k: k as u32 });
                }
            });
            if extensions.len() > 2 * wanted {
                extensions.select_nth_unstable_by(wanted - 1, order);
                extensions.truncate(wanted);
                bound = extensions[wanted - 1].loss;
            }
        }
        extensions.sort_unstable_by(order);
        extensions.truncate(wanted);
    }

    /// Losses of `candidate` with each codeword of `book`.
    #[inline(always)]
    fn losses<L: Level>(&self, vector: Vector<'_>, candidate: &Candidate, book: usize, losses: &mut [f32]) {
        let here = self.start(book)..self.start(book) + self.stride;
        let (chosen, width, block) =
            (&candidate.code[..book], self.gram.width(), self.gram.block(self.book(book)));
        let (mut rows, mut base) = ([0; MAX_TOGETHER], candidate.loss);
        for (b, (row, &k)) in rows.iter_mut().zip(chosen).enumerate() {
            *row = (self.start(b) + usize::from(k)) * width;
            base += self.gram.middle(self.book(b), usize::from(k), self.book(book));
        }
        let scores = vector.scores[here.clone()].as_chunks::<LEVELS>().0;
        let losses_of = losses.as_chunks_mut::<LEVELS>().0.iter_mut().zip(scores);
        for (r, (losses, scores)) in losses_of.enumerate() {
            // Integers, hence exact.
            let mut sum = L::splat(0);
            for row in &rows[..book] {
                sum = L::add(sum, L::load(&block[row + r].0));
            }
            L::scale(sum, self.gram.step, base, scores, losses);
        }
        if self.beta > 0.0 {
            lanes::add_multiple(losses, 2.0 * self.beta * candidate.along, &vector.projections[here]);
        }
        if self.distinct {
            chosen.iter().for_each(|&k| losses[usize::from(k)] = f32::INFINITY);
        }
    }

    /// Replaces the candidates with the best `width` extensions by a codeword of `book`.
    #[inline(always)]
    fn advance(&self, vector: Vector<'_>, beam: &mut Beam, book: usize, width: usize) {
        beam.next.clear();
        for extension in &beam.extensions {
            let (mut candidate, k) = (beam.candidates[extension.candidate as usize], extension.k as usize);
            candidate.key = candidate.key.wrapping_add(key(k));
            if self.shared && beam.next.iter().any(|other| other.key == candidate.key) {
                continue;
            }
            candidate.code[book] = k as u8;
            candidate.loss = extension.loss;
            if self.beta > 0.0 {
                candidate.along += vector.projections[self.start(book) + k];
            }
            beam.next.push(candidate);
            if beam.next.len() == width {
                break;
            }
        }
        if beam.next.is_empty() {
            // The scores are beyond float32: any code will do.
            let mut candidate = beam.candidates[0];
            let taken = |k: &u8| self.distinct && candidate.code[..book].contains(k);
            candidate.code[book] = (0..=u8::MAX).find(|k| !taken(k)).unwrap_or(0);
            beam.next.push(candidate);
        }
        std::mem::swap(&mut beam.candidates, &mut beam.next);
    }
}

/// The better extension first; among equal ones that of the better candidate, then the lower codeword.
#[inline(always)]
fn order(a: &Extension, b: &Extension) -> std::cmp::Ordering {
    a.loss.total_cmp(&b.loss).then(a.candidate.cmp(&b.candidate)).then(a.k.cmp(&b.k))
}

/// A hash of codeword `k`: different sets of codewords have different sums of hashes, except with probability 2⁻⁶⁴ (the
/// finalizer of SplitMix64).
#[inline(always)]
fn key(k: usize) -> u64 {
    let z = (k as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
