//! A change of an index that was prepared, but not applied yet.

use super::column::Column;
use super::ids::{Added, Ids};
use super::partition::{Partition, Tail};
use crate::codes::packed::PackedCodes;
use ndarray::Array2;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies what an index held when a change was prepared; each change makes a new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A prepared change, to be passed to [`Index::apply`](super::Index::apply).
#[must_use = "a change that is not applied does nothing"]
pub struct Change {
    pub(super) state: State,
    /// How many vectors it adds, removes or replaces.
    pub(super) n: usize,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Nothing,
    Append { laid: Laid, ids: Added, place: Place },
    Replace { positions: Vec<usize>, laid: Laid },
    Keep(Box<Kept>),
}

/// Where vectors are added.
pub(super) enum Place {
    End,
    /// The codes are those of all vectors that replace the last generations.
    Lists(Tail),
}

/// Vectors in the form in which an index keeps them.
pub(super) struct Laid {
    /// The codes, followed by the side's column.
    pub(super) codes: Array2<u8>,
    /// The side's numbers, if it keeps them.
    pub(super) numbers: Vec<f32>,
    /// The new meaning of the bytes of the side's column.
    pub(super) column: Option<Column>,
    /// The bytes of that column for existing vectors, starting at some position, if their intervals are refitted.
    pub(super) relaid: Vec<(usize, Vec<u8>)>,
    /// A copy of codes that are mapped from a file.
    pub(super) unmapped: Option<PackedCodes>,
}

/// What remains of an index.
pub(super) struct Kept {
    pub(super) packed: PackedCodes,
    pub(super) column: Option<Column>,
    pub(super) numbers: Vec<f32>,
    pub(super) ids: Ids,
    pub(super) partition: Option<Partition>,
}

impl Change {
    /// How many vectors it adds, removes or replaces.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }
}
