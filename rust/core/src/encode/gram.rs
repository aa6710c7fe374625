//! The Gram matrix of the codewords in 16 bits, for local search, whose time is that of reading it.
//!
//! Each pair of codebooks has a step of its own, so the numbers of long codewords do not coarsen those of short ones. Half
//! a step is 1/65,534 of the largest number of its block: far below what separates a good code from a better one.

use rayon::prelude::*;

/// 2⟨c, c'⟩ for all codewords c and c', as multiples of a step.
#[derive(Default)]
pub(super) struct Gram {
    data: Vec<i16>,
    /// For each pair of codebooks.
    steps: Vec<f32>,
    columns: usize,
    stride: usize,
    books: usize,
}

/// The part of a Gram row that belongs to one codebook.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) values: &'a [i16],
    pub(super) step: f32,
}

impl Gram {
    /// Rounds `gram`: `stride` rows of `columns` for each codebook.
    pub(super) fn new(gram: &[f32], columns: usize, stride: usize) -> Self {
        let books = gram.len() / (stride * columns);
        let mut data = vec![0i16; gram.len()];
        let mut steps = vec![0.0f32; books * books];
        let chunks = data.par_chunks_mut(stride * columns).zip(gram.par_chunks(stride * columns));
        chunks.zip(steps.par_chunks_mut(books)).for_each(|((data, gram), steps)| {
            for (other, step) in steps.iter_mut().enumerate() {
                let block = |row: usize| row * columns + other * stride..row * columns + (other + 1) * stride;
                let largest =
                    (0..stride).flat_map(|row| &gram[block(row)]).fold(0.0f32, |a, b| a.max(b.abs()));
                *step = largest / f32::from(i16::MAX);
                let inverse = if largest > 0.0 { f32::from(i16::MAX) / largest } else { 0.0 };
                for row in 0..stride {
                    let values = data[block(row)].iter_mut().zip(&gram[block(row)]);
                    values.for_each(|(to, value)| *to = (value * inverse).round() as i16);
                }
            }
        });
        Self { data, steps, columns, stride, books }
    }

    /// The row of codeword `k` of `book`, over the codewords of `other`.
    #[inline(always)]
    pub(super) fn row(&self, book: usize, k: usize, other: usize) -> Row<'_> {
        Row {
            values: &self.data[(book * self.stride + k) * self.columns + other * self.stride..]
                [..self.stride],
            step: self.steps[book * self.books + other],
        }
    }
}
