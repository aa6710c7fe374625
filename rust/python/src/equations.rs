//! The normal equations of the codebook update.

use crate::arrays::{Rows, codes, directions, in_a_row, weights_of};
use crate::errors::wrong_value;
use crate::run::run;
use compcodes::train::equations::NormalEquations;
use compcodes::train::{applied, coded};
use compcodes::vectors::Vectors;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;

/// (A, b): B Bᵀ (M·K, M·K) and (X Bᵀ)ᵀ (M·K, d), f64.
#[pyfunction]
#[pyo3(signature = (x, codes, n_codewords, sample_weight=None, n_jobs=None))]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub(crate) fn normal_equations<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    sample_weight: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>)> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let weights = weights_of(sample_weight)?;
    let (x, codes, weights) = (rows.view(), codes.as_array(), in_a_row(&weights));
    let equations = run(py, n_jobs, None, |monitor| {
        NormalEquations::assemble(&*x, codes, n_codewords, weights.as_deref(), monitor)
    })?;
    Ok((equations.a.into_pyarray(py), equations.b.into_pyarray(py)))
}

/// The diagonal of A and b, (M·K,) and (M·K, d) f64; for K codewords if they are `shared`.
#[pyfunction]
#[pyo3(signature = (x, codes, n_codewords, shared=false, sample_weight=None, n_jobs=None, directions=None))]
#[expect(clippy::type_complexity, reason = "two arrays")]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn sides<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    shared: bool,
    sample_weight: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
    directions: Option<Any<'_, 'py>>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>)> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (weights, directions) = (weights_of(sample_weight)?, self::directions(directions)?);
    let (x, codes, weights) = (rows.view(), codes.as_array(), in_a_row(&weights));
    let (diagonal, b) = run(py, n_jobs, None, |monitor| {
        let stretched = directions.as_ref().map(|directions| directions.stretched(&*x)).transpose()?;
        let x = stretched.as_ref().map_or(&*x as &dyn Vectors, |stretched| stretched);
        applied::sides(x, codes, n_codewords, weights.as_deref(), shared, monitor)
    })?;
    Ok((diagonal.into_pyarray(py), b.into_pyarray(py)))
}

/// Σ w b (p̄ + `extra` u⟨u, p̄⟩)ᵀ for `p` (M·K, d) f64, or (K, d) for a shared codebook.
#[pyfunction]
#[pyo3(signature = (x, codes, n_codewords, p, extra, sample_weight=None, n_jobs=None, directions=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn apply<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    p: PyReadonlyArray2<'py, f64>,
    extra: f64,
    sample_weight: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
    directions: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (weights, directions) = (weights_of(sample_weight)?, self::directions(directions)?);
    let (x, codes, p) = (rows.view(), codes.as_array(), p.as_array());
    let weights = in_a_row(&weights);
    let image = run(py, n_jobs, None, |monitor| {
        let stretched = directions.as_ref().map(|directions| directions.stretched(&*x)).transpose()?;
        let x = stretched.as_ref().map_or(&*x as &dyn Vectors, |stretched| stretched);
        applied::apply(x, codes, n_codewords, weights.as_deref(), extra, p, monitor)
    })?;
    Ok(image.into_pyarray(py))
}

/// A P, (p, d) f64, for `a` (p, p) f32 and `p` (p, d) f64, computed in float32.
#[pyfunction]
#[pyo3(signature = (a, p, n_jobs=None))]
pub(crate) fn multiply<'py>(
    py: Python<'py>,
    a: PyReadonlyArray2<'py, f32>,
    p: PyReadonlyArray2<'py, f64>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (a, p) = (a.as_array(), p.as_array());
    if a.ncols() != p.nrows() {
        let (a, p) = (a.dim(), p.dim());
        return Err(wrong_value("a", format!("has shape {a:?} and p {p:?}: they cannot be multiplied")));
    }
    Ok(run(py, n_jobs, None, |_| Ok(compcodes::train::multiply(a, p)))?.into_pyarray(py))
}

/// For each codeword, the sum of the vectors that use it, (M·K, d) f64.
#[pyfunction]
#[pyo3(signature = (x, codes, n_codewords, n_jobs=None))]
pub(crate) fn sums<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (x, codes) = (rows.view(), codes.as_array());
    Ok(run(py, n_jobs, None, |monitor| coded::sums(&*x, codes, n_codewords, monitor))?.into_pyarray(py))
}
