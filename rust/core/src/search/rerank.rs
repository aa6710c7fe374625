//! Exact scores for the few candidates that a scan returns.

use crate::error::{Result, invalid};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use crate::scan::topk::Key;
use crate::search::scored::{self, Scored};
use crate::vectors::metric::{Metric, Scorer};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::ArrayView2;
use rayon::prelude::*;

/// The `k` candidates with the best exact scores, of `positions` (nq, c), rows of `vectors`; −1 stands for none. Scores
/// are summed and compared in f64, ties going to the lower position, and then rounded to f32, beyond whose range they
/// are ±∞.
///
/// # Errors
/// Shapes that do not fit, a position outside `vectors`, or a candidate that is not finite.
pub fn rerank(
    queries: ArrayView2<'_, f32>,
    vectors: &dyn Vectors,
    positions: ArrayView2<'_, i64>,
    k: usize,
    metric: Metric,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    check_dim(vectors, "rerank", queries.ncols())?;
    if queries.nrows() != positions.nrows() {
        return Err(invalid!("queries have {} rows, positions {}", queries.nrows(), positions.nrows()));
    }
    if let Some(position) = positions.iter().find(|&&p| p >= vectors.n() as i64) {
        return Err(invalid!("rerank has {} rows; position {position} is among the candidates", vectors.n()));
    }
    let mut hits = Hits::none(queries.nrows(), k, positions.ncols())?;
    let counter = Counter::new(monitor, queries.nrows() as u64);
    let query_rows = queries.as_standard_layout();
    let best = |query: usize| {
        let candidates = positions.row(query);
        let mut scored = Vec::with_capacity(candidates.len());
        let mut x = vec![0.0; queries.ncols()];
        let query = query_rows.row(query);
        let scorer = Scorer::new(metric, query.as_slice().expect("standard layout"));
        for (i, &position) in candidates.iter().filter(|&&position| position >= 0).enumerate() {
            if i % 1024 == 1023 {
                counter.add(0)?;
            }
            read_finite(vectors, "rerank", position as usize, &mut x)?;
            scored.push(Scored::new(scorer.score(&x), position as u32));
        }
        counter.add(1)?;
        Ok(scored::best(scored, k))
    };
    let found: Vec<Result<Vec<Key>>> = (0..queries.nrows()).into_par_iter().map(best).collect();
    for (query, found) in found.into_iter().enumerate() {
        hits.set(query, &found?);
    }
    Ok(hits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn orders_candidates_by_exact_score() {
        let x = array![[1.0f32, 0.0], [3.0, 0.0], [2.0, 0.0], [3.0, 9.0]];
        let hits = rerank(
            array![[1.0, 0.0]].view(),
            &x.view(),
            array![[0, 3, 1, -1]].view(),
            4,
            Metric::InnerProduct,
            &(),
        )
        .unwrap();
        assert_eq!(hits.positions, array![[1, 3, 0, -1]]);
        assert_eq!(hits.scores, array![[3.0, 3.0, 1.0, f32::NEG_INFINITY]]);
        assert!(
            rerank(array![[1.0, 0.0]].view(), &x.view(), array![[4]].view(), 1, Metric::InnerProduct, &())
                .is_err()
        );
    }
}
