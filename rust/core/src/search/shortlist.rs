//! The rows that may be among the k best of a query, while scores are only known to within two bounds.

use crate::scan::scored::Scored;

/// A row and the bounds on its score: `lower` and `lower + width`, which are equal once it has been computed in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    lower: f64,
    width: f32,
    pub(super) row: u32,
}

impl Candidate {
    /// A row whose score differs from `score` by at most `by`, which is above 0.
    #[inline(always)]
    pub(super) fn new(row: u32, score: f64, by: f64) -> Self {
        Self { lower: score - by, width: ((2.0 * by) as f32).next_up(), row }
    }

    /// The row with its exact score.
    #[inline(always)]
    pub(super) fn with_score(self, score: f64) -> Self {
        Self { lower: score, width: 0.0, ..self }
    }

    /// Whether the exact score is known.
    #[inline(always)]
    pub(super) fn is_exact(&self) -> bool {
        self.width == 0.0
    }

    /// An upper bound on the score.
    fn upper(&self) -> f64 {
        self.lower + f64::from(self.width)
    }
}

/// Keeps every row whose bounds do not exclude it from the k best.
///
/// Candidates gather unsorted. Whenever there are twice as many as requested, the k-th best lower bound excludes the
/// rows whose upper bound is below it. If that leaves too many, because bounds are wide or rows are equal, their scores
/// are computed in f64: then k rows are left, and memory stays bounded.
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

    /// A score that at least k rows reach.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// Adds a candidate whose upper bound is not below the floor. If this returns true, [`prune`](Self::prune) is due.
    #[inline(always)]
    pub(super) fn push(&mut self, candidate: Candidate) -> bool {
        self.candidates.push(candidate);
        self.candidates.len() >= 2 * self.k + 16
    }

    /// Drops the rows that are excluded. If many are left, `score` computes their scores, and only the k best stay.
    pub(super) fn prune(&mut self, score: impl FnOnce(&mut [Candidate])) {
        self.exclude();
        if self.candidates.len() > self.k + self.k / 2 + 8 {
            score(&mut self.candidates);
            self.exclude();
            // Rows come in ascending order: of those tied at the k-th score the lower ones stay.
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

    /// The remaining candidates when all rows have been seen.
    pub(super) fn left(&mut self) -> &mut [Candidate] {
        self.exclude();
        &mut self.candidates
    }

    /// The candidates, all of whose scores must be known.
    pub(super) fn into_scored(self) -> Vec<Scored> {
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
        self.candidates.retain(|candidate| candidate.upper() >= floor);
    }
}

fn scored(candidate: &Candidate) -> Scored {
    debug_assert!(candidate.is_exact());
    Scored::new(candidate.lower, candidate.row)
}
