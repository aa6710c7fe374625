//! Searching an index.

use super::column::{Column, Run};
use super::filter::Allowed;
use super::part::Part;
use super::probing::{Reach, Within};
use super::queries::{Scored, beyond};
use super::side::Side;
use super::whole::Whole;
use super::{Index, Order};
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument};
use crate::monitor::Monitor;
use crate::scan::tables::Tables;
use crate::scan::{Adjust, Hits, Levels, Measure, Segment};
use crate::search::rerank::Reranker;
use crate::vectors::Vectors;
use ndarray::ArrayView2;

/// Scales that change nothing.
const ONES: Levels = [1.0; 256];

/// The vectors that score at least a floor.
#[derive(Clone, Debug, PartialEq)]
pub struct Above {
    /// The results of query i are `starts[i]..starts[i + 1]`.
    pub starts: Vec<usize>,
    /// The ids for all queries, best first for each; ties in the order of adding.
    pub ids: Vec<i64>,
    /// Their scores.
    pub scores: Vec<f32>,
}

impl Index {
    /// The `k` best vectors for each query (nq, d): scores, and ids in place of positions. `allowed`, if given,
    /// restricts which may be found: see [`allow_ids`](Self::allow_ids) and [`allow_each`](Self::allow_each). An index
    /// with lists searches as many of them as [`Reach::DEFAULT`](super::Reach::DEFAULT) says.
    ///
    /// # Errors
    /// A different d, a query that is not finite, a restriction made for another index or fewer queries, more results
    /// than can be held, or the monitor cancels.
    pub fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.search_within(queries, k, allowed.into(), monitor)
    }

    /// Like [`search`](Self::search), but searches as many lists as `within` says, if the index has lists.
    ///
    /// # Errors
    /// The errors of [`search`](Self::search).
    pub fn search_within(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let mut hits = self.search_positions(queries, k, within, monitor)?;
        self.name(&mut hits);
        Ok(hits)
    }

    /// Like [`search`](Self::search), but returns, of the `n_candidates` best by code, the `k` with the best exact
    /// scores for `vectors`, whose rows must be in the order of adding. If the order is not known, see
    /// [`candidates`](Self::candidates).
    ///
    /// # Errors
    /// The errors of [`search`](Self::search); the number of vectors differs from [`len`](Self::len), or they have a
    /// different d; or vectors were added after others were removed, so the rows may be in a different order.
    pub fn search_rerank(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        vectors: (&dyn Vectors, usize),
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.search_rerank_within(queries, k, vectors, allowed.into(), monitor)
    }

    /// Like [`search_rerank`](Self::search_rerank), but searches as many lists as `within` says.
    ///
    /// # Errors
    /// The errors of [`search_rerank`](Self::search_rerank).
    pub fn search_rerank_within(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        (vectors, n_candidates): (&dyn Vectors, usize),
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.check_rerank(vectors)?;
        let reranker = Reranker::new(queries, vectors, self.settings.metric)?;
        let n = (k, n_candidates.min(self.len()));
        let parts = [self.alone()];
        let mut hits = Whole::new(&parts, within).search_reranked(queries, n, &reranker, monitor)?;
        self.name(&mut hits);
        Ok(hits)
    }

    /// Rejects vectors that cannot be those of the index in its order, or that may not be.
    pub(super) fn check_rerank(&self, vectors: &dyn Vectors) -> Result<()> {
        if self.order() == Order::Mixed {
            return Err(argument!(
                "rerank",
                "needs rerank_ids here: vectors were added after others were removed, or came with ids of their \
                 own from an older version or another library, whose order is not known: rows of rerank might be \
                 taken for those of other vectors. Name them: rerank_ids, an id for each row, which are the \
                 index's own ids if the rows are in that order"
            ));
        }
        if vectors.n() != self.len() {
            return Err(argument!(
                "rerank",
                "has {} rows, the index holds {} vectors: want a row for each of its ids, in their order; rows \
                 of other vectors too, as of those that were removed, need rerank_ids, their ids",
                vectors.n(),
                self.len()
            ));
        }
        Ok(())
    }

    pub(super) fn search_positions(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        Whole::new(&[self.alone()], within).search(queries, k, monitor)
    }

    /// Like [`search_positions`](Self::search_positions), in any order.
    pub(super) fn search_some(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        Whole::new(&[self.alone()], within).search_some(queries, k, monitor)
    }

    /// This index as the only part of a search.
    pub(super) fn alone(&self) -> Part<'_> {
        Part { index: self, first: 0 }
    }

    /// All vectors that score at least the `floor` of a query, one finite number per query.
    ///
    /// ```
    /// use compcodes::{Codebooks, Index, Model, Selection};
    /// use ndarray::array;
    /// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
    /// let mut index = Index::new(Model::new(codebooks, Selection::Group));
    /// index.add(&array![[3.5, 1.2], [0.3, 2.9], [4.2, 3.1]].view(), None, &())?;
    /// let found = index.search_above(array![[1.0, 1.0], [0.0, 1.0]].view(), &[5.0, 4.0], None, &())?;
    /// assert_eq!(found.starts, [0, 2, 2]);
    /// assert_eq!((found.ids, found.scores), (vec![2, 0], vec![7.0, 5.0]));
    /// # Ok::<(), compcodes::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`search`](Self::search), or a different number of floors, one that is not finite, or more results
    /// than can be held.
    pub fn search_above(
        &self,
        queries: ArrayView2<'_, f32>,
        floors: &[f32],
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Above> {
        // Vectors that score at least a floor may be in any list.
        let within = Within { allowed, reach: Reach::All };
        let parts = [self.alone()];
        let (starts, positions, scores) = Whole::new(&parts, within).above(queries, floors, monitor)?;
        let ids = positions.into_iter().map(|position| self.ids.at(position as usize)).collect();
        Ok(Above { starts, ids, scores })
    }

    /// Rejects queries whose products with codewords are beyond f32: the difference of two infinities is no score.
    pub(super) fn check_products(
        &self,
        queries: ArrayView2<'_, f32>,
        tables: &Tables,
        first: usize,
    ) -> Result<()> {
        let most = f64::from(f32::MAX) / 4.0;
        for (row, query) in queries.outer_iter().enumerate() {
            let norm = query.iter().map(|&q| f64::from(q) * f64::from(q)).sum::<f64>().sqrt();
            let is_small = norm * self.frame.size <= most;
            if !is_small && !tables.entries(row).iter().all(|entry| entry.is_finite()) {
                return Err(beyond(first + row));
            }
        }
        Ok(())
    }

    /// All vectors, in segments that share levels.
    pub(super) fn segments<'a>(
        &'a self,
        allowed: Option<&'a [u64]>,
        scored: Scored,
        measure: Option<&'a dyn Measure>,
    ) -> Vec<Segment<'a>> {
        let codes = self.packed.view();
        let whole = |adjust| vec![Segment { adjust, allowed, ..Segment::new(codes) }];
        let Some(column) = &self.column else {
            return if codes.is_empty() { Vec::new() } else { whole(Adjust::None) };
        };
        let runs = match (column, self.side, scored) {
            (Column::Levels(_), ..) | (_, Side::ResidualNorm, Scored::Approximation) => {
                return whole(self.adjust_of(column, 0, None, scored, measure));
            }
            (Column::Runs(runs), ..) => runs,
        };
        let segment = |(i, run): (usize, &'a Run)| {
            let next = runs.get(i + 1).map_or(codes.len(), |next| next.first);
            let blocks = run.first / BLOCK..next.div_ceil(BLOCK);
            let exact = self.numbers.get(run.first..next);
            let adjust = self.adjust_of(column, i, exact, scored, measure);
            let allowed = allowed.map(|allowed| &allowed[blocks.clone()]);
            Segment { adjust, allowed, first: run.first as u64, ..Segment::new(codes.slice(blocks)) }
        };
        runs.iter().enumerate().map(segment).collect()
    }

    /// The adjustment of the scores of some vectors of a run; `exact` are their numbers, if they are kept.
    pub(super) fn adjust_of<'a>(
        &self,
        column: &'a Column,
        run: usize,
        exact: Option<&'a [f32]>,
        scored: Scored,
        measure: Option<&'a dyn Measure>,
    ) -> Adjust<'a> {
        let edges = match (column, self.side, scored) {
            (Column::Levels(levels), ..) => return Adjust::Scale(levels),
            // Residuals do not affect a score.
            (_, Side::ResidualNorm, Scored::Approximation) => return Adjust::Scale(&ONES),
            (Column::Runs(runs), ..) => &*runs[run].edges,
        };
        match measure {
            Some(measure) => Adjust::Exact { edges, exact, measure },
            None => Adjust::Bias { edges, exact: exact.unwrap_or_default() },
        }
    }

    /// Replaces positions with ids; −1 stays.
    pub(super) fn name(&self, hits: &mut Hits) {
        if self.ids.given().is_some() {
            hits.positions.iter_mut().filter(|p| **p >= 0).for_each(|p| *p = self.ids.at(*p as usize));
        }
    }
}
