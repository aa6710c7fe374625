//! Indexes that are searched as one.

use crate::arrays::{ids, queries};
use crate::candidates::Candidates;
use crate::errors::to_python;
use crate::index::{Above, Index};
use crate::lists::reach;
use crate::names::{Filter, Limits, Named, Names, starts};
use crate::run::run;
use compcodes::Result;
use compcodes::index::Within;
use compcodes::index::sharded::{self, Shard};
use compcodes::monitor::Monitor;
use compcodes::scan::Hits;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Ids<'py> = Bound<'py, PyArray1<i64>>;
/// Scores (nq, k) f32, and positions (nq, k) i64.
type Placed<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>);

/// Several indexes of one model in their present state, searched as one. Positions are numbered through all of them,
/// including removed vectors.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Shards {
    shards: sharded::Shards,
}

impl Shards {
    fn waiting(
        &self,
        (candidates, positions): (compcodes::index::Candidates, Vec<i64>),
    ) -> (Candidates, Vec<i64>) {
        let key = |&position: &i64| self.shards.key(position).unwrap_or_default().to_owned();
        let keys = self.shards.has_keys().then(|| positions.iter().map(key).collect());
        (Candidates { candidates, keys }, positions)
    }
}

#[pymethods]
impl Shards {
    /// `indexes` in order, the offset added to the ids of each, and the positions (r,) i64 removed from each.
    #[new]
    fn new(
        py: Python<'_>,
        indexes: Vec<PyRef<'_, Index>>,
        offsets: Vec<i64>,
        removed: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut shards = Vec::new();
        for ((index, offset), removed) in indexes.iter().zip(offsets).zip(&removed) {
            let removed = ids(removed, "removed")?.as_array().to_vec();
            shards.push(Shard::new(index.now()?, offset, &removed).map_err(to_python)?);
        }
        Ok(Self { shards: py.detach(|| sharded::Shards::new(shards)).map_err(to_python)? })
    }

    fn __len__(&self) -> usize {
        self.shards.len()
    }

    fn has_keys(&self) -> bool {
        self.shards.has_keys()
    }

    /// The positions of all vectors that are not removed, (n,) i64.
    fn positions<'py>(&self, py: Python<'py>) -> Ids<'py> {
        py.detach(|| self.shards.positions()).into_pyarray(py)
    }

    /// The names of the vectors at positions: ids (n,) i64, with −1 for −1; or a list of keys, with None for −1.
    fn names<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let positions = positions.as_array().to_vec();
        py.detach(|| Named::at(&self.shards, &positions)).into_python(py)
    }

    /// The ids of the vectors at positions, (n,) i64, even if they have keys.
    fn numbers<'py>(&self, py: Python<'py>, positions: PyReadonlyArray1<'py, i64>) -> Ids<'py> {
        let ids: Vec<i64> = positions.as_array().iter().map(|&position| self.shards.id(position)).collect();
        ids.into_pyarray(py)
    }

    /// How many vectors each list holds, (n_lists,) i64; `None` without lists.
    fn list_sizes<'py>(&self, py: Python<'py>) -> Option<Ids<'py>> {
        let sizes = py.detach(|| self.shards.list_sizes())?;
        Some(sizes.into_iter().map(|size| size as i64).collect::<Vec<_>>().into_pyarray(py))
    }

    /// How many lists each query searches, (nq,) i64, if they hold enough vectors; `None` without lists.
    #[pyo3(signature = (queries, n_probe=None, recall=None, n_jobs=None))]
    fn probes<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        n_probe: Option<usize>,
        recall: Option<f32>,
        n_jobs: Option<i64>,
    ) -> PyResult<Option<Ids<'py>>> {
        let (queries, reach) = (self::queries(queries)?, reach(n_probe, recall));
        let queries = queries.as_array();
        let probes = run(py, n_jobs, None, |monitor| self.shards.probes(queries, reach, monitor))?;
        let as_ids = |probes: Vec<usize>| probes.into_iter().map(|n| n as i64).collect::<Vec<_>>();
        Ok(probes.map(|probes| as_ids(probes).into_pyarray(py)))
    }

    /// The positions of ids, or of keys, (n,) i64; −1 for those that do not exist.
    #[pyo3(signature = (ids, n_jobs=None))]
    fn find<'py>(&self, py: Python<'py>, ids: Any<'_, 'py>, n_jobs: Option<i64>) -> PyResult<Ids<'py>> {
        let names = Names::new(ids, "ids")?;
        let find = |monitor: &dyn Monitor| self.shards.find(&names.find(&self.shards, monitor)?, monitor);
        Ok(run(py, n_jobs, None, find)?.into_pyarray(py))
    }

    /// The approximations of the vectors at positions, (n, d) f32.
    #[pyo3(signature = (positions, n_jobs=None))]
    fn reconstruct<'py>(
        &self,
        py: Python<'py>,
        positions: Any<'_, 'py>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let positions = ids(positions, "positions")?.as_array().to_vec();
        Ok(run(py, n_jobs, None, |monitor| self.shards.reconstruct(&positions, monitor))?.into_pyarray(py))
    }

    /// (scores, positions) of the k best for each query; if `ends` (nq,) i64 is given, each query searches that many
    /// lists.
    #[pyo3(signature = (
        queries, k, filter=None, exclude=None, n_jobs=None, progress=None, n_probe=None, recall=None, ends=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
        n_probe: Option<usize>,
        recall: Option<f32>,
        ends: Option<PyReadonlyArray1<'py, i64>>,
    ) -> PyResult<Placed<'py>> {
        let (queries, reach) = (self::queries(queries)?, reach(n_probe, recall));
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let ends: Option<Vec<usize>> =
            ends.map(|ends| ends.as_array().iter().map(|&end| end.max(1) as usize).collect());
        let search = |monitor: &dyn Monitor| {
            let allowed = limits.allowed(&self.shards, monitor)?;
            let within = Within { allowed: allowed.as_ref(), reach };
            self.shards.search_positions(queries, k, (within, ends.as_deref()), monitor)
        };
        let hits = run(py, n_jobs, progress, search)?;
        Ok((hits.scores.into_pyarray(py), hits.positions.into_pyarray(py)))
    }

    /// Scores before they are rounded, (m,) f64, of the queries in these rows with the vectors at these positions; None
    /// for inner products.
    #[pyo3(signature = (queries, rows, positions, n_jobs=None))]
    fn unrounded<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        rows: PyReadonlyArray1<'py, i64>,
        positions: PyReadonlyArray1<'py, i64>,
        n_jobs: Option<i64>,
    ) -> PyResult<Option<Bound<'py, PyArray1<f64>>>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let rows: Vec<usize> = rows.as_array().iter().map(|&row| row.max(0) as usize).collect();
        let positions = positions.as_array().to_vec();
        let scores =
            run(py, n_jobs, None, |monitor| self.shards.unrounded(queries, &rows, &positions, monitor))?;
        Ok(scores.map(|scores| scores.into_pyarray(py)))
    }

    /// (bounds, positions) of the k best by the upper bound on exact scores, for queries of length 1.
    #[pyo3(signature = (queries, k, filter=None, exclude=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search_bounds<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Placed<'py>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let search = |monitor: &dyn Monitor| {
            let allowed = limits.allowed(&self.shards, monitor)?;
            self.shards.search_bounds(queries, k, allowed.as_ref(), monitor)
        };
        let hits = run(py, n_jobs, progress, search)?;
        Ok((hits.scores.into_pyarray(py), hits.positions.into_pyarray(py)))
    }

    /// (starts, positions, scores) of all vectors that score at least `floors`, one number per query.
    #[pyo3(signature = (queries, floors, filter=None, exclude=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search_above<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        floors: PyReadonlyArray1<'py, f32>,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Above<'py>> {
        let queries = self::queries(queries)?;
        let (queries, floors) = (queries.as_array(), floors.as_array().to_vec());
        let limits = Limits::new(filter, exclude)?;
        let search = |monitor: &dyn Monitor| {
            let allowed = limits.allowed(&self.shards, monitor)?;
            self.shards.search_above(queries, &floors, allowed.as_ref(), monitor)
        };
        let above = run(py, n_jobs, progress, search)?;
        let positions = above.ids.into_pyarray(py).into_any();
        Ok((starts(py, above.starts), positions, above.scores.into_pyarray(py)))
    }

    /// How many vectors each query may find in its best list, the second best, and so on: (nq, n_lists) u32.
    #[pyo3(signature = (queries, filter=None, exclude=None, n_jobs=None))]
    fn list_counts<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let count = |monitor: &dyn Monitor| {
            let allowed = limits.allowed(&self.shards, monitor)?;
            self.shards.list_counts(queries, allowed.as_ref(), monitor)
        };
        Ok(run(py, n_jobs, None, count)?.into_pyarray(py))
    }

    /// The vectors that are best by code for some queries, and the positions of their ids. With `certify`, results can
    /// be proven exact.
    #[pyo3(signature = (
        queries, n_candidates, certify=false, filter=None, exclude=None, n_jobs=None, progress=None, n_probe=None,
        recall=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        n_candidates: usize,
        certify: bool,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
        n_probe: Option<usize>,
        recall: Option<f32>,
    ) -> PyResult<(Candidates, Ids<'py>)> {
        let (queries, reach) = (self::queries(queries)?, reach(n_probe, recall));
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let search = |monitor: &dyn Monitor| {
            let allowed = limits.allowed(&self.shards, monitor)?;
            let allowed = allowed.as_ref();
            let found = match certify {
                true => self.shards.certifiable_candidates(queries, n_candidates, allowed, monitor)?,
                false => self.shards.candidates(queries, n_candidates, Within { allowed, reach }, monitor)?,
            };
            Ok(self.waiting(found))
        };
        let (candidates, positions) = run(py, n_jobs, progress, search)?;
        Ok((candidates, positions.into_pyarray(py)))
    }

    /// Candidates found elsewhere, given by their positions (nq, c) i64, with −1 for none; and the positions of their
    /// ids. With `bounds` (nq, c + 1) f32 and `bounded` (nq, c + 1) i64 from `search_bounds`, results can be proven
    /// exact.
    #[pyo3(signature = (queries, positions, bounds=None, bounded=None))]
    fn chosen<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        positions: PyReadonlyArray2<'py, i64>,
        bounds: Option<PyReadonlyArray2<'py, f32>>,
        bounded: Option<PyReadonlyArray2<'py, i64>>,
    ) -> PyResult<(Candidates, Ids<'py>)> {
        let found = match (bounds, bounded) {
            (Some(bounds), Some(bounded)) => {
                let queries = self::queries(queries)?;
                let by_bound =
                    Hits { scores: bounds.as_array().to_owned(), positions: bounded.as_array().to_owned() };
                let found: Result<_> =
                    self.shards.certifiable(queries.as_array(), positions.as_array(), &by_bound);
                found.map_err(to_python)?
            }
            _ => self.shards.named(positions.as_array().to_owned()),
        };
        let (candidates, positions) = self.waiting(found);
        Ok((candidates, positions.into_pyarray(py)))
    }
}
