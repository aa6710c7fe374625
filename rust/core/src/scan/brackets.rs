//! Candidates whose scores are only known within bounds, until the few that may be among the k best are scored.
//!
//! Given n scores in brackets [low, high], the k-th largest score is at least the k-th largest low. A vector whose high
//! is below that is not among the k best, and does not tie with the last of them.

/// A vector and the bounds on its score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) low: f32,
    pub(super) high: f32,
    /// Its segment, and its place in it.
    pub(super) segment: usize,
    pub(super) at: usize,
}

/// All candidates that may be among the k best.
#[derive(Clone, Debug)]
pub(super) struct Brackets {
    k: usize,
    candidates: Vec<Candidate>,
    /// The k-th largest low seen so far, −∞ before k were seen.
    floor: f32,
    /// When this many have gathered, those that have fallen behind are dropped.
    capacity: usize,
}

impl Brackets {
    pub(super) fn new(k: usize) -> Self {
        Self { k, candidates: Vec::new(), floor: f32::NEG_INFINITY, capacity: 2 * k + 16 }
    }

    /// Offers a candidate.
    pub(super) fn push(&mut self, candidate: Candidate) {
        if candidate.high >= self.floor && self.k > 0 {
            self.candidates.push(candidate);
            if self.candidates.len() >= self.capacity {
                self.prune();
            }
        }
    }

    /// A score that the k best reach, −∞ if none is known.
    pub(super) fn floor(&mut self) -> f32 {
        if self.floor == f32::NEG_INFINITY && self.candidates.len() >= self.k {
            self.prune();
        }
        self.floor
    }

    /// The remaining candidates.
    pub(super) fn into_candidates(mut self) -> Vec<Candidate> {
        self.prune();
        self.candidates
    }

    fn prune(&mut self) {
        if self.k > 0 && self.candidates.len() >= self.k {
            let mut lows: Vec<f32> = self.candidates.iter().map(|candidate| candidate.low).collect();
            let (_, kth, _) = lows.select_nth_unstable_by(self.k - 1, |a, b| b.total_cmp(a));
            self.floor = self.floor.max(*kth);
            self.candidates.retain(|candidate| candidate.high >= self.floor);
            // The capacity grows, to avoid pruning at each push if brackets are wide and most candidates stay.
            self.capacity = (2 * self.k + 16).max(2 * self.candidates.len());
        }
    }
}
