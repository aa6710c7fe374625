//! Searching an index.

use super::{Index, Order};
use crate::error::{Result, invalid};
use crate::isa::Isa;
use crate::monitor::Monitor;
use crate::scan::{self, Adjust, Hits, Levels, Options};
use crate::search::rerank::rerank;
use crate::vectors::Vectors;
use crate::vectors::metric::{Metric, normalise};
use ndarray::{ArrayView2, Axis, s};

/// Queries whose tables are held at once: 8 MB for M = 8.
const BATCH: usize = 1024;

impl Index {
    /// The `k` best vectors for each query (nq, d): scores, and ids in the place of positions. `allowed`, if given, says
    /// which positions may be found, 64 a word: see [`Options::allowed`] and [`allow_ids`](Self::allow_ids).
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
        let (metric, levels) = (self.settings.metric, self.levels());
        let mut unit;
        let queries = if metric == Metric::Cosine {
            unit = queries.as_standard_layout().into_owned();
            unit.outer_iter_mut()
                .for_each(|mut query| normalise(query.as_slice_mut().expect("standard layout")));
            unit.view()
        } else {
            queries
        };
        // An empty index has no levels yet, and needs none; residuals are no part of a score.
        let none: Levels = if self.settings.residuals { [0.0; 256] } else { [1.0; 256] };
        let levels = match self.settings.residuals {
            true => Some(&none),
            false if self.has_column() => levels.or(Some(&none)),
            false => None,
        };
        let euclidean = metric == Metric::Euclidean;
        let is_added = euclidean || self.settings.residuals;
        let adjust = Adjust {
            scale: levels.filter(|_| !is_added),
            bias: levels.filter(|_| is_added),
            exact_bias: (euclidean && self.keeps_biases()).then_some(&self.biases),
        };
        let mut hits = self.scan(queries, k, Options { allowed, adjust }, monitor)?;
        if euclidean {
            // The scan's ⟨q, x̄⟩ − ½‖x̄‖² is −½‖q − x̄‖² but for ½‖q‖².
            for (mut scores, query) in hits.scores.outer_iter_mut().zip(queries.outer_iter()) {
                let square = query.iter().map(|&q| f64::from(q) * f64::from(q)).sum::<f64>();
                scores.mapv_inplace(|score| (2.0 * f64::from(score) - square) as f32);
            }
        }
        Ok(hits)
    }

    /// The `k` best by scores as `options` have them, [`BATCH`] queries at a time.
    pub(super) fn scan(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        options: Options<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let isa = Isa::current()?;
        let mut hits = Hits::none(queries.nrows(), k)?;
        let total = (queries.nrows() * self.len()) as u64;
        for (i, queries) in queries.axis_chunks_iter(Axis(0), BATCH).enumerate() {
            let first = i * BATCH;
            let before = (first * self.len()) as u64;
            let within = |done, _| monitor.report(before + done, total).is_ok();
            let tables = self.tables.tables(queries, isa)?;
            let part = scan::search(self.packed.view(), &tables, k, options, isa, &within)?;
            let rows = s![first..first + queries.nrows(), ..];
            hits.scores.slice_mut(rows).assign(&part.scores);
            hits.positions.slice_mut(rows).assign(&part.positions);
        }
        Ok(hits)
    }

    /// Puts ids in the place of positions; −1 stays.
    pub(super) fn name(&self, hits: &mut Hits) {
        if self.ids.given().is_some() {
            hits.positions.iter_mut().filter(|p| **p >= 0).for_each(|p| *p = self.ids.at(*p as usize));
        }
    }
}
