//! Models, indexes and searches.

use crate::arrays::{Rows, codebooks, codes, ids, queries};
use crate::errors::to_python;
use crate::run::{run, run_holding};
use compcodes::monitor::Monitor;
use compcodes::scan::Hits;
use compcodes::{Codebooks, Result, exact, rerank};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
/// Scores (nq, k) f32 and ids or positions (nq, k) i64.
type Found<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>);
/// Codebooks (M, K, d) f32, selection, parameters as JSON.
type Parts<'py> = (Bound<'py, PyArray3<f32>>, &'static str, String);

fn found(py: Python<'_>, hits: Hits) -> Found<'_> {
    (hits.scores.into_pyarray(py), hits.positions.into_pyarray(py))
}

/// `parameters` is a JSON object.
fn model(codebooks: Codebooks, selection: &str, parameters: &str) -> PyResult<compcodes::Model> {
    let parameters = serde_json::from_str(parameters)
        .map_err(|e| PyValueError::new_err(format!("parameters are not a JSON object: {e}")))?;
    Ok(compcodes::Model { codebooks, selection: selection.parse().map_err(to_python)?, parameters })
}

fn parts<'py>(py: Python<'py>, model: &compcodes::Model) -> Parts<'py> {
    let parameters = serde_json::Value::Object(model.parameters.clone()).to_string();
    (model.codebooks.view().to_owned().into_pyarray(py), model.selection.name(), parameters)
}

/// Writes a model to a file.
#[pyfunction]
pub(crate) fn save_model(
    py: Python<'_>,
    path: PathBuf,
    codebooks: Any<'_, '_>,
    selection: &str,
    parameters: &str,
) -> PyResult<()> {
    let model = model(self::codebooks(codebooks, "codebooks")?, selection, parameters)?;
    py.detach(|| model.save(path)).map_err(to_python)
}

/// (codebooks, selection, parameters) of the model in a file.
#[pyfunction]
pub(crate) fn load_model(py: Python<'_>, path: PathBuf) -> PyResult<Parts<'_>> {
    let model = py.detach(|| compcodes::Model::load(path)).map_err(to_python)?;
    Ok(parts(py, &model))
}

/// Scores and rows of the exact largest inner products.
#[pyfunction]
#[pyo3(signature = (x, queries, k, n_jobs=None, progress=None))]
pub(crate) fn exact_search<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    queries: Any<'_, 'py>,
    k: usize,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<Found<'py>> {
    let (x, queries) = (Rows::new(x, "X")?, Rows::new(queries, "Q")?);
    let (x, queries) = (x.view(), queries.view());
    Ok(found(py, run(py, n_jobs, progress, |monitor| exact::search(&*x, &*queries, k, monitor))?))
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

    /// Reads off the interpreter lock, since a writer may hold the index while it waits for that lock.
    fn look<T: Send>(&self, py: Python<'_>, look: impl FnOnce(&compcodes::Index) -> T + Send) -> T {
        py.detach(|| look(&self.read()))
    }
}

#[pymethods]
impl Index {
    #[new]
    fn new(codebooks: Any<'_, '_>, selection: &str, parameters: &str) -> PyResult<Self> {
        let model = model(self::codebooks(codebooks, "codebooks")?, selection, parameters)?;
        Ok(Self { index: RwLock::new(compcodes::Index::new(model)) })
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let index = py.detach(|| compcodes::Index::load(path)).map_err(to_python)?;
        Ok(Self { index: RwLock::new(index) })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.look(py, |index| index.save(path)).map_err(to_python)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.look(py, compcodes::Index::len)
    }

    /// (codebooks, selection, parameters).
    fn model<'py>(&self, py: Python<'py>) -> Parts<'py> {
        let model = self.look(py, |index| index.model().clone());
        parts(py, &model)
    }

    /// All codes, (n, M) u8.
    fn codes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<u8>> {
        self.look(py, |index| index.codes().view().unpack()).into_pyarray(py)
    }

    /// All ids, (n,) i64.
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let ids = self.look(py, |index| match index.ids() {
            Some(ids) => ids.to_vec(),
            None => (0..index.len() as i64).collect(),
        });
        ids.into_pyarray(py)
    }

    #[pyo3(signature = (codes, ids=None))]
    fn add_codes(&self, py: Python<'_>, codes: Any<'_, '_>, ids: Option<Any<'_, '_>>) -> PyResult<()> {
        let codes = self::codes(codes, "codes")?;
        let ids = ids.map(self::ids).transpose()?.map(|ids| ids.as_array().to_vec());
        let codes = codes.as_array();
        let add = || {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.add_codes(codes, ids.as_deref())
        };
        py.detach(add).map_err(to_python)
    }

    /// (scores, ids) of the k best for each query.
    #[pyo3(signature = (queries, k, n_jobs=None, progress=None))]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Found<'py>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let search = |index: &RwLockReadGuard<'_, compcodes::Index>, monitor: &dyn Monitor| {
            index.search(queries, k, monitor)
        };
        Ok(found(py, run_holding(py, n_jobs, progress, || self.read(), search)?))
    }

    /// (scores, ids) of the k best by exact inner products with `vectors`, of the `n_candidates` best by code.
    #[pyo3(signature = (queries, k, vectors, n_candidates, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search_rerank<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Any<'_, 'py>,
        n_candidates: usize,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Found<'py>> {
        let queries = self::queries(queries)?;
        let (queries, rows) = (queries.as_array(), Rows::new(vectors, "rerank")?);
        let vectors = rows.view();
        let search = |index: &RwLockReadGuard<'_, compcodes::Index>, monitor: &dyn Monitor| -> Result<Hits> {
            if vectors.n() != index.len() {
                let message =
                    format!("rerank has {} rows, the index holds {} vectors", vectors.n(), index.len());
                return Err(compcodes::Error::Invalid(message));
            }
            let candidates = index.search_positions(queries, n_candidates, monitor)?;
            let mut hits = rerank::rerank(queries, &*vectors, candidates.positions.view(), k)?;
            index.to_ids(&mut hits.positions);
            Ok(hits)
        };
        Ok(found(py, run_holding(py, n_jobs, progress, || self.read(), search)?))
    }

    /// The approximation of one vector, (d,) f32.
    fn reconstruct<'py>(&self, py: Python<'py>, id: i64) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let vector = self.look(py, |index| index.reconstruct(id)).map_err(to_python)?;
        Ok(vector.into_pyarray(py))
    }
}
