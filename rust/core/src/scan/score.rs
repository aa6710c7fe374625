//! The table sums, which score every candidate, or bound its score.

use super::adjust::Adjust;
use super::kernel::ScanKernel;
use crate::codebooks::MAX_CODEWORDS;
use crate::codes::layout::NIBBLE;
use crate::codes::packed::{BLOCK, Layout, Line};
use crate::scan::tables::QueryTables;

/// The number of vectors below which nibbles are looked up one by one: gathering the codes of 16 takes the same time,
/// however few there are. In a scan without lists, a call usually has two or three.
const FEW: usize = 6;

/// The sums of one query in one segment: entries of its tables added in order, starting from the base; times the scale;
/// plus the bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scorer<'a> {
    pub(super) tables: QueryTables<'a>,
    pub(super) adjust: Adjust<'a>,
    pub(super) base: f32,
    pub(super) layout: Layout,
    pub(super) kernel: ScanKernel,
}

impl Scorer<'_> {
    /// Scores all vectors of block `block`, whose lines are `lines`. Entries beyond the last vector are meaningless.
    pub(super) fn block(&self, block: usize, lines: &[Line]) -> [f32; BLOCK] {
        let mut sums = [self.base; BLOCK];
        for (column, table) in self.tables.iter().enumerate() {
            let (line, shift) = self.layout.place(column);
            let mask = if column < self.layout.n_nibbles() { 15 } else { 255 };
            for (sum, &byte) in sums.iter_mut().zip(&lines[line]) {
                *sum += table[usize::from(byte >> shift & mask)];
            }
        }
        if self.adjust.n_columns() > 0 {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = self.adjusted(*sum, block, lines, lane);
            }
        }
        sums
    }

    /// Scores vector `lane` of block `block`.
    #[inline]
    pub(super) fn lane(&self, block: usize, lines: &[Line], lane: usize) -> f32 {
        let lane = lane % BLOCK;
        let codes = self.layout.codes(lines, lane);
        let sum = self
            .tables
            .iter()
            .zip(codes)
            .fold(self.base, |sum, (table, code)| sum + table[usize::from(code)]);
        if self.adjust.n_columns() > 0 { self.adjusted(sum, block, lines, lane) } else { sum }
    }

    /// Scores some vectors of the blocks from `first` on, whose lines are `lines`; vector i is lane i mod 64 of block i
    /// / 64.
    pub(super) fn some(&self, first: usize, lines: &[Line], vectors: &[u16], scores: &mut Vec<f32>) {
        let extra = self.adjust.n_columns();
        let is_done = match (self.layout.n_nibbles(), self.layout.n_lines() - extra) {
            (0, 8) => self.of_bytes::<8>(first, lines, vectors, scores),
            (0, 16) => self.of_bytes::<16>(first, lines, vectors, scores),
            (16, 8) if extra == 0 => self.of_pairs::<8>(lines, vectors, scores),
            (32, 16) if extra == 0 => self.of_pairs::<16>(lines, vectors, scores),
            (64, 32) if extra == 0 => self.of_pairs::<32>(lines, vectors, scores),
            _ => false,
        };
        if !is_done {
            let m = self.layout.n_lines();
            scores.extend(vectors.iter().map(|&at| {
                let (block, lane) = (usize::from(at) / BLOCK, usize::from(at) % BLOCK);
                self.lane(first + block, &lines[block * m..][..m], lane)
            }));
        }
    }

    /// [`some`](Self::some) for `M` codes in bytes: additions in the order of [`lane`](Self::lane), in a loop without a
    /// branch. Returns `false` if it is not for these tables.
    fn of_bytes<const M: usize>(
        &self,
        first: usize,
        lines: &[Line],
        vectors: &[u16],
        scores: &mut Vec<f32>,
    ) -> bool {
        let Some(tables) = self.tables.of_width::<MAX_CODEWORDS>() else { return false };
        let Some(tables) = tables.first_chunk::<M>().filter(|_| tables.len() == M) else { return false };
        let (begin, n_lines) = (scores.len(), self.layout.n_lines());
        scores.reserve(vectors.len());
        for &at in vectors {
            let (block, lane) = (usize::from(at) / BLOCK, usize::from(at) % BLOCK);
            let lines = lines[block * n_lines..].first_chunk::<M>().expect("a whole block");
            let mut sum = self.base;
            for m in 0..M {
                sum += tables[m][usize::from(lines[m][lane])];
            }
            scores.push(sum);
        }
        if let Adjust::Scale(_) | Adjust::Bias { .. } = self.adjust {
            for (score, &at) in scores[begin..].iter_mut().zip(vectors) {
                let (block, lane) = (usize::from(at) / BLOCK, usize::from(at) % BLOCK);
                *score = self.adjusted(*score, first + block, &lines[block * n_lines..][..n_lines], lane);
            }
        }
        true
    }

    /// Like [`of_bytes`](Self::of_bytes), for `P` lines of two nibbles.
    fn of_pairs<const P: usize>(&self, lines: &[Line], vectors: &[u16], scores: &mut Vec<f32>) -> bool {
        let Some(tables) = self.tables.of_width::<NIBBLE>() else { return false };
        let Ok(pairs) = <&[[_; 2]; P]>::try_from(tables.as_chunks().0) else { return false };
        if vectors.len() >= FEW && self.kernel.sums(lines, vectors, pairs, self.base, scores) {
            return true;
        }
        let blocks = lines.as_chunks::<P>().0;
        scores.extend(vectors.iter().map(|&at| {
            let (lines, lane) = (&blocks[usize::from(at) / BLOCK], usize::from(at) % BLOCK);
            let mut sum = self.base;
            for p in 0..P {
                let byte = usize::from(lines[p][lane]);
                sum += pairs[p][0][byte & 15];
                sum += pairs[p][1][byte >> 4];
            }
            sum
        }));
        true
    }

    fn adjusted(&self, sum: f32, block: usize, lines: &[Line], lane: usize) -> f32 {
        match self.adjust {
            Adjust::Scale(levels) => {
                sum * levels[usize::from(lines[self.layout.n_lines() - 1][lane % BLOCK])]
            }
            Adjust::Bias { exact, .. } => sum + exact.get(block * BLOCK + lane).copied().unwrap_or(0.0),
            Adjust::None | Adjust::Exact { .. } => sum,
        }
    }
}
