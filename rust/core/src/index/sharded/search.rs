//! Searching shards, in the same way as an [`Index`](crate::Index).

use super::Shards;
use crate::error::{Result, argument, invalid};
use crate::index::candidates::Candidates;
use crate::index::filter::Allowed;
use crate::index::measure::Exact;
use crate::index::part::Part;
use crate::index::probing::Lists;
use crate::index::queries::{BATCH, Scored, check_finite};
use crate::index::search::Above;
use crate::index::whole::Whole;
use crate::index::{Reach, Within};
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::scan::{Hits, Measure};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::borrow::Cow;

impl Shards {
    fn parts(&self) -> Vec<Part<'_>> {
        self.shards
            .iter()
            .zip(&self.slots)
            .map(|(shard, &first)| Part { index: &shard.index, first })
            .collect()
    }

    fn whole<'a>(&'a self, parts: &'a [Part<'a>], within: Within<'a>) -> Whole<'a> {
        let mut whole = Whole::new(parts, within);
        whole.bits = match (whole.bits, &self.live) {
            (bits, None) => bits,
            (None, Some(live)) => Some(Cow::from(live)),
            (Some(bits), Some(live)) => Some(bits.iter().zip(live).map(|(bits, live)| bits & live).collect()),
        };
        whole
    }

    fn in_positions(&self, mut hits: Hits) -> Hits {
        hits.positions.mapv_inplace(|slot| self.position(slot));
        hits
    }

    /// Distances and cosines before they are rounded to f32, by which results are ordered: of the query in row
    /// `rows[i]` of `queries` (nq, d) with the vector at `positions[i]`, or −∞ if that is negative. `None` if scores are
    /// inner products, which are f32 sums.
    ///
    /// # Errors
    /// `rows` and `positions` differ in length, do not exist, or the monitor cancels; a query is too far away.
    pub fn unrounded(
        &self,
        queries: ArrayView2<'_, f32>,
        rows: &[usize],
        positions: &[i64],
        monitor: &dyn Monitor,
    ) -> Result<Option<Vec<f64>>> {
        let one = self.one();
        if !one.side.follows_from_codes() || queries.ncols() != one.model.codebooks.dim() {
            return Ok(None);
        }
        if rows.len() != positions.len() || rows.iter().any(|&row| row >= queries.nrows()) {
            return Err(argument!("rows", "want one below {} for each position", queries.nrows()));
        }
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        let (exact, _) = Exact::new(&one.frame, &one.model, one.settings.metric, queries.view(), 0)?;
        let counter = Counter::new(monitor, rows.len() as u64);
        let mut all = Vec::with_capacity(rows.len());
        let mut rest = positions;
        for same in rows.chunk_by(|a, b| a == b) {
            let own;
            (own, rest) = rest.split_at(same.len());
            let found: Vec<i64> = own.iter().copied().filter(|&position| position >= 0).collect();
            let (codes, lists) = self.codes_of(&found)?;
            let lists = lists.unwrap_or_else(|| vec![0; found.len()]);
            let mut scores = vec![0.0; found.len()];
            exact.scores(same[0], codes.as_slice().expect("fresh"), &lists, &mut scores);
            let mut scores = scores.into_iter();
            let score = |&position: &i64| if position < 0 { None } else { scores.next() };
            all.extend(own.iter().map(score).map(|score| score.unwrap_or(f64::NEG_INFINITY)));
            counter.add(same.len() as u64)?;
        }
        Ok(Some(all))
    }

    /// The `k` best vectors for each query (nq, d): scores and positions. If `ends` is given, each query searches that
    /// many lists, even if they hold fewer than k vectors.
    ///
    /// # Errors
    /// The errors of [`Index::search`](crate::Index::search).
    pub fn search_positions(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        (within, ends): (Within<'_>, Option<&[usize]>),
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        if let Some(ends) = ends.filter(|ends| ends.len() != queries.nrows()) {
            return Err(argument!(
                "ends",
                "are {}: want a number of lists for each of {} queries",
                ends.len(),
                queries.nrows()
            ));
        }
        let parts = self.parts();
        let whole = Whole { ends, ..self.whole(&parts, within) };
        Ok(self.in_positions(whole.search(queries, k, monitor)?))
    }

    /// The `k` best vectors for each query (nq, d): scores, and ids in place of positions.
    ///
    /// # Errors
    /// The errors of [`Index::search`](crate::Index::search).
    pub fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let mut hits = self.search_positions(queries, k, (within, None), monitor)?;
        hits.positions.mapv_inplace(|position| self.id(position));
        Ok(hits)
    }

    /// All vectors that score at least `floors`, one number per query, with positions in place of ids.
    ///
    /// # Errors
    /// The errors of [`Index::search_above`](crate::Index::search_above).
    pub fn search_above(
        &self,
        queries: ArrayView2<'_, f32>,
        floors: &[f32],
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Above> {
        let parts = self.parts();
        let whole = self.whole(&parts, Within { allowed, reach: Reach::All });
        let (starts, slots, scores) = whole.above(queries, floors, monitor)?;
        let ids = slots.into_iter().map(|slot| self.position(slot as i64)).collect();
        Ok(Above { starts, ids, scores })
    }

    /// The `n` best vectors by code for each query, to be scored exactly by [`Candidates::rerank`]; and the position of
    /// each of the candidates' ids.
    ///
    /// # Errors
    /// The errors of [`Index::search`](crate::Index::search).
    pub fn candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<(Candidates, Vec<i64>)> {
        let hits = self.search_positions(queries, n.min(self.n_all()), (within, None), monitor)?;
        Ok(self.named(hits.positions))
    }

    /// The [`candidates`](Self::candidates), and as many again by their bounds, so that results can be [proven
    /// exact](Candidates::certified).
    ///
    /// # Errors
    /// The errors of [`Index::search_certified`](crate::Index::search_certified).
    pub fn certifiable_candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<(Candidates, Vec<i64>)> {
        let n = n.min(self.n_all());
        let by_bound = self.search_bounds(queries, n + 1, allowed, monitor)?;
        let within = Within { allowed, reach: Reach::All };
        let by_score = self.search_positions(queries, n, (within, None), monitor)?;
        self.certifiable(queries, by_score.positions.view(), &by_bound)
    }

    /// The `k` best by the upper bound on their exact scores, divided by ‖q‖: bounds and positions.
    ///
    /// # Errors
    /// The errors of [`Index::search_certified`](crate::Index::search_certified).
    pub fn search_bounds(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let parts = self.parts();
        let whole = self.whole(&parts, Within { allowed, reach: Reach::All });
        Ok(self.in_positions(whole.search_bounds(queries, k, monitor)?))
    }

    /// Like [`certifiable_candidates`](Self::certifiable_candidates), from what was found elsewhere: the positions (nq,
    /// c) of the best by score, and the c + 1 best of [`search_bounds`](Self::search_bounds).
    ///
    /// # Errors
    /// The numbers of queries or candidates differ.
    pub fn certifiable(
        &self,
        queries: ArrayView2<'_, f32>,
        by_score: ArrayView2<'_, i64>,
        by_bound: &Hits,
    ) -> Result<(Candidates, Vec<i64>)> {
        let (n, shape) = (queries.nrows(), (queries.nrows(), by_score.ncols() + 1));
        if by_score.nrows() != n || by_bound.positions.dim() != shape || by_bound.scores.dim() != shape {
            return Err(invalid!("want c candidates by score and c + 1 by bound, of {n} queries"));
        }
        let parts = self.parts();
        let (positions, bounds) = self.whole(&parts, Reach::All.into()).bounded(queries, by_score, by_bound);
        Ok(self.named_with(positions, Some(bounds)))
    }

    /// Candidates that were found elsewhere, given by their positions, (nq, n) with −1 for none; and the position of
    /// each of the candidates' ids.
    #[must_use]
    pub fn named(&self, positions: Array2<i64>) -> (Candidates, Vec<i64>) {
        self.named_with(positions, None)
    }

    fn named_with(&self, positions: Array2<i64>, bounds: Option<Vec<Option<f32>>>) -> (Candidates, Vec<i64>) {
        Candidates::named(positions, bounds, self.one().settings.metric, |position| self.id(position))
    }

    /// Number of vectors, including removed ones.
    fn n_all(&self) -> usize {
        self.starts[self.shards.len()]
    }

    /// How many vectors each query may find in its best list, the second best, and so on: (nq, n_lists).
    ///
    /// # Errors
    /// The errors of [`Index::search`](crate::Index::search), or there are no lists.
    pub fn list_counts(
        &self,
        queries: ArrayView2<'_, f32>,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<u32>> {
        let Some(centroids) = &self.one().model.centroids else {
            return Err(invalid!("the shards have no lists"));
        };
        let mut counts = Array2::zeros((queries.nrows(), centroids.n_lists()));
        let within = Within { allowed, reach: Reach::All };
        self.with_lists(queries, within, monitor, |lists, inputs, first| {
            let own = lists.counts(inputs, first)?;
            counts.slice_mut(s![first..first + own.nrows(), ..]).assign(&own);
            Ok(())
        })?;
        Ok(counts)
    }

    /// How many lists each query searches, if they hold enough vectors; `None` without lists.
    ///
    /// # Errors
    /// The errors of [`Index::search`](crate::Index::search).
    pub fn probes(
        &self,
        queries: ArrayView2<'_, f32>,
        reach: Reach,
        monitor: &dyn Monitor,
    ) -> Result<Option<Vec<usize>>> {
        if self.one().model.centroids.is_none() {
            return Ok(None);
        }
        let mut numbers = Vec::with_capacity(queries.nrows());
        self.with_lists(queries, reach.into(), monitor, |lists, inputs, _| {
            numbers.extend(lists.numbers(inputs)?);
            Ok(())
        })?;
        Ok(Some(numbers))
    }

    /// Calls `f` with the lists, batches of queries as products with centroids are computed from, and the row of the
    /// first query of each.
    fn with_lists(
        &self,
        queries: ArrayView2<'_, f32>,
        within: Within<'_>,
        monitor: &dyn Monitor,
        mut f: impl FnMut(&Lists<'_>, ArrayView2<'_, f32>, usize) -> Result<()>,
    ) -> Result<()> {
        let (one, parts) = (self.one(), self.parts());
        let whole = self.whole(&parts, within);
        let lists = whole.lists(Scored::Approximation, Isa::current()?);
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        let (batch, total) = (lists.batch(BATCH), queries.nrows() as u64);
        for (i, queries) in queries.axis_chunks_iter(Axis(0), batch).enumerate() {
            let first = i * batch;
            monitor.report(first as u64, total)?;
            if one.side.follows_from_codes() && queries.ncols() == one.model.codebooks.dim() {
                let (_, inputs) = Exact::new(&one.frame, &one.model, one.settings.metric, queries, first)?;
                f(&lists, inputs.view(), first)?;
            } else {
                f(&lists, queries, first)?;
            }
        }
        Ok(())
    }
}
