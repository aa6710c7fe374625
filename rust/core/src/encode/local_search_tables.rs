//! Local search with tables that are kept up to date, for codebooks with few codewords.
//!
//! This is the same search as [`local_search`](super::local_search), and it finds the same codes to the bit; only the
//! source of the sums of Gram rows differs. There, each turn of a codebook adds up the rows of all other codewords.
//! Here, a vector keeps the sums of all codebooks, and a change adds the difference between the new and the old
//! codeword's row, over all codebooks at once: 512 bytes for M = K = 16, from a Gram matrix of 128 KB that stays in the
//! L2 cache. A turn that changes nothing then costs only a few instructions, and most turns change nothing: for M = K =
//! 16 a code takes less than half the time. less than half of the time.
//!
//! Beyond [`MOST`](super::gram_rows::MOST) codewords, a row over all codebooks is longer than the rows of a turn, and
//! turns are cheaper than changes.

use super::gram_rows::GramRows;
use super::levels::{LEVELS, LevelBlock};
use super::perturbation::{Random, SWEEPS, drawn};
use super::rounded::Rounded;
use super::space::Space;
use super::state::State;
use crate::isa::{HALF, Level};

/// The perturbations of each round, which are the same for all vectors.
struct Plan {
    /// For each round, the codebooks that are perturbed and the first of the codewords drawn.
    perturbed: Vec<(usize, usize)>,
    /// For each round, the order of turns.
    order: Vec<usize>,
    /// Codebooks perturbed per round, and codewords drawn for each.
    times: usize,
    size: usize,
}

impl Plan {
    fn new(space: &Space<'_>, rounds: usize, seed: u64) -> Self {
        let m = space.n_codebooks;
        let mut random = Random(seed);
        let (mut perturbed, mut orders, mut order) = (Vec::new(), Vec::new(), vec![0; m]);
        let mut size = 1;
        for _ in 0..rounds {
            size = drawn(space, &mut random, &mut order, &mut perturbed);
            orders.extend_from_slice(&order);
        }
        Self { times: perturbed.len() / rounds.max(1), perturbed, order: orders, size }
    }

    fn rounds(&self, m: usize) -> impl Iterator<Item = (&[(usize, usize)], &[usize])> {
        self.perturbed.chunks_exact(self.times.max(1)).zip(self.order.chunks_exact(m))
    }
}

/// The tables of a vector, each `[codebook][codeword]`.
struct Tables {
    /// Sums of Gram rows of the code that is kept and of the one on trial.
    kept: Vec<LevelBlock>,
    trial: Vec<LevelBlock>,
    /// The vector's own scores, and its projections.
    own: Vec<LevelBlock>,
    projections: Vec<LevelBlock>,
}

/// The search for one vector.
struct One<'a> {
    rows: &'a GramRows,
    tables: &'a mut Tables,
    state: State,
    beta: f32,
    n_codewords: usize,
}

/// How a turn weighs projections: see [`State::weigh`].
type Weight = (i16, u32, f32);

/// Improves the `codes` (n, M) of the vectors.
#[inline(always)]
pub(super) fn run<L: Level>(
    vectors: &Rounded,
    space: &Space<'_>,
    rows: &GramRows,
    (rounds, seed): (usize, u64),
    codes: &mut [u8],
) {
    let plan = Plan::new(space, rounds, seed);
    let room = || vec![LevelBlock::ZERO; rows.width];
    let mut tables = Tables { kept: room(), trial: room(), own: room(), projections: room() };
    for (v, code) in codes.chunks_exact_mut(space.n_codebooks).enumerate() {
        tables.bring(vectors, space, rows, v, code);
        let state = vectors.states[v];
        let mut one =
            One { rows, tables: &mut tables, state, beta: space.beta, n_codewords: space.n_codewords };
        let masked = space.n_codewords < rows.size;
        match (rows.size / HALF, space.beta > 0.0, masked) {
            (1, false, false) => one.run::<L, 1, false, false>(&plan, code),
            (1, false, true) => one.run::<L, 1, false, true>(&plan, code),
            (1, true, false) => one.run::<L, 1, true, false>(&plan, code),
            (1, true, true) => one.run::<L, 1, true, true>(&plan, code),
            (_, false, false) => one.run::<L, 2, false, false>(&plan, code),
            (_, false, true) => one.run::<L, 2, false, true>(&plan, code),
            (_, true, false) => one.run::<L, 2, true, false>(&plan, code),
            (_, true, true) => one.run::<L, 2, true, true>(&plan, code),
        }
    }
}

impl Tables {
    /// Loads vector `v`.
    #[inline(always)]
    fn bring(&mut self, vectors: &Rounded, space: &Space<'_>, rows: &GramRows, v: usize, code: &[u8]) {
        self.trial.fill(LevelBlock::ZERO);
        for (book, &codeword) in code.iter().enumerate() {
            let place = vectors.place(space, book, v).start;
            part_mut(&mut self.own, book, rows.size).copy_from_slice(&vectors.own[place].0[..rows.size]);
            if space.beta > 0.0 {
                let projections = &vectors.projections[place].0[..rows.size];
                part_mut(&mut self.projections, book, rows.size).copy_from_slice(projections);
            }
            let row = rows.row(book, codeword.into());
            let sums = self.trial.iter_mut().flat_map(|levels| &mut levels.0);
            sums.zip(row.iter().flat_map(|levels| &levels.0)).for_each(|(sum, row)| *sum += row);
        }
        self.kept.copy_from_slice(&self.trial);
    }
}

impl One<'_> {
    #[inline(always)]
    fn run<L: Level, const HALVES: usize, const ALONG: bool, const MASKED: bool>(
        &mut self,
        plan: &Plan,
        code: &mut [u8],
    ) {
        let m = code.len();
        let mut trial = [0u8; crate::codebooks::MAX_CODEBOOKS];
        let trial = &mut trial[..m];
        trial.copy_from_slice(code);
        if ALONG {
            let sum: i32 =
                code.iter().enumerate().map(|(book, &k)| i32::from(self.projection(book, k.into()))).sum();
            self.state.begin(sum);
        }
        let mut natural = [0; crate::codebooks::MAX_CODEBOOKS];
        natural.iter_mut().enumerate().for_each(|(book, order)| *order = book);
        self.settle::<L, HALVES, ALONG, MASKED>(&natural[..m], trial);
        self.keep::<L>(code, trial);
        for (perturbed, order) in plan.rounds(m) {
            for &(book, first) in perturbed {
                self.perturb::<L, ALONG>(book, first..(first + plan.size).min(self.n_codewords), trial);
            }
            self.settle::<L, HALVES, ALONG, MASKED>(order, trial);
            self.keep::<L>(code, trial);
        }
    }

    #[inline(always)]
    fn projection(&self, book: usize, k: usize) -> i16 {
        part(&self.tables.projections, book, self.rows.size)[k]
    }

    /// Lets each codebook in turn take the best codeword given the others, until none changes.
    #[inline(always)]
    fn settle<L: Level, const HALVES: usize, const ALONG: bool, const MASKED: bool>(
        &mut self,
        order: &[usize],
        trial: &mut [u8],
    ) {
        // Turns since the last change, including the turn that made it: once there are as many as codebooks, the code
        // has settled.
        let mut still = 0;
        for _ in 0..SWEEPS {
            for &book in order {
                still = if self.turn::<L, HALVES, ALONG, MASKED>(book, trial) { 1 } else { still + 1 };
                if still == order.len() {
                    return;
                }
            }
        }
    }

    /// Lets `book` take the best codeword if it is better than the present one; returns whether it is.
    #[inline(always)]
    fn turn<L: Level, const HALVES: usize, const ALONG: bool, const MASKED: bool>(
        &mut self,
        book: usize,
        trial: &mut [u8],
    ) -> bool {
        let size = HALVES * HALF;
        let from = usize::from(trial[book]);
        let weight = self.weight::<ALONG>(book, from);
        let (sums, own) = (part(&self.tables.trial, book, size), part(&self.tables.own, book, size));
        let projections = part(&self.tables.projections, book, size);
        let mut scores = [[0i16; HALF]; HALVES];
        let (mut level, mut codeword) = (i16::MAX, from);
        for half in 0..HALVES {
            let load = |from: &[i16]| L::load_half(from[half * HALF..].first_chunk().expect("whole halves"));
            let mut score = L::add_half(L::shift_right_half(load(sums), self.state.shift), load(own));
            if ALONG {
                let product = L::multiply_high_half(L::splat_half(weight.0), load(projections));
                score = L::add_saturating_half(L::shift_right_half(score, weight.1), product);
            }
            if MASKED {
                // The largest level masks padding.
                let mask: [i16; HALF] =
                    std::array::from_fn(
                        |l| {
                            if half * HALF + l < self.n_codewords { i16::MIN } else { i16::MAX }
                        },
                    );
                score = L::max_half(score, L::load_half(&mask));
            }
            L::store_half(score, &mut scores[half]);
            let (least, at) = L::least_half(score);
            if least < level {
                (level, codeword) = (least, half * HALF + at);
            }
        }
        if codeword == from {
            return false;
        }
        let difference = (i32::from(level) - i32::from(scores.as_flattened()[from])) as f32;
        // The rounded scores already say that it is no better.
        if difference >= 0.0 {
            return false;
        }
        let (difference, step) = self.difference::<ALONG>(book, (from, codeword), difference, weight);
        if difference >= 0.0 {
            return false;
        }
        self.change::<L>(book, codeword, (difference, step), trial);
        true
    }

    /// Gives `book` the best of some codewords, even if it is worse than the present one.
    #[inline(always)]
    fn perturb<L: Level, const ALONG: bool>(
        &mut self,
        book: usize,
        drawn: std::ops::Range<usize>,
        trial: &mut [u8],
    ) {
        let from = usize::from(trial[book]);
        let weight = self.weight::<ALONG>(book, from);
        let (mut level, mut codeword) = (i16::MAX, from);
        for k in drawn {
            let score = self.score::<ALONG>(book, k, weight);
            if score < level {
                (level, codeword) = (score, k);
            }
        }
        if codeword == from {
            return;
        }
        let difference = (i32::from(level) - i32::from(self.score::<ALONG>(book, from, weight))) as f32;
        let change = self.difference::<ALONG>(book, (from, codeword), difference, weight);
        self.change::<L>(book, codeword, change, trial);
    }

    /// The score of one codeword.
    #[inline(always)]
    fn score<const ALONG: bool>(&self, book: usize, k: usize, (factor, halvings, _): Weight) -> i16 {
        let size = self.rows.size;
        let sum = part(&self.tables.trial, book, size)[k];
        let score = (sum >> self.state.shift).wrapping_add(part(&self.tables.own, book, size)[k]);
        if !ALONG {
            return score;
        }
        let product = (i32::from(factor) * i32::from(self.projection(book, k))) >> 16;
        (score >> halvings).saturating_add(product as i16)
    }

    #[inline(always)]
    fn weight<const ALONG: bool>(&self, book: usize, from: usize) -> Weight {
        if ALONG { self.state.weigh(self.beta, self.projection(book, from)) } else { (0, 0, 0.0) }
    }

    /// What a change adds to the loss, in steps, and to the sum of projections.
    #[inline(always)]
    fn difference<const ALONG: bool>(
        &self,
        book: usize,
        (from, to): (usize, usize),
        difference: f32,
        weight: Weight,
    ) -> (f32, f32) {
        if !ALONG {
            return (difference, 0.0);
        }
        self.state.refine(difference, (self.projection(book, from), self.projection(book, to)), weight)
    }

    #[inline(always)]
    fn change<L: Level>(&mut self, book: usize, to: usize, (difference, step): (f32, f32), trial: &mut [u8]) {
        let (new, old) = (self.rows.row(book, to), self.rows.row(book, trial[book].into()));
        for (sums, (new, old)) in self.tables.trial.iter_mut().zip(new.iter().zip(old)) {
            let more = L::subtract(L::load(&new.0), L::load(&old.0));
            L::store(L::add(L::load(&sums.0), more), &mut sums.0);
        }
        trial[book] = to as u8;
        self.state.along[1] += step;
        self.state.difference += difference;
    }

    /// Keeps the code on trial if it is better than the one kept; otherwise reverts to that.
    #[inline(always)]
    fn keep<L: Level>(&mut self, code: &mut [u8], trial: &mut [u8]) {
        let Tables { kept, trial: sums, .. } = &mut *self.tables;
        let (from, to) = if self.state.difference < 0.0 {
            code.copy_from_slice(trial);
            self.state.along[0] = self.state.along[1];
            (sums, kept)
        } else {
            trial.copy_from_slice(code);
            self.state.along[1] = self.state.along[0];
            (kept, sums)
        };
        for (to, from) in to.iter_mut().zip(from.iter()) {
            L::store(L::load(&from.0), &mut to.0);
        }
        self.state.difference = 0.0;
    }
}

/// The numbers of one codebook.
#[inline(always)]
fn part(levels: &[LevelBlock], book: usize, size: usize) -> &[i16] {
    // A codebook takes half of a register of levels, or a whole one.
    let at = book * size;
    &levels[at / LEVELS].0[at % LEVELS..][..size]
}

#[inline(always)]
fn part_mut(levels: &mut [LevelBlock], book: usize, size: usize) -> &mut [i16] {
    let at = book * size;
    &mut levels[at / LEVELS].0[at % LEVELS..][..size]
}

#[cfg(test)]
mod tests {
    use crate::codebooks::{Codebooks, Selection};
    use crate::encode::{Encode, Encoder, Encoding, Loss, Start};
    use ndarray::Array2;

    #[test]
    fn codes_are_those_of_the_other_search() {
        let value = |i: usize, j: usize| ((i * 37 + j * 101 + (i * j) % 11) as f32 * 0.7311).sin();
        for (m, k, d, eta) in [
            (2, 3, 4, 1.0),
            (5, 16, 7, 1.0),
            (5, 16, 7, 6.0),
            (3, 20, 9, 4.0),
            (16, 9, 12, 3.0),
            (4, 32, 8, 1.0),
        ] {
            let x = Array2::from_shape_fn((70, d), |(i, j)| 3.0 * value(i + 5, j));
            let words = Array2::from_shape_fn((m * k, d), |(i, j)| value(i, j + 3));
            let codebooks = Codebooks::new(words.into_shape_with_order((m, k, d)).unwrap()).unwrap();
            let search = Encoding::LocalSearch { start: Start::Greedy, rounds: 9, seed: 3 };
            let encoder = || {
                let encoder = Encoder::new(&codebooks, Selection::Group).unwrap();
                encoder.with_loss(Loss::inner_product(eta).unwrap()).with_encoding(search)
            };
            let tabled = encoder();
            assert!(tabled.rows.is_some());
            let mut other = encoder();
            other.rows = None;
            let codes = tabled.encode(&x.view(), &()).unwrap();
            assert_eq!(codes, other.encode(&x.view(), &()).unwrap(), "M = {m}, K = {k}, eta {eta}");
            let mut greedy = encoder().with_encoding(Encoding::Greedy);
            greedy.rows = None;
            assert_ne!(codes, greedy.encode(&x.view(), &()).unwrap());
        }
    }
}
