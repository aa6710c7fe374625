//! Local search: iterated conditional modes with perturbation.
//!
//! A code is improved one codeword at a time: each codebook in turn takes the codeword that is best given all others,
//! until none wants to change. Then a few codewords are changed at random, the others settle anew, and the better of
//! the two codes is kept; and so on, for a number of rounds. (Martinez et al., *Revisiting Additive Quantization*,
//! 2016.)
//!
//! For each codebook a table holds the score of its codewords given the codes of the others. A trial works on a copy,
//! which takes over a change from c to c' only when it is looked at, by adding the Gram row of c' and subtracting that
//! of c. The Gram rows are what the time is spent on (they come from beyond the L2 cache), and nearly all trials fail:
//! one that fails leaves the tables of the code that is kept as they were, and costs nothing to undo.

use super::lanes::{self, LANES, Lanes};
use super::space::{Space, Vector};
use crate::codebooks::MAX_CODEBOOKS;

/// A bound on the sweeps of [`Space::settle`]: two or three are the rule.
const SWEEPS: usize = 16;

/// A codeword of one codebook gives way to another.
#[derive(Clone, Copy)]
struct Change {
    book: usize,
    /// `None` when the first codeword is put in.
    from: Option<usize>,
    to: usize,
}

/// What one thread works in.
#[derive(Default)]
pub(super) struct Workspace {
    /// M tables, given the code that is kept.
    kept: Vec<f32>,
    /// The same, given the code on trial.
    trial: Vec<f32>,
    /// How the code on trial differs from the one that is kept, change after change.
    changes: Vec<Change>,
    /// How many of the changes each table on trial has taken over; `None` while it is not even a copy.
    applied: Vec<Option<usize>>,
}

impl Space<'_> {
    /// Improves `code` in `rounds` rounds; `seed` is the vector's own.
    #[inline(always)]
    pub(super) fn search(
        &self,
        vector: Vector<'_>,
        work: &mut Workspace,
        rounds: usize,
        seed: u64,
        code: &mut [u8],
    ) {
        let mut random = Random(seed);
        let mut trial = [0u8; MAX_CODEBOOKS];
        let trial = &mut trial[..self.n_codebooks];
        trial.copy_from_slice(code);
        self.begin(vector, work, code);
        self.settle(vector, work, trial);
        self.keep(vector, work, trial, code);
        for _ in 0..rounds {
            let difference =
                self.perturb(vector, work, trial, &mut random) + self.settle(vector, work, trial);
            if difference < 0.0 {
                self.keep(vector, work, trial, code);
            } else {
                trial.copy_from_slice(code);
                work.restart();
            }
        }
    }

    /// Fills the tables on trial for `code`.
    #[inline(always)]
    fn begin(&self, vector: Vector<'_>, work: &mut Workspace, code: &[u8]) {
        let size = self.n_codebooks * self.stride;
        work.kept.resize(size, 0.0);
        work.trial.resize(size, 0.0);
        work.applied.resize(self.n_codebooks, None);
        for (book, table) in work.kept.chunks_exact_mut(self.stride).enumerate() {
            table.copy_from_slice(&vector.scores[self.start(book)..][..self.stride]);
        }
        work.restart();
        let changes = code.iter().enumerate();
        work.changes.extend(changes.map(|(book, &k)| Change { book, from: None, to: usize::from(k) }));
    }

    /// Makes the code on trial the one that is kept.
    #[inline(always)]
    fn keep(&self, vector: Vector<'_>, work: &mut Workspace, trial: &[u8], code: &mut [u8]) {
        for book in 0..self.n_codebooks {
            self.refresh(vector, work, book);
        }
        std::mem::swap(&mut work.kept, &mut work.trial);
        work.restart();
        code.copy_from_slice(trial);
    }

    /// Gives some codebooks, half of them on average once, the best of sixteen codewords drawn at random; returns what
    /// that adds to the loss. One of all codewords at random would seldom be of any use.
    #[inline(always)]
    fn perturb(
        &self,
        vector: Vector<'_>,
        work: &mut Workspace,
        trial: &mut [u8],
        random: &mut Random,
    ) -> f32 {
        let mut difference = 0.0;
        for _ in 0..(self.n_codebooks / 2).max(1) {
            let book = random.below(self.n_codebooks);
            let lane = random.below(LANES);
            self.refresh(vector, work, book);
            difference += self.choose(work, trial, book, |minima| minima[lane]);
        }
        difference
    }

    /// Lets each codebook in turn take the best codeword given the others, until none changes; returns what that adds
    /// to the loss.
    #[inline(always)]
    fn settle(&self, vector: Vector<'_>, work: &mut Workspace, trial: &mut [u8]) -> f32 {
        let mut difference = 0.0;
        for sweep in 0..SWEEPS {
            let before = work.changes.len();
            for book in 0..self.n_codebooks {
                if self.refresh(vector, work, book) || sweep == 0 {
                    difference += self.choose(work, trial, book, lanes::fold);
                }
            }
            if work.changes.len() == before {
                break;
            }
        }
        difference
    }

    /// Changes the codeword of `book` to the one whose score `pick` takes of the minima of the lanes, and returns what
    /// that adds to the loss.
    #[inline(always)]
    fn choose(
        &self,
        work: &mut Workspace,
        trial: &mut [u8],
        book: usize,
        pick: impl FnOnce(&Lanes) -> f32,
    ) -> f32 {
        let table = &mut work.trial[book * self.stride..][..self.stride];
        let from = usize::from(trial[book]);
        let hidden = self.distinct.then(|| hide(table, trial, book));
        let score = pick(&lanes::minima(table));
        // A lane may hold nothing but padding.
        let to = if score < f32::INFINITY { lanes::find(table, score) } else { from };
        if let Some(hidden) = hidden {
            show(table, trial, book, &hidden);
        }
        if to == from {
            return 0.0;
        }
        trial[book] = to as u8;
        work.changes.push(Change { book, from: Some(from), to });
        table[to] - table[from]
    }

    /// Brings the table of `book` on trial up to date; whether there was anything to do.
    #[inline(always)]
    fn refresh(&self, vector: Vector<'_>, work: &mut Workspace, book: usize) -> bool {
        let at = book * self.stride;
        let table = &mut work.trial[at..][..self.stride];
        let first = work.applied[book].unwrap_or_else(|| {
            table.copy_from_slice(&work.kept[at..][..self.stride]);
            0
        });
        let mut along = 0.0;
        let mut any = false;
        for change in work.changes[first..].iter().filter(|change| change.book != book) {
            any = true;
            let to = self.row(change.book, change.to, book);
            match change.from {
                None => lanes::add(table, to),
                Some(from) => lanes::add_difference(table, to, self.row(change.book, from, book)),
            }
            if self.beta > 0.0 {
                let projections = &vector.projections[self.start(change.book)..];
                along += projections[change.to] - change.from.map_or(0.0, |from| projections[from]);
            }
        }
        if any && self.beta > 0.0 {
            let projections = &vector.projections[self.start(book)..][..self.stride];
            lanes::add_multiple(table, 2.0 * self.beta * along, projections);
        }
        work.applied[book] = Some(work.changes.len());
        any
    }
}

impl Workspace {
    /// Puts the code that is kept on trial, unchanged.
    #[inline(always)]
    fn restart(&mut self) {
        self.changes.clear();
        self.applied.fill(None);
    }
}

/// Takes the codewords of the other codebooks out of `table`; returns their scores.
#[inline(always)]
fn hide(table: &mut [f32], code: &[u8], book: usize) -> [f32; MAX_CODEBOOKS] {
    let mut hidden = [f32::INFINITY; MAX_CODEBOOKS];
    for (_, (&k, hidden)) in code.iter().zip(&mut hidden).enumerate().filter(|&(b, _)| b != book) {
        *hidden = std::mem::replace(&mut table[usize::from(k)], f32::INFINITY);
    }
    hidden
}

/// Undoes [`hide`].
#[inline(always)]
fn show(table: &mut [f32], code: &[u8], book: usize, hidden: &[f32; MAX_CODEBOOKS]) {
    for (_, (&k, &score)) in code.iter().zip(hidden).enumerate().filter(|&(b, _)| b != book) {
        table[usize::from(k)] = score;
    }
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
