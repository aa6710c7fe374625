//! A query on its way over the codes.

use super::Segment;
use super::adjust::Measure;
use super::bounds::Bounds;
use super::brackets::{Brackets, Candidate};
use super::each::Own;
use super::kernel::{AHEAD, ScanKernel, TOGETHER};
use super::plan::Plan;
use super::score::Scorer;
use crate::codes::packed::{BLOCK, Line};
use crate::isa;
use crate::scan::topk::{Key, TopK};
use std::ops::Range;

/// Blocks passed to the kernel at once, between two looks at the floor.
pub(super) const CALL: usize = 64;
/// Initial room for the scored vectors of a call; usually there are fewer.
const SCORED: usize = 512;
/// If fewer than one vector in this many blocks is allowed, scoring them directly is faster than filtering first.
const SPARSE: usize = 4;

/// The k best of a query so far.
pub(super) struct Scanner<'a> {
    segments: &'a [Segment<'a>],
    query: usize,
    /// The present segment, if there is one.
    at: usize,
    scorer: Scorer<'a>,
    kernel: ScanKernel,
    /// The lines that follow the present segment.
    soon: &'a [Line],
    /// The search does not look for vectors that score less.
    guess: f32,
    /// `None`: every vector is scored.
    bounds: Option<Bounds<'a>>,
    best: Best<'a>,
    /// Which vectors the query may find, if not all that the segments allow.
    own: Option<Own<'a>>,
    /// The part of that in the present blocks, and how much is below them.
    here: (Own<'a>, [usize; 2]),
    /// Blocks seen so far.
    seen: usize,
    /// Whether the best are returned in order.
    is_sorted: bool,
    /// Vectors to be scored, and their scores; reused from call to call.
    scored: (Vec<u16>, Vec<f32>),
}

/// What is kept of the scored vectors.
enum Best<'a> {
    /// The best by their table sums.
    Known(TopK),
    /// The candidates by the bounds that table sums give.
    Bracketed(Brackets, &'a dyn Measure),
}

/// What a scanner found.
pub(super) enum Found {
    /// The best, in order if requested.
    Known(Vec<Key>),
    /// Some candidates, which include the best.
    Bracketed(Vec<Candidate>),
}

impl<'a> Scanner<'a> {
    /// A scanner for the `k` best for query `query`, which does not look for vectors that score less than `guess`.
    pub(super) fn new(plan: &'a Plan<'a>, query: usize, k: usize, guess: f32) -> Self {
        let (tables, segment) = (plan.tables.query(query), &plan.segments[0]);
        let best = match segment.adjust.measure() {
            Some(measure) => Best::Bracketed(Brackets::new(k), measure),
            None => Best::Known(TopK::new(k)),
        };
        Self {
            segments: plan.segments,
            query,
            at: usize::MAX,
            scorer: Scorer {
                tables,
                adjust: segment.adjust,
                base: 0.0,
                layout: segment.codes.layout(),
                kernel: plan.kernel,
            },
            soon: &[],
            kernel: plan.kernel,
            guess,
            bounds: Bounds::new(tables, query, segment.codes.layout(), plan.is_by_query),
            best,
            own: (!plan.each.is_all()).then(|| plan.each.of(query)),
            here: Default::default(),
            seen: 0,
            is_sorted: plan.is_sorted,
            scored: (Vec::with_capacity(SCORED), Vec::with_capacity(SCORED)),
        }
    }

    /// The search did not look for all scores below this.
    pub(super) fn guess(&self) -> f32 {
        self.guess
    }

    /// What was found: it includes the k best, except those below the guess.
    pub(super) fn into_found(self) -> Found {
        match self.best {
            Best::Known(found) if !self.is_sorted && self.guess == f32::NEG_INFINITY => {
                Found::Known(found.into_keys())
            }
            Best::Known(found) => {
                let mut found = found.into_sorted();
                // Vectors below the guess were skipped, but not all of them.
                found.truncate(found.partition_point(|key| key.score() >= self.guess));
                found.shrink_to_fit();
                Found::Known(found)
            }
            Best::Bracketed(brackets, _) => {
                let mut candidates = brackets.into_candidates();
                candidates.retain(|candidate| candidate.high >= self.guess);
                candidates.shrink_to_fit();
                Found::Bracketed(candidates)
            }
        }
    }

    /// The score that a vector must reach to be among the k best, −∞ if none is known.
    pub(super) fn floor(&mut self) -> f32 {
        let floor = match &mut self.best {
            Best::Known(found) => {
                found.settle();
                found.floor().unwrap_or(f32::NEG_INFINITY)
            }
            Best::Bracketed(brackets, _) => brackets.floor(),
        };
        floor.max(self.guess)
    }

    /// Sets the lines that follow the next segment, which kernels then prefetch.
    pub(super) fn then(&mut self, soon: &'a [Line]) {
        self.soon = soon;
    }

    /// How many bytes ahead of a line a kernel prefetches while it processes some `blocks`.
    fn ahead(&self, blocks: &Range<usize>) -> isize {
        let codes = &self.segments[self.at].codes;
        let m = codes.n_lines();
        let left = (codes.n_blocks() - blocks.end) * m;
        if left < AHEAD && !self.soon.is_empty() {
            // Line by line; in a long segment, starting from the last call.
            let start = if codes.n_blocks() > CALL { blocks.start } else { 0 };
            let all = codes.lines(start..codes.n_blocks());
            return (self.soon.as_ptr() as isize).wrapping_sub(all.as_ptr() as isize);
        }
        (AHEAD.max(TOGETHER * m) * size_of::<Line>()) as isize
    }

    /// Scans some more blocks of a segment that it probes from `base`; each block must be scanned once.
    pub(super) fn scan(&mut self, (segment, base): (usize, f32), mut blocks: Range<usize>) {
        if self.at != segment {
            self.at = segment;
            let adjust = self.segments[segment].adjust;
            self.scorer = Scorer { adjust, base, ..self.scorer };
            if let Some(bounds) = &mut self.bounds {
                bounds.enter(adjust, base);
            }
        }
        loop {
            // Without a guess the floor rises fast at first, so it is checked often.
            let size = if self.guess > f32::NEG_INFINITY { CALL } else { (self.seen / 4).clamp(1, CALL) };
            let call = self.next_call(blocks.clone(), size);
            if call.is_empty() {
                return;
            }
            blocks.start = call.end;
            self.seen += call.len();
            self.call(call);
        }
    }

    /// At most `size` of `blocks`, starting at the first one with an allowed vector.
    fn next_call(&self, mut blocks: Range<usize>, size: usize) -> Range<usize> {
        if let Some(allowed) = self.segments[self.at].allowed {
            let words = &allowed[blocks.clone()];
            blocks.start += words.iter().position(|&word| word != 0).unwrap_or(words.len());
        }
        if let Some(own) = &self.own {
            blocks.start = own.first_block(self.position(blocks.start), blocks.clone());
        }
        blocks.start..blocks.end.min(blocks.start + size)
    }

    fn call(&mut self, blocks: Range<usize>) {
        if let Some(own) = self.own {
            let positions = self.position(blocks.start)..self.position(blocks.end);
            self.here.0 = own.within(&positions, &mut self.here.1);
        }
        let segment = &self.segments[self.at];
        let lines = segment.codes.lines(blocks.clone());
        let mut named = [0; CALL];
        let words = match self.own {
            Some(own) if own.is_named() => {
                let words = &mut named[..blocks.len()];
                words.iter_mut().zip(blocks.clone()).for_each(|(word, block)| *word = self.present(block));
                Some(&*words)
            }
            _ => segment.allowed.map(|allowed| &allowed[blocks.clone()]),
        };
        if let Some(words) = words
            && words.iter().map(|word| word.count_ones() as usize).sum::<usize>() < blocks.len() / SPARSE
        {
            return self.score_marked(blocks, lines, words, marked(words));
        }
        let (floor, ahead) = (self.floor(), self.ahead(&blocks));
        if floor > f32::NEG_INFINITY
            && let Some(bounds) = &mut self.bounds
            && let Some(limit) = bounds.limit(floor)
        {
            let mut hits = [0; CALL];
            let hits = &mut hits[..blocks.len()];
            if bounds.is_long() {
                self.kernel.filter_long(lines, bounds.tables(), limit, ahead, hits);
            } else {
                let limit = u8::try_from(limit).expect("a limit of 8 bits");
                self.kernel.filter(lines, bounds.tables(), limit, ahead, hits);
            }
            return self.score_marked(blocks, lines, hits, marked(hits));
        }
        if let Best::Known(_) = self.best {
            let all = [u64::MAX; CALL];
            let all = &all[..blocks.len()];
            return self.score_marked(blocks, lines, all, marked(all));
        }
        self.score_all(blocks, lines);
    }

    /// Scores the vectors in `hits`, which has one word per block. The bits of `marked` tell which words are not 0.
    fn score_marked(&mut self, blocks: Range<usize>, lines: &[Line], hits: &[u64], marked: u64) {
        let segment = &self.segments[self.at];
        let m = segment.codes.n_lines();
        // First the vectors, then their scores, then the good ones among them: three loops that a processor can run
        // ahead in.
        let (mut vectors, mut scores) = std::mem::take(&mut self.scored);
        vectors.clear();
        scores.clear();
        for at in bits(marked) {
            let lanes = hits[at] & self.present(blocks.start + at);
            vectors.extend(bits(lanes).map(|lane| (at * BLOCK + lane) as u16));
        }
        if let Some(positions) = segment.positions {
            let positions = &positions[blocks.start * BLOCK..];
            vectors.iter().for_each(|&at| isa::prefetch_one(&positions[usize::from(at)]));
        }
        self.scorer.some(blocks.start, lines, &vectors, &mut scores);
        let scored = vectors.iter().map(|&at| usize::from(at)).zip(scores.iter().copied());
        match &mut self.best {
            Best::Known(found) => scored.for_each(|(at, score)| {
                found.push(Key::new(score, segment.position(blocks.start * BLOCK + at)));
            }),
            Best::Bracketed(..) => scored.for_each(|(at, score)| {
                let (block, lane) = (at / BLOCK, at % BLOCK);
                self.bracket(blocks.start + block, &lines[block * m..][..m], lane, score);
            }),
        }
        self.scored = (vectors, scores);
    }

    /// Bounds the scores of whole blocks.
    fn score_all(&mut self, blocks: Range<usize>, lines: &[Line]) {
        let segment = &self.segments[self.at];
        for (block, lines) in blocks.zip(lines.chunks_exact(segment.codes.n_lines())) {
            let scores = self.scorer.block(block, lines);
            bits(self.present(block)).for_each(|lane| self.bracket(block, lines, lane, scores[lane]));
        }
    }

    /// Bounds the score of vector `lane` of a block, whose table sum is `sum`, and offers it.
    fn bracket(&mut self, block: usize, lines: &[Line], lane: usize, sum: f32) {
        let Best::Bracketed(brackets, measure) = &mut self.best else { return };
        let at = block * BLOCK + lane;
        // Without bounds nothing is known about the rounding either.
        let (low, high) = match self.bounds.as_ref().and_then(Bounds::error) {
            Some(error) => {
                let sum = f64::from(sum);
                let byte = lines.last().expect("a column at least")[lane];
                let within = self.scorer.adjust.within(byte, at);
                measure.bracket(self.query, (sum - error, sum + error), within)
            }
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        // A bound that is NaN bounds nothing.
        let low = if low.is_nan() { f32::NEG_INFINITY } else { (low as f32).next_down() };
        let high = if high.is_nan() { f32::INFINITY } else { (high as f32).next_up() };
        brackets.push(Candidate { low, high, segment: self.at, at });
    }

    /// Which lanes of a block hold vectors that are allowed.
    #[inline]
    fn present(&self, block: usize) -> u64 {
        let allowed = self.segments[self.at].present(block);
        match self.own {
            Some(_) if allowed != 0 => allowed & self.here.0.word(self.position(block)),
            _ => allowed,
        }
    }

    /// The number by which the sets of a query identify the first vector of a block.
    fn position(&self, block: usize) -> u64 {
        self.segments[self.at].first + (block * BLOCK) as u64
    }
}

/// Which of at most 64 words are not 0: few are, and the others can be skipped.
#[inline]
fn marked(words: &[u64]) -> u64 {
    words.iter().rev().fold(0, |marked, &word| marked << 1 | u64::from(word != 0))
}

/// The positions of the set bits.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
