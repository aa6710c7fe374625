//! Candidates by the name of their ids: what exact scores are made of where vectors are kept by id, not in the order of
//! the index, or must be fetched first.

use super::certify::proven;
use super::filter::Allowed;
use super::ids::{ascend, unique};
use super::whole::Whole;
use super::{Index, Reach, Within};
use crate::error::{Error, Result, argument};
use crate::monitor::Monitor;
use crate::scan::Hits;
use crate::search::rerank::rerank;
use crate::vectors::metric::Metric;
use crate::vectors::{Subset, Vectors};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// The vectors that are best by code for some queries, to be [scored exactly](Self::rerank). The index may change
/// meanwhile.
///
/// ```
/// use compcodes::{Codebooks, Index, Model, Selection};
/// use ndarray::{Array2, array};
/// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
/// let mut index = Index::new(Model::new(codebooks, Selection::Group));
/// index.add(&array![[3.5, 1.2], [0.3, 2.9], [4.2, 3.1]].view(), Some(&[70, 50, 60]), &())?;
/// let queries = array![[1.0, 1.0]];
/// let candidates = index.candidates(queries.view(), 2, None, &())?;
/// assert_eq!(candidates.ids(), [70, 60]);
/// let fetched = array![[3.5, 1.2], [4.2, 3.1]];
/// let hits = candidates.rerank(queries.view(), &fetched.view(), 1, &())?;
/// assert_eq!(hits.positions, array![[60]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
#[derive(Debug)]
pub struct Candidates {
    /// In the order of their positions, so that ties go as they would in the index.
    ids: Vec<i64>,
    /// For each query, places in `ids`, or −1.
    places: Array2<i64>,
    /// Of [`Index::certifiable_candidates`]: a bound of the scores of all that are none.
    bounds: Option<Vec<Option<f32>>>,
    metric: Metric,
}

impl Index {
    /// The `n` best by code for each query (nq, d), for exact scores by [`Candidates::rerank`].
    ///
    /// # Errors
    /// Those of [`search`](Self::search).
    pub fn candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Candidates> {
        self.candidates_within(queries, n, allowed.into(), monitor)
    }

    /// As [`candidates`](Self::candidates), through so many lists as `within` says.
    ///
    /// # Errors
    /// Those of [`search`](Self::search).
    pub fn candidates_within(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        within: Within<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Candidates> {
        let hits = self.search_some(queries, n.min(self.len()), within, monitor)?;
        Ok(self.named(hits.positions, None))
    }

    /// Those of [`candidates`](Self::candidates), and as many by their bounds, so that results can be
    /// [proven](Candidates::certified).
    ///
    /// # Errors
    /// Those of [`search_certified`](Self::search_certified).
    pub fn certifiable_candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Candidates> {
        let parts = [self.alone()];
        let whole = Whole::new(&parts, Within { allowed, reach: Reach::All });
        let (positions, bounds) = whole.certifiable(queries, n, monitor)?;
        Ok(self.named(positions, Some(bounds)))
    }

    fn named(&self, positions: Array2<i64>, bounds: Option<Vec<Option<f32>>>) -> Candidates {
        Candidates::named(positions, bounds, self.settings.metric, |position| self.ids.at(position as usize))
            .0
    }
}

impl Candidates {
    /// Those at `positions`, (nq, n) and −1 for none, whose ids `id` tells; and the positions of [`ids`](Self::ids).
    pub(super) fn named(
        positions: Array2<i64>,
        bounds: Option<Vec<Option<f32>>>,
        metric: Metric,
        id: impl Fn(i64) -> i64,
    ) -> (Self, Vec<i64>) {
        let mut distinct: Vec<i64> = positions.iter().copied().filter(|&position| position >= 0).collect();
        distinct.par_sort_unstable();
        distinct.dedup();
        let mut places = positions;
        places.mapv_inplace(|position| distinct.binary_search(&position).map_or(-1, |place| place as i64));
        let ids = distinct.iter().map(|&position| id(position)).collect();
        (Self { ids, places, bounds, metric }, distinct)
    }

    /// The ids of all candidates, each once.
    #[must_use]
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// Of each query those `k` candidates that are best by exact scores with `vectors`, the rows of which are those of
    /// [`ids`](Self::ids).
    ///
    /// # Errors
    /// Vectors that are not as many as the ids, or of another d; other queries than before; a row that is not finite; or
    /// a cancelling monitor.
    pub fn rerank(
        &self,
        queries: ArrayView2<'_, f32>,
        vectors: &dyn Vectors,
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        if vectors.n() != self.ids.len() {
            return Err(argument!(
                "rerank",
                "has {} rows for {} ids: want one for each",
                vectors.n(),
                self.ids.len()
            ));
        }
        let mut hits = rerank(queries, vectors, self.places.view(), k, self.metric, monitor)?;
        hits.positions.iter_mut().filter(|place| **place >= 0).for_each(|p| *p = self.ids[*p as usize]);
        Ok(hits)
    }

    /// Like [`rerank`](Self::rerank), with the vectors of other ids too, in any order: row i of `vectors` is that of id
    /// `ids[i]`.
    ///
    /// # Errors
    /// Those of [`rerank`](Self::rerank) and of [`rows_of`].
    pub fn rerank_by_id(
        &self,
        queries: ArrayView2<'_, f32>,
        (vectors, ids): (&dyn Vectors, &[i64]),
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        if ids.len() != vectors.n() {
            return Err(argument!(
                "rerank_ids",
                "has {} entries for {} rows of rerank",
                ids.len(),
                vectors.n()
            ));
        }
        let rows = rows_of(&self.ids, ids)?;
        self.rerank(queries, &Subset::new(vectors, &rows), k, monitor).map_err(|error| match error {
            Error::NotFinite { what, row } => Error::NotFinite { what, row: rows[row] },
            error => error,
        })
    }

    /// Whose `hits` of [`rerank`](Self::rerank) are proven to be those of an exact search of all vectors; of none where
    /// the candidates are not [certifiable](Index::certifiable_candidates).
    #[must_use]
    pub fn certified(&self, hits: &Hits) -> Vec<bool> {
        let none = || vec![false; hits.positions.nrows()];
        self.bounds.as_ref().map_or_else(none, |bounds| proven(hits, bounds))
    }
}

/// Where each of `wanted` is among `ids`, those of the rows of some file.
///
/// # Errors
/// One of `wanted` is not there, or an id is there twice.
pub fn rows_of(wanted: &[i64], ids: &[i64]) -> Result<Vec<usize>> {
    let found: Vec<Option<usize>> = if ascend(ids) {
        wanted.iter().map(|id| ids.binary_search(id).ok()).collect()
    } else {
        unique("rerank_ids", ids)?;
        let mut rows: Vec<usize> = (0..ids.len()).collect();
        rows.par_sort_unstable_by_key(|&row| ids[row]);
        let row = |id: &i64| Some(rows[rows.binary_search_by_key(id, |&row| ids[row]).ok()?]);
        wanted.iter().map(row).collect()
    };
    match found.iter().position(Option::is_none) {
        Some(at) => Err(argument!("rerank_ids", "lacks {}, the id of a candidate", wanted[at])),
        None => Ok(found.into_iter().flatten().collect()),
    }
}
