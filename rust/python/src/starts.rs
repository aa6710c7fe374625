//! Initial codebooks for training: by k-means, or from random vectors.

use crate::arrays::{Rows, directions, owned_weights};
use crate::encoders::selection;
use crate::errors::to_python;
use crate::run::run;
use compcodes::train::{self, init, kmeans};
use compcodes::vectors::Vectors;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The rows that initial codebooks are computed from, (r,) i64, in order.
#[pyfunction]
pub(crate) fn sample_rows<'py>(
    py: Python<'py>,
    n: usize,
    dim: usize,
    weights: Option<Any<'_, 'py>>,
    n_codewords: usize,
    seed: u64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let weights = owned_weights(weights)?;
    let rows = init::sample_rows(n, dim, weights.as_deref(), n_codewords, seed);
    Ok(rows.into_iter().map(|row| row as i64).collect::<Vec<_>>().into_pyarray(py))
}

/// Whether noise may do more harm than good in training n vectors: they are trained on without it too.
#[pyfunction]
pub(crate) fn doubtful(n: usize, dim: usize, n_codebooks: usize, n_codewords: usize) -> bool {
    train::noiseless::doubtful(n, dim, n_codebooks, n_codewords)
}

/// Whether training without noise is better for n vectors, by the losses of codes chosen anew.
#[pyfunction]
pub(crate) fn noiseless_wins(n: usize, n_codewords: usize, without: f64, with_noise: f64) -> bool {
    train::noiseless::wins(n, n_codewords, without, with_noise)
}

/// A start in halves, if it pays for n vectors: the iterations with noise that it saves, which either half has instead,
/// the number without noise, and the pass that the second half's residuals are encoded in.
#[pyfunction]
pub(crate) fn halves(
    n: usize,
    n_codebooks: usize,
    n_codewords: usize,
    anneal: usize,
) -> Option<(usize, usize, u64)> {
    let started = (train::halves::iterations(anneal), train::halves::ITERATIONS, train::halves::PASS);
    train::halves::pay(n, n_codebooks, n_codewords).then_some(started)
}

/// Rows (r,) i64 and weights (r,) f64 of the sample that a start in halves is trained on.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple in Python")]
pub(crate) fn halves_sample<'py>(
    py: Python<'py>,
    n: usize,
    dim: usize,
    weights: Option<Any<'_, 'py>>,
    n_codewords: usize,
    seed: u64,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Option<Bound<'py, PyArray1<f64>>>)> {
    let weights = owned_weights(weights)?;
    let drawn = py.detach(|| train::halves::sample(n, dim, weights.as_deref(), n_codewords, seed));
    let (rows, weights) = drawn.map_err(to_python)?;
    let rows: Vec<i64> = rows.into_iter().map(|row| row as i64).collect();
    Ok((rows.into_pyarray(py), weights.map(|weights| weights.into_pyarray(py))))
}

/// Codebooks (M, K, d) f32 by residual k-means.
#[pyfunction]
#[pyo3(signature = (x, n_codebooks, n_codewords, selection="group", seed=0, n_jobs=None, progress=None, directions=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn residual_kmeans<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    n_codebooks: usize,
    n_codewords: usize,
    selection: &str,
    seed: u64,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
    directions: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let (rows, selection) = (Rows::new(x, "X")?, self::selection(selection)?);
    let (x, directions) = (rows.view(), self::directions(directions)?);
    let books = run(py, n_jobs, progress, |monitor| {
        let start =
            |x: &dyn Vectors| init::residual_kmeans(x, n_codebooks, n_codewords, selection, seed, monitor);
        init::along(&*x, directions.as_ref(), start)
    })?;
    Ok(books.into_inner().into_pyarray(py))
}

/// Codebooks (M, K, d) f32 of random vectors.
#[pyfunction]
#[pyo3(signature = (x, n_codebooks, n_codewords, selection="group", seed=0))]
pub(crate) fn random_vectors<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    n_codebooks: usize,
    n_codewords: usize,
    selection: &str,
    seed: u64,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let (rows, selection) = (Rows::new(x, "X")?, self::selection(selection)?);
    let x = rows.view();
    let books = py.detach(|| init::random_vectors(&*x, n_codebooks, n_codewords, selection, seed));
    Ok(books.map_err(to_python)?.into_inner().into_pyarray(py))
}

/// (centroids, history): K means (K, d) f32, and the mean squared distance after each iteration.
#[pyfunction]
#[pyo3(name = "kmeans", signature = (x, n_codewords, max_iter, seed=0, n_jobs=None, progress=None))]
pub(crate) fn lloyd<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    n_codewords: usize,
    max_iter: usize,
    seed: u64,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<(Bound<'py, PyArray2<f32>>, Vec<f64>)> {
    let rows = Rows::new(x, "X")?;
    let x = rows.view();
    let clusters =
        run(py, n_jobs, progress, |monitor| kmeans::kmeans(&*x, n_codewords, max_iter, seed, monitor))?;
    Ok((clusters.centroids.into_pyarray(py), clusters.history))
}
