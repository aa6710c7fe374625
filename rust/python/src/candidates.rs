//! Candidates of a search that are still to be scored exactly.

use crate::arrays::{Rows, queries};
use crate::names::{Certified, Found, Names};
use crate::run::run;
use compcodes::monitor::Monitor;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Vectors that are still to be scored exactly.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Candidates {
    pub(crate) candidates: compcodes::index::Candidates,
    /// The keys of their ids, if vectors have keys.
    pub(crate) keys: Option<Vec<String>>,
}

#[pymethods]
impl Candidates {
    /// The ids of all candidates, (m,) i64, or a list of their keys.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.keys {
            Some(keys) => Ok(PyList::new(py, keys)?.into_any()),
            None => Ok(PyArray1::from_slice(py, self.candidates.ids()).into_any()),
        }
    }

    /// (scores, ids, certified) for the k best; `vectors` are those of the ids, or those of `row_ids` in any order.
    #[pyo3(signature = (queries, k, vectors, row_ids=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn rerank<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Any<'_, 'py>,
        row_ids: Option<Any<'_, 'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Certified<'py>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let rows = Rows::new(vectors, "rerank")?;
        let vectors = rows.view();
        let names = row_ids.map(|array| Names::new(array, "rerank_ids")).transpose()?;
        let rerank = |monitor: &dyn Monitor| {
            let hits = match &names {
                None => self.candidates.rerank(queries, &*vectors, k, monitor),
                Some(names) => {
                    let ids = names.among(self.candidates.ids(), &self.keys)?;
                    self.candidates.rerank_by_id(queries, (&*vectors, &ids), k, monitor)
                }
            }?;
            let certified = self.candidates.certified(&hits);
            Ok((Found::of(self.candidates.ids(), &self.keys, hits), certified))
        };
        let (found, certified) = run(py, n_jobs, progress, rerank)?;
        let (scores, ids) = found.into_python(py)?;
        Ok((scores, ids, certified.into_pyarray(py)))
    }
}
