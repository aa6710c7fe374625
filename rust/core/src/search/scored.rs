//! Exact scores, and their order.

use crate::scan::topk::Key;
use std::cmp::Ordering;

/// A row and its score, which is not NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scored {
    pub(super) score: f64,
    pub(super) row: u32,
}

impl Scored {
    /// The larger score first; ties to the lower row. Scores are compared before they are rounded to f32.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let scores = other.score.partial_cmp(&self.score).expect("scores are not NaN");
        scores.then(self.row.cmp(&other.row))
    }
}

/// The `k` best, best first, as results have them: their scores rounded to f32.
pub(super) fn best(mut scored: Vec<Scored>, k: usize) -> Vec<Key> {
    if scored.len() > k {
        if k > 0 {
            scored.select_nth_unstable_by(k - 1, Scored::order);
        }
        scored.truncate(k);
    }
    scored.sort_unstable_by(Scored::order);
    scored.iter().map(|scored| Key::new(scored.score as f32, scored.row)).collect()
}
