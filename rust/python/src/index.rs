//! Indexes and searches.

use crate::arrays::{Rows, codes, ids, queries};
use crate::errors::to_python;
use crate::model::Model;
use crate::run::{here, pool, run, run_holding};
use compcodes::Result;
use compcodes::index::Settings;
use compcodes::monitor::Monitor;
use compcodes::scan::Hits;
use compcodes::search::exact;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
/// Scores (nq, k) f32 and ids or positions (nq, k) i64.
type Found<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>);

/// Codes and table entries below which a search takes less time than to wake up other threads for it.
const BRIEF: usize = 16_000_000;

fn found(py: Python<'_>, hits: Hits) -> Found<'_> {
    (hits.scores.into_pyarray(py), hits.positions.into_pyarray(py))
}

/// Scores and rows of the exact largest inner products.
#[pyfunction]
#[pyo3(signature = (x, queries, k, metric="ip", n_jobs=None, progress=None))]
pub(crate) fn exact_search<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    queries: Any<'_, 'py>,
    k: usize,
    metric: &str,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<Found<'py>> {
    let metric = metric.parse().map_err(to_python)?;
    let (x, queries) = (Rows::new(x, "X")?, Rows::new(queries, "Q")?);
    let (x, queries) = (x.view(), queries.view());
    Ok(found(py, run(py, n_jobs, progress, |monitor| exact::search(&*x, &*queries, k, metric, monitor))?))
}

/// Codes, ids and the model; searched by many threads at once. An addition waits for the searches under way, and a
/// search sees all of an addition or nothing of it.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Index {
    index: RwLock<compcodes::Index>,
}

impl Index {
    fn read(&self) -> RwLockReadGuard<'_, compcodes::Index> {
        // Nothing of the core leaves an index half changed.
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the index, off the interpreter lock. The lock is taken outside the pool: see [`run_holding`].
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut compcodes::Index) -> Result<T> + Send,
    ) -> PyResult<T> {
        let pool = pool(None)?;
        let locked = || {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            let index = &mut *index;
            pool.install(|| change(index))
        };
        py.detach(locked).map_err(to_python)
    }

    /// Reads the index, off the interpreter lock since a writer may hold the index.
    fn look<T: Send>(&self, py: Python<'_>, look: impl FnOnce(&compcodes::Index) -> T + Send) -> PyResult<T> {
        let pool = pool(None)?;
        Ok(py.detach(|| {
            let index = self.read();
            let index = &*index;
            pool.install(|| look(index))
        }))
    }
}

/// Which vectors a search may find.
#[derive(FromPyObject)]
enum Filter<'py> {
    /// The first id and the one after the last.
    Range((i64, i64)),
    Array(Bound<'py, PyAny>),
}

/// The same, off the interpreter lock.
enum Allowed {
    Range(i64, i64),
    Mask(Vec<bool>),
    Ids(Vec<i64>),
}

impl Filter<'_> {
    fn detach(self) -> PyResult<Allowed> {
        match self {
            Filter::Range((first, last)) => Ok(Allowed::Range(first, last)),
            Filter::Array(array) => match array.extract::<PyReadonlyArray1<'_, bool>>() {
                Ok(mask) => Ok(Allowed::Mask(mask.as_array().to_vec())),
                Err(_) => Ok(Allowed::Ids(ids(&array, "filter")?.as_array().to_vec())),
            },
        }
    }
}

impl Allowed {
    fn words(&self, index: &compcodes::Index) -> Result<Vec<u64>> {
        match self {
            Allowed::Range(first, last) => Ok(index.allow(|id| (*first..*last).contains(&id))),
            Allowed::Ids(ids) => Ok(index.allow_ids(ids)),
            Allowed::Mask(mask) => index.allow_mask(mask),
        }
    }
}

type Guard<'a> = RwLockReadGuard<'a, compcodes::Index>;

#[pymethods]
impl Index {
    #[new]
    fn new(
        model: PyRef<'_, Model>,
        metric: &str,
        scale: bool,
        exact_norms: bool,
        residuals: bool,
    ) -> PyResult<Self> {
        let settings = Settings { metric: metric.parse().map_err(to_python)?, scale, exact_norms, residuals };
        let index = compcodes::Index::with(model.model.clone(), settings).map_err(to_python)?;
        Ok(Self { index: RwLock::new(index) })
    }

    #[staticmethod]
    #[pyo3(signature = (path, mmap=false))]
    fn load(py: Python<'_>, path: PathBuf, mmap: bool) -> PyResult<Self> {
        let load = |monitor: &dyn Monitor| match mmap {
            true => compcodes::Index::map(path),
            false => compcodes::Index::load_heeding(path, monitor),
        };
        Ok(Self { index: RwLock::new(run(py, None, None, load)?) })
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        let index = run(py, None, None, |monitor| compcodes::Index::from_bytes(content, monitor))?;
        Ok(Self { index: RwLock::new(index) })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let save = |index: &Guard<'_>, monitor: &dyn Monitor| index.save_heeding(path, monitor);
        run_holding(py, None, None, || self.read(), save)
    }

    /// What `save` writes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = |index: &Guard<'_>, monitor: &dyn Monitor| index.to_bytes(monitor);
        Ok(PyBytes::new(py, &run_holding(py, None, None, || self.read(), bytes)?))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, compcodes::Index::len)
    }

    fn model(&self, py: Python<'_>) -> PyResult<Model> {
        Ok(Model { model: self.look(py, |index| index.model().clone())? })
    }

    /// (metric, scale, exact_norms, residuals).
    fn settings(&self, py: Python<'_>) -> PyResult<(&'static str, bool, bool, bool)> {
        let settings = self.look(py, compcodes::Index::settings)?;
        Ok((settings.metric.name(), settings.scale, settings.exact_norms, settings.residuals))
    }

    fn bytes_per_vector(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, compcodes::Index::bytes_per_vector)
    }

    /// All codes, (n, M) u8.
    fn codes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        Ok(self.look(py, compcodes::Index::codes)?.into_pyarray(py))
    }

    /// All ids, (n,) i64.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let ids = self.look(py, |index| match index.ids() {
            Some(ids) => ids.to_vec(),
            None => (0..index.len() as i64).collect(),
        })?;
        Ok(ids.into_pyarray(py))
    }

    #[pyo3(signature = (codes, ids=None, side=None))]
    fn add_codes(
        &self,
        py: Python<'_>,
        codes: Any<'_, '_>,
        ids: Option<Any<'_, '_>>,
        side: Option<PyReadonlyArray1<'_, f32>>,
    ) -> PyResult<()> {
        let codes = self::codes(codes, "codes")?;
        let ids = ids.map(|array| self::ids(array, "ids")).transpose()?.map(|ids| ids.as_array().to_vec());
        let side = side.map(|side| side.as_array().to_vec());
        let codes = codes.as_array();
        self.change(py, |index| index.add_codes(codes, ids.as_deref(), side.as_deref()))
    }

    /// ‖x‖² / ⟨x, x̄⟩ of each row, (n,) f32.
    #[pyo3(signature = (x, codes, n_jobs=None))]
    fn scales<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
        let (x, codes) = (rows.view(), codes.as_array());
        let scales = |index: &Guard<'_>, _: &dyn Monitor| index.model().scales(&*x, codes);
        Ok(run_holding(py, n_jobs, None, || self.read(), scales)?.into_pyarray(py))
    }

    /// ‖x − x̄‖ of each row, rounded up, (n,) f32.
    #[pyo3(signature = (x, codes, n_jobs=None))]
    fn residuals<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
        let (x, codes) = (rows.view(), codes.as_array());
        let residuals = |index: &Guard<'_>, _: &dyn Monitor| index.model().residuals(&*x, codes);
        Ok(run_holding(py, n_jobs, None, || self.read(), residuals)?.into_pyarray(py))
    }

    /// How many vectors there were with these ids.
    fn remove(&self, py: Python<'_>, ids: Any<'_, '_>) -> PyResult<usize> {
        let ids = self::ids(ids, "ids")?.as_array().to_vec();
        self.change(py, |index| index.remove(&ids))
    }

    fn merge(&self, py: Python<'_>, other: PyRef<'_, Index>) -> PyResult<()> {
        // By way of a copy: two locks held at once could wait for each other.
        let other = other.look(py, compcodes::Index::clone)?;
        self.change(py, |index| index.merge(&other))
    }

    /// (scores, ids) of the k best for each query; with `vectors`, by exact scores of the `n_candidates` best by code.
    #[pyo3(signature = (queries, k, vectors=None, n_candidates=0, filter=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Option<Any<'_, 'py>>,
        n_candidates: usize,
        filter: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Found<'py>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let allowed = filter.map(Filter::detach).transpose()?;
        let rows = vectors.map(|vectors| Rows::new(vectors, "rerank")).transpose()?;
        let vectors = rows.as_ref().map(Rows::view);
        let search = |index: &compcodes::Index, monitor: &dyn Monitor| -> Result<Hits> {
            let allowed = allowed.as_ref().map(|allowed| allowed.words(index)).transpose()?;
            match &vectors {
                None => index.search(queries, k, allowed.as_deref(), monitor),
                Some(vectors) => {
                    index.search_rerank(queries, k, (&**vectors, n_candidates), allowed.as_deref(), monitor)
                }
            }
        };
        let brief = |index: &compcodes::Index| {
            let (books, words, dim) = index.model().codebooks.view().dim();
            let work = books.saturating_mul(index.len() + words * dim).saturating_mul(queries.nrows());
            progress.is_none()
                && vectors.is_none()
                && work < if n_jobs == Some(1) { 4 * BRIEF } else { BRIEF }
        };
        // Where a change is under way there is nothing brief about it.
        if let Ok(index) = self.index.try_read()
            && brief(&index)
        {
            let index = &*index;
            return Ok(found(py, here(py, || search(index, &()))?.map_err(to_python)?));
        }
        let search = |index: &Guard<'_>, monitor: &dyn Monitor| search(index, monitor);
        Ok(found(py, run_holding(py, n_jobs, progress, || self.read(), search)?))
    }

    /// (scores, ids, certified): like `search`, and (nq,) bool says whose results are proven exact.
    #[pyo3(signature = (queries, k, vectors, n_candidates, filter=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn search_certified<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Any<'_, 'py>,
        n_candidates: usize,
        filter: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>, Bound<'py, PyArray1<bool>>)> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let allowed = filter.map(Filter::detach).transpose()?;
        let rows = Rows::new(vectors, "rerank")?;
        let vectors = rows.view();
        let search = |index: &Guard<'_>, monitor: &dyn Monitor| {
            let allowed = allowed.as_ref().map(|allowed| allowed.words(index)).transpose()?;
            index.search_certified(queries, k, (&*vectors, n_candidates), allowed.as_deref(), monitor)
        };
        let (hits, certified) = run_holding(py, n_jobs, progress, || self.read(), search)?;
        let (scores, ids) = found(py, hits);
        Ok((scores, ids, certified.into_pyarray(py)))
    }

    /// The approximations of the vectors with these ids, (n, d) f32.
    fn reconstruct<'py>(&self, py: Python<'py>, ids: Any<'_, 'py>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let ids = self::ids(ids, "ids")?.as_array().to_vec();
        let vectors = self.look(py, |index| index.reconstruct(&ids))?.map_err(to_python)?;
        Ok(vectors.into_pyarray(py))
    }
}
