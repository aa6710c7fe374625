//! One query on its way over the codes.

use super::bounds::Bounds;
use super::kernel::Kernel;
use super::score::Scorer;
use crate::packed::{BLOCK, Line, PackedView};
use crate::topk::{Key, TopK};
use std::ops::Range;

/// Blocks given to the kernel at once, between two looks at the floor.
const CALL: usize = 64;
/// Blocks without an allowed vector that end a call: skipping fewer costs more than filtering them.
const GAP: usize = 8;

/// The k best of a query so far.
pub(super) struct Scanner<'a> {
    codes: PackedView<'a>,
    allowed: Option<&'a [u64]>,
    scorer: Scorer<'a>,
    kernel: Kernel,
    /// Vectors that score less need not be found.
    guess: f32,
    /// `None`: every vector is scored.
    bounds: Option<Bounds<'a>>,
    pub(super) found: TopK,
    /// Blocks seen.
    seen: usize,
}

impl<'a> Scanner<'a> {
    /// For the `k` best of `codes`, of those in `allowed` if it is given: a bit a vector, a word a block.
    pub(super) fn new(
        codes: PackedView<'a>,
        allowed: Option<&'a [u64]>,
        scorer: Scorer<'a>,
        kernel: Kernel,
        k: usize,
        guess: f32,
    ) -> Self {
        let bounds = Bounds::new(scorer.tables, scorer.adjust);
        Self { codes, allowed, scorer, kernel, guess, bounds, found: TopK::new(k), seen: 0 }
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
    fn next_call(&self, blocks: Range<usize>, size: usize) -> Range<usize> {
        let Some(allowed) = self.allowed else {
            return blocks.start..blocks.end.min(blocks.start + size);
        };
        let words = &allowed[blocks.clone()];
        let Some(skip) = words.iter().position(|&word| word != 0) else {
            return blocks.end..blocks.end;
        };
        let words = &words[skip..][..size.min(words.len() - skip)];
        let gap = words.windows(GAP).position(|words| words.iter().all(|&word| word == 0));
        let start = blocks.start + skip;
        start..start + gap.unwrap_or(words.len())
    }

    fn call(&mut self, blocks: Range<usize>) {
        let lines = self.codes.lines(blocks.clone());
        let mut hits = [u64::MAX; CALL];
        let hits = &mut hits[..blocks.len()];
        if let Some(allowed) = self.allowed {
            hits.copy_from_slice(&allowed[blocks.clone()]);
        }
        *hits.last_mut().expect("not empty") &= self.filled(blocks.end - 1);

        self.found.settle();
        let floor = self.found.floor().unwrap_or(f32::NEG_INFINITY).max(self.guess);
        match &mut self.bounds {
            Some(bounds) if floor > f32::NEG_INFINITY => {
                let limits = [bounds.limit(floor); CALL];
                let mut may_reach = [0; CALL];
                let may_reach = &mut may_reach[..blocks.len()];
                self.kernel.filter(lines, bounds.bytes(), &limits[..blocks.len()], may_reach);
                hits.iter_mut().zip(may_reach).for_each(|(hits, may_reach)| *hits &= *may_reach);
                self.score(blocks, lines, hits);
            }
            _ => self.score_all(blocks, lines, hits),
        }
    }

    /// Scores the vectors marked in `hits`; few.
    fn score(&mut self, blocks: Range<usize>, lines: &[Line], hits: &[u64]) {
        let m = self.codes.n_columns();
        for (at, &hits) in hits.iter().enumerate() {
            if hits != 0 {
                self.score_lanes(blocks.start + at, &lines[at * m..][..m], hits);
            }
        }
    }

    #[inline(never)] // keeps the loop around it in registers: 15 % of a search
    fn score_lanes(&mut self, block: usize, lines: &[Line], hits: u64) {
        for lane in bits(hits) {
            self.found.push(Key::new(self.scorer.lane(block, lines, lane), (block * BLOCK + lane) as u32));
        }
    }

    /// Scores whole blocks, then takes the vectors marked in `hits`; most.
    fn score_all(&mut self, blocks: Range<usize>, lines: &[Line], hits: &[u64]) {
        for ((block, lines), &hits) in blocks.zip(lines.chunks_exact(self.codes.n_columns())).zip(hits) {
            let scores = self.scorer.block(block, lines);
            for lane in bits(hits) {
                self.found.push(Key::new(scores[lane], (block * BLOCK + lane) as u32));
            }
        }
    }

    /// Which lanes of a block hold vectors.
    fn filled(&self, block: usize) -> u64 {
        match self.codes.len() - block * BLOCK {
            rest @ 0..BLOCK => (1 << rest) - 1,
            _ => u64::MAX,
        }
    }
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
