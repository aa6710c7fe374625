//! The steps of training, one function each.

use crate::arrays::{Rows, codebooks, codes, directions, numbers};
use crate::errors::to_python;
use crate::run::run;
use compcodes::encode::{Encoding, Loss, Start};
use compcodes::model::Subspaces;
use compcodes::search::hamming;
use compcodes::train::equations::{NormalEquations, Prior, Problem};
use compcodes::train::{conjugate, equations, init, kmeans};
use compcodes::vectors::Vectors;
use compcodes::{Codebooks, Selection, encode};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

pub(crate) fn selection(name: &str) -> PyResult<Selection> {
    name.parse().map_err(to_python)
}

pub(crate) fn loss(eta: f64) -> PyResult<Loss> {
    Loss::inner_product(eta).map_err(to_python)
}

/// Beams are no wider: memory and time grow with them.
const WIDEST: usize = 4096;

fn width(width: usize) -> PyResult<usize> {
    if (1..=WIDEST).contains(&width) {
        return Ok(width);
    }
    Err(PyValueError::new_err(format!("width is {width}: want 1 to {WIDEST}")))
}

pub(crate) fn encoding(
    name: &str,
    effort: usize,
    start: Option<(String, usize)>,
    seed: u64,
) -> PyResult<Encoding> {
    match name {
        "greedy" => Ok(Encoding::Greedy),
        "beam" => Ok(Encoding::Beam { width: width(effort)? }),
        "local-search" => Ok(Encoding::LocalSearch { start: self::start(start)?, rounds: effort, seed }),
        _ => Err(PyValueError::new_err(format!(
            "encoder is {name:?}: want \"greedy\", \"beam\" or \"local-search\""
        ))),
    }
}

fn start(start: Option<(String, usize)>) -> PyResult<Start> {
    match start.as_ref().map(|(name, effort)| (name.as_str(), *effort)) {
        None | Some(("greedy", _)) => Ok(Start::Greedy),
        Some(("beam", effort)) => Ok(Start::Beam { width: width(effort)? }),
        Some((name, _)) => {
            Err(PyValueError::new_err(format!("start is {name:?}: want \"greedy\" or \"beam\"")))
        }
    }
}

/// The instruction set in use: "scalar", "avx2" or "avx512".
#[pyfunction]
pub(crate) fn isa() -> PyResult<&'static str> {
    compcodes::isa::Isa::current().map(compcodes::isa::Isa::name).map_err(to_python)
}

/// The instruction sets that this machine offers, slowest first.
#[pyfunction]
pub(crate) fn isas() -> Vec<&'static str> {
    use compcodes::isa::Isa;
    Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name).collect()
}

/// Encodes with fixed codebooks.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Encoder {
    encoder: encode::Encoder,
}

#[pymethods]
impl Encoder {
    /// `encoding` is ("greedy", 0), ("beam", width) or ("local-search", rounds), whose `start` is one of the others.
    #[new]
    #[pyo3(signature = (codebooks, selection="group", eta=1.0, encoding=None, seed=0, n_jobs=None, start=None, directions=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        codebooks: Any<'_, '_>,
        selection: &str,
        eta: f64,
        encoding: Option<(String, usize)>,
        seed: u64,
        n_jobs: Option<i64>,
        start: Option<(String, usize)>,
        directions: Option<Any<'_, '_>>,
    ) -> PyResult<Self> {
        let directions = self::directions(directions)?;
        let (books, selection) = (self::codebooks(codebooks, "codebooks")?, self::selection(selection)?);
        let (name, effort) = encoding.unwrap_or(("greedy".to_owned(), 0));
        let (loss, encoding) = (loss(eta)?, self::encoding(&name, effort, start, seed)?);
        let encoder = run(py, n_jobs, None, |_| {
            let encoder = match directions {
                None => encode::Encoder::new(&books, selection),
                Some(directions) => encode::Encoder::stretched(&books, selection, directions),
            };
            Ok(encoder?.with_loss(loss).with_encoding(encoding))
        })?;
        Ok(Self { encoder })
    }

    #[pyo3(signature = (x, n_jobs=None, progress=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let rows = Rows::new(x, "X")?;
        let x = rows.view();
        let codes = run(py, n_jobs, progress, |monitor| self.encoder.encode(&*x, monitor))?;
        Ok(codes.into_pyarray(py))
    }

    /// (codes, errors before, errors after): new codes where they are better than those given.
    #[pyo3(signature = (x, codes, n_jobs=None, progress=None))]
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn improve<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<(Bound<'py, PyArray2<u8>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let rows = Rows::new(x, "X")?;
        let x = rows.view();
        let mut codes = self::codes(codes, "codes")?.as_array().as_standard_layout().into_owned();
        let improved = run(py, n_jobs, progress, |monitor| self.encoder.improve(&*x, &mut codes, monitor))?;
        Ok((codes.into_pyarray(py), improved.before.into_pyarray(py), improved.after.into_pyarray(py)))
    }
}

/// The sums of codewords, (n, d) f32.
#[pyfunction]
#[pyo3(signature = (codebooks, codes, n_jobs=None))]
pub(crate) fn decode<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let codes = self::codes(codes, "codes")?;
    let codes = codes.as_array();
    Ok(run(py, n_jobs, None, |monitor| books.decode(codes, monitor))?.into_pyarray(py))
}

/// Loss of each row, (n,) f64.
#[pyfunction]
#[pyo3(signature = (codebooks, x, codes, eta=1.0, n_jobs=None, progress=None, directions=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn errors<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    eta: f64,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
    directions: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (loss, directions) = (loss(eta)?, self::directions(directions)?);
    let books = self::codebooks(codebooks, "codebooks")?;
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (x, codes) = (rows.view(), codes.as_array());
    let errors = run(py, n_jobs, progress, |monitor| match &directions {
        None => encode::errors(&books, loss, &*x, codes, monitor),
        Some(directions) => {
            let (books, x) = (directions.stretch(&books)?, directions.stretched(&*x)?);
            encode::errors(&books, loss, &x, codes, monitor)
        }
    })?;
    Ok(errors.into_pyarray(py))
}

/// ‖x − x̄‖ of each row, rounded up, (n,) f64.
#[pyfunction]
#[pyo3(signature = (codebooks, x, codes, n_jobs=None))]
pub(crate) fn error_bounds<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (x, codes) = (rows.view(), codes.as_array());
    let bounds = run(py, n_jobs, None, |monitor| encode::error_bounds(&books, &*x, codes, monitor))?;
    Ok(bounds.into_pyarray(py))
}

/// (A, b): B Bᵀ (M·K, M·K) and (X Bᵀ)ᵀ (M·K, d), f64.
#[pyfunction]
#[pyo3(signature = (x, codes, n_codewords, sample_weight=None, n_jobs=None, progress=None))]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub(crate) fn normal_equations<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    sample_weight: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>)> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let weights = sample_weight.map(|w| numbers(w, "sample_weight")).transpose()?;
    let weights = weights.as_ref().map(|w| w.as_array().to_vec());
    let (x, codes) = (rows.view(), codes.as_array());
    let equations = run(py, n_jobs, progress, |monitor| {
        NormalEquations::assemble(&*x, codes, n_codewords, weights.as_deref(), monitor)
    })?;
    Ok((equations.a.into_pyarray(py), equations.b.into_pyarray(py)))
}

/// Codebooks (M, K, d) f32 near the previous ones that lower the inner-product loss.
#[pyfunction]
#[pyo3(signature = (x, codes, previous, eta, ridge, selection="group", sample_weight=None, n_jobs=None, progress=None, shrink=0.0, past=None, directions=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn descend<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    previous: Any<'_, 'py>,
    eta: f64,
    ridge: f64,
    selection: &str,
    sample_weight: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
    shrink: f64,
    past: Option<(PyReadonlyArray2<'py, f64>, PyReadonlyArray2<'py, f64>)>,
    directions: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (previous, loss) = (self::codebooks(previous, "previous")?, loss(eta)?);
    let shared = self::selection(selection)?.is_shared();
    let weights = sample_weight.map(|w| numbers(w, "sample_weight")).transpose()?;
    let weights = weights.as_ref().map(|w| w.as_array().to_vec());
    let past = past.map(|(a, b)| NormalEquations { a: a.as_array().to_owned(), b: b.as_array().to_owned() });
    let directions = self::directions(directions)?;
    let (x, codes) = (rows.view(), codes.as_array());
    let books = run(py, n_jobs, progress, |monitor| {
        let descend = |x: &dyn Vectors, previous: &Codebooks, past: Option<&NormalEquations>| {
            let n_codewords = previous.n_codewords();
            let problem = Problem { x, codes, weights: weights.as_deref(), n_codewords, shared };
            conjugate::descend(&problem, previous, loss, ridge, &Prior { shrink, past }, monitor)
        };
        let Some(directions) = directions else { return descend(&*x, &previous, past.as_ref()) };
        let past =
            past.map(|NormalEquations { a, b }| directions.stretch_sums(b).map(|b| NormalEquations { a, b }));
        let (x, previous) = (directions.stretched(&*x)?, directions.stretch(&previous)?);
        directions.relax(&descend(&x, &previous, past.transpose()?.as_ref())?)
    })?;
    Ok(books.into_inner().into_pyarray(py))
}

/// (codebooks, count): codewords that no code uses, placed where the largest errors are.
#[pyfunction]
#[pyo3(signature = (codebooks, x, codes, errors, selection="group"))]
pub(crate) fn reseed<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    errors: Any<'_, 'py>,
    selection: &str,
) -> PyResult<(Bound<'py, PyArray3<f32>>, usize)> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let (errors, shared) =
        (numbers(errors, "errors")?.as_array().to_vec(), self::selection(selection)?.is_shared());
    let (x, codes) = (rows.view(), codes.as_array());
    let moved = py.detach(|| compcodes::train::reseed::reseed(&books, &*x, codes, &errors, shared));
    let (books, count) = moved.map_err(to_python)?;
    Ok((books.into_inner().into_pyarray(py), count))
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
        match &directions {
            None => start(&*x),
            Some(directions) => directions.relax(&start(&directions.stretched(&*x)?)?),
        }
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

/// The sum of the vectors that use a codeword, (M·K, d) f64.
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
    Ok(run(py, n_jobs, None, |monitor| equations::sums(&*x, codes, n_codewords, monitor))?.into_pyarray(py))
}

/// Encodes with codebooks in orthogonal subspaces.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct SubspaceEncoder {
    encoder: encode::SubspaceEncoder,
}

#[pymethods]
impl SubspaceEncoder {
    /// `words` (K, d_m) f32 of each subspace, `rotation` (d, Σ d_m) f32.
    #[new]
    #[pyo3(signature = (words, rotation=None))]
    fn new(
        words: Vec<PyReadonlyArray2<'_, f32>>,
        rotation: Option<PyReadonlyArray2<'_, f32>>,
    ) -> PyResult<Self> {
        let words: Vec<_> = words.iter().map(|words| words.as_array().to_owned()).collect();
        let rotation = rotation.as_ref().map(|rotation| rotation.as_array());
        Ok(Self { encoder: encode::SubspaceEncoder::new(&words, rotation).map_err(to_python)? })
    }

    /// Of codebooks in subspaces: the dimensions of each, and a basis (d, Σ d_m) f32 of all if they are not the
    /// dimensions themselves. Encodes as a model of these does.
    #[staticmethod]
    #[pyo3(signature = (codebooks, sizes, basis=None))]
    fn of(
        codebooks: Any<'_, '_>,
        sizes: Vec<usize>,
        basis: Option<PyReadonlyArray2<'_, f32>>,
    ) -> PyResult<Self> {
        let codebooks = self::codebooks(codebooks, "codebooks")?;
        let subspaces = Subspaces::new(sizes, basis.map(|basis| basis.as_array().to_owned()));
        let encoder = subspaces.and_then(|subspaces| subspaces.encoder(&codebooks));
        Ok(Self { encoder: encoder.map_err(to_python)? })
    }

    #[pyo3(signature = (x, n_jobs=None, progress=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let rows = Rows::new(x, "X")?;
        let x = rows.view();
        let codes = run(py, n_jobs, progress, |monitor| self.encoder.encode(&*x, monitor))?;
        Ok(codes.into_pyarray(py))
    }
}

/// (scores, positions) of the k bit strings nearest to each query; a score is minus the number of bits that differ.
#[pyfunction]
#[pyo3(signature = (codes, queries, k, n_jobs=None, progress=None))]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub(crate) fn hamming_search<'py>(
    py: Python<'py>,
    codes: Any<'_, 'py>,
    queries: Any<'_, 'py>,
    k: usize,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>)> {
    let (codes, queries) = (self::codes(codes, "codes")?, self::codes(queries, "queries")?);
    let (codes, queries) = (codes.as_array(), queries.as_array());
    let hits = run(py, n_jobs, progress, |monitor| hamming::search(codes, queries, k, monitor))?;
    Ok((hits.scores.into_pyarray(py), hits.positions.into_pyarray(py)))
}
