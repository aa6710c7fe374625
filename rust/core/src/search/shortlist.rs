//! The rows that may be among the k best of a query, while all that is known of a score are two bounds.

use super::scored::Scored;

/// A row and what its score is known to lie between; the two bounds are one where it has been computed in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) lower: f64,
    pub(super) upper: f64,
    pub(super) row: u32,
    pub(super) exact: bool,
}

/// Keeps every row that its bounds do not exclude from the k best.
///
/// Candidates gather unsorted. Whenever there are half as many again as asked for, the k-th best lower bound excludes
/// the rows whose upper bound is below it. Where that leaves too many, because bounds are wide or rows are equal, their
/// scores are computed in f64: then k rows are left, and memory stays bounded.
#[derive(Clone, Debug)]
pub(super) struct Shortlist {
    k: usize,
    candidates: Vec<Candidate>,
    floor: f64,
}

impl Shortlist {
    pub(super) fn new(k: usize) -> Self {
        Self { k, candidates: Vec::new(), floor: f64::NEG_INFINITY }
    }

    /// At least k rows have scores that are not below it.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// Takes a candidate whose upper bound is not below the floor. Where it returns true, [`prune`](Self::prune) is due.
    #[inline(always)]
    pub(super) fn push(&mut self, candidate: Candidate) -> bool {
        self.candidates.push(candidate);
        self.candidates.len() >= self.k + self.k / 2 + 16
    }

    /// Drops the rows that are excluded. Of those left, where they are many, `score` computes the scores, and the k best
    /// stay.
    pub(super) fn prune(&mut self, score: impl FnOnce(&mut [Candidate])) {
        self.exclude();
        if self.candidates.len() > self.k + self.k / 4 + 8 {
            score(&mut self.candidates);
            self.exclude();
            // Rows come in ascending order: of those with the k-th score the lower ones stay.
            self.candidates.sort_unstable_by(|a, b| scored(a).order(&scored(b)));
            self.candidates.truncate(self.k);
        }
    }

    /// Raises the floor if there is none yet.
    pub(super) fn settle(&mut self) {
        if self.floor == f64::NEG_INFINITY {
            self.exclude();
        }
    }

    /// The candidates that are left, all scored by `score`.
    pub(super) fn finish(mut self, score: impl FnOnce(&mut [Candidate])) -> Vec<Scored> {
        self.exclude();
        score(&mut self.candidates);
        self.candidates.iter().map(scored).collect()
    }

    fn exclude(&mut self) {
        if self.k == 0 || self.candidates.len() < self.k {
            return;
        }
        let (_, kth, _) =
            self.candidates.select_nth_unstable_by(self.k - 1, |a, b| b.lower.total_cmp(&a.lower));
        self.floor = self.floor.max(kth.lower);
        let floor = self.floor;
        self.candidates.retain(|candidate| candidate.upper >= floor);
    }
}

fn scored(candidate: &Candidate) -> Scored {
    debug_assert!(candidate.exact);
    Scored { score: candidate.lower, row: candidate.row }
}
