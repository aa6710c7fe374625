//! Candidates identified by their ids: for exact scores where vectors are kept by id rather than in the order of the
//! index, or must be fetched first.

use super::certify::proven;
use super::filter::Allowed;
use super::ids::{ascend, unique};
use super::whole::Whole;
use super::{Index, Reach, Within};
use crate::error::{Result, argument};
use crate::monitor::Monitor;
use crate::scan::Hits;
use crate::search::rerank::rerank;
use crate::vectors::metric::Metric;
use crate::vectors::{Subset, Vectors};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// The vectors that are best by code for some queries, to be [scored exactly](Self::rerank). The index may change in
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
    /// In the order of their positions, so that ties are broken as in the index.
    ids: Vec<i64>,
    /// For each query, places in `ids`, or −1.
    places: Array2<i64>,
    /// For [`Index::certifiable_candidates`]: an upper bound on the scores of all vectors that are not candidates.
    bounds: Option<Vec<Option<f32>>>,
    metric: Metric,
}

impl Index {
    /// The `n` best vectors by code for each query (nq, d), to be scored exactly by [`Candidates::rerank`].
    ///
    /// # Errors
    /// The errors of [`search`](Self::search).
    pub fn candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        allowed: Option<&Allowed>,
        monitor: &dyn Monitor,
    ) -> Result<Candidates> {
        self.candidates_within(queries, n, allowed.into(), monitor)
    }

    /// Like [`candidates`](Self::candidates), searching as many lists as `within` says.
    ///
    /// # Errors
    /// The errors of [`search`](Self::search).
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

    /// The [`candidates`](Self::candidates), and as many again by their bounds, so that results can be [proven
    /// exact](Candidates::certified).
    ///
    /// # Errors
    /// The errors of [`search_certified`](Self::search_certified).
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
    /// Makes candidates of `positions`, (nq, n) with −1 for none; `id` gives the id at a position. Also returns the
    /// positions of [`ids`](Self::ids).
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

    /// The ids of all candidates, without repetition.
    #[must_use]
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// For each query, the `k` candidates with the best exact scores. Row i of `vectors` is the vector of entry i of
    /// [`ids`](Self::ids).
    ///
    /// # Errors
    /// There are not as many vectors as ids, or they have a different d; the queries are not those of before; a row is
    /// not finite; or the monitor cancels.
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

    /// Like [`rerank`](Self::rerank), but `vectors` may hold other vectors too, in any order: row i of `vectors` has id
    /// `ids[i]`.
    ///
    /// # Errors
    /// The errors of [`rerank`](Self::rerank) and of [`rows_of`].
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
        self.rerank(queries, &Subset::new(vectors, &rows), k, monitor)
    }

    /// For each query, whether its `hits` of [`rerank`](Self::rerank) are proven to be those of an exact search of all
    /// vectors; always false if the candidates are not [certifiable](Index::certifiable_candidates).
    #[must_use]
    pub fn certified(&self, hits: &Hits) -> Vec<bool> {
        let none = || vec![false; hits.positions.nrows()];
        self.bounds.as_ref().map_or_else(none, |bounds| proven(hits, bounds))
    }
}

/// The place of each of `wanted` among `ids`, which are the ids of the rows of some file.
///
/// # Errors
/// One of `wanted` is missing from `ids`, or an id is repeated.
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
