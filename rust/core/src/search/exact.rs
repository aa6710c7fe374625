//! The exact best vectors, by comparing every query with every vector: the ground truth for approximate search.
//!
//! Products in f32 do nearly all of the work, but decide nothing: they only exclude rows that, by a proven bound on
//! their error ([`margin`](super::margin)), cannot be among the best. The scores of the remaining rows are computed in
//! f64. So the result is the same for every instruction set, number of threads and chunk size; if f32 cannot tell rows
//! apart, more of them are scored in f64, which takes longer.

use super::margin::{Margin, Rounding, UNBOUNDED};
use super::scaled::{Chunk, Inputs, center, largest, longer, power};
use super::shortlist::{Candidate, Shortlist};
use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Tiles, multiply};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::Hits;
use crate::scan::scored;
use crate::scan::topk::Key;
use crate::vectors::metric::{Metric, Scorer, normalise, squared_distance};
use crate::vectors::{Vectors, check_dim, read_finite};
use rayon::prelude::*;

/// Vectors that all queries are compared with before the next ones are read.
const CHUNK: usize = 1024;
/// Queries per task.
const QUERIES: usize = 48;
/// Rows read before their scores are computed.
const READS: usize = 16;
/// Results of several queries whose scores are computed together: 16 MB of places.
const TOGETHER: usize = 1 << 20;
/// The largest coordinate of a query for which f32 products with rows near 1 cannot overflow.
const LARGEST: f64 = (1u64 << 60) as f64;

/// The `k` best vectors of `x` (n, d) for each of `queries` (nq, d): those with the best scores in f64 (see
/// [`Metric::score`]), ties to the lower row. Scores are then rounded to f32; beyond its range they are ±∞. Both inputs
/// are read a chunk at a time, and the best rows of `x` once more.
///
/// # Errors
/// A different d, no dimensions, a row that is not finite, or the monitor cancels.
pub fn search(
    x: &dyn Vectors,
    queries: &dyn Vectors,
    k: usize,
    metric: Metric,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let d = x.dim();
    check_dim(queries, "queries", d)?;
    if d == 0 {
        return Err(argument!("X", "has 0 dimensions: want at least 1"));
    }
    if u32::try_from(x.n()).is_err() {
        return Err(argument!("X", "has {} rows: want at most {}, search it in parts", x.n(), u32::MAX));
    }
    let inputs = Inputs { x, queries, metric, isa: Isa::current()?, center: center(x, metric) };
    let mut hits = Hits::none(queries.n(), k, x.n())?;
    let k = k.min(x.n());
    let mut groups = (0..queries.n())
        .step_by(QUERIES)
        .map(|first| Group::new(&inputs, first, k))
        .collect::<Result<Vec<_>>>()?;
    let rows = parallel::rows(CHUNK.min((1 << 22) / d).max(64));
    let counter = Counter::new(monitor, x.n() as u64 * queries.n() as u64);
    let mut buffer = vec![0.0; rows.min(x.n()) * d];
    for first in (0..x.n()).step_by(rows) {
        let n = rows.min(x.n() - first);
        let chunk = Chunk::read(&inputs, first, &mut buffer[..n * d])?;
        groups.par_iter_mut().try_for_each(|group| {
            group.place(&inputs, chunk.exponent);
            isa::run(inputs.isa, Compare { inputs: &inputs, group, chunk: &chunk });
            counter.add((n * group.queries.len()) as u64)
        })?;
    }
    let found: Vec<_> = groups.into_par_iter().flat_map_iter(|group| group.finish(&inputs, k)).collect();
    for (query, found) in found.into_iter().enumerate() {
        hits.set(query, &found);
    }
    Ok(hits)
}

impl Inputs<'_> {
    /// Computes the f64 scores of candidates that are still unknown, for the queries from `first` on.
    fn score(&self, first: usize, candidates: &mut [&mut [Candidate]]) {
        let d = self.dim();
        let mut queries = vec![0.0; candidates.len() * d];
        self.queries.read(first, &mut queries);
        let mut rows = vec![0.0; READS * d];
        let (queries, rows) = (&queries, &mut rows);
        isa::run(self.isa, Score { x: self.x, metric: self.metric, queries, rows, candidates });
    }
}

struct Score<'a, 'b> {
    x: &'a dyn Vectors,
    metric: Metric,
    queries: &'a [f32],
    rows: &'a mut [f32],
    /// The candidates of each query.
    candidates: &'a mut [&'b mut [Candidate]],
}

impl Kernel for Score<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { x, metric, queries, rows, candidates } = self;
        let d = x.dim();
        let scorers: Vec<Scorer<'_>> = queries.chunks_exact(d).map(|q| Scorer::new(metric, q)).collect();
        // In the order of rows, which for many queries is close to the order in memory.
        let mut places = Vec::new();
        let mut order = Vec::new();
        for (query, candidates) in candidates.iter().enumerate() {
            for (at, candidate) in
                candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_exact())
            {
                order.push(u64::from(candidate.row) << 32 | places.len() as u64);
                places.push((query as u32, at as u32));
            }
        }
        order.sort_unstable();
        for order in order.chunks(READS) {
            // By reading several rows before looking at the first, the processor waits for memory only once.
            for (key, row) in order.iter().zip(rows.chunks_exact_mut(d)) {
                x.read((key >> 32) as usize, row);
            }
            for (key, row) in order.iter().zip(rows.chunks_exact(d)) {
                let (query, at) = places[*key as u32 as usize];
                let candidate = &mut candidates[query as usize][at as usize];
                *candidate = candidate.with_score(scorers[query as usize].score(row));
            }
        }
    }
}

/// A query and the rows that may be its best.
struct Query {
    row: usize,
    shortlist: Shortlist,
    /// ‖q − c‖².
    square: f64,
    /// f of [`margin`](super::margin).
    exponent: i32,
    /// An upper bound on ‖q'‖.
    length: f64,
}

impl Query {
    fn margin(&self, metric: Metric, exponent: i32, rounding: Rounding) -> Margin {
        let (factor, offset, half) = match metric {
            Metric::InnerProduct => (power(exponent + self.exponent), 0.0, 0.0),
            Metric::Cosine => (1.0, 0.0, 0.0),
            Metric::Euclidean => (power(2 * exponent + 1), self.square, 0.5),
        };
        Margin { rounding, factor, offset, half, length: self.length }
    }
}

/// Some queries.
struct Group {
    tiles: Tiles,
    /// The exponent of the chunk that the tiles were computed for, if they depend on it.
    placed: Option<i32>,
    scores: Vec<f32>,
    queries: Vec<Query>,
}

impl Group {
    fn new(inputs: &Inputs<'_>, first: usize, k: usize) -> Result<Self> {
        let (n, d) = (QUERIES.min(inputs.queries.n() - first), inputs.dim());
        let mut tiles = Tiles::new(n, d);
        let mut rows = vec![0.0; n * d];
        read_finite(inputs.queries, "queries", first, &mut rows)?;
        let query = |(i, row): (usize, &mut [f32])| {
            let mut exponent = 0;
            match inputs.metric {
                Metric::InnerProduct => exponent = super::scaled::exponent(largest(row)),
                Metric::Cosine => normalise(row),
                Metric::Euclidean => {}
            }
            let square = squared_distance(row, &inputs.center);
            let scale = power(-exponent);
            tiles.set(i, row.iter().map(|&q| (f64::from(q) * scale) as f32));
            let length = longer(square.sqrt() * scale);
            Query { row: first + i, shortlist: Shortlist::new(k), square, exponent, length }
        };
        let queries = rows.chunks_exact_mut(d).enumerate().map(query).collect();
        let placed = (inputs.metric != Metric::Euclidean).then_some(0);
        Ok(Self { tiles, placed, scores: Vec::new(), queries })
    }

    /// The `k` best of each query.
    fn finish(mut self, inputs: &Inputs<'_>, k: usize) -> Vec<Vec<Key>> {
        for queries in self.queries.chunks_mut((TOGETHER / (k + 1)).max(1)) {
            let first = queries[0].row;
            let mut left: Vec<_> = queries.iter_mut().map(|query| query.shortlist.left()).collect();
            inputs.score(first, &mut left);
        }
        self.queries.into_iter().map(|query| scored::best(query.shortlist.into_scored(), k)).collect()
    }

    /// Moves and scales the queries like the rows of a chunk, if the metric requires it.
    fn place(&mut self, inputs: &Inputs<'_>, exponent: i32) {
        if inputs.metric != Metric::Euclidean || self.placed == Some(exponent) {
            return;
        }
        let mut row = vec![0.0; inputs.dim()];
        let scale = power(-exponent);
        for (i, query) in self.queries.iter_mut().enumerate() {
            inputs.queries.read(query.row, &mut row);
            let place = |(&q, &c): (&f32, &f32)| (f64::from(q) - f64::from(c)) * scale;
            let largest = row.iter().zip(&inputs.center).map(place).fold(0.0, |max, q| q.abs().max(max));
            // A query that is too far away counts as 0, with bounds that exclude nothing.
            let fits = largest <= LARGEST;
            query.length = if fits { longer(query.square.sqrt() * scale) } else { UNBOUNDED };
            let place = |pair| if fits { place(pair) as f32 } else { 0.0 };
            self.tiles.set(i, row.iter().zip(&inputs.center).map(place));
        }
        self.placed = Some(exponent);
    }
}

struct Compare<'a> {
    inputs: &'a Inputs<'a>,
    group: &'a mut Group,
    chunk: &'a Chunk,
}

impl Kernel for Compare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { inputs, group: Group { tiles, scores, queries, .. }, chunk } = self;
        let columns = chunk.panels.columns();
        scores.resize(tiles.rows() * columns, 0.0);
        multiply::<L>(tiles, queries.len(), &chunk.panels, &chunk.start, scores);
        let rounding = Rounding::new(inputs.dim());
        for (query, scores) in queries.iter_mut().zip(scores.chunks_exact(columns)) {
            let margin = query.margin(inputs.metric, chunk.exponent, rounding);
            let (row, shortlist) = (query.row, &mut query.shortlist);
            let mut threshold = margin.threshold(shortlist.floor(), chunk.longest);
            for (block, lengths) in chunk.lengths.chunks(64).enumerate() {
                let scores = &scores[block * 64..][..lengths.len()];
                // Most blocks contain nothing that could enter: this is detected without a branch per number.
                if !scores.iter().fold(false, |any, &score| any | (score >= threshold)) {
                    continue;
                }
                for (i, (&sum, &length)) in scores.iter().zip(lengths).enumerate() {
                    if sum >= threshold {
                        let (score, by) = (margin.score(sum), margin.of(length));
                        if score + by >= shortlist.floor() {
                            let at = (chunk.first + block * 64 + i) as u32;
                            if shortlist.push(Candidate::new(at, score, by)) {
                                shortlist.prune(|candidates| inputs.score(row, &mut [candidates]));
                                threshold = margin.threshold(shortlist.floor(), chunk.longest);
                            }
                        }
                    }
                }
            }
            shortlist.settle();
        }
    }
}
