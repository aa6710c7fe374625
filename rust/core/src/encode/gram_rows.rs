//! The Gram matrix of codebooks with few codewords, in the layout that
//! [`local_search_tables`](super::local_search_tables) reads.

use super::gram::Gram;
use super::levels::{LEVELS, LevelBlock};
use crate::isa::HALF;

/// Codewords per codebook up to which tables pay off.
pub(super) const MOST: usize = LEVELS;

/// The rows of the Gram matrix, one after the other, each over all codebooks.
pub(super) struct GramRows {
    data: Vec<LevelBlock>,
    /// Entries per codebook in a row.
    pub(super) size: usize,
    /// Registers per row.
    pub(super) width: usize,
}

impl GramRows {
    /// Builds the rows for `m` codebooks of `k` codewords; `None` if k is too large.
    pub(super) fn new(gram: &Gram, m: usize, k: usize) -> Option<Self> {
        if k > MOST {
            return None;
        }
        let size = k.next_multiple_of(HALF);
        let width = (m * size).div_ceil(LEVELS);
        let mut data = vec![LevelBlock::ZERO; m * size * width];
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
    pub(super) fn row(&self, book: usize, codeword: usize) -> &[LevelBlock] {
        &self.data[(book * self.size + codeword) * self.width..][..self.width]
    }
}
