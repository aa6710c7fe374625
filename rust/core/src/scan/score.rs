//! The table sums, which score every candidate, or bound its score.

use super::adjust::Adjust;
use super::kernel::{Blocks, ScanKernel};
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
        let (begin, blocks) = (scores.len(), Blocks { lines, n_lines: self.layout.n_lines() });
        if let Some(tables) = self.tables.of_width::<NIBBLE>() {
            if vectors.len() < FEW || !self.kernel.sums(&blocks, vectors, tables, self.base, scores) {
                self.of_nibbles(&blocks, vectors, tables, scores);
            }
        } else if let (0, Some(tables)) = (self.layout.n_nibbles(), self.tables.of_width::<MAX_CODEWORDS>()) {
            // The compiler unrolls loops of a fixed length.
            match tables.as_chunks::<8>() {
                ([tables], []) => self.of_bytes(&blocks, vectors, tables, scores),
                ([_, _], []) => self.of_bytes(&blocks, vectors, &tables.as_chunks::<16>().0[0], scores),
                _ => self.of_bytes(&blocks, vectors, tables, scores),
            }
        } else {
            scores.extend(vectors.iter().map(|&at| {
                let (block, lines, lane) = blocks.place(at);
                self.lane(first + block, lines, lane)
            }));
            return;
        }
        if let Adjust::Scale(_) | Adjust::Bias { .. } = self.adjust {
            for (score, &at) in scores[begin..].iter_mut().zip(vectors) {
                let (block, lines, lane) = blocks.place(at);
                *score = self.adjusted(*score, first + block, lines, lane);
            }
        }
    }

    /// Table sums for codes in bytes: additions in the order of [`lane`](Self::lane).
    #[inline(always)]
    fn of_bytes(&self, blocks: &Blocks<'_>, vectors: &[u16], tables: &[[f32; 256]], scores: &mut Vec<f32>) {
        scores.extend(vectors.iter().map(|&at| {
            let (_, lines, lane) = blocks.place(at);
            let codes = lines[..tables.len()].iter().map(|line| usize::from(line[lane]));
            tables.iter().zip(codes).fold(self.base, |sum, (table, code)| sum + table[code])
        }));
    }

    /// Like [`of_bytes`](Self::of_bytes), for codes in nibbles, one by one.
    fn of_nibbles(
        &self,
        blocks: &Blocks<'_>,
        vectors: &[u16],
        tables: &[[f32; NIBBLE]],
        scores: &mut Vec<f32>,
    ) {
        let (pairs, last) = tables.as_chunks::<2>();
        scores.extend(vectors.iter().map(|&at| {
            let (_, lines, lane) = blocks.place(at);
            let (of_pairs, of_last) = lines.split_at(pairs.len());
            let mut sum = self.base;
            for ([low, high], line) in pairs.iter().zip(of_pairs) {
                sum += low[usize::from(line[lane] & 15)];
                sum += high[usize::from(line[lane] >> 4)];
            }
            last.iter().zip(of_last).fold(sum, |sum, (table, line)| sum + table[usize::from(line[lane] & 15)])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::Codebooks;
    use crate::isa::Isa;
    use crate::scan::tables::TableBuilder;
    use ndarray::{Array3, array};
    use proptest::prelude::*;

    proptest! {
        /// However many vectors and tables there are, of nibbles and of bytes, with a column after them and without.
        #[test]
        fn some_scores_are_those_of_one(
            m in 1..=70usize, is_narrow in any::<bool>(), is_scaled in any::<bool>(), n in 0..40usize, seed in any::<u32>(),
        ) {
            let mut state = u64::from(seed);
            let mut random = move |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below
            };
            let n_codewords = if is_narrow { 16 } else { 256 };
            // The table entries are the codewords, of magnitudes that show the order in which they are added.
            let words = Array3::from_shape_simple_fn((m, n_codewords, 1), || {
                (random(1 << 20) as f32 - 5e5) * 2f32.powi(random(30) as i32)
            });
            let layout = Layout::smallest(m, n_codewords, usize::from(is_scaled));
            let builder = TableBuilder::new(&Codebooks::new(words).unwrap());
            let tables = builder.tables_for(array![[1.0]].view(), layout, Isa::Scalar).unwrap();
            let levels = std::array::from_fn(|byte| 1.0 + byte as f32 / 256.0);
            let adjust = if is_scaled { Adjust::Scale(&levels) } else { Adjust::None };
            let mut lines = vec![[0; BLOCK]; 3 * layout.n_lines()];
            lines.as_flattened_mut().iter_mut().for_each(|byte| *byte = random(256) as u8);
            let vectors: Vec<u16> = (0..n).map(|_| random(3 * BLOCK) as u16).collect();
            for isa in Isa::ALL {
                let Some(kernel) = ScanKernel::new(isa) else { continue };
                let scorer = Scorer { tables: tables.query(0), adjust, base: 0.3, layout, kernel };
                let mut scores = vec![7.0];
                scorer.some(5, &lines, &vectors, &mut scores);
                let blocks = Blocks { lines: &lines, n_lines: layout.n_lines() };
                let want = vectors.iter().map(|&at| {
                    let (block, lines, lane) = blocks.place(at);
                    scorer.lane(5 + block, lines, lane)
                });
                let want: Vec<f32> = std::iter::once(7.0).chain(want).collect();
                prop_assert_eq!(&scores, &want, "{}", isa.name());
            }
        }
    }
}
