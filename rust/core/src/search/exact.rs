//! The exact best vectors, by comparing every query with every vector: what approximate search is judged by.
//!
//! Products of f32 do nearly all of the work, but decide nothing: they only exclude the rows that, by a proven bound on
//! their error ([`margin`](super::margin)), cannot be among the best. The scores of those left are computed in f64. So the
//! result is the same for every instruction set, number of threads and chunk size; where f32 cannot tell rows apart, more
//! of them are scored in f64, which takes longer.

use super::margin::{Margin, Rounding, UNBOUNDED};
use super::scored;
use super::shortlist::{Candidate, Shortlist};
use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Panels, Tiles, multiply};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::Hits;
use crate::scan::topk::Key;
use crate::vectors::metric::{Metric, Scorer, normalise, square, squared_distance};
use crate::vectors::{Vectors, check_dim, read_finite};
use rayon::prelude::*;

/// Vectors that all queries are compared with before the next are read.
const CHUNK: usize = 1024;
/// Queries that a task takes at once.
const QUERIES: usize = 48;
/// Rows that a task prepares at once.
const ROWS: usize = 64;
/// Rows read before their scores are computed.
const READS: usize = 16;
/// Results of several queries whose scores are computed together: 16 MB of places.
const TOGETHER: usize = 1 << 20;
/// Rows whose medians are the centre for distances.
const SAMPLE: usize = 255;
/// Coordinates of a query up to which f32 products with rows near 1 cannot overflow.
const LARGEST: f64 = (1u64 << 60) as f64;

/// The `k` best vectors of `x` (n, d) for each of `queries` (nq, d): those with the best scores in f64 (see
/// [`Metric::score`]), ties to the lower row. Scores are then rounded to f32, beyond whose range they are ±∞. Both inputs
/// are read a chunk at a time, and the best rows of `x` once more.
///
/// # Errors
/// Another d, no dimensions, a row that is not finite, or a cancelling monitor.
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
        return Err(invalid!("X has 0 dimensions: want at least 1"));
    }
    if u32::try_from(x.n()).is_err() {
        return Err(invalid!("X has {} rows: want at most {}, search it in parts", x.n(), u32::MAX));
    }
    let inputs = Inputs { x, queries, metric, isa: Isa::current()?, centre: centre(x, metric) };
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

/// What is searched for what.
struct Inputs<'a> {
    x: &'a dyn Vectors,
    queries: &'a dyn Vectors,
    metric: Metric,
    isa: Isa,
    /// Subtracted from rows and queries: distances lose no digits to a common offset then.
    centre: Vec<f32>,
}

impl Inputs<'_> {
    fn dim(&self) -> usize {
        self.x.dim()
    }

    /// Subtracts the centre from the rows in `buffer`, which are those from `first` on. They are to be scaled by 2 to minus
    /// the first number; the second says by how much they then are scaled in all.
    fn centred(&self, first: usize, buffer: &mut [f32]) -> (i32, i32) {
        let d = self.dim();
        let subtract = |buffer: &mut [f32], by: f32| {
            for row in buffer.chunks_exact_mut(d) {
                row.iter_mut().zip(&self.centre).for_each(|(x, &c)| *x = by * *x - by * c);
            }
            largest(buffer)
        };
        let largest = subtract(buffer, 1.0);
        if largest.is_finite() {
            return (exponent(largest), exponent(largest));
        }
        self.x.read(first, buffer);
        let exponent = exponent(subtract(buffer, 0.25));
        (exponent, exponent + 2)
    }

    /// Computes the scores of candidates of the queries from `first` on in f64, where that has not been done.
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
    /// Those of each query.
    candidates: &'a mut [&'b mut [Candidate]],
}

impl Kernel for Score<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { x, metric, queries, rows, candidates } = self;
        let d = x.dim();
        let scorers: Vec<Scorer<'_>> = queries.chunks_exact(d).map(|q| Scorer::new(metric, q)).collect();
        // In the order of rows, which for many queries is nearly that of the memory.
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
            // Reading several before the first is looked at, the processor waits for the memory once.
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

/// Each dimension's median over some rows, for distances; 0 for other metrics. Any centre gives the right result; one
/// that is near most rows lets f32 tell them apart, and a few far ones do not move a median.
fn centre(x: &dyn Vectors, metric: Metric) -> Vec<f32> {
    let d = x.dim();
    if metric != Metric::Euclidean || x.n() == 0 {
        return vec![0.0; d];
    }
    let count = SAMPLE.min((1 << 20) / d).clamp(1, x.n());
    let mut rows = vec![0.0; count * d];
    for (i, row) in rows.chunks_exact_mut(d).enumerate() {
        x.read(i * (x.n() / count), row);
    }
    let mut column = Vec::new();
    let median = |j| {
        column.clear();
        // What is not finite is reported where rows are read in order.
        column.extend(rows.iter().skip(j).step_by(d).copied().filter(|value: &f32| value.is_finite()));
        let middle = column.len() / 2;
        if column.is_empty() { 0.0 } else { *column.select_nth_unstable_by(middle, f32::total_cmp).1 }
    };
    (0..d).map(median).collect()
}

/// Rows x', ready to be multiplied: see [`margin`](super::margin).
struct Chunk {
    panels: Panels,
    /// −½‖x'‖² for distances, so that sums begin with it; else 0.
    start: Vec<f32>,
    /// ‖x'‖ of each row, or a little more.
    lengths: Vec<f32>,
    longest: f32,
    exponent: i32,
    first: usize,
}

impl Chunk {
    /// Reads rows `first ..` into `buffer` and from there.
    fn read(inputs: &Inputs<'_>, first: usize, buffer: &mut [f32]) -> Result<Self> {
        let d = inputs.dim();
        read_finite(inputs.x, "X", first, buffer)?;
        let n = buffer.len() / d;
        let (shift, exponent) = match inputs.metric {
            Metric::InnerProduct => {
                let exponent = exponent(largest(buffer));
                (exponent, exponent)
            }
            Metric::Cosine => (0, 0),
            Metric::Euclidean => inputs.centred(first, buffer),
        };
        let (mut squares, mut lengths) = (vec![0.0; n], vec![0.0; n]);
        let parts = buffer.par_chunks_mut(ROWS * d);
        let parts = parts.zip(squares.par_chunks_mut(ROWS)).zip(lengths.par_chunks_mut(ROWS));
        parts.for_each(|((rows, squares), lengths)| {
            let scale = (inputs.metric != Metric::Cosine).then(|| power(-shift) as f32);
            isa::run(inputs.isa, Prepare { rows, d, scale, squares, lengths });
        });
        let panels = Panels::new(n, d, |i| (i < n).then(|| &buffer[i * d..][..d]));
        let mut start = vec![0.0; panels.columns()];
        if inputs.metric == Metric::Euclidean {
            start.iter_mut().zip(&squares).for_each(|(start, &square)| *start = (-0.5 * square) as f32);
        }
        let longest = lengths.iter().copied().fold(0.0, f32::max);
        Ok(Self { panels, start, lengths, longest, exponent, first })
    }
}

/// Scales rows, or brings them to length 1, and measures them.
struct Prepare<'a> {
    rows: &'a mut [f32],
    d: usize,
    scale: Option<f32>,
    squares: &'a mut [f64],
    lengths: &'a mut [f32],
}

impl Kernel for Prepare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let measures = self.squares.iter_mut().zip(self.lengths);
        for (row, (square_of, length)) in self.rows.chunks_exact_mut(self.d).zip(measures) {
            match self.scale {
                Some(scale) => row.iter_mut().for_each(|x| *x *= scale),
                None => normalise(row),
            }
            *square_of = square(row);
            *length = longer(square_of.sqrt()) as f32;
        }
    }
}

/// A length with room for the rounding of those that follow from it.
fn longer(length: f64) -> f64 {
    length * (1.0 + power(-20))
}

/// The largest |x|.
fn largest(values: &[f32]) -> f32 {
    let mut largest = [0.0f32; 16];
    for values in values.chunks(16) {
        for (largest, value) in largest.iter_mut().zip(values) {
            *largest = if value.abs() > *largest { value.abs() } else { *largest };
        }
    }
    largest.into_iter().fold(0.0, f32::max)
}

/// e, a multiple of 8, for which `largest` · 2⁻ᵉ is in the middle of what f32 can hold, and as a rule at most 1.
fn exponent(largest: f32) -> i32 {
    let exponent = (largest.to_bits() >> 23) as i32 - 126; // largest < 2^exponent
    (exponent + 7).div_euclid(8) * 8
}

/// 2 to the `exponent`.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// A query and the rows that may be its best.
struct Query {
    row: usize,
    shortlist: Shortlist,
    /// ‖q − c‖².
    square: f64,
    /// f of [`margin`](super::margin).
    exponent: i32,
    /// ‖q'‖, or a little more.
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
    /// The chunk's exponent that the tiles are for, where they depend on it.
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
                Metric::InnerProduct => exponent = self::exponent(largest(row)),
                Metric::Cosine => normalise(row),
                Metric::Euclidean => {}
            }
            let square = squared_distance(row, &inputs.centre);
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

    /// Moves and scales the queries as the rows of a chunk are, where that makes a difference.
    fn place(&mut self, inputs: &Inputs<'_>, exponent: i32) {
        if inputs.metric != Metric::Euclidean || self.placed == Some(exponent) {
            return;
        }
        let mut row = vec![0.0; inputs.dim()];
        let scale = power(-exponent);
        for (i, query) in self.queries.iter_mut().enumerate() {
            inputs.queries.read(query.row, &mut row);
            let place = |(&q, &c): (&f32, &f32)| (f64::from(q) - f64::from(c)) * scale;
            let largest = row.iter().zip(&inputs.centre).map(place).fold(0.0, |max, q| q.abs().max(max));
            // A query that is so far away counts as 0, with bounds that exclude nothing.
            let fits = largest <= LARGEST;
            query.length = if fits { longer(query.square.sqrt() * scale) } else { UNBOUNDED };
            let place = |pair| if fits { place(pair) as f32 } else { 0.0 };
            self.tiles.set(i, row.iter().zip(&inputs.centre).map(place));
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
                // Most blocks hold nothing that could enter: find that out without a branch for each number.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn scores_are_the_metrics() {
        let x = Array2::from_shape_fn((300, 7), |(i, j)| ((i * 7919 + j * 104_729) % 23) as f32 - 11.0);
        let queries = x.slice(ndarray::s![..60;3, ..]);
        for metric in Metric::ALL {
            let hits = search(&x.view(), &queries, 300, metric, &()).unwrap();
            for (q, query) in queries.outer_iter().enumerate() {
                for (&row, &score) in hits.positions.row(q).iter().zip(hits.scores.row(q)) {
                    let want =
                        metric.score(query.as_slice().unwrap(), x.row(row as usize).as_slice().unwrap());
                    assert!((f64::from(score) - want).abs() < 1e-3, "{metric:?}: {score}, not {want}");
                }
            }
        }
    }

    /// The k best by [`Metric::score`], of all rows.
    fn sorted(x: &Array2<f32>, query: &[f32], metric: Metric) -> Vec<(f64, i64)> {
        let score = |row: usize| metric.score(query, x.row(row).as_slice().unwrap());
        let mut all: Vec<(f64, i64)> = (0..x.nrows()).map(|row| (score(row), row as i64)).collect();
        all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
        all
    }

    fn check(x: &Array2<f32>, queries: &Array2<f32>, what: &str) {
        for metric in Metric::ALL {
            for k in [1, 10, 100] {
                let hits = search(&x.view(), &queries.view(), k, metric, &()).unwrap();
                for (q, query) in queries.outer_iter().enumerate() {
                    let want = sorted(x, query.as_slice().unwrap(), metric);
                    for (i, &(score, row)) in want.iter().take(k).enumerate() {
                        let found = (hits.scores[[q, i]], hits.positions[[q, i]]);
                        assert_eq!(
                            found,
                            (score as f32 + 0.0, row),
                            "{what} {metric:?} k {k} query {q} rank {i}"
                        );
                    }
                }
            }
        }
    }

    /// Numbers that are spread like normal ones, nearly.
    fn noise(n: usize, d: usize, seed: u64) -> Array2<f32> {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        Array2::from_shape_fn((n, d), |_| (0..6).map(|_| rng.random::<f32>() - 0.5).sum::<f32>() * 1.4)
    }

    #[test]
    fn is_exact_for_all_that_f32_can_hold() {
        let (x, q) = (noise(3000, 24, 1), noise(7, 24, 2));
        for shift in [0.0, 1.0, 100.0, 1e3, 1e5, 1e9] {
            check(&(&x + shift), &(&q + shift), &format!("shifted by {shift}"));
        }
        for size in [1e-44, 1e-30, 1e-19, 1e19, 1e30, 5e37] {
            check(&(&x * size), &(&q * size), &format!("times {size}"));
            check(&(&x * size), &q, &format!("rows times {size}"));
            check(&x, &(&q * size), &format!("queries times {size}"));
        }
        let spread = |mut x: Array2<f32>, by: f32| {
            for (i, mut row) in x.outer_iter_mut().enumerate() {
                row *= 10f32.powf((i * 7919 % 997) as f32 / 996.0 * 2.0 * by - by);
            }
            x
        };
        for by in [1.0, 18.0, 36.0] {
            check(&spread(x.clone(), by), &q, &format!("lengths of 1e±{by}"));
            check(&spread(x.clone(), by), &spread(q.clone(), by), &format!("all lengths of 1e±{by}"));
        }
        let equal = Array2::from_shape_fn((3000, 24), |(i, j)| x[[i % 3, j]]);
        check(&equal, &q, "three distinct rows");
        check(&Array2::zeros((3000, 24)), &q, "zeros");
        check(&x, &Array2::zeros((2, 24)), "zero queries");
        // One row near each end: their difference is beyond f32.
        let mut ends = x.clone();
        ends.row_mut(5).fill(3e38);
        ends.row_mut(6).fill(-3e38);
        check(&ends, &ends.slice(ndarray::s![4..8, ..]).to_owned(), "ends");
        check(&(ends.mapv(|v| if v > 0.0 { 3e38 } else { -3e38 })), &q, "only ends");
    }

    #[test]
    fn equals_re_ranking_of_everything() {
        use crate::search::rerank::rerank;
        let (x, q) = (noise(500, 33, 3) + 300.0, noise(5, 33, 4) + 300.0);
        let all = Array2::from_shape_fn((5, 500), |(_, i)| i as i64);
        for metric in Metric::ALL {
            let hits = search(&x.view(), &q.view(), 20, metric, &()).unwrap();
            let again = rerank(q.view(), &x.view(), all.view(), 20, metric, &()).unwrap();
            assert_eq!((hits.positions, hits.scores), (again.positions, again.scores));
        }
    }

    #[test]
    fn refuses_what_has_no_dimensions() {
        let none = Array2::<f32>::zeros((3, 0));
        assert!(search(&none.view(), &none.view(), 1, Metric::Euclidean, &()).is_err());
    }

    #[test]
    fn equals_a_full_sort() {
        let x = Array2::from_shape_fn((3000, 5), |(i, j)| ((i * 7919 + j * 104_729) % 23) as i8 - 11);
        let queries = Array2::from_shape_fn((50, 5), |(i, j)| ((i * 31 + j * 17) % 13) as f32 - 6.0);
        let hits = search(&x.view(), &queries.view(), 40, Metric::InnerProduct, &()).unwrap();
        let products = queries.dot(&x.mapv(f32::from).t());
        for q in 0..50 {
            let mut order: Vec<usize> = (0..3000).collect();
            order.sort_by(|&a, &b| products[[q, b]].total_cmp(&products[[q, a]]).then(a.cmp(&b)));
            for (i, &row) in order[..40].iter().enumerate() {
                assert_eq!((hits.positions[[q, i]], hits.scores[[q, i]]), (row as i64, products[[q, row]]));
            }
        }
    }
}
