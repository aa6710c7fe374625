//! One query on its way over the codes.

use super::Plan;
use super::bounds::Bounds;
use super::kernel::Kernel;
use super::score::Scorer;
use crate::codes::packed::{BLOCK, Line, PackedView};
use crate::scan::topk::{Key, TopK};
use std::ops::Range;

/// Blocks given to the kernel at once, between two looks at the floor.
const CALL: usize = 64;
/// Where fewer than one vector in so many blocks is allowed, scoring them right away is faster than filtering first.
const SPARSE: usize = 4;

/// The k best of a query so far.
pub(super) struct Scanner<'a> {
    codes: PackedView<'a>,
    allowed: Option<&'a [u64]>,
    scorer: Scorer<'a>,
    kernel: Kernel,
    /// Vectors that score less are not looked for.
    guess: f32,
    /// `None`: every vector is scored.
    bounds: Option<Bounds<'a>>,
    found: TopK,
    /// Blocks seen.
    seen: usize,
}

impl<'a> Scanner<'a> {
    /// For the `k` best for query `query`, and no vector that scores less than `guess`.
    pub(super) fn new(plan: &Plan<'a>, query: usize, k: usize, guess: f32) -> Self {
        let scorer = Scorer { tables: plan.tables.query(query), adjust: plan.options.adjust };
        Self {
            codes: plan.codes,
            allowed: plan.options.allowed,
            scorer,
            kernel: plan.kernel,
            guess,
            bounds: Bounds::new(scorer.tables, scorer.adjust),
            found: TopK::new(k),
            seen: 0,
        }
    }

    /// What was found, best first; at most k, and none below the guess.
    pub(super) fn into_sorted(self) -> Vec<Key> {
        let mut found = self.found.into_sorted();
        // Vectors below the guess were skipped, but not all of them.
        found.truncate(found.partition_point(|key| key.score() >= self.guess));
        found.shrink_to_fit();
        found
    }

    /// The score that a vector must reach to be of the k best, −∞ if nothing is known of it.
    pub(super) fn floor(&mut self) -> f32 {
        self.found.settle();
        self.found.floor().unwrap_or(f32::NEG_INFINITY).max(self.guess)
    }

    /// Takes some more blocks, each of which must be taken once.
    pub(super) fn scan(&mut self, mut blocks: Range<usize>) {
        loop {
            // Without a guess the floor rises fast at first: look at it often.
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

    /// At most `size` of `blocks`, from the first one with an allowed vector on.
    fn next_call(&self, mut blocks: Range<usize>, size: usize) -> Range<usize> {
        if let Some(allowed) = self.allowed {
            let words = &allowed[blocks.clone()];
            blocks.start += words.iter().position(|&word| word != 0).unwrap_or(words.len());
        }
        blocks.start..blocks.end.min(blocks.start + size)
    }

    fn call(&mut self, blocks: Range<usize>) {
        let lines = self.codes.lines(blocks.clone());
        if let Some(words) = self.allowed.map(|allowed| &allowed[blocks.clone()])
            && words.iter().map(|word| word.count_ones() as usize).sum::<usize>() < blocks.len() / SPARSE
        {
            return self.score_marked(blocks, lines, words, marked(words));
        }
        let floor = self.floor();
        match &mut self.bounds {
            Some(bounds) if floor > f32::NEG_INFINITY => {
                let limit = bounds.limit(floor);
                let mut hits = [0; CALL];
                let hits = &mut hits[..blocks.len()];
                self.kernel.filter(lines, bounds.bytes(), limit, hits);
                self.score_marked(blocks, lines, hits, marked(hits));
            }
            _ => self.score_all(blocks, lines),
        }
    }

    /// Scores the vectors in `hits`, a word a block; few. The bits of `marked` say which words are not 0.
    fn score_marked(&mut self, blocks: Range<usize>, lines: &[Line], hits: &[u64], marked: u64) {
        let m = self.codes.n_columns();
        for at in bits(marked) {
            let (block, lines) = (blocks.start + at, &lines[at * m..][..m]);
            for lane in bits(hits[at] & self.present(block)) {
                self.found
                    .push(Key::new(self.scorer.lane(block, lines, lane), (block * BLOCK + lane) as u32));
            }
        }
    }

    /// Scores whole blocks.
    fn score_all(&mut self, blocks: Range<usize>, lines: &[Line]) {
        for (block, lines) in blocks.zip(lines.chunks_exact(self.codes.n_columns())) {
            let scores = self.scorer.block(block, lines);
            for lane in bits(self.present(block)) {
                self.found.push(Key::new(scores[lane], (block * BLOCK + lane) as u32));
            }
        }
    }

    /// Which lanes of a block hold vectors that are allowed.
    #[inline]
    fn present(&self, block: usize) -> u64 {
        let filled = match self.codes.len() - block * BLOCK {
            rest @ 0..BLOCK => (1 << rest) - 1,
            _ => u64::MAX,
        };
        self.allowed.map_or(filled, |allowed| allowed[block] & filled)
    }
}

/// Which of at most 64 words are not 0: few are, and the others need not be looked at.
#[inline]
fn marked(words: &[u64]) -> u64 {
    words.iter().rev().fold(0, |marked, &word| marked << 1 | u64::from(word != 0))
}

/// The positions of the bits set.
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
