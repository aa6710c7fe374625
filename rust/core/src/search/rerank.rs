//! Exact scores for the few candidates that a scan returns.

use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use crate::scan::topk::Key;
use crate::search::scored::{self, Scored};
use crate::vectors::metric::{Metric, Scorer};
use crate::vectors::{Kept, Vectors, check_dim, read_finite};
use half::f16;
use ndarray::{ArrayView2, CowArray, Ix2};
use rayon::prelude::*;

/// Candidates scored between two looks at whether to stop.
const PART: usize = 1024;
/// How many candidates ahead a row is asked for: they are anywhere in memory. 200 candidates of 200,000 vectors of 128
/// numbers in f32.
const AHEAD: usize = 6;

/// Scores rows exactly.
struct Score<'a> {
    vectors: &'a dyn Vectors,
    kept: Option<Kept<'a>>,
    scorer: &'a Scorer<'a>,
    rows: &'a [u32],
    /// Those rows, and what comes after them: rows to ask for. Nothing where they were asked for before.
    rest: &'a [u32],
    scored: &'a mut Vec<Scored>,
}

impl Kernel for Score<'_> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<L: Level>(self) -> Result<()> {
        let Self { vectors, kept, scorer, rows, rest, scored } = self;
        match kept {
            Some(Kept::F32(all)) => kept_scores(vectors, all, |row, _| scorer.score(row), rows, rest, scored),
            Some(Kept::F16(all)) => {
                let score = |row: &[f16], copy: &mut [f32]| {
                    widen(row, copy);
                    scorer.score(copy)
                };
                kept_scores(vectors, all, score, rows, rest, scored)
            }
            Some(Kept::U8(all)) => {
                let score = |row: &[u8], copy: &mut [f32]| {
                    copy.iter_mut().zip(row).for_each(|(to, &from)| *to = f32::from(from));
                    scorer.score(copy)
                };
                kept_scores(vectors, all, score, rows, rest, scored)
            }
            None => {
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
                    scored.push(finite(vectors, row, score, &mut copy)?);
                }
                Ok(())
            }
        }
    }
}

/// The scores of rows of `all`.
#[inline(always)]
fn kept_scores<T>(
    vectors: &dyn Vectors,
    all: &[T],
    score: impl Fn(&[T], &mut [f32]) -> f64,
    rows: &[u32],
    rest: &[u32],
    scored: &mut Vec<Scored>,
) -> Result<()> {
    let dim = vectors.dim();
    let mut copy = vec![0.0; dim];
    let at = |row: u32| &all[row as usize * dim..][..dim];
    rest.iter().take(AHEAD).for_each(|&row| isa::prefetch(at(row)));
    for (i, &row) in rows.iter().enumerate() {
        if let Some(&next) = rest.get(i + AHEAD) {
            isa::prefetch(at(next));
        }
        scored.push(finite(vectors, row, score(at(row), &mut copy), &mut copy)?);
    }
    Ok(())
}

/// The score of a row, which of finite numbers in f32 is finite, and of others is not: they are refused.
#[inline(always)]
fn finite(vectors: &dyn Vectors, row: u32, score: f64, copy: &mut [f32]) -> Result<Scored> {
    if !score.is_finite() {
        read_finite(vectors, "rerank", row as usize, copy)?;
    }
    Ok(Scored::new(score, row))
}

/// Numbers of 16 bits to 32, those that are not finite to NaN. In plain operations, which compile to many at a time on every
/// instruction set: exponent and fraction are moved to their places, and the exponent's offset is mended by a product, exact for
/// subnormal numbers too.
#[inline(always)]
fn widen(from: &[f16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        let bits = u32::from(from.to_bits());
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
        let value = f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16);
        *to = if bits & 0x7c00 == 0x7c00 { f32::NAN } else { value };
    }
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
    /// For `queries` (nq, d).
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

    /// Bytes of a row.
    pub(crate) fn n_bytes(&self) -> usize {
        let size = match self.kept {
            Some(Kept::F16(_)) => 2,
            Some(Kept::U8(_)) => 1,
            _ => 4,
        };
        size * self.vectors.dim()
    }

    /// Asks for a row that is about to be compared.
    pub(crate) fn prefetch(&self, row: u32) {
        let (row, dim) = (row as usize, self.vectors.dim());
        match self.kept {
            Some(Kept::F32(all)) => isa::prefetch(&all[row * dim..][..dim]),
            Some(Kept::F16(all)) => isa::prefetch(&all[row * dim..][..dim]),
            Some(Kept::U8(all)) => isa::prefetch(&all[row * dim..][..dim]),
            None => self.vectors.prefetch(row),
        }
    }

    /// The `k` best of `rows` for query `query`, sorted. `are_asked`: all rows were asked for before.
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
    let reranker = Reranker::new(queries, vectors, metric)?;
    if queries.nrows() != positions.nrows() {
        return Err(invalid!("queries have {} rows, positions {}", queries.nrows(), positions.nrows()));
    }
    if let Some(position) = positions.iter().find(|&&p| p >= vectors.n() as i64) {
        return Err(invalid!("rerank has {} rows; position {position} is among the candidates", vectors.n()));
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

    #[test]
    fn numbers_of_16_bits_keep_their_values() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut wide = vec![0.0; all.len()];
        widen(&all, &mut wide);
        for (from, to) in all.iter().zip(wide) {
            let same = from.to_f32().to_bits() == to.to_bits();
            assert!(if from.is_finite() { same } else { to.is_nan() }, "{from:?} to {to}");
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
