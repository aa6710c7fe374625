//! One of several indexes that are searched as one.

use super::Index;
use super::partition::Partition;
use crate::codes::packed::BLOCK;

/// An index that is searched together with others.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) index: &'a Index,
    /// The position of its first vector among those of all parts: a multiple of 64, so that each word of bits belongs
    /// to one part.
    pub(super) first: usize,
}

impl<'a> Part<'a> {
    /// The partition of an index that has lists.
    pub(super) fn partition(&self) -> &'a Partition {
        self.index.partition.as_ref().expect("an index with lists")
    }

    /// The range of its words among the bits for all positions.
    pub(super) fn words(&self) -> std::ops::Range<usize> {
        let first = self.first / BLOCK;
        first..first + self.index.len().div_ceil(BLOCK)
    }
}
