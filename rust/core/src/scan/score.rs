//! The table sums, which score every candidate, or bound its score.

use super::adjust::Adjust;
use crate::codes::packed::{BLOCK, Layout, Line};
use crate::scan::tables::Table;

/// The sums of one query in one segment: entries of its tables added in order, from the base; times the scale; plus
/// the bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scorer<'a> {
    pub(super) tables: &'a [Table],
    pub(super) adjust: Adjust<'a>,
    pub(super) base: f32,
    pub(super) layout: Layout,
}

impl Scorer<'_> {
    /// Scores all vectors of block `block`, whose lines are `lines`. What lies beyond the last vector is of no meaning.
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
        let (nibbles, bytes) = self.tables.split_at(self.layout.n_nibbles().min(self.tables.len()));
        let mut sum = self.base;
        for (line, tables) in lines.iter().zip(nibbles.chunks(2)) {
            for (table, code) in tables.iter().zip([line[lane] & 15, line[lane] >> 4]) {
                sum += table[usize::from(code)];
            }
        }
        let lines_of_bytes = &lines[self.layout.n_pairs().min(lines.len())..];
        let codes = lines_of_bytes.iter().map(|line| usize::from(line[lane]));
        let sum = codes.zip(bytes).fold(sum, |sum, (code, table)| sum + table[code]);
        if self.adjust.n_columns() > 0 { self.adjusted(sum, block, lines, lane) } else { sum }
    }

    /// Scores some vectors of the blocks from `first` on, whose lines are `lines`; vector i is lane i mod 64 of block i / 64.
    pub(super) fn some(&self, first: usize, lines: &[Line], vectors: &[u16], scores: &mut Vec<f32>) {
        let tables = self.tables;
        match (self.layout.n_nibbles(), self.layout.n_lines()) {
            (0, 8) if tables.len() == 8 => self.of_bytes::<8>(lines, vectors, scores),
            (0, 16) if tables.len() == 16 => self.of_bytes::<16>(lines, vectors, scores),
            (16, 8) if tables.len() == 16 => self.of_pairs::<8>(lines, vectors, scores),
            (32, 16) if tables.len() == 32 => self.of_pairs::<16>(lines, vectors, scores),
            (_, m) => scores.extend(vectors.iter().map(|&at| {
                let (block, lane) = (usize::from(at) / BLOCK, usize::from(at) % BLOCK);
                self.lane(first + block, &lines[block * m..][..m], lane)
            })),
        }
    }

    /// [`some`](Self::some) for `M` lines of bytes and nothing that adjusts scores: additions in the order of
    /// [`lane`](Self::lane), in a loop without a branch.
    fn of_bytes<const M: usize>(&self, lines: &[Line], vectors: &[u16], scores: &mut Vec<f32>) {
        let (tables, blocks): (&[Table; M], _) =
            (self.tables.try_into().expect("M tables"), lines.as_chunks::<M>().0);
        scores.extend(vectors.iter().map(|&at| {
            let (lines, lane) = (&blocks[usize::from(at) / BLOCK], usize::from(at) % BLOCK);
            let mut sum = self.base;
            for m in 0..M {
                sum += tables[m][usize::from(lines[m][lane])];
            }
            sum
        }));
    }

    /// As [`of_bytes`](Self::of_bytes), for `P` lines of two nibbles.
    fn of_pairs<const P: usize>(&self, lines: &[Line], vectors: &[u16], scores: &mut Vec<f32>) {
        let (pairs, blocks): (&[[Table; 2]; P], _) =
            (self.tables.as_chunks().0.try_into().expect("2 P tables"), lines.as_chunks::<P>().0);
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
