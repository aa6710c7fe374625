//! The Gram matrix of codebooks of few codewords, as [`local_search_tables`](super::local_search_tables) reads it.

use super::gram::Gram;
use super::levels::{LEVELS, Levels};
use crate::isa::HALF;

/// Codewords of a codebook up to which tables pay.
pub(super) const MOST: usize = LEVELS;

/// The Gram matrix by rows over all codebooks, one after the other.
pub(super) struct GramRows {
    data: Vec<Levels>,
    /// Numbers that a codebook has in a row.
    pub(super) size: usize,
    /// Levels of a row.
    pub(super) width: usize,
}

impl GramRows {
    /// Of `m` codebooks of `k` codewords; `None` where these are too many.
    pub(super) fn new(gram: &Gram, m: usize, k: usize) -> Option<Self> {
        if k > MOST {
            return None;
        }
        let size = k.next_multiple_of(HALF);
        let width = (m * size).div_ceil(LEVELS);
        let mut data = vec![Levels::ZERO; m * size * width];
        for (row, to) in data.chunks_exact_mut(width).enumerate() {
            let (book, codeword) = (row / size, row % size);
            if codeword < k {
                let numbers = to.iter_mut().flat_map(|levels| &mut levels.0);
                let from = (0..m).flat_map(|other| &gram.row(book, codeword, other)[0].0[..size]);
                numbers.zip(from).for_each(|(to, &from)| *to = from);
            }
        }
        Some(Self { data, size, width })
    }

    #[inline(always)]
    pub(super) fn row(&self, book: usize, codeword: usize) -> &[Levels] {
        &self.data[(book * self.size + codeword) * self.width..][..self.width]
    }
}
