//! The exact largest inner products, by comparing every query with every vector: what approximate search is judged by.

use crate::chunk;
use crate::error::Result;
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::product::{Panels, Tiles, multiply};
use crate::scan::Hits;
use crate::topk::{Key, TopK};
use crate::vectors::{Vectors, check_dim, read_finite};
use rayon::prelude::*;

/// Vectors that all queries are compared with before the next are read.
const CHUNK: usize = 1024;
/// Queries that a task takes at once.
const QUERIES: usize = 48;

/// The `k` vectors of `x` (n, d) with the largest inner products for each of `queries` (nq, d); ties to the lower row.
/// Products are computed in f32; both inputs are read a chunk at a time.
///
/// # Errors
/// Another d, a row that is not finite, or a cancelling monitor.
pub fn search(x: &dyn Vectors, queries: &dyn Vectors, k: usize, monitor: &dyn Monitor) -> Result<Hits> {
    let d = x.dim();
    check_dim(queries, "queries", d)?;
    let isa = Isa::current()?;
    let mut groups = (0..queries.n())
        .step_by(QUERIES)
        .map(|first| Group::new(queries, first, k))
        .collect::<Result<Vec<_>>>()?;
    let rows = chunk::rows(CHUNK.min((1 << 22) / d).max(64));
    let counter = Counter::new(monitor, x.n() as u64 * queries.n() as u64);
    let mut buffer = vec![0.0; rows.min(x.n()) * d];
    for first in (0..x.n()).step_by(rows) {
        let n = rows.min(x.n() - first);
        let buffer = &mut buffer[..n * d];
        read_finite(x, "X", first, buffer)?;
        let panels = Panels::new(n, d, |i| (i < n).then(|| &buffer[i * d..][..d]));
        groups.par_iter_mut().try_for_each(|group| {
            isa::run(isa, Compare { group, panels: &panels, first, n });
            counter.add((n * group.found.len()) as u64)
        })?;
    }
    let found: Vec<TopK> = groups.into_iter().flat_map(|group| group.found).collect();
    Ok(Hits::new(k, found.into_iter()))
}

/// Some queries and the best they have met.
struct Group {
    tiles: Tiles,
    scores: Vec<f32>,
    found: Vec<TopK>,
}

impl Group {
    fn new(queries: &dyn Vectors, first: usize, k: usize) -> Result<Self> {
        let n = QUERIES.min(queries.n() - first);
        let mut tiles = Tiles::new(n, queries.dim());
        let mut rows = vec![0.0; n * queries.dim()];
        read_finite(queries, "queries", first, &mut rows)?;
        for (i, row) in rows.chunks_exact(queries.dim()).enumerate() {
            tiles.set(i, row.iter().copied());
        }
        Ok(Self { tiles, scores: Vec::new(), found: vec![TopK::new(k); n] })
    }
}

struct Compare<'a> {
    group: &'a mut Group,
    panels: &'a Panels,
    first: usize,
    n: usize,
}

impl Kernel for Compare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { group: Group { tiles, scores, found }, panels, first, n } = self;
        let columns = panels.columns();
        scores.resize(tiles.rows() * columns, 0.0);
        multiply::<L>(tiles, found.len(), panels, &vec![0.0; columns], scores);
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
    fn equals_a_full_sort() {
        let x = Array2::from_shape_fn((3000, 5), |(i, j)| ((i * 7919 + j * 104_729) % 23) as i8 - 11);
        let queries = Array2::from_shape_fn((50, 5), |(i, j)| ((i * 31 + j * 17) % 13) as f32 - 6.0);
        let hits = search(&x.view(), &queries.view(), 40, &()).unwrap();
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
