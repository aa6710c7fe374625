//! Results that are proven exact: |⟨q, x⟩ − ⟨q, x̄⟩| ≤ ‖x − x̄‖ ‖q‖, so ⟨q, x⟩ / ‖q‖ is at most ⟨q, x̄⟩ / ‖q‖ + ‖x −
//! x̄‖.
//!
//! The right side is an ordinary scan: the query scaled to length 1, with the residual norm as bias. It finds the c + 1
//! best by this bound; c of them are scored exactly, in addition to the c best by approximation, and any vector in
//! neither set scores at most the bound of the last. If the k-th exact score is above that, no other vector can be
//! among the k best.
//!
//! **Rounding.** With u = 2⁻²⁴, S the sum over the codebooks of the largest ‖codeword‖, and r the largest residual
//! norm, every intermediate number is at most S + r: a table entry is off by (d + 1) u of its codeword's norm, the sums
//! of the scan and of x̄ by M u of S each, the query's length and the last addition by u. `slack` is twice the total,
//! which also covers the f64 errors of ‖q‖ and of exact scores; plus 2⁻¹⁴⁹ for each product that may underflow. An
//! exact score is rounded to f32, and so is the bound that it is compared with.

use super::filter::Allowed;
use super::queries::Scored;
use super::whole::Whole;
use super::{Index, Reach, Within};
use crate::error::{Result, argument};
use crate::monitor::Monitor;
use crate::scan::Hits;
use crate::search::rerank::rerank;
use crate::vectors::Vectors;
use crate::vectors::metric::{normalise, squared_norm};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis, concatenate, s};

impl Index {
    /// Like [`search_rerank`](Index::search_rerank), but scores more candidates, and returns for each query whether its
    /// hits are proven to be those of an exact search of all allowed vectors. `vectors` must be those that were added.
    ///
    /// # Errors
    /// The errors of [`search_rerank`](Index::search_rerank), or the index does not keep residuals.
    pub fn search_certified(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        (vectors, n_candidates): (&dyn Vectors, usize),
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<(Hits, Vec<bool>)> {
        self.check_rerank(vectors)?;
        let parts = [self.alone()];
        let whole = Whole::new(&parts, Within { allowed, reach: Reach::All });
        let (candidates, bounds) = whole.certifiable(queries, n_candidates, monitor)?;
        let mut hits = rerank(queries, vectors, candidates.view(), k, self.settings.metric, monitor)?;
        let certified = proven(&hits, &bounds);
        self.name(&mut hits);
        Ok((hits, certified))
    }
}

impl Whole<'_> {
    /// Positions (nq, 2 `n_candidates`) of the best vectors by score and by bound; and for each query an upper bound on
    /// the scores of all other vectors, if there are any. All lists are searched.
    pub(super) fn certifiable(
        &self,
        queries: ArrayView2<'_, f32>,
        n_candidates: usize,
        monitor: &dyn Monitor,
    ) -> Result<(Array2<i64>, Vec<Option<f32>>)> {
        let n_candidates = n_candidates.min(self.len());
        let by_bound = self.search_bounds(queries, n_candidates + 1, monitor)?;
        let by_score = self.search(queries, n_candidates, monitor)?;
        Ok(self.bounded(queries, by_score.positions.view(), &by_bound))
    }

    /// The `k` largest of ⟨q, x̄⟩ / ‖q‖ + ‖x − x̄‖.
    pub(super) fn search_bounds(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        if !self.one().settings.residuals {
            return Err(argument!(
                "certify",
                "cannot be: the index keeps no residuals, without which nothing can be certified"
            ));
        }
        let mut unit = queries.as_standard_layout().into_owned();
        unit.outer_iter_mut().for_each(|mut query| normalise(query.as_slice_mut().expect("standard layout")));
        self.scan(unit.view(), k, Scored::Bound, monitor)
    }

    /// Combines the best by score, (nq, c), and the c + 1 best by bound into the result of
    /// [`certifiable`](Self::certifiable).
    pub(super) fn bounded(
        &self,
        queries: ArrayView2<'_, f32>,
        by_score: ArrayView2<'_, i64>,
        by_bound: &Hits,
    ) -> (Array2<i64>, Vec<Option<f32>>) {
        let n_candidates = by_score.ncols();
        let mut others = by_bound.positions.slice(s![.., ..n_candidates]).to_owned();
        for (mut others, known) in others.outer_iter_mut().zip(by_score.outer_iter()) {
            let mut known = known.to_vec();
            known.sort_unstable();
            others.iter_mut().filter(|p| known.binary_search(p).is_ok()).for_each(|p| *p = -1);
        }
        let candidates = concatenate(Axis(1), &[by_score, others.view()]).expect("equal rows");

        let slack = self.slack();
        let bound = |(query, q): (usize, ArrayView1<'_, f32>)| {
            if by_bound.positions[[query, n_candidates]] < 0 {
                return None; // all are candidates
            }
            let norm = squared_norm(&q.to_vec()).sqrt();
            Some((norm * (f64::from(by_bound.scores[[query, n_candidates]]) + slack)) as f32)
        };
        let bounds = queries.outer_iter().enumerate().map(bound).collect();
        (candidates, bounds)
    }

    /// The largest rounding error of a bound; infinite if f32 sums might overflow.
    fn slack(&self) -> f64 {
        let one = self.one();
        let (n_codebooks, _, dim) = one.model.codebooks.view().dim();
        let n_codebooks = n_codebooks + usize::from(one.partition.is_some());
        let largest = self.parts.iter().map(|part| part.index.largest).fold(0.0, f32::max);
        let magnitude = one.frame.size + f64::from(largest);
        if magnitude > f64::from(f32::MAX) / 4.0 {
            return f64::INFINITY;
        }
        let roundings = (dim + 2 * n_codebooks + 8) as f64;
        let products = (dim * (n_codebooks + 1)) as f64;
        roundings * f64::from(f32::EPSILON) * magnitude + products * 2f64.powi(-149)
    }
}

/// For each query, whether its `hits` are above the bound of all vectors that were not scored.
pub(super) fn proven(hits: &Hits, bounds: &[Option<f32>]) -> Vec<bool> {
    let proven = |(query, &bound): (usize, &Option<f32>)| {
        let (found, scores) = (hits.positions.row(query), hits.scores.row(query));
        if found.iter().zip(scores).any(|(&at, score)| at >= 0 && !score.is_finite()) {
            return false; // beyond f32 scores do not tell vectors apart
        }
        // False for NaN.
        bound.is_none_or(|bound| scores.last().is_some_and(|&last| last > bound))
    };
    bounds.iter().enumerate().map(proven).collect()
}
