//! Indexes that are searched as one.

use crate::arrays::{ids, queries};
use crate::candidates::Candidates;
use crate::errors::to_python;
use crate::index::Index;
use crate::run::run;
use compcodes::Result;
use compcodes::index::sharded::{self, Allow, Shard};
use compcodes::monitor::Monitor;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Ids<'py> = Bound<'py, PyArray1<i64>>;

/// Several indexes of one model as they are now, searched as one.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Shards {
    shards: sharded::Shards,
}

/// Which vectors a search may find.
#[derive(FromPyObject)]
enum Filter<'py> {
    /// The first id, the last one, and the step.
    Range((i64, i64, u64)),
    Ids(Bound<'py, PyAny>),
}

/// The same, off the interpreter lock.
enum Among {
    Range(i64, i64, u64),
    Ids(Vec<i64>),
}

impl Filter<'_> {
    fn detach(self) -> PyResult<Among> {
        match self {
            Filter::Range((first, last, step)) => Ok(Among::Range(first, last, step)),
            Filter::Ids(array) => Ok(Among::Ids(ids(&array, "filter")?.as_array().to_vec())),
        }
    }
}

/// What the arguments of a search allow.
struct Choice {
    filter: Option<Among>,
    masks: Option<Vec<Vec<bool>>>,
}

impl Choice {
    fn new(filter: Option<Filter<'_>>, masks: Option<Vec<PyReadonlyArray1<'_, bool>>>) -> PyResult<Self> {
        let masks = masks.map(|masks| masks.iter().map(|mask| mask.as_array().to_vec()).collect());
        Ok(Self { filter: filter.map(Filter::detach).transpose()?, masks })
    }

    fn allow(&self) -> Result<Allow<'_>> {
        match (&self.filter, &self.masks) {
            (None, None) => Ok(Allow::Everything),
            (None, Some(masks)) => Ok(Allow::Masks(masks)),
            (Some(Among::Ids(ids)), None) => Ok(Allow::Ids(ids)),
            (Some(Among::Range(first, last, step)), None) => Ok(Allow::Range(*first, *last, *step)),
            (Some(_), Some(_)) => {
                Err(compcodes::Error::Invalid("want ids, a range, or a mask for each shard".to_owned()))
            }
        }
    }
}

#[pymethods]
impl Shards {
    /// `indexes` in order, what the ids of each have to be raised by, and the positions (r,) i64 removed from each.
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

    /// The ids of all vectors that are not removed, (n,) i64.
    fn ids<'py>(&self, py: Python<'py>) -> Ids<'py> {
        py.detach(|| self.shards.ids()).into_pyarray(py)
    }

    /// The positions of ids, counted through all shards, (n,) i64; −1 for those that are not there.
    #[pyo3(signature = (ids, n_jobs=None))]
    fn find<'py>(&self, py: Python<'py>, ids: Any<'_, 'py>, n_jobs: Option<i64>) -> PyResult<Ids<'py>> {
        let ids = self::ids(ids, "ids")?.as_array().to_vec();
        Ok(run(py, n_jobs, None, |monitor| self.shards.find(&ids, monitor))?.into_pyarray(py))
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

    /// (scores, ids, positions) of the k best for each query; `masks` has a mask of the positions of each shard.
    #[pyo3(signature = (queries, k, filter=None, masks=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        filter: Option<Filter<'py>>,
        masks: Option<Vec<PyReadonlyArray1<'py, bool>>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<i64>>)> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let choice = Choice::new(filter, masks)?;
        let search = |monitor: &dyn Monitor| {
            let hits = self.shards.search_positions(queries, k, choice.allow()?, monitor)?;
            let ids = hits.positions.mapv(|position| self.shards.id(position));
            Ok((hits, ids))
        };
        let (hits, ids) = run(py, n_jobs, progress, search)?;
        Ok((hits.scores.into_pyarray(py), ids.into_pyarray(py), hits.positions.into_pyarray(py)))
    }

    /// The vectors that are best by code for some queries, and the positions of their ids.
    #[pyo3(signature = (queries, n_candidates, filter=None, masks=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        n_candidates: usize,
        filter: Option<Filter<'py>>,
        masks: Option<Vec<PyReadonlyArray1<'py, bool>>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<(Candidates, Ids<'py>)> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let choice = Choice::new(filter, masks)?;
        let search =
            |monitor: &dyn Monitor| self.shards.candidates(queries, n_candidates, choice.allow()?, monitor);
        let (candidates, positions) = run(py, n_jobs, progress, search)?;
        Ok((Candidates { candidates, keys: None }, positions.into_pyarray(py)))
    }

    /// Candidates found elsewhere, by their positions (nq, n) i64, −1 for none; and the positions of their ids.
    fn chosen<'py>(&self, py: Python<'py>, positions: PyReadonlyArray2<'py, i64>) -> (Candidates, Ids<'py>) {
        let (candidates, positions) = self.shards.named(positions.as_array().to_owned());
        (Candidates { candidates, keys: None }, positions.into_pyarray(py))
    }
}
