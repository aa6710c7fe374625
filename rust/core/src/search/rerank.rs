//! Exact scores for the few candidates that a scan returns.

use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use crate::scan::scored::{self, Scored};
use crate::scan::topk::Key;
use crate::vectors::metric::{Metric, Scorer};
use crate::vectors::{Kept, Vectors, check_dim, read_finite};
use half::f16;
use half::slice::HalfFloatSliceExt;
use ndarray::{ArrayView2, CowArray, Ix2};
use rayon::prelude::*;

/// Candidates that are scored between two checks of whether to stop.
const PART: usize = 1024;
/// How many candidates ahead a row is prefetched, since rows are anywhere in memory. Measured with 200 candidates out
/// of 200,000 vectors of 128 numbers in f32.
const AHEAD: usize = 6;

/// Scores rows exactly.
struct Score<'a> {
    vectors: &'a dyn Vectors,
    kept: Option<Kept<'a>>,
    scorer: &'a Scorer<'a>,
    rows: &'a [u32],
    /// The rows, followed by further rows to prefetch. Empty if they were prefetched before.
    rest: &'a [u32],
    scored: &'a mut Vec<Scored>,
}

impl Kernel for Score<'_> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<L: Level>(self) -> Result<()> {
        match self.kept {
            Some(Kept::F32(all)) => self.kept::<L, _>(all),
            Some(Kept::F16(all)) => self.kept::<L, _>(all),
            Some(Kept::U8(all)) => self.kept::<L, _>(all),
            None => self.any(),
        }
    }
}

impl Score<'_> {
    /// Scores rows of `all`, which holds all vectors.
    #[inline(always)]
    fn kept<L: Level, T: Wide>(self, all: &[T]) -> Result<()> {
        let Self { vectors, scorer, rows, rest, scored, .. } = self;
        let dim = vectors.dim();
        let mut copy = vec![0.0; dim];
        for &row in rest.iter().take(AHEAD) {
            isa::prefetch(row_of(all, dim, row));
        }
        for (i, &row) in rows.iter().enumerate() {
            if let Some(&next) = rest.get(i + AHEAD) {
                isa::prefetch(row_of(all, dim, next));
            }
            let score = scorer.score(T::wide::<L>(row_of(all, dim, row), &mut copy));
            scored.push(finite(vectors, row, score, &mut copy)?);
        }
        Ok(())
    }

    /// Scores rows, each of which is prefetched separately.
    #[inline(always)]
    fn any(self) -> Result<()> {
        let Self { vectors, scorer, rows, rest, scored, .. } = self;
        let mut copy = vec![0.0; vectors.dim()];
        for &row in rest.iter().take(AHEAD) {
            vectors.prefetch(row as usize);
        }
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
            scored.push(finite(vectors, row, score, &mut copy)?);
        }
        Ok(())
    }
}

/// Row `row` of `all`, whose rows have `dim` numbers and lie end to end.
#[inline(always)]
fn row_of<T>(all: &[T], dim: usize, row: u32) -> &[T] {
    &all[row as usize * dim..][..dim]
}

/// Numbers that are converted to f32 for scoring.
trait Wide: Sized {
    /// A row in f32: the row itself, or `copy`, which has the same length.
    fn wide<'a, L: Level>(row: &'a [Self], copy: &'a mut [f32]) -> &'a [f32];
}

impl Wide for f32 {
    #[inline(always)]
    fn wide<'a, L: Level>(row: &'a [Self], _copy: &'a mut [f32]) -> &'a [f32] {
        row
    }
}

impl Wide for u8 {
    #[inline(always)]
    fn wide<'a, L: Level>(row: &'a [Self], copy: &'a mut [f32]) -> &'a [f32] {
        for (to, &from) in copy.iter_mut().zip(row) {
            *to = f32::from(from);
        }
        copy
    }
}

impl Wide for f16 {
    #[inline(always)]
    fn wide<'a, L: Level>(row: &'a [Self], copy: &'a mut [f32]) -> &'a [f32] {
        let whole = row.len() / L::LANES * L::LANES;
        let (in_whole, in_rest) = copy.split_at_mut(whole);
        for (from, to) in row.chunks_exact(L::LANES).zip(in_whole.chunks_exact_mut(L::LANES)) {
            L::store_floats(L::load_f16(from), to);
        }
        row[whole..].convert_to_f32_slice(in_rest);
        copy
    }
}

/// Checks the score of a row: with finite numbers in f32 it is finite; other rows are rejected.
#[inline(always)]
fn finite(vectors: &dyn Vectors, row: u32, score: f64, copy: &mut [f32]) -> Result<Scored> {
    if !score.is_finite() {
        read_finite(vectors, "rerank", row as usize, copy)?;
    }
    Ok(Scored::new(score, row))
}

/// Compares the candidates of queries with vectors.
pub(crate) struct Reranker<'a> {
    queries: CowArray<'a, f32, Ix2>,
    vectors: &'a dyn Vectors,
    kept: Option<Kept<'a>>,
    metric: Metric,
    isa: Isa,
}

impl<'a> Reranker<'a> {
    /// Prepares for `queries` (nq, d).
    pub(crate) fn new(
        queries: ArrayView2<'a, f32>,
        vectors: &'a dyn Vectors,
        metric: Metric,
    ) -> Result<Self> {
        check_dim(vectors, "rerank", queries.ncols())?;
        // An empty array is a slice of any shape.
        let kept = if vectors.n() > 0 { vectors.all_kept() } else { None };
        let queries = match queries.to_slice() {
            Some(_) => CowArray::from(queries),
            None => CowArray::from(queries.as_standard_layout().into_owned()),
        };
        Ok(Self { queries, vectors, kept, metric, isa: Isa::current()? })
    }

    /// Bytes per row.
    pub(crate) fn n_bytes(&self) -> usize {
        let size = match self.kept {
            Some(Kept::F16(_)) => 2,
            Some(Kept::U8(_)) => 1,
            _ => 4,
        };
        size * self.vectors.dim()
    }

    /// Prefetches a row that will be compared soon.
    pub(crate) fn prefetch(&self, row: u32) {
        let dim = self.vectors.dim();
        match self.kept {
            Some(Kept::F32(all)) => isa::prefetch(row_of(all, dim, row)),
            Some(Kept::F16(all)) => isa::prefetch(row_of(all, dim, row)),
            Some(Kept::U8(all)) => isa::prefetch(row_of(all, dim, row)),
            None => self.vectors.prefetch(row as usize),
        }
    }

    /// The `k` best of `rows` for query `query`, sorted. `are_asked`: all rows were prefetched before.
    pub(crate) fn best(
        &self,
        query: usize,
        rows: &[u32],
        k: usize,
        are_asked: bool,
        counter: &Counter<'_>,
    ) -> Result<Vec<Key>> {
        let Self { vectors, kept, isa, .. } = *self;
        let mut scored = Vec::with_capacity(rows.len());
        let query = self.queries.row(query);
        let scorer = Scorer::new(self.metric, query.to_slice().expect("standard layout"));
        for (i, part) in rows.chunks(PART).enumerate() {
            if i > 0 {
                counter.add(0)?;
            }
            let rest = if are_asked { &[] } else { &rows[i * PART..] };
            isa::run(isa, Score { vectors, kept, scorer: &scorer, rows: part, rest, scored: &mut scored })?;
        }
        Ok(scored::best(scored, k))
    }
}

/// For each query, the `k` candidates with the best exact scores, out of `positions` (nq, c), which are rows of
/// `vectors` or −1 for none. Scores are summed and compared in f64, with ties going to the lower position, and then
/// rounded to f32; beyond its range they are ±∞.
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
    let reranker = Reranker::new(queries, vectors, metric)?;
    if queries.nrows() != positions.nrows() {
        return Err(argument!("queries", "have {} rows, positions {}", queries.nrows(), positions.nrows()));
    }
    if let Some(position) = positions.iter().find(|&&p| p >= vectors.n() as i64) {
        return Err(argument!(
            "rerank",
            "has {} rows; position {position} is among the candidates",
            vectors.n()
        ));
    }
    let mut hits = Hits::none(queries.nrows(), k, positions.ncols())?;
    let counter = Counter::new(monitor, queries.nrows() as u64);
    let best = |query: usize| {
        let candidates = positions.row(query);
        let rows: Vec<u32> =
            candidates.iter().filter(|&&position| position >= 0).map(|&position| position as u32).collect();
        let found = reranker.best(query, &rows, k, false, &counter)?;
        counter.add(1)?;
        Ok(found)
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

    /// Converts 16-bit numbers.
    struct Widen<'a>(&'a [f16], &'a mut [f32]);

    impl Kernel for Widen<'_> {
        type Output = ();
        #[inline(always)]
        fn run<L: Level>(self) {
            f16::wide::<L>(self.0, self.1);
        }
    }

    #[test]
    fn numbers_of_16_bits_keep_their_values() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            // The full length, and lengths that do not fill the last register.
            for some in [&all[..], &all[1..], &all[..7], &all[30_000..30_023], &[]] {
                let mut wide = vec![7.0; some.len()];
                isa::run(isa, Widen(some, &mut wide));
                for (from, to) in some.iter().zip(wide) {
                    let same = from.to_f32().to_bits() == to.to_bits();
                    assert!(same || from.is_nan() && to.is_nan(), "{isa:?}: {from:?} to {to}");
                }
            }
        }
    }

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
