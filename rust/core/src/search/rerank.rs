//! Exact scores for the few candidates that a scan returns.

use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use crate::scan::topk::Key;
use crate::search::scored::{self, Scored};
use crate::vectors::metric::{Metric, Scorer};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::ArrayView2;
use rayon::prelude::*;

/// Candidates scored between two looks at whether to stop.
const PART: usize = 1024;
/// How many candidates ahead a row is asked for: they are anywhere in memory. 200 candidates of 200,000 vectors of 128
/// numbers in f32.
const AHEAD: usize = 6;

/// Scores rows exactly.
struct Score<'a> {
    vectors: &'a dyn Vectors,
    scorer: &'a Scorer<'a>,
    rows: &'a [u32],
    /// Those rows, and what comes after them.
    rest: &'a [u32],
    scored: &'a mut Vec<Scored>,
}

impl Kernel for Score<'_> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<L: Level>(self) -> Result<()> {
        let Self { vectors, scorer, rows, rest, scored } = self;
        let mut copy = vec![0.0; vectors.dim()];
        rest.iter().take(AHEAD).for_each(|&row| vectors.prefetch(row as usize));
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&next) = rest.get(i + AHEAD) {
                vectors.prefetch(next as usize);
            }
            let score = match vectors.kept(row as usize) {
                Some(x) => scorer.score(x),
                None => {
                    vectors.read(row as usize, &mut copy);
                    scorer.score(&copy)
                }
            };
            // Of finite numbers in f32 it is finite, and of others it is not.
            if !score.is_finite() {
                read_finite(vectors, "rerank", row as usize, &mut copy)?;
            }
            scored.push(Scored::new(score, row));
        }
        Ok(())
    }
}

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
    let isa = Isa::current()?;
    let best = |query: usize| {
        let candidates = positions.row(query);
        let rows: Vec<u32> =
            candidates.iter().filter(|&&position| position >= 0).map(|&position| position as u32).collect();
        let mut scored = Vec::with_capacity(rows.len());
        let query = query_rows.row(query);
        let scorer = Scorer::new(metric, query.as_slice().expect("standard layout"));
        for (i, part) in rows.chunks(PART).enumerate() {
            if i > 0 {
                counter.add(0)?;
            }
            let rest = &rows[i * PART..];
            isa::run(isa, Score { vectors, scorer: &scorer, rows: part, rest, scored: &mut scored })?;
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
