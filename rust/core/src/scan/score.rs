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
