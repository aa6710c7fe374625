//! The definition of a score, which every candidate is put to.

use super::adjust::Adjust;
use crate::codes::packed::{BLOCK, Line};
use crate::scan::tables::Table;

/// Scores of one query: entries of its tables added in order, from 0; times the scale; plus the bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scorer<'a> {
    pub(super) tables: &'a [Table],
    pub(super) adjust: Adjust<'a>,
}

impl Scorer<'_> {
    /// Scores all vectors of block `block`, whose lines are `lines`. What lies beyond the last vector is of no meaning.
    pub(super) fn block(&self, block: usize, lines: &[Line]) -> [f32; BLOCK] {
        let mut sums = [0.0; BLOCK];
        for (line, table) in lines.iter().zip(self.tables) {
            for (sum, &code) in sums.iter_mut().zip(line) {
                *sum += table[usize::from(code)];
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
        let codes = lines.iter().map(|line| usize::from(line[lane % BLOCK]));
        let sum = codes.zip(self.tables).fold(0.0, |sum, (code, table)| sum + table[code]);
        if self.adjust.n_columns() > 0 { self.adjusted(sum, block, lines, lane) } else { sum }
    }

    fn adjusted(&self, sum: f32, block: usize, lines: &[Line], lane: usize) -> f32 {
        let mut extra = lines[self.tables.len()..].iter().map(|line| usize::from(line[lane % BLOCK]));
        let mut level = |levels: &[f32; 256]| levels[extra.next().expect("a column for each")];
        let scaled = self.adjust.scale.map_or(sum, |scale| sum * level(scale));
        let bias = self.adjust.bias.map(level);
        let exact =
            self.adjust.exact_bias.map(|exact| exact.get(block * BLOCK + lane).copied().unwrap_or(0.0));
        exact.or(bias).map_or(scaled, |bias| scaled + bias)
    }
}
