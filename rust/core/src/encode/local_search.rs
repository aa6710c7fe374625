//! Local search: iterated conditional modes with perturbation.
//!
//! A code is improved one codeword at a time: each codebook in turn takes the codeword that is best given all others,
//! until none changes. Then a few codewords are changed at random, the others settle again, and the better of the two
//! codes is kept. This is repeated for a number of rounds. (Martinez et al., *Revisiting Additive Quantization*, 2016.)
//!
//! The turn of a codebook needs the score of each of its codewords given the codes of the others: the vector's own
//! score plus a row of the Gram matrix for each other codebook. All of these are 16-bit integers; the only loss of
//! precision is that each Gram entry and each score is rounded once. With the part of the loss along the vector,
//!
//! ```text
//! β(e + p)² − βe² = βp² + 2βep,   e = Σ p − ‖x‖ over the other codebooks
//! ```
//!
//! the first term belongs to the vector's own scores; the second changes with every code, and is added at each turn.
//!
//! **The time goes into reading Gram rows**, about 150 of them per round (M = 8), from a matrix of 8 MB. So the vectors
//! of a chunk take each turn together: the rows needed are then those over one codebook, 1 MB for M = 8 and K = 256,
//! which stay in the caches near the core while the vectors pass; and a cache miss of one vector does not stall the
//! next. Which codebooks a round perturbs, and their starting points, are the same for all vectors of all chunks, so
//! the code of a vector depends on nothing but the vector and the seed.
//!
//! The alternative, keeping M tables per vector up to date with every change, reads two rows over all codebooks per
//! change, whose addresses are known only after the previous choice: it takes 1.6 times as long.

use super::levels::{self, LEVELS, LevelBlock};
use super::local_search_tables;
use super::perturbation::{Random, SWEEPS, drawn};
use super::rounded::Rounded;
use super::space::Space;
use crate::isa::Level;

/// The search for the codes of some vectors.
#[derive(Default)]
pub(super) struct Search {
    pub(super) vectors: Rounded,
    /// The codes that are kept and those on trial, `[vector][codebook]`, as row numbers of the Gram matrix.
    kept: Vec<u32>,
    trial: Vec<u32>,
    /// The projections of their codewords, in levels, if the loss uses them: stored here to save a cache line per
    /// lookup.
    kept_levels: Vec<i16>,
    trial_levels: Vec<i16>,
    /// The number of changes at the last turn of a codebook, `[vector][codebook]`.
    seen: Vec<u32>,
    /// The vectors that take part in the present turn.
    turns: Vec<Turn>,
    /// What a round perturbs: see [`drawn`](super::perturbation::drawn).
    perturbed: Vec<(usize, usize)>,
}

/// The choice of one codebook for one vector.
#[derive(Clone, Copy)]
struct Turn {
    vector: u32,
    /// 2¹⁶ times the weight of a projection, in steps, after scores were halved `halvings` times.
    factor: i16,
    halvings: u32,
    /// Steps per unit of projection.
    slope: f32,
    /// The least score so far, [`i16::MAX`] if there is none; and its codeword.
    level: i16,
    codeword: i16,
    /// The projection of that codeword, in levels.
    projection: i16,
    /// The present codeword, and its score.
    from: i16,
    own: i16,
}

/// Which codewords of a codebook a turn may choose from.
#[derive(Clone, Copy)]
enum Choice {
    /// All of them, if the best improves the code.
    Best,
    /// Some lanes of one register, even if the best of them is worse: (register, first lane, lanes).
    Drawn(usize, usize, usize),
}

impl Search {
    /// Improves `codes` (n, M) in `rounds` rounds.
    #[inline(always)]
    pub(super) fn run<L: Level>(&mut self, space: &Space<'_>, rounds: usize, seed: u64, codes: &mut [u8]) {
        if let Some(rows) = space.rows {
            return local_search_tables::run::<L>(&self.vectors, space, rows, (rounds, seed), codes);
        }
        let m = space.n_codebooks;
        self.trial.clear();
        for code in codes.chunks_exact(m) {
            self.trial.extend(
                code.iter().enumerate().map(|(book, &k)| (space.start(book) + usize::from(k)) as u32),
            );
        }
        self.kept.clone_from(&self.trial);
        self.seen.clear();
        self.seen.resize(codes.len(), 0);
        self.trial_levels.clear();
        if space.beta > 0.0 {
            for v in 0..self.vectors.states.len() {
                let mut sum = 0;
                for (book, &k) in codes[v * m..][..m].iter().enumerate() {
                    let levels = &self.vectors.projections[self.vectors.place(space, space.book(book), v)];
                    let level = levels::get(levels, k.into());
                    self.trial_levels.push(level);
                    sum += i32::from(level);
                }
                self.vectors.states[v].begin(sum);
            }
        }
        self.kept_levels.clone_from(&self.trial_levels);
        let mut order: Vec<usize> = (0..m).collect();
        self.settle::<L>(space, &order);
        self.keep(m);
        let mut random = Random(seed);
        for _ in 0..rounds {
            self.perturb::<L>(space, &mut random, &mut order);
            self.settle::<L>(space, &order);
            self.keep(m);
        }
        for (code, kept) in codes.chunks_exact_mut(m).zip(self.kept.chunks_exact(m)) {
            for (book, (k, &row)) in code.iter_mut().zip(kept).enumerate() {
                *k = (row as usize - space.start(book)) as u8;
            }
        }
    }

    /// Gives some codebooks the best of a few codewords drawn at random, and puts them last in the order of turns: if
    /// their turn came first, most would revert. Perturbing more codebooks takes longer and finds less.
    #[inline(always)]
    fn perturb<L: Level>(&mut self, space: &Space<'_>, random: &mut Random, order: &mut [usize]) {
        // No closure: its calls would be compiled without the instruction set.
        let mut perturbed = std::mem::take(&mut self.perturbed);
        perturbed.clear();
        let size = drawn(space, random, order, &mut perturbed);
        for &(book, first) in &perturbed {
            self.take::<L>(space, book, Choice::Drawn(first / LEVELS, first % LEVELS, size), true);
        }
        self.perturbed = perturbed;
    }

    /// Lets each codebook in turn take the best codeword given the others, until none changes.
    #[inline(always)]
    fn settle<L: Level>(&mut self, space: &Space<'_>, order: &[usize]) {
        for sweep in 0..SWEEPS {
            let mut any = false;
            for &book in order {
                any |= self.take::<L>(space, book, Choice::Best, sweep == 0);
            }
            if !any {
                break;
            }
        }
    }

    /// Keeps each code on trial that is better than the one kept, and reverts to the kept one otherwise.
    fn keep(&mut self, m: usize) {
        let Self { vectors, kept, trial, kept_levels, trial_levels, .. } = self;
        for (v, state) in vectors.states.iter_mut().enumerate() {
            let here = v * m..v * m + m;
            if state.difference < 0.0 {
                kept[here.clone()].copy_from_slice(&trial[here.clone()]);
                if let Some(levels) = trial_levels.get(here.clone()) {
                    kept_levels[here].copy_from_slice(levels);
                }
                state.along[0] = state.along[1];
            } else {
                trial[here.clone()].copy_from_slice(&kept[here.clone()]);
                if let Some(levels) = kept_levels.get(here.clone()) {
                    trial_levels[here].copy_from_slice(levels);
                }
                state.along[1] = state.along[0];
            }
            state.difference = 0.0;
        }
    }

    /// Lets `book` choose for all vectors if `always`, otherwise for those whose code has changed since its last turn.
    /// Returns whether any vector takes a different codeword.
    #[inline(always)]
    fn take<L: Level>(&mut self, space: &Space<'_>, book: usize, choice: Choice, always: bool) -> bool {
        self.begin(space, book, always);
        match choice {
            Choice::Best => match space.gram.width() {
                8 => self.look::<L, 8>(space, book, choice),
                4 => self.look::<L, 4>(space, book, choice),
                2 => self.look::<L, 2>(space, book, choice),
                _ => self.look::<L, 1>(space, book, choice),
            },
            Choice::Drawn(..) => {
                self.own_scores(space, book);
                self.look::<L, 1>(space, book, choice);
            }
        }
        self.change(space, book, matches!(choice, Choice::Drawn(..)))
    }

    /// Collects the vectors that take part in the turn.
    #[inline(always)]
    fn begin(&mut self, space: &Space<'_>, book: usize, always: bool) {
        let m = space.n_codebooks;
        let start = space.start(book) as u32;
        let Self { vectors: Rounded { states, .. }, trial, trial_levels, seen, turns, .. } = self;
        turns.clear();
        let codes = trial.chunks_exact(m).zip(seen.chunks_exact(m));
        for ((v, state), (trial, seen)) in states.iter().enumerate().zip(codes) {
            if !always && seen[book] == state.changes {
                continue;
            }
            let from = (trial[book] - start) as usize;
            let mut turn = Turn {
                vector: v as u32,
                factor: 0,
                halvings: 0,
                slope: 0.0,
                level: i16::MAX,
                codeword: from as i16,
                projection: 0,
                from: from as i16,
                own: i16::MAX,
            };
            if space.beta > 0.0 {
                turn.projection = trial_levels[v * m + book];
                (turn.factor, turn.halvings, turn.slope) = state.weigh(space.beta, turn.projection);
            }
            turns.push(turn);
        }
    }

    /// Finds the least score of each vector in the turn, `R` registers at a time.
    #[inline(always)]
    fn look<L: Level, const R: usize>(&mut self, space: &Space<'_>, book: usize, choice: Choice) {
        let registers = match choice {
            Choice::Best => 0..space.gram.width(),
            Choice::Drawn(register, ..) => register..register + 1,
        };
        for first in registers.step_by(R) {
            // The largest level masks what must not be chosen.
            let mut mask = [[i16::MIN; LEVELS]; R];
            if let Choice::Drawn(_, lane, size) = choice {
                mask[0].fill(i16::MAX);
                mask[0][lane..][..size].fill(i16::MIN);
            }
            let padding = space.n_codewords.saturating_sub(first * LEVELS);
            if padding < R * LEVELS {
                mask.as_flattened_mut()[padding..].fill(i16::MAX);
            }
            let masked = space.distinct || mask.as_flattened().contains(&i16::MAX);
            match (space.beta > 0.0, masked) {
                (false, false) => self.look_at::<L, R, false, false>(space, book, first, &mask),
                (false, true) => self.look_at::<L, R, false, true>(space, book, first, &mask),
                (true, false) => self.look_at::<L, R, true, false>(space, book, first, &mask),
                (true, true) => self.look_at::<L, R, true, true>(space, book, first, &mask),
            }
        }
    }

    /// Looks at registers from `first` on.
    #[inline(always)]
    fn look_at<L: Level, const R: usize, const ALONG: bool, const MASKED: bool>(
        &mut self,
        space: &Space<'_>,
        book: usize,
        first: usize,
        mask: &[[i16; LEVELS]; R],
    ) {
        let here = self.vectors.place(space, space.book(book), 0).start;
        let Self { vectors: Rounded { states, own, projections, .. }, trial, turns, .. } = self;
        let (m, width, block) = (space.n_codebooks, space.gram.width(), space.gram.block(space.book(book)));
        let (rows, _) = block.as_chunks::<R>();
        let codeword = first * LEVELS;
        let mut lanes = [0; LEVELS];
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane = (codeword + l) as i16;
        }
        let keys = L::load(&lanes);
        let mut levels = [LevelBlock::ZERO; R];
        for turn in turns {
            let v = turn.vector as usize;
            let (Some(state), Some(code)) = (states.get(v), trial.get(v * m..v * m + m)) else { continue };
            let at = here + v * width + first;
            let Some(own) = own.get(at..at + R) else { continue };
            let mut sums = [L::splat(0); R];
            // Rows are within the block. The loops have no early exit: it would force the sums out of their registers.
            if width == R && !space.shared {
                let (before, after) = code.split_at(book.min(m));
                for &row in before {
                    let Some(row) = rows.get(row as usize) else { continue };
                    for r in 0..R {
                        sums[r] = L::add(sums[r], L::load(&row[r].0));
                    }
                }
                for &row in after.get(1..).unwrap_or_default() {
                    let Some(row) = rows.get(row as usize) else { continue };
                    for r in 0..R {
                        sums[r] = L::add(sums[r], L::load(&row[r].0));
                    }
                }
            } else {
                for (other, &row) in code.iter().enumerate() {
                    let row = row as usize * width + first;
                    let Some(row) = block.get(row..row + R) else { continue };
                    if other != book {
                        for r in 0..R {
                            sums[r] = L::add(sums[r], L::load(&row[r].0));
                        }
                    }
                }
            }
            for r in 0..R {
                sums[r] = L::add(L::shift_right(sums[r], state.shift), L::load(&own[r].0));
            }
            if ALONG {
                let Some(projections) = projections.get(at..at + R) else { continue };
                let (factor, halvings) = (L::splat(turn.factor), turn.halvings);
                for r in 0..R {
                    let product = L::multiply_high(factor, L::load(&projections[r].0));
                    sums[r] = L::add_saturating(L::shift_right(sums[r], halvings), product);
                }
            }
            // Branches here would mostly be mispredicted.
            for r in 0..R {
                L::store(sums[r], &mut levels[r].0);
            }
            let from = (turn.from as usize).wrapping_sub(codeword);
            let own = levels::get(&levels, from % (R * LEVELS));
            turn.own = if from < R * LEVELS { own } else { turn.own };
            if MASKED {
                let mut mask = *mask;
                if space.distinct {
                    for (other, &k) in code.iter().enumerate() {
                        let k = (k as usize).wrapping_sub(codeword);
                        if other != book && k < R * LEVELS {
                            mask[k / LEVELS][k % LEVELS] = i16::MAX;
                        }
                    }
                }
                for r in 0..R {
                    sums[r] = L::max(sums[r], L::load(&mask[r]));
                }
            }
            let (mut least, mut key, mut next) = (sums[0], keys, keys);
            for &sums in &sums[1..] {
                next = L::add(next, L::splat(LEVELS as i16));
                key = L::select_less(sums, least, next, key);
                least = L::min(sums, least);
            }
            let (level, codeword) = L::least(least, key);
            if ALONG {
                let here = codeword as usize - first * LEVELS;
                let projection =
                    projections.get(at + here / LEVELS).map_or(0, |levels| levels.0[here % LEVELS]);
                turn.projection = if level < turn.level { projection } else { turn.projection };
            }
            turn.codeword = if level < turn.level { codeword } else { turn.codeword };
            turn.level = turn.level.min(level);
        }
    }

    /// Makes the changes that the turns ask for; returns whether there are any.
    #[inline(always)]
    fn change(&mut self, space: &Space<'_>, book: usize, perturbing: bool) -> bool {
        let m = space.n_codebooks;
        let start = space.start(book) as u32;
        let Self { vectors: Rounded { states, .. }, trial, trial_levels, seen, turns, .. } = self;
        let mut any = false;
        for turn in turns {
            let v = turn.vector as usize;
            let state = &mut states[v];
            let mut difference = (i32::from(turn.level) - i32::from(turn.own)) as f32;
            if turn.codeword != turn.from && (difference < 0.0 || perturbing) {
                let mut step = 0.0;
                if space.beta > 0.0 {
                    let change = (trial_levels[v * m + book], turn.projection);
                    (difference, step) =
                        state.refine(difference, change, (turn.factor, turn.halvings, turn.slope));
                }
                if difference < 0.0 || perturbing {
                    state.along[1] += step;
                    state.difference += difference;
                    state.changes += 1;
                    trial[v * m + book] = start + turn.codeword as u32;
                    if space.beta > 0.0 {
                        trial_levels[v * m + book] = turn.projection;
                    }
                    any = true;
                }
            }
            if !perturbing {
                seen[v * m + book] = state.changes;
            }
        }
        any
    }

    /// Computes the score of the present codeword of each vector in the turn.
    #[inline(always)]
    fn own_scores(&mut self, space: &Space<'_>, book: usize) {
        let m = space.n_codebooks;
        let (width, block) = (space.gram.width(), space.gram.block(space.book(book)));
        let Self { vectors, trial, trial_levels, turns, .. } = self;
        for turn in turns {
            let v = turn.vector as usize;
            let k = turn.from as usize;
            let place = vectors.place(space, space.book(book), v);
            let mut score = 0i16;
            for (other, &row) in trial[v * m..][..m].iter().enumerate() {
                if other != book {
                    let row = &block[row as usize * width..][..width];
                    score = score.wrapping_add(levels::get(row, k));
                }
            }
            score = (score >> vectors.states[v].shift).wrapping_add(levels::get(&vectors.own[place], k));
            if space.beta > 0.0 {
                let product = (i32::from(turn.factor) * i32::from(trial_levels[v * m + book])) >> 16;
                score = (score >> turn.halvings).saturating_add(product as i16);
            }
            turn.own = score;
        }
    }
}
