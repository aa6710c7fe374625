//! What an index is built for.

use crate::vectors::metric::Metric;

/// What an index measures, and what it keeps for that alongside the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The metric of the scores.
    pub metric: Metric,
    /// Whether scores are multiplied by ‖x‖² / ⟨x, x̄⟩, one byte per vector: the approximation then has the same length
    /// along x as x. For inner products only.
    pub scale: bool,
    /// Whether −½‖x̄ − c‖² is kept in f32 (four bytes per vector) in addition to the interval that it lies in (one
    /// byte). Euclidean scores are exact without it too, but more vectors are scored to find the best.
    pub exact_norms: bool,
    /// Whether ‖x − x̄‖ is kept in f32 (four bytes per vector) in addition to the interval that it lies in (one byte),
    /// so that [`search_certified`](super::Index::search_certified) can prove its results. For inner products without a
    /// scale only.
    pub residuals: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { metric: Metric::InnerProduct, scale: false, exact_norms: true, residuals: false }
    }
}
