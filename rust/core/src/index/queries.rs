//! Preparing queries for a search.

use crate::error::{Error, Result, argument};
use ndarray::{ArrayView1, CowArray, Ix2};

/// Queries whose tables are held at once: 8 MB for M = 8.
pub(super) const BATCH: usize = 1024;

/// The quantity that a scan looks for the largest values of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scored {
    /// The score of x̄ under the metric.
    Approximation,
    /// ⟨q, x̄⟩ + ‖x − x̄‖.
    Bound,
}

/// The error of a query whose inner products f32 cannot hold.
pub(super) fn beyond(row: usize) -> Error {
    argument!(
        "Q",
        "row {row} is too large: its inner products are beyond float32; scale queries or vectors down"
    )
}

pub(super) fn check_finite(queries: &CowArray<'_, f32, Ix2>) -> Result<()> {
    let is_finite = |row: ArrayView1<'_, f32>| row.iter().all(|value| value.is_finite());
    match queries.outer_iter().position(|row| !is_finite(row)) {
        Some(row) => Err(Error::NotFinite { what: "queries", row }),
        None => Ok(()),
    }
}
