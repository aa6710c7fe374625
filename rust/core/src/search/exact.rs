//! The exact largest inner products, by comparing every query with every vector: what approximate search is judged by.

use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Panels, Tiles, multiply};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::Hits;
use crate::scan::topk::{Key, TopK};
use crate::vectors::metric::{Metric, normalise, squared_norm};
use crate::vectors::{Vectors, check_dim, read_finite};
use rayon::prelude::*;

/// Vectors that all queries are compared with before the next are read.
const CHUNK: usize = 1024;
/// Queries that a task takes at once.
const QUERIES: usize = 48;

/// The `k` best vectors of `x` (n, d) for each of `queries` (nq, d); ties to the lower row. Scores are computed in f32; both
/// inputs are read a chunk at a time.
///
/// # Errors
/// Another d, a row that is not finite, or a cancelling monitor.
pub fn search(
    x: &dyn Vectors,
    queries: &dyn Vectors,
    k: usize,
    metric: Metric,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let d = x.dim();
    check_dim(queries, "queries", d)?;
    if u32::try_from(x.n()).is_err() {
        return Err(invalid!("X has {} rows: want at most {}, search it in parts", x.n(), u32::MAX));
    }
    let isa = Isa::current()?;
    let mut hits = Hits::none(queries.n(), k)?;
    let k = k.min(x.n());
    let mut groups = (0..queries.n())
        .step_by(QUERIES)
        .map(|first| Group::new(queries, first, k, metric))
        .collect::<Result<Vec<_>>>()?;
    let rows = parallel::rows(CHUNK.min((1 << 22) / d).max(64));
    let counter = Counter::new(monitor, x.n() as u64 * queries.n() as u64);
    let mut buffer = vec![0.0; rows.min(x.n()) * d];
    for first in (0..x.n()).step_by(rows) {
        let n = rows.min(x.n() - first);
        let buffer = &mut buffer[..n * d];
        read_finite(x, "X", first, buffer)?;
        if metric == Metric::Cosine {
            buffer.par_chunks_mut(d).for_each(normalise);
        }
        let panels = Panels::new(n, d, |i| (i < n).then(|| &buffer[i * d..][..d]));
        // With −½‖x‖² to begin with, the sum is −½‖q − x‖² but for ½‖q‖².
        let mut start = vec![0.0; panels.columns()];
        if metric == Metric::Euclidean {
            start
                .iter_mut()
                .zip(buffer.chunks(d))
                .for_each(|(start, x)| *start = (-0.5 * squared_norm(x)) as f32);
        }
        groups.par_iter_mut().try_for_each(|group| {
            isa::run(isa, Compare { group, panels: &panels, start: &start, first, n });
            counter.add((n * group.found.len()) as u64)
        })?;
    }
    let squares: Vec<f64> = groups.iter().flat_map(|group| group.squares.iter().copied()).collect();
    for (query, found) in groups.into_iter().flat_map(|group| group.found).enumerate() {
        hits.set(query, &found.into_sorted());
    }
    if metric == Metric::Euclidean {
        for (mut scores, square) in hits.scores.outer_iter_mut().zip(squares) {
            scores.mapv_inplace(|score| (2.0 * f64::from(score) - square) as f32);
        }
    }
    Ok(hits)
}

/// Some queries and the best they have met.
struct Group {
    tiles: Tiles,
    scores: Vec<f32>,
    found: Vec<TopK>,
    /// ‖q‖² of each.
    squares: Vec<f64>,
}

impl Group {
    fn new(queries: &dyn Vectors, first: usize, k: usize, metric: Metric) -> Result<Self> {
        let n = QUERIES.min(queries.n() - first);
        let mut tiles = Tiles::new(n, queries.dim());
        let mut rows = vec![0.0; n * queries.dim()];
        read_finite(queries, "queries", first, &mut rows)?;
        if metric == Metric::Cosine {
            rows.chunks_exact_mut(queries.dim()).for_each(normalise);
        }
        for (i, row) in rows.chunks_exact(queries.dim()).enumerate() {
            tiles.set(i, row.iter().copied());
        }
        let squares = rows.chunks_exact(queries.dim()).map(squared_norm).collect();
        Ok(Self { tiles, scores: Vec::new(), found: vec![TopK::new(k); n], squares })
    }
}

struct Compare<'a> {
    group: &'a mut Group,
    panels: &'a Panels,
    start: &'a [f32],
    first: usize,
    n: usize,
}

impl Kernel for Compare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { group: Group { tiles, scores, found, .. }, panels, start, first, n } = self;
        let columns = panels.columns();
        scores.resize(tiles.rows() * columns, 0.0);
        multiply::<L>(tiles, found.len(), panels, start, scores);
        for (found, scores) in found.iter_mut().zip(scores.chunks_exact(columns)) {
            for (block, scores) in scores[..n].chunks(64).enumerate() {
                // Most blocks hold nothing that could enter: find that out without a branch for each number.
                let floor = found.floor().unwrap_or(f32::NEG_INFINITY);
                if scores.iter().fold(false, |any, &score| any | (score >= floor) | score.is_nan()) {
                    for (i, &score) in scores.iter().enumerate() {
                        found.push(Key::new(score, (first + block * 64 + i) as u32));
                    }
                }
            }
            found.settle();
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
