//! Exact scores, and their order.

use super::topk::Key;
use std::cmp::Ordering;

/// A position and its score, which is not NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) score: f64,
    position: u64,
}

impl Scored {
    pub(crate) fn new(score: f64, position: impl Into<u64>) -> Self {
        Self { score: score + 0.0, position: position.into() } // −0 is 0
    }

    /// The larger score first; ties go to the lower position. Scores are compared before they are rounded to f32.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.position.cmp(&other.position))
    }
}

/// The `k` best, best first, in the form of results: scores rounded to f32.
pub(crate) fn best(mut scored: Vec<Scored>, k: usize) -> Vec<Key> {
    if scored.len() > k {
        if k > 0 {
            scored.select_nth_unstable_by(k - 1, Scored::order);
        }
        scored.truncate(k);
    }
    // Integers sort many times faster than pairs: sort by f32 first, and then what f32 cannot tell apart.
    let rounded = |(at, scored): (usize, &Scored)| Key::new(scored.score as f32, at as u32);
    let mut keys: Vec<Key> = scored.iter().enumerate().map(rounded).collect();
    keys.sort_unstable_by(|a, b| b.cmp(a));
    let mut sorted: Vec<Scored> = keys.iter().map(|key| scored[key.position() as usize]).collect();
    for run in sorted.chunk_by_mut(|a, b| a.score as f32 == b.score as f32) {
        run.sort_unstable_by(Scored::order);
    }
    sorted.iter().map(|scored| Key::new(scored.score as f32, scored.position)).collect()
}
