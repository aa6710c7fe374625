//! The Gram matrix of the codewords in 16 bits, for beam and local search, whose time goes into reading it.
//!
//! Each number is a multiple of one common step, relative to the middle of its row: an offset common to all codewords
//! of a codebook does not change which of them is best. The step is the smallest with which no sum of rows, one for
//! each other codebook, exceeds [`LARGEST`]. So sums are exact, in whatever order they are added.

use super::levels::{LEVELS, LevelBlock};
use rayon::prelude::*;

/// The largest magnitude of a sum of rows, in steps; the rest of the 16-bit range is for the vector's own scores.
pub(super) const LARGEST: i16 = 20_000;

/// 2⟨c, c'⟩ for all codewords c and c' of different codebooks, or of the shared codebook.
#[derive(Default)]
pub(super) struct Gram {
    /// `[other codebook][codebook][codeword]`: each entry is the row of the codeword over the codewords of the other
    /// codebook; 0 if that is its own codebook, and for padding.
    data: Vec<LevelBlock>,
    /// For each row and codebook, the middle that the numbers are relative to.
    middles: Vec<f32>,
    /// The value of one step.
    pub(super) step: f32,
    stride: usize,
    books: usize,
}

impl Gram {
    /// Rounds `gram`, rows of `columns` entries with `stride` entries per codebook, of which the first `n_codewords`
    /// are codewords. A code has `places`; a shared codebook fills all of them.
    pub(super) fn new(
        gram: &[f32],
        columns: usize,
        stride: usize,
        n_codewords: usize,
        places: usize,
    ) -> Self {
        let books = gram.len() / (stride * columns);
        // For each row, by codebook: (middle, half of the width).
        let spreads: Vec<(f32, f32)> = gram
            .par_chunks(columns)
            .enumerate()
            .flat_map_iter(|(i, row)| {
                let own = (books > 1).then_some(i / stride);
                row.chunks(stride).take(books).enumerate().map(move |(other, values)| {
                    if own == Some(other) { (0.0, 0.0) } else { spread(&values[..n_codewords]) }
                })
            })
            .collect();
        let mut sums = vec![0.0f32; books];
        for book in spreads.chunks(stride * books) {
            for (other, sum) in sums.iter_mut().enumerate() {
                *sum += book.iter().skip(other).step_by(books).fold(0.0, |a: f32, &(_, half)| a.max(half));
            }
        }
        let times = if books > 1 { 1.0 } else { (places - 1) as f32 };
        let largest = times * sums.iter().fold(0.0f32, |a, &b| a.max(b));
        let step = largest / f32::from(LARGEST);
        let inverse = if step > 0.0 { step.recip() } else { 0.0 };
        let mut middles: Vec<f32> =
            spreads.into_iter().map(|(middle, _)| (middle * inverse).round()).collect();
        let rows = books * stride;
        let mut data = vec![LevelBlock::ZERO; rows * books * stride / LEVELS];
        data.par_chunks_mut(rows * stride / LEVELS).enumerate().for_each(|(other, data)| {
            for (i, to) in data.chunks_exact_mut(stride / LEVELS).enumerate() {
                if books == 1 || other != i / stride {
                    let middle = middles[i * books + other];
                    let row = &gram[i * columns + other * stride..][..n_codewords];
                    for (to, value) in to.iter_mut().flat_map(|levels| &mut levels.0).zip(row) {
                        // Rounded before the middle is subtracted, so that the entry of c in the row of c' equals that
                        // of c' in the row of c.
                        *to = ((value * inverse).round() - middle) as i16;
                    }
                }
            }
        });
        middles.iter_mut().for_each(|middle| *middle *= step);
        Self { data, middles, step, stride, books }
    }

    /// The row of codeword `k` of `book` over the codewords of `other`.
    #[inline(always)]
    pub(super) fn row(&self, book: usize, k: usize, other: usize) -> &[LevelBlock] {
        &self.block(other)[(book * self.stride + k) * self.width()..][..self.width()]
    }

    /// The middle that the numbers of this row are relative to.
    #[inline(always)]
    pub(super) fn middle(&self, book: usize, k: usize, other: usize) -> f32 {
        self.middles[(book * self.stride + k) * self.books + other]
    }

    /// Registers per row.
    #[inline(always)]
    pub(super) fn width(&self) -> usize {
        self.stride / LEVELS
    }

    /// The rows of all codewords of all codebooks over the codewords of `other`.
    #[inline(always)]
    pub(super) fn block(&self, other: usize) -> &[LevelBlock] {
        let size = self.books * self.stride * self.width();
        &self.data[other * size..][..size]
    }
}

/// (middle, half of the width) of `values`.
fn spread(values: &[f32]) -> (f32, f32) {
    let (low, high) =
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
    ((low + high) / 2.0, (high - low) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_rows_stay_in_bounds_and_differ_as_the_exact_ones_do() {
        let (books, stride, k) = (3, LEVELS, 20);
        let columns = books * stride + 64;
        let entry = |i: usize, j: usize| ((i * j) as f32 * 0.37).sin() * (i + j) as f32;
        let real = |i: usize| i % stride < k;
        let mut gram = vec![0.0; books * stride * columns];
        for (i, j) in (0..books * stride).flat_map(|i| (0..books * stride).map(move |j| (i, j))) {
            if real(i) && real(j) {
                gram[i * columns + j] = entry(i, j);
            }
        }
        let rounded = Gram::new(&gram, columns, stride, k, books);
        let flat = |book: usize, c: usize, other: usize| -> Vec<i16> {
            rounded.row(book, c, other).iter().flat_map(|levels| levels.0).collect()
        };
        let mut reached = 0;
        for other in 0..books {
            let rows = (0..books).filter(|&book| book != other).map(|book| {
                (0..k)
                    .map(|c| flat(book, c, other)[..k].iter().map(|v| v.abs()).max().unwrap())
                    .max()
                    .unwrap()
            });
            reached = reached.max(rows.sum());
            for (book, c) in (0..books).flat_map(|book| (0..k).map(move |c| (book, c))) {
                let row = flat(book, c, other);
                assert!(row[k..].iter().all(|&v| v == 0));
                for (j, &level) in row[..k].iter().enumerate() {
                    let exact =
                        if book == other { 0.0 } else { entry(book * stride + c, other * stride + j) };
                    let value = f32::from(level) * rounded.step + rounded.middle(book, c, other);
                    assert!((value - exact).abs() <= 0.51 * rounded.step, "{value} for {exact}");
                }
            }
        }
        assert!((LARGEST - 10..=LARGEST + 10).contains(&reached), "{reached}");
    }
}
