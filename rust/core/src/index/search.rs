//! Searching an index.

use super::column::{Column, Run};
use super::measure::{self, Exact};
use super::side::Side;
use super::{Index, Order};
use crate::codes::packed::BLOCK;
use crate::error::{Error, Result, invalid};
use crate::isa::Isa;
use crate::monitor::Monitor;
use crate::scan::{self, Adjust, Hits, Levels, Measure, Probes, Segment};
use crate::search::rerank::rerank;
use crate::vectors::Vectors;
use crate::vectors::metric::Metric;
use ndarray::{ArrayView1, ArrayView2, Axis, CowArray, Ix2, s};

/// Queries whose tables are held at once: 8 MB for M = 8.
pub(super) const BATCH: usize = 1024;
/// Scales that change nothing.
const ONES: Levels = [1.0; 256];

/// What a scan looks for the largest of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scored {
    /// The metric's score of x̄.
    Approximation,
    /// ⟨q, x̄⟩ + ‖x − x̄‖.
    Bound,
}

pub(super) fn check_finite(queries: &CowArray<'_, f32, Ix2>) -> Result<()> {
    let is_finite = |row: ArrayView1<'_, f32>| row.iter().all(|value| value.is_finite());
    match queries.outer_iter().position(|row| !is_finite(row)) {
        Some(row) => Err(Error::NotFinite { what: "queries", row }),
        None => Ok(()),
    }
}

impl Index {
    /// The `k` best vectors for each query (nq, d): scores, and ids in the place of positions. `allowed`, if given, says
    /// which positions may be found, 64 a word: see [`Segment::allowed`] and [`allow_ids`](Self::allow_ids).
    ///
    /// # Errors
    /// Another d, a query that is not finite, another number of words, or a cancelling monitor.
    pub fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: Option<&[u64]>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let mut hits = self.search_positions(queries, k, allowed, monitor)?;
        self.name(&mut hits);
        Ok(hits)
    }

    /// Like [`search`](Self::search), but of the `n_candidates` best by code those `k` that are best by exact scores with
    /// `vectors`, whose rows are in the order of adding. Where this is not known, see [`candidates`](Self::candidates).
    ///
    /// # Errors
    /// Those of [`search`](Self::search); other than [`len`](Self::len) vectors, or of another d; or vectors were added
    /// after others were removed, so that the rows may be in another order.
    pub fn search_rerank(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        (vectors, n_candidates): (&dyn Vectors, usize),
        allowed: Option<&[u64]>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.check_rerank(vectors)?;
        let candidates = self.search_positions(queries, n_candidates.min(self.len()), allowed, monitor)?;
        let mut hits =
            rerank(queries, vectors, candidates.positions.view(), k, self.settings.metric, monitor)?;
        self.name(&mut hits);
        Ok(hits)
    }

    /// Refuses vectors that cannot be those of the index in its order, or may not be.
    pub(super) fn check_rerank(&self, vectors: &dyn Vectors) -> Result<()> {
        if self.order() == Order::Mixed {
            return Err(invalid!(
                "vectors were added after others were removed, or under ids that do not ascend by an older version: \
                 rows of rerank might be taken for those of other vectors. Name them: rerank_ids, an id for each row, \
                 which are the index's own ids if the rows are in that order"
            ));
        }
        if vectors.n() != self.len() {
            return Err(invalid!(
                "rerank has {} rows, the index holds {} vectors: want a row for each of its ids, in their order",
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
        allowed: Option<&[u64]>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let hits = self.scan(queries, k, allowed, Scored::Approximation, monitor)?;
        if self.settings.metric == Metric::Euclidean {
            measure::check_within(&hits)?;
        }
        Ok(hits)
    }

    /// The `k` best by what is `scored`, [`BATCH`] queries at a time.
    pub(super) fn scan(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: Option<&[u64]>,
        scored: Scored,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let isa = Isa::current()?;
        let mut hits = Hits::none(queries.nrows(), k)?;
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        if let Some(allowed) = allowed
            && allowed.len() != self.len().div_ceil(BLOCK)
        {
            let (words, n) = (allowed.len(), self.len());
            return Err(invalid!("allowed has {words} words of 64 vectors, the index holds {n}"));
        }
        let (codebooks, metric) = (&self.model.codebooks, self.settings.metric);
        let total = (queries.nrows() * self.len()) as u64;
        for (i, queries) in queries.axis_chunks_iter(Axis(0), BATCH).enumerate() {
            let first = i * BATCH;
            let before = (first * self.len()) as u64;
            let within = |done, _| monitor.report(before + done, total).is_ok();
            let part = if self.side.follows_from_codes() && queries.ncols() == codebooks.dim() {
                let (exact, inputs) = Exact::new(&self.frame, codebooks, metric, queries, first)?;
                let tables = self.frame.tables.tables(inputs.view(), isa)?;
                let segments = self.segments(allowed, scored, Some(&exact));
                scan::search(&segments, Probes::All, &tables, k, isa, &within)?
            } else {
                let tables = self.frame.tables.tables(queries, isa)?;
                scan::search(&self.segments(allowed, scored, None), Probes::All, &tables, k, isa, &within)?
            };
            let rows = s![first..first + queries.nrows(), ..];
            hits.scores.slice_mut(rows).assign(&part.scores);
            hits.positions.slice_mut(rows).assign(&part.positions);
        }
        Ok(hits)
    }

    /// All vectors, in segments that share levels.
    pub(super) fn segments<'a>(
        &'a self,
        allowed: Option<&'a [u64]>,
        scored: Scored,
        measure: Option<&'a dyn Measure>,
    ) -> Vec<Segment<'a>> {
        let codes = self.packed.view();
        let whole = |adjust| vec![Segment { codes, adjust, allowed, first: 0 }];
        let Some(column) = &self.column else {
            return if codes.is_empty() { Vec::new() } else { whole(Adjust::None) };
        };
        let runs = match (column, self.side, scored) {
            (Column::Levels(levels), ..) => return whole(Adjust::Scale(levels)),
            // Residuals are no part of a score.
            (_, Side::ResidualNorm, Scored::Approximation) => return whole(Adjust::Scale(&ONES)),
            (Column::Runs(runs), ..) => runs,
        };
        let segment = |(i, run): (usize, &'a Run)| {
            let next = runs.get(i + 1).map_or(codes.len(), |next| next.first);
            let blocks = run.first / BLOCK..next.div_ceil(BLOCK);
            let (edges, exact) = (&*run.edges, self.numbers.get(run.first..next));
            let adjust = match (measure, exact) {
                (Some(measure), exact) => Adjust::Exact { edges, exact, measure },
                (None, exact) => Adjust::Bias { edges, exact: exact.unwrap_or_default() },
            };
            let allowed = allowed.map(|allowed| &allowed[blocks.clone()]);
            Segment { codes: codes.slice(blocks), adjust, allowed, first: run.first as u64 }
        };
        runs.iter().enumerate().map(segment).collect()
    }

    /// Puts ids in the place of positions; −1 stays.
    pub(super) fn name(&self, hits: &mut Hits) {
        if self.ids.given().is_some() {
            hits.positions.iter_mut().filter(|p| **p >= 0).for_each(|p| *p = self.ids.at(*p as usize));
        }
    }
}
