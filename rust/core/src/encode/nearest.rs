//! The nearest codeword of one codebook: exact, by one matrix product and the smallest score of each row.

use super::lanes;
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Panels, Tiles, multiply};

/// Vectors whose scores are computed at once: 24 KB for K = 256, which the L1 cache holds.
const ROWS: usize = 24;

/// Codewords prepared for finding the nearest one.
pub(crate) struct Nearest {
    isa: Isa,
    dim: usize,
    panels: Panels,
    /// ‖c‖² of each column, +∞ for padding.
    norms: Vec<f32>,
    /// Brings the codewords to magnitude 1, so that nothing overflows or underflows.
    scale: f32,
}

/// The workspace of one thread.
pub(crate) struct Desk {
    tiles: Tiles,
    scores: Vec<f32>,
}

impl Nearest {
    /// Prepares `words` (K, dim), row after row. Scores are computed in f32, so both the codewords and the vectors
    /// should lie around the origin.
    pub(crate) fn new(isa: Isa, words: &[f32], dim: usize) -> Self {
        let scale = power_of_two(words);
        let words: Vec<f32> = words.iter().map(|c| c * scale).collect();
        let word = |i: usize| words.get(i * dim..(i + 1) * dim);
        let panels = Panels::new(words.len() / dim, dim, word);
        let square = |word: &[f32]| word.iter().map(|&c| f64::from(c) * f64::from(c)).sum::<f64>() as f32;
        let norms = (0..panels.columns()).map(|i| word(i).map_or(f32::INFINITY, square)).collect();
        Self { isa, dim, panels, norms, scale }
    }

    /// The length of the codewords.
    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    pub(crate) fn desk(&self) -> Desk {
        let tiles = Tiles::new(ROWS, self.dim);
        let scores = vec![0.0; tiles.rows() * self.panels.columns()];
        Desk { tiles, scores }
    }

    /// Calls `found` with the number of each row of `x` and its nearest codeword; ties go to the lower codeword. Rows
    /// begin `width` numbers apart.
    pub(crate) fn find(&self, x: &[f32], width: usize, desk: &mut Desk, found: impl FnMut(usize, u8)) {
        isa::run(self.isa, Find { nearest: self, x, width, desk, found });
    }
}

/// The power of two that scales the largest of `values` to between 1 and 2.
pub(crate) fn power_of_two(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0f32, |largest, c| largest.max(c.abs()));
    let exponent = if largest > 0.0 { -(f64::from(largest).log2().floor() as i32) } else { 0 };
    2.0f32.powi(exponent.clamp(-126, 127))
}

struct Find<'a, F> {
    nearest: &'a Nearest,
    x: &'a [f32],
    width: usize,
    desk: &'a mut Desk,
    found: F,
}

impl<F: FnMut(usize, u8)> Kernel for Find<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(mut self) {
        let Nearest { dim, panels, norms, scale, .. } = self.nearest;
        let Desk { tiles, scores } = self.desk;
        for (i, x) in self.x.chunks(ROWS * self.width).enumerate() {
            let rows = x.len().div_ceil(self.width);
            for (r, x) in x.chunks(self.width).enumerate() {
                tiles.set(r, x[..*dim].iter().map(|x| x * (-2.0 * scale)));
            }
            multiply::<L>(tiles, rows, panels, norms, scores);
            for (r, scores) in scores.chunks_exact(panels.columns()).enumerate().take(rows) {
                let smallest = lanes::fold(&lanes::minima(scores));
                (self.found)(i * ROWS + r, lanes::find(scores, smallest) as u8);
            }
        }
    }
}
