//! Local search: iterated conditional modes with perturbation.
//!
//! A code is improved one codeword at a time: each codebook in turn takes the codeword that is best given all others,
//! until none wants to change. Then a few codewords are changed at random, the others settle anew, and the better of
//! the two codes is kept; and so on, for a number of rounds. (Martinez et al., *Revisiting Additive Quantization*,
//! 2016.)
//!
//! For each codebook a table holds the score of its codewords given the codes of the others. A change from c to c' adds
//! the Gram row of c' to the tables of the others and subtracts that of c. All are whole numbers in 16 bits, twice as many
//! to a register as of float32; what is lost is the rounding of each Gram entry and each score, once. With the part of the
//! loss along the vector,
//!
//! ```text
//! β(e + p)² − βe² = βp² + 2βep,   e = Σ p − ‖x‖ over the other codebooks
//! ```
//!
//! the first term belongs to the vector's own scores; the second changes with every code, and is added when a table is
//! looked at.
//!
//! The next step depends on what this one chose, and waits for it; so several vectors take their steps in turn.

use super::lanes;
use super::levels::{self, LEVELS, Levels};
use super::space::{Space, Vector};
use crate::codebooks::MAX_CODEBOOKS;

/// A bound on the sweeps of [`Search::settle`]: two or three are the rule.
const SWEEPS: usize = 16;

/// What the vector's own scores may come to on either side of their middle, in steps. With the sums of Gram rows, and half
/// a step for each number rounded, it fits 16 bits.
const OWN: f32 = 12_000.0;

/// What one search works in.
#[derive(Default)]
pub(super) struct Workspace {
    /// M tables, given the code that is kept.
    kept: Vec<Levels>,
    /// The same, given the code on trial.
    trial: Vec<Levels>,
    /// A table as it is looked at, where that is not as it is.
    view: Vec<Levels>,
    /// The vector's own scores.
    own: Vec<f32>,
    /// Its projections, counted from the middle of their codebook, as shares of `reach`.
    projections: Vec<Levels>,
    middles: Vec<f32>,
}

/// The search for the code of one vector.
pub(super) struct Search<'a> {
    space: &'a Space<'a>,
    vector: Vector<'a>,
    work: &'a mut Workspace,
    random: Random,
    /// The code that is kept.
    code: &'a mut [u8],
    trial: [u8; MAX_CODEBOOKS],
    /// What the changes of the code on trial add to the loss, in steps.
    difference: f32,
    /// Changes so far, and how many there were when a codebook last had its turn.
    changes: u32,
    seen: [u32; MAX_CODEBOOKS],
    /// Codebooks in the order of their turns.
    order: [u8; MAX_CODEBOOKS],
    /// Steps in one unit of loss.
    steps: f32,
    /// Gram rows are halved so many times: of a vector with scores beyond [`OWN`].
    shift: u32,
    /// e of no other codebook left out, for the code that is kept and the one on trial.
    along: [f32; 2],
    /// The largest projection, counted from the middle.
    reach: f32,
}

/// Improves the codes of all `searches` in `rounds` rounds. Neither takes note of the other.
#[inline(always)]
pub(super) fn search(searches: &mut [Search<'_>], rounds: usize) {
    settle(searches);
    searches.iter_mut().for_each(Search::keep);
    for _ in 0..rounds {
        searches.iter_mut().for_each(Search::perturb);
        settle(searches);
        for search in &mut *searches {
            if search.difference < 0.0 { search.keep() } else { search.restart() }
        }
    }
}

/// Lets each codebook in turn take the best codeword given the others, until none changes. Those that were perturbed come
/// last: first in turn, they would mostly go back.
#[inline(always)]
fn settle(searches: &mut [Search<'_>]) {
    for sweep in 0..SWEEPS {
        let mut any = false;
        for turn in 0..searches[0].space.n_codebooks {
            for search in &mut *searches {
                any |= search.turn(turn, sweep == 0);
            }
        }
        if !any {
            break;
        }
    }
}

impl<'a> Search<'a> {
    /// A search from `code`; `seed` is the vector's own.
    #[inline(always)]
    pub(super) fn new(
        space: &'a Space<'a>,
        vector: Vector<'a>,
        work: &'a mut Workspace,
        seed: u64,
        code: &'a mut [u8],
    ) -> Self {
        let mut trial = [0; MAX_CODEBOOKS];
        trial[..code.len()].copy_from_slice(code);
        let mut search = Self {
            space,
            vector,
            work,
            random: Random(seed),
            code,
            trial,
            difference: 0.0,
            changes: 0,
            seen: [0; MAX_CODEBOOKS],
            order: std::array::from_fn(|book| book as u8),
            steps: 0.0,
            shift: 0,
            along: [0.0; 2],
            reach: 0.0,
        };
        search.fill();
        search
    }

    /// Fills the tables on trial.
    #[inline(always)]
    fn fill(&mut self) {
        let Self { space, vector, work, .. } = self;
        let (stride, size) = (space.stride, space.n_codebooks * space.stride);
        let own = if space.shared { stride } else { size };
        for table in [&mut work.kept, &mut work.trial] {
            table.resize(size / LEVELS, Levels::ZERO);
        }
        work.view.resize(stride / LEVELS, Levels::ZERO);
        work.own.clear();
        work.own.extend_from_slice(&vector.scores[..own]);
        work.middles.clear();
        if space.beta > 0.0 {
            let spreads = vector.projections[..own].chunks_exact(stride).map(lanes::spread);
            let reach = spreads.fold(0.0f32, |reach, (middle, half)| {
                work.middles.push(middle);
                reach.max(half)
            });
            let factor = if reach > 0.0 { f32::from(i16::MAX) / reach } else { 0.0 };
            work.projections.resize(own / LEVELS, Levels::ZERO);
            let books =
                work.projections.chunks_exact_mut(stride / LEVELS).zip(work.own.chunks_exact_mut(stride));
            let projections = vector.projections.chunks_exact(stride).zip(&work.middles);
            for ((levels, scores), (projections, middle)) in books.zip(projections) {
                levels::round(levels, projections, *middle, factor);
                // The scores hold 2βep for e = −‖x‖; what the table is looked at with takes e + middle.
                lanes::add_multiple(scores, 2.0 * space.beta * (vector.target - middle), projections);
            }
            self.reach = reach;
            self.along[1] = code_sum(space, vector, &self.trial) - vector.target;
        }
        let half = work.own.chunks_exact(stride).map(|scores| lanes::spread(scores).1).fold(0.0, f32::max);
        let mut step = space.gram.step;
        while half > OWN * step && self.shift < i16::BITS - 1 {
            step *= 2.0;
            self.shift += 1;
        }
        if half > OWN * step {
            // Beside such scores all products of codewords vanish.
            step = half / OWN;
        }
        self.steps = if step > 0.0 { step.recip() } else { 0.0 };
        for (table, book) in work.trial.chunks_exact_mut(stride / LEVELS).zip(0..) {
            let scores = &work.own[space.start(book)..][..stride];
            levels::round(table, scores, lanes::spread(scores).0, self.steps);
        }
        for book in 0..space.n_codebooks {
            let row = space.gram.whole(space.book(book), usize::from(self.trial[book]));
            if space.shared {
                let tables = work.trial.chunks_exact_mut(stride / LEVELS).enumerate();
                tables.filter(|&(b, _)| b != book).for_each(|(_, table)| levels::add(table, row, self.shift));
            } else {
                levels::add(&mut work.trial, row, self.shift);
            }
        }
    }

    /// Makes the code on trial the one that is kept.
    #[inline(always)]
    fn keep(&mut self) {
        std::mem::swap(&mut self.work.kept, &mut self.work.trial);
        self.code.copy_from_slice(&self.trial[..self.code.len()]);
        self.along[0] = self.along[1];
        self.restart();
    }

    /// Puts the code that is kept on trial, unchanged.
    #[inline(always)]
    fn restart(&mut self) {
        self.work.trial.copy_from_slice(&self.work.kept);
        self.trial[..self.code.len()].copy_from_slice(self.code);
        self.along[1] = self.along[0];
        self.difference = 0.0;
    }

    /// Gives some codebooks the best of sixteen codewords drawn at random: one of all at random would seldom be of any
    /// use. More codebooks than these would take longer, and find less.
    #[inline(always)]
    fn perturb(&mut self) {
        let m = self.space.n_codebooks;
        let mut perturbed = 0u64;
        for _ in 0..(3 * m / 8).max(1) {
            let mut book = self.random.below(m);
            while perturbed >> book & 1 == 1 {
                book = self.random.below(m);
            }
            perturbed |= 1 << book;
            let lane = self.random.below(LEVELS / 2);
            self.choose(book, true, |minima| minima.0[lane].min(minima.0[lane + LEVELS / 2]));
        }
        let (mut first, mut last) = (0, m - perturbed.count_ones() as usize);
        for book in 0..m {
            let place = if perturbed >> book & 1 == 1 { &mut last } else { &mut first };
            self.order[*place] = book as u8;
            *place += 1;
        }
    }

    /// Lets the codebook whose turn it is take its best codeword, if another has changed since it last did; whether it
    /// does.
    #[inline(always)]
    fn turn(&mut self, turn: usize, always: bool) -> bool {
        let book = usize::from(self.order[turn]);
        if !always && self.seen[book] == self.changes {
            return false;
        }
        let changed = self.choose(book, false, levels::fold);
        self.seen[book] = self.changes;
        changed
    }

    /// Changes the codeword of `book` to the one whose level `pick` takes of the minima of the lanes; whether that is
    /// another. It may be a worse one only if `perturbing`.
    #[inline(always)]
    fn choose(&mut self, book: usize, perturbing: bool, pick: impl FnOnce(&Levels) -> i16) -> bool {
        let Self { space, vector, work, trial, .. } = self;
        let start = space.start(book);
        let from = usize::from(trial[book]);
        let registers = space.stride / LEVELS;
        let table = &work.trial[book * registers..][..registers];
        let projections = vector.projections.get(start..start + space.stride).unwrap_or_default();
        // Steps for each unit of projection, counted from the middle.
        let mut slope = 0.0;
        if space.beta > 0.0 {
            let e = self.along[1] - projections[from];
            slope = 2.0 * space.beta * (e + work.middles[start / space.stride]) * self.steps;
            let levels = &work.projections[start / LEVELS..][..registers];
            let (mut factor, mut shift) = (2.0 * slope * self.reach, 0);
            while factor.abs() > f32::from(i16::MAX) && shift < i16::BITS - 1 {
                factor *= 0.5;
                shift += 1;
            }
            levels::add_product(&mut work.view, table, factor as i16, levels, shift);
            let padding = space.n_codewords..space.stride;
            padding.for_each(|k| levels::set(&mut work.view, k, i16::MAX));
        } else if space.distinct {
            work.view.copy_from_slice(table);
        }
        if space.distinct {
            let others = trial[..space.n_codebooks].iter().enumerate().filter(|&(b, _)| b != book);
            others.for_each(|(_, &k)| levels::set(&mut work.view, usize::from(k), i16::MAX));
        }
        let view = if space.beta > 0.0 || space.distinct { &work.view } else { table };
        let level = pick(&levels::minima(view));
        // A lane may hold nothing but padding.
        if level == i16::MAX || level == levels::get(view, from) {
            return false;
        }
        let to = levels::find(view, level);
        let mut difference = (i32::from(levels::get(table, to)) - i32::from(levels::get(table, from))) as f32;
        let mut step = 0.0;
        if space.beta > 0.0 {
            step = projections[to] - projections[from];
            difference += slope * step;
            if difference >= 0.0 && !perturbing {
                return false;
            }
        }
        self.along[1] += step;
        self.difference += difference;
        self.changes += 1;
        trial[book] = to as u8;
        let row = |k| space.gram.whole(space.book(book), k);
        if space.shared {
            let tables = work.trial.chunks_exact_mut(space.stride / LEVELS).enumerate();
            for (_, table) in tables.filter(|&(b, _)| b != book) {
                levels::add_difference(table, row(to), row(from), self.shift);
            }
        } else {
            levels::add_difference(&mut work.trial, row(to), row(from), self.shift);
        }
        true
    }
}

/// The sum of the projections of the codewords of `code`.
#[inline(always)]
fn code_sum(space: &Space<'_>, vector: &Vector<'_>, code: &[u8]) -> f32 {
    let places = code[..space.n_codebooks].iter().enumerate();
    places.map(|(book, &k)| vector.projections[space.start(book) + usize::from(k)]).sum()
}

/// SplitMix64 (Steele et al. 2014): a row's own sequence costs nothing to begin.
struct Random(u64);

impl Random {
    #[inline(always)]
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}
