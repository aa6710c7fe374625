//! The space in which codes are searched: the scores of one vector, and the Gram matrix that all vectors share.

use super::gram::Gram;
use super::gram_rows::GramRows;

/// What all vectors share.
pub(super) struct Space<'a> {
    pub(super) gram: &'a Gram,
    /// The rows of the Gram matrix over all codebooks, if these have so few codewords that tables pay off.
    pub(super) rows: Option<&'a GramRows>,
    /// Codewords per codebook.
    pub(super) n_codewords: usize,
    /// Codewords per codebook, padded to whole lanes.
    pub(super) stride: usize,
    pub(super) n_codebooks: usize,
    /// Whether all M codebooks are the same.
    pub(super) shared: bool,
    /// Whether the codewords of a vector must differ.
    pub(super) distinct: bool,
    /// Weight of the loss along the vector.
    pub(super) beta: f32,
}

/// The scores of one vector.
#[derive(Clone, Copy)]
pub(super) struct Vector<'a> {
    /// A score for each codeword of each codebook, before any is chosen; for one codebook if it is shared.
    pub(super) scores: &'a [f32],
    /// Projections on the vector's direction, laid out like the scores; empty if β is 0.
    pub(super) projections: &'a [f32],
    /// What the projections of a code's codewords should sum up to.
    pub(super) target: f32,
}

impl Space<'_> {
    /// The offset of the scores of `book`.
    #[inline(always)]
    pub(super) fn start(&self, book: usize) -> usize {
        self.book(book) * self.stride
    }

    /// `book`, or 0 if all codebooks are the same.
    #[inline(always)]
    pub(super) fn book(&self, book: usize) -> usize {
        if self.shared { 0 } else { book }
    }

    /// The number of different codebooks.
    #[inline(always)]
    pub(super) fn n_books(&self) -> usize {
        if self.shared { 1 } else { self.n_codebooks }
    }
}
