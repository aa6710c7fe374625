//! The table sums, which score every candidate, or bound its score.

use super::adjust::Adjust;
use crate::codes::packed::{BLOCK, Line};
use crate::scan::tables::Table;

/// The sums of one query in one segment: entries of its tables added in order, from the base; times the scale; plus
/// the bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scorer<'a> {
    pub(super) tables: &'a [Table],
    pub(super) adjust: Adjust<'a>,
    pub(super) base: f32,
}

impl Scorer<'_> {
    /// Scores all vectors of block `block`, whose lines are `lines`. What lies beyond the last vector is of no meaning.
    pub(super) fn block(&self, block: usize, lines: &[Line]) -> [f32; BLOCK] {
        let mut sums = [self.base; BLOCK];
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
        let sum = codes.zip(self.tables).fold(self.base, |sum, (code, table)| sum + table[code]);
        if self.adjust.n_columns() > 0 { self.adjusted(sum, block, lines, lane) } else { sum }
    }

    fn adjusted(&self, sum: f32, block: usize, lines: &[Line], lane: usize) -> f32 {
        match self.adjust {
            Adjust::Scale(levels) => sum * levels[usize::from(lines[self.tables.len()][lane % BLOCK])],
            Adjust::Bias { exact, .. } => sum + exact.get(block * BLOCK + lane).copied().unwrap_or(0.0),
            Adjust::None | Adjust::Exact { .. } => sum,
        }
    }
}
