//! Searching an index.

use super::column::{Column, Run};
use super::filter::Allowed;
use super::measure::{self, Exact};
use super::probing::{Lists, Reach, Within};
use super::side::Side;
use super::{Index, Order};
use crate::codes::packed::BLOCK;
use crate::error::{Error, Result, argument, invalid};
use crate::isa::Isa;
use crate::monitor::Monitor;
use crate::scan::tables::Tables;
use crate::scan::topk::Key;
use crate::scan::{self, Adjust, Each, Hits, Levels, Measure, Probes, Segment};
use crate::search::rerank::rerank;
use crate::vectors::Vectors;
use crate::vectors::metric::Metric;
use ndarray::{ArrayView1, ArrayView2, Axis, CowArray, Ix2, s};

/// Queries whose tables are held at once: 8 MB for M = 8.
pub(super) const BATCH: usize = 1024;
/// Queries of each thread whose tables are held at once where lists are searched, twice as many at least: each query
/// is searched alone then, and its tables are still in a cache.
const BRIEF: usize = 64;
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

/// What is above a score.
#[derive(Clone, Debug, PartialEq)]
pub struct Above {
    /// The results of query i are `starts[i]..starts[i + 1]`.
    pub starts: Vec<usize>,
    /// Of all queries; best first, of equal scores the vector that was added first.
    pub ids: Vec<i64>,
    /// Their scores.
    pub scores: Vec<f32>,
}

/// What a batch of queries scans.
struct Scan<'a> {
    segments: Vec<Segment<'a>>,
    of: (Probes<'a>, Each<'a>),
    tables: &'a Tables,
    isa: Isa,
    monitor: &'a dyn Monitor,
}

/// A query whose inner products f32 cannot hold.
pub(super) fn beyond(row: usize) -> Error {
    argument!(
        "Q",
        "row {row} is too large: its inner products are beyond float32; scale queries or vectors down"
    )
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
    /// which may be found: see [`allow_ids`](Self::allow_ids) and [`allow_each`](Self::allow_each). An index with lists goes
    /// through those of [`Reach::DEFAULT`](super::Reach::DEFAULT).
    ///
    /// # Errors
    /// Another d, a query that is not finite, what was allowed for another index or fewer queries, more results than can
    /// be held, or a cancelling monitor.
    pub fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.search_within(queries, k, allowed.into(), monitor)
    }

    /// As [`search`](Self::search), through so many lists as `within` says, where the index has lists.
    ///
    /// # Errors
    /// Those of [`search`](Self::search).
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
        vectors: (&dyn Vectors, usize),
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.search_rerank_within(queries, k, vectors, allowed.into(), monitor)
    }

    /// As [`search_rerank`](Self::search_rerank), through so many lists as `within` says.
    ///
    /// # Errors
    /// Those of [`search_rerank`](Self::search_rerank).
    pub fn search_rerank_within(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        (vectors, n_candidates): (&dyn Vectors, usize),
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.check_rerank(vectors)?;
        let candidates = self.search_some(queries, n_candidates.min(self.len()), within, monitor)?;
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
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.finite(self.scan(queries, k, within, Scored::Approximation, monitor)?)
    }

    /// As [`search_positions`](Self::search_positions), in any order.
    pub(super) fn search_some(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.finite(self.scan_ordered(queries, (k, false), within, Scored::Approximation, monitor)?)
    }

    /// Refuses scores that f32 cannot hold.
    fn finite(&self, hits: Hits) -> Result<Hits> {
        let is_beyond = |(&position, &score): (&i64, &f32)| position >= 0 && !score.is_finite();
        let rows = hits.positions.outer_iter().zip(hits.scores.outer_iter());
        let row =
            rows.into_iter().position(|(positions, scores)| positions.iter().zip(scores).any(is_beyond));
        match row {
            Some(row) if self.settings.metric == Metric::Euclidean => Err(measure::beyond(row)),
            Some(row) => Err(beyond(row)),
            None => Ok(hits),
        }
    }

    /// All vectors that score at least `floor`, a number for each query; finite ones.
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
    /// Those of [`search`](Self::search), or another number of floors, one that is not finite, or more results than can
    /// be held.
    pub fn search_above(
        &self,
        queries: ArrayView2<'_, f32>,
        floors: &[f32],
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Above> {
        if floors.len() != queries.nrows() || floors.iter().any(|floor| !floor.is_finite()) {
            let (have, want) = (floors.len(), queries.nrows());
            return Err(invalid!("score has {have} entries: want {want} finite ones, one for each query"));
        }
        let mut above = Above { starts: vec![0], ids: Vec::new(), scores: Vec::new() };
        let each = |first: usize, scan: Scan<'_>| {
            let floors = &floors[first..first + scan.tables.n_queries()];
            let found = scan::above(&scan.segments, scan.of, scan.tables, floors, scan.isa, scan.monitor)?;
            let count = above.ids.len() + found.iter().map(Vec::len).sum::<usize>();
            if count > scan::topk::MOST {
                return Err(invalid!(
                    "score lets through more than {} results: want a higher one",
                    scan::topk::MOST
                ));
            }
            let is_beyond = |found: &Vec<Key>| found.iter().any(|key| !key.score().is_finite());
            if let Some(row) = found.iter().position(is_beyond) {
                return Err(beyond(first + row));
            }
            for found in found {
                above.ids.extend(found.iter().map(|key| self.ids.at(key.position() as usize)));
                above.scores.extend(found.iter().map(|key| key.score()));
                above.starts.push(above.ids.len());
            }
            Ok(())
        };
        // All that score so much are in any list.
        let within = Within { allowed, reach: Reach::All };
        self.scan_batches(queries, usize::MAX, within, Scored::Approximation, monitor, each)?;
        Ok(above)
    }

    /// The `k` best by what is `scored`, [`BATCH`] queries at a time.
    pub(super) fn scan(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        within: Within<'_>,
        scored: Scored,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.scan_ordered(queries, (k, true), within, scored, monitor)
    }

    /// As [`scan`](Self::scan); unless `is_sorted`, the k best may come in any order.
    fn scan_ordered(
        &self,
        queries: ArrayView2<'_, f32>,
        (k, is_sorted): (usize, bool),
        within: Within<'_>,
        scored: Scored,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let mut hits = Hits::none(queries.nrows(), k, self.len())?;
        let each = |first: usize, scan: Scan<'_>| {
            let Scan { segments, of, tables, isa, monitor } = scan;
            let part = scan::search_ordered(&segments, of, tables, (k, is_sorted), isa, monitor)?;
            let rows = s![first..first + part.positions.nrows(), ..];
            hits.scores.slice_mut(rows).assign(&part.scores);
            hits.positions.slice_mut(rows).assign(&part.positions);
            Ok(())
        };
        self.scan_batches(queries, k, within, scored, monitor, each)?;
        Ok(hits)
    }

    /// Makes the tables of [`BATCH`] queries at a time, and has `each` scan for them; it is told the first of them.
    fn scan_batches(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        Within { allowed, reach }: Within<'_>,
        scored: Scored,
        monitor: &dyn Monitor,
        mut each: impl FnMut(usize, Scan<'_>) -> Result<()>,
    ) -> Result<()> {
        let isa = Isa::current()?;
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        let bits = allowed.and_then(Allowed::bits);
        if let Some(allowed) = bits
            && allowed.len() != self.len().div_ceil(BLOCK)
        {
            let (words, n) = (allowed.len(), self.len());
            return Err(invalid!("allowed has {words} words of 64 vectors, the index holds {n}"));
        }
        if let (Some(partition), Some(centroids)) = (&self.partition, &self.model.centroids) {
            let allowed = allowed.map(|allowed| allowed.by_place(partition));
            let lists = Lists { index: self, partition, centroids, allowed, reach, scored, isa };
            return self.scan_lists(&lists, queries.view(), k, monitor, each);
        }
        let metric = self.settings.metric;
        let total = (queries.nrows() * self.len()) as u64;
        for (i, queries) in queries.axis_chunks_iter(Axis(0), BATCH).enumerate() {
            let first = i * BATCH;
            let before = (first * self.len()) as u64;
            let within = |done, _| monitor.report(before + done, total).is_ok();
            let of = (Probes::All, allowed.map_or_else(Each::default, |allowed| allowed.each(first)));
            if self.side.follows_from_codes() && queries.ncols() == self.model.codebooks.dim() {
                let (exact, inputs) = Exact::new(&self.frame, &self.model, metric, queries, first)?;
                let tables = &self.frame.tables.tables(inputs.view(), isa)?;
                let segments = self.segments(bits, scored, Some(&exact));
                each(first, Scan { segments, of, tables, isa, monitor: &within })?;
            } else {
                let tables = &self.frame.tables.tables(queries, isa)?;
                self.check_products(queries, tables, first)?;
                let segments = self.segments(bits, scored, None);
                each(first, Scan { segments, of, tables, isa, monitor: &within })?;
            }
        }
        Ok(())
    }

    /// Refuses queries whose products with codewords are beyond f32: an infinity less another is no score.
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
            if !is_small && !tables.query(row).iter().flatten().all(|entry| entry.is_finite()) {
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

    /// What changes the scores of some vectors of a run, whose numbers are `exact` if they are kept.
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
            // Residuals are no part of a score.
            (_, Side::ResidualNorm, Scored::Approximation) => return Adjust::Scale(&ONES),
            (Column::Runs(runs), ..) => &*runs[run].edges,
        };
        match measure {
            Some(measure) => Adjust::Exact { edges, exact, measure },
            None => Adjust::Bias { edges, exact: exact.unwrap_or_default() },
        }
    }

    /// As [`scan`](Self::scan), through lists.
    fn scan_lists(
        &self,
        lists: &Lists<'_>,
        queries: ArrayView2<'_, f32>,
        k: usize,
        monitor: &dyn Monitor,
        mut each: impl FnMut(usize, Scan<'_>) -> Result<()>,
    ) -> Result<()> {
        let total = queries.nrows() as u64;
        let batch = lists.batch((BRIEF * rayon::current_num_threads()).clamp(2 * BRIEF, BATCH));
        for (i, queries) in queries.axis_chunks_iter(Axis(0), batch).enumerate() {
            let (first, n) = (i * batch, queries.nrows());
            let within = |done: u64, of: u64| {
                let done = u128::from(done) * n as u128 / u128::from(of.max(1));
                monitor.report(first as u64 + done as u64, total).is_ok()
            };
            let own = lists.each(first);
            let follows = self.side.follows_from_codes() && queries.ncols() == self.model.codebooks.dim();
            let (exact, inputs) = match follows {
                true => {
                    let metric = self.settings.metric;
                    let (exact, inputs) = Exact::new(&self.frame, &self.model, metric, queries, first)?;
                    (Some(exact), CowArray::from(inputs))
                }
                false => (None, CowArray::from(queries)),
            };
            let tables = &self.frame.tables.tables(inputs.view(), lists.isa)?;
            if !follows {
                self.check_products(queries, tables, first)?;
            }
            let measure = exact.as_ref().map(|exact| exact as &dyn Measure);
            let (segments, probes) = lists.probes(inputs.view(), first, k, measure)?;
            let of = (Probes::Each(&probes), own);
            each(first, Scan { segments, of, tables, isa: lists.isa, monitor: &within })?;
        }
        Ok(())
    }

    /// Puts ids in the place of positions; −1 stays.
    pub(super) fn name(&self, hits: &mut Hits) {
        if self.ids.given().is_some() {
            hits.positions.iter_mut().filter(|p| **p >= 0).for_each(|p| *p = self.ids.at(*p as usize));
        }
    }
}
