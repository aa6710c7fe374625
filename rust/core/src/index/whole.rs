//! What a search covers: an index, or several indexes of one model as if they were one.
//!
//! All parts share the tables, the choice of lists, the floor and the top-k of a query. So the results are those of one
//! index that holds the vectors of all parts in their order, to the last bit; among equal scores the earlier vector
//! comes first.

use super::Index;
use super::filter::Allowed;
use super::measure::{self, Exact};
use super::part::Part;
use super::probing::{Lists, Reach, Within};
use super::queries::{BATCH, Scored, beyond, check_finite};
use crate::error::{Result, argument};
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::scan::tables::Tables;
use crate::scan::topk::Key;
use crate::scan::{self, Each, Finish, Hits, Measure, Probes, Segment};
use crate::search::rerank::Reranker;
use crate::vectors::metric::Metric;
use ndarray::{ArrayView2, Axis, CowArray, s};
use std::borrow::Cow;

/// Queries per thread whose tables are held at once when lists are searched, and in all at least twice this many: each
/// query is then searched alone, while its tables are still in a cache.
const BRIEF: usize = 64;

/// Parts in the order of their positions, at least one, and what a search may find in them.
pub(super) struct Whole<'a> {
    pub(super) parts: &'a [Part<'a>],
    /// What all queries may find, one bit per position.
    pub(super) bits: Option<Cow<'a, [u64]>>,
    /// Additional restrictions of each query.
    pub(super) allowed: Option<&'a Allowed>,
    pub(super) reach: Reach,
    /// The number of lists that each query searches, however few vectors they hold; overrides `reach`.
    pub(super) ends: Option<&'a [usize]>,
}

/// What a batch of queries scans.
struct Scan<'a> {
    segments: Vec<Segment<'a>>,
    of: (Probes<'a>, Each<'a>),
    tables: &'a Tables,
    isa: Isa,
    monitor: &'a dyn Monitor,
}

/// Compares what each query of a batch found with vectors.
struct Rerank<'a, 'b> {
    reranker: &'a Reranker<'b>,
    /// The first query of the batch.
    first: usize,
    k: usize,
    is_euclidean: bool,
}

impl Finish for Rerank<'_, '_> {
    fn n_bytes(&self) -> usize {
        self.reranker.n_bytes()
    }

    fn prefetch(&self, key: Key) {
        self.reranker.prefetch(key.position() as u32);
    }

    fn finish(&self, query: usize, best: &[Key], are_asked: bool, counter: &Counter<'_>) -> Result<Vec<Key>> {
        let query = self.first + query;
        if best.iter().any(|key| !key.score().is_finite()) {
            return Err(if self.is_euclidean { measure::beyond(query) } else { beyond(query) });
        }
        let rows: Vec<u32> = best.iter().map(|key| key.position() as u32).collect();
        self.reranker.best(query, &rows, self.k, are_asked, counter)
    }
}

impl<'a> Whole<'a> {
    pub(super) fn new(parts: &'a [Part<'a>], Within { allowed, reach }: Within<'a>) -> Self {
        Self { parts, bits: allowed.and_then(Allowed::bits).map(Cow::from), allowed, reach, ends: None }
    }

    /// The part that represents what all share.
    pub(super) fn one(&self) -> &'a Index {
        self.parts[0].index
    }

    /// Number of vectors.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.index.len()).sum()
    }

    /// The best by score; all scores must be finite.
    pub(super) fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.finite(self.scan(queries, k, Scored::Approximation, monitor)?)
    }

    /// Like [`search`](Self::search), in any order.
    pub(super) fn search_some(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.finite(self.scan_ordered(queries, (k, false), Scored::Approximation, monitor)?)
    }

    /// Rejects scores that f32 cannot hold.
    fn finite(&self, hits: Hits) -> Result<Hits> {
        let is_beyond = |(&position, &score): (&i64, &f32)| position >= 0 && !score.is_finite();
        let rows = hits.positions.outer_iter().zip(hits.scores.outer_iter());
        let row =
            rows.into_iter().position(|(positions, scores)| positions.iter().zip(scores).any(is_beyond));
        match row {
            Some(row) if self.one().settings.metric == Metric::Euclidean => Err(measure::beyond(row)),
            Some(row) => Err(beyond(row)),
            None => Ok(hits),
        }
    }

    /// The `k` best by `scored`, [`BATCH`] queries at a time.
    pub(super) fn scan(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        scored: Scored,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        self.scan_ordered(queries, (k, true), scored, monitor)
    }

    /// Like [`scan`](Self::scan); unless `is_sorted`, the k best may come in any order.
    fn scan_ordered(
        &self,
        queries: ArrayView2<'_, f32>,
        (k, is_sorted): (usize, bool),
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
        self.scan_batches(queries, k, scored, monitor, each)?;
        Ok(hits)
    }

    /// The `k` best by exact score among the `n_candidates` best by code, each of which names a row of the reranker.
    pub(super) fn search_reranked(
        &self,
        queries: ArrayView2<'_, f32>,
        (k, n_candidates): (usize, usize),
        reranker: &Reranker<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        // Rejected just as a search for that many results is, though they are never held at once.
        Hits::count(queries.nrows(), n_candidates, self.len())?;
        let mut hits = Hits::none(queries.nrows(), k, n_candidates)?;
        let is_euclidean = self.one().settings.metric == Metric::Euclidean;
        let each = |first: usize, scan: Scan<'_>| {
            let Scan { segments, of, tables, isa, monitor } = scan;
            let finish = Rerank { reranker, first, k, is_euclidean };
            let found = scan::search_finished(&segments, of, tables, n_candidates, &finish, isa, monitor)?;
            found.iter().enumerate().for_each(|(query, found)| hits.set(first + query, found));
            Ok(())
        };
        self.scan_batches(queries, n_candidates, Scored::Approximation, monitor, each)?;
        Ok(hits)
    }

    /// All vectors that score at least `floors`, one number per query: where the results of each query begin, and their
    /// positions and scores, best first.
    pub(super) fn above(
        &self,
        queries: ArrayView2<'_, f32>,
        floors: &[f32],
        monitor: &dyn Monitor,
    ) -> Result<(Vec<usize>, Vec<u64>, Vec<f32>)> {
        if floors.len() != queries.nrows() || floors.iter().any(|floor| !floor.is_finite()) {
            let (have, want) = (floors.len(), queries.nrows());
            return Err(argument!(
                "score",
                "has {have} entries: want {want} finite ones, one for each query"
            ));
        }
        let (mut starts, mut positions, mut scores) = (vec![0], Vec::new(), Vec::new());
        let each = |first: usize, scan: Scan<'_>| {
            let floors = &floors[first..first + scan.tables.n_queries()];
            let found = scan::above(&scan.segments, scan.of, scan.tables, floors, scan.isa, scan.monitor)?;
            let count = positions.len() + found.iter().map(Vec::len).sum::<usize>();
            if count > scan::topk::MOST {
                return Err(argument!(
                    "score",
                    "lets through more than {} results: want a higher one",
                    scan::topk::MOST
                ));
            }
            let is_beyond = |found: &Vec<Key>| found.iter().any(|key| !key.score().is_finite());
            if let Some(row) = found.iter().position(is_beyond) {
                return Err(beyond(first + row));
            }
            for found in found {
                positions.extend(found.iter().map(|key| key.position()));
                scores.extend(found.iter().map(|key| key.score()));
                starts.push(positions.len());
            }
            Ok(())
        };
        self.scan_batches(queries, usize::MAX, Scored::Approximation, monitor, each)?;
        Ok((starts, positions, scores))
    }

    /// Computes the tables of [`BATCH`] queries at a time, and calls `each`, with the number of the first query, to
    /// scan for them.
    fn scan_batches(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        scored: Scored,
        monitor: &dyn Monitor,
        mut each: impl FnMut(usize, Scan<'_>) -> Result<()>,
    ) -> Result<()> {
        let isa = Isa::current()?;
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        let n_words = self.parts.last().map_or(0, |part| part.words().end);
        if let Some(bits) = &self.bits
            && bits.len() != n_words
        {
            let (words, n) = (bits.len(), self.len());
            return Err(argument!("allowed", "has {words} words of 64 vectors, the index holds {n}"));
        }
        let (one, n) = (self.one(), self.len());
        if one.partition.is_some() {
            let lists = self.lists(scored, isa);
            return self.scan_lists(&lists, queries.view(), k, monitor, each);
        }
        let (metric, layout) = (one.settings.metric, one.packed.view().layout());
        let total = (queries.nrows() * n) as u64;
        for (i, queries) in queries.axis_chunks_iter(Axis(0), BATCH).enumerate() {
            let first = i * BATCH;
            let before = (first * n) as u64;
            let within = |done, _| monitor.report(before + done, total).is_ok();
            let of = (Probes::All, self.allowed.map_or_else(Each::default, |allowed| allowed.each(first)));
            if one.side.follows_from_codes() && queries.ncols() == one.model.codebooks.dim() {
                let (exact, inputs) = Exact::new(&one.frame, &one.model, metric, queries, first)?;
                let tables = &one.frame.tables.tables_for(inputs.view(), layout, isa)?;
                let segments = self.segments(scored, Some(&exact));
                each(first, Scan { segments, of, tables, isa, monitor: &within })?;
            } else {
                let tables = &one.frame.tables.tables_for(queries, layout, isa)?;
                one.check_products(queries, tables, first)?;
                let segments = self.segments(scored, None);
                each(first, Scan { segments, of, tables, isa, monitor: &within })?;
            }
        }
        Ok(())
    }

    /// All vectors, in segments that share levels.
    fn segments<'b>(&'b self, scored: Scored, measure: Option<&'b dyn Measure>) -> Vec<Segment<'b>> {
        let of = |part: &'b Part<'a>| {
            let allowed = self.bits.as_deref().map(|bits| &bits[part.words()]);
            let segments = part.index.segments(allowed, scored, measure).into_iter();
            segments.map(|segment| Segment { first: segment.first + part.first as u64, ..segment })
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// The lists of parts that have lists.
    pub(super) fn lists(&self, scored: Scored, isa: Isa) -> Lists<'_> {
        let centroids = self.one().model.centroids.as_ref().expect("a model with lists");
        let all = Allowed::default();
        let allowed = self.allowed.unwrap_or(&all);
        let allowed = allowed.by_place(self.bits.as_deref(), self.parts);
        Lists { parts: self.parts, centroids, allowed, reach: self.reach, ends: self.ends, scored, isa }
    }

    /// Like [`scan_batches`](Self::scan_batches), through lists.
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
        let one = self.one();
        let layout = one.packed.view().layout();
        for (i, queries) in queries.axis_chunks_iter(Axis(0), batch).enumerate() {
            let (first, n) = (i * batch, queries.nrows());
            let within = |done: u64, of: u64| {
                let done = u128::from(done) * n as u128 / u128::from(of.max(1));
                monitor.report(first as u64 + done as u64, total).is_ok()
            };
            let own = lists.each(first);
            let follows = one.side.follows_from_codes() && queries.ncols() == one.model.codebooks.dim();
            let (exact, inputs) = match follows {
                true => {
                    let metric = one.settings.metric;
                    let (exact, inputs) = Exact::new(&one.frame, &one.model, metric, queries, first)?;
                    (Some(exact), CowArray::from(inputs))
                }
                false => (None, CowArray::from(queries)),
            };
            let tables = &one.frame.tables.tables_for(inputs.view(), layout, lists.isa)?;
            if !follows {
                one.check_products(queries, tables, first)?;
            }
            let measure = exact.as_ref().map(|exact| exact as &dyn Measure);
            let (segments, probes) = lists.probes(inputs.view(), first, k, measure)?;
            let of = (Probes::Each(&probes), own);
            each(first, Scan { segments, of, tables, isa: lists.isa, monitor: &within })?;
        }
        Ok(())
    }
}
