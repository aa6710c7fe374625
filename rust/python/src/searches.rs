//! Searches that need no index.

use crate::arrays::{Rows, codes};
use crate::errors::to_python;
use crate::run::run;
use compcodes::search::{exact, hamming};
use numpy::{IntoPyArray, PyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
/// Scores (nq, k) f32 and rows (nq, k) i64.
type Best<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>);

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
) -> PyResult<Best<'py>> {
    let metric = metric.parse().map_err(to_python)?;
    let (x, queries) = (Rows::new(x, "X")?, Rows::new(queries, "Q")?);
    let (x, queries) = (x.view(), queries.view());
    let hits = run(py, n_jobs, progress, |monitor| exact::search(&*x, &*queries, k, metric, monitor))?;
    Ok((hits.scores.into_pyarray(py), hits.positions.into_pyarray(py)))
}

/// (scores, positions) of the k bit strings nearest to each query; a score is minus the number of bits that differ.
#[pyfunction]
#[pyo3(signature = (codes, queries, k, n_jobs=None, progress=None))]
pub(crate) fn hamming_search<'py>(
    py: Python<'py>,
    codes: Any<'_, 'py>,
    queries: Any<'_, 'py>,
    k: usize,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<Best<'py>> {
    let (codes, queries) = (self::codes(codes, "codes")?, self::codes(queries, "queries")?);
    let (codes, queries) = (codes.as_array(), queries.as_array());
    let hits = run(py, n_jobs, progress, |monitor| hamming::search(codes, queries, k, monitor))?;
    Ok((hits.scores.into_pyarray(py), hits.positions.into_pyarray(py)))
}
