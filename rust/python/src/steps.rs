//! The steps of training, one function each.

use crate::arrays::{Rows, codebooks, codes, directions, in_a_row, numbers, owned_weights, weights_of};
use crate::encoders::{encoding, objective, selection};
use crate::errors::to_python;
use crate::lists::Lists;
use crate::run::run;
use crate::targets::Wanted;
use compcodes::encode;
use compcodes::train::moments::{self, Moments};
use compcodes::train::reseed as seeding;
use compcodes::train::{Init, Training, anneal, weights};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

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

/// Rejects invalid codebooks, and those that a selection cannot choose from.
#[pyfunction]
pub(crate) fn check_codebooks(codebooks: Any<'_, '_>, selection: &str) -> PyResult<()> {
    let selection = selection.parse().map_err(to_python)?;
    self::codebooks(codebooks, "codebooks")?.check_selection(selection).map_err(to_python)
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
    // NumPy's own memory: it keeps some for results to come, and takes large pages for large ones.
    let sums = PyArray2::zeros(py, [codes.nrows(), books.dim()], false);
    let mut out = sums.readwrite();
    let out = out.as_array_mut();
    run(py, n_jobs, None, |monitor| books.add_decoded(codes, out, monitor))?;
    Ok(sums)
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
    let (objective, books) = (objective(eta, directions)?, self::codebooks(codebooks, "codebooks")?);
    let (wanted, codes) = (Wanted::new(x)?, self::codes(codes, "codes")?);
    let (views, codes) = (wanted.views(), codes.as_array());
    let errors = run(py, n_jobs, progress, |monitor| {
        views.with(|&target| objective.errors(&books, target, codes, monitor))
    })?;
    Ok(errors.into_pyarray(py))
}

/// ‖x − x̄‖ for each row, rounded up, (n,) f64.
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
    let (wanted, codes) = (Wanted::new(x)?, self::codes(codes, "codes")?);
    let (views, codes) = (wanted.views(), codes.as_array());
    let bounds = run(py, n_jobs, None, |monitor| {
        views.with(|target| encode::error_bounds(&books, *target, codes, monitor))
    })?;
    Ok(bounds.into_pyarray(py))
}

/// L c, or L⁻¹ c, for each codeword of codebooks (M, K, d) f32.
#[pyfunction]
#[pyo3(signature = (codebooks, directions, back=false))]
pub(crate) fn stretch<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    directions: Any<'_, 'py>,
    back: bool,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let moved = match self::directions(Some(directions))? {
        None => Ok(books),
        Some(directions) if back => directions.relax(&books),
        Some(directions) => directions.stretch(&books),
    };
    Ok(moved.map_err(to_python)?.into_inner().into_pyarray(py))
}

/// x · `basis` (d, w) f32 for each row of `x` (n, d), (n, w) f32.
#[pyfunction]
#[pyo3(signature = (x, basis, n_jobs=None))]
pub(crate) fn rotated<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    basis: PyReadonlyArray2<'py, f32>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let (rows, basis) = (Rows::new(x, "X")?, basis.as_array().to_owned());
    let x = rows.view();
    let rotated = run(py, n_jobs, None, |monitor| encode::rotated(&*x, basis.view(), monitor))?;
    Ok(rotated.into_pyarray(py))
}

/// How many rows that have any weight use each codeword, (M·K,) u64; for one shared codebook, (K,).
#[pyfunction]
#[pyo3(signature = (codes, n_codewords, selection, weights=None))]
pub(crate) fn uses<'py>(
    py: Python<'py>,
    codes: Any<'_, 'py>,
    n_codewords: usize,
    selection: &str,
    weights: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (codes, shared) = (self::codes(codes, "codes")?, self::selection(selection)?.is_shared());
    let weights = owned_weights(weights)?;
    let codes = codes.as_array();
    let uses = py.detach(|| seeding::uses(codes, weights.as_deref(), n_codewords, shared));
    Ok(uses.map_err(to_python)?.into_pyarray(py))
}

/// (errors, vectors, codes) of the `count` rows with the largest errors.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "three arrays")]
pub(crate) fn worst<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    errors: Any<'_, 'py>,
    count: usize,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<u8>>)> {
    let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
    let errors = numbers(errors, "errors")?.as_array().to_vec();
    let (x, codes) = (rows.view(), codes.as_array());
    let worst = py.detach(|| seeding::worst(&*x, codes, &errors, count)).map_err(to_python)?;
    Ok((worst.errors.into_pyarray(py), worst.vectors.into_pyarray(py), worst.codes.into_pyarray(py)))
}

/// Codebooks (M, K, d) f32 whose codewords without `uses` are moved to where they make the worst `vectors` (r, d)
/// exact.
#[pyfunction]
#[pyo3(signature = (codebooks, uses, vectors, codes, selection="group"))]
pub(crate) fn reseed<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    uses: PyReadonlyArray1<'py, u64>,
    vectors: PyReadonlyArray2<'py, f32>,
    codes: Any<'_, 'py>,
    selection: &str,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let shared = self::selection(selection)?.is_shared();
    let codes = self::codes(codes, "codes")?.as_array().to_owned();
    let worst = seeding::Worst { errors: Vec::new(), vectors: vectors.as_array().to_owned(), codes };
    let moved = seeding::reseed(&books, &uses.as_array().to_vec(), &worst, shared);
    Ok(moved.map_err(to_python)?.into_inner().into_pyarray(py))
}

/// Mean and spread of vectors, as sums that shards can merge.
#[pyclass(module = "compcodes._core", name = "Moments")]
pub(crate) struct PyMoments {
    moments: Moments,
}

#[pymethods]
impl PyMoments {
    #[new]
    #[pyo3(signature = (x, sample_weight=None, directions=None, n_jobs=None))]
    fn new(
        py: Python<'_>,
        x: Any<'_, '_>,
        sample_weight: Option<Any<'_, '_>>,
        directions: Option<Any<'_, '_>>,
        n_jobs: Option<i64>,
    ) -> PyResult<Self> {
        let (rows, weights) = (Rows::new(x, "X")?, weights_of(sample_weight)?);
        let (x, directions) = (rows.view(), self::directions(directions)?);
        let weights = in_a_row(&weights);
        let moments = run(py, n_jobs, None, |monitor| {
            Moments::of(&*x, weights.as_deref(), directions.as_ref(), monitor)
        })?;
        Ok(Self { moments })
    }

    fn merge(&mut self, other: PyRef<'_, Self>) {
        self.moments.merge(&other.moments);
    }

    #[getter]
    fn weight(&self) -> f64 {
        self.moments.weight
    }

    #[getter]
    fn mean_weight(&self) -> f64 {
        self.moments.mean_weight()
    }

    #[getter]
    fn deviation<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.moments.deviation().into_pyarray(py)
    }

    #[getter]
    fn variance(&self) -> f64 {
        self.moments.variance()
    }
}

/// The rows, out of `n`, that mean and spread are computed from, (r,) i64, in order.
#[pyfunction]
pub(crate) fn moment_rows<'py>(
    py: Python<'py>,
    n: usize,
    weights: Option<Any<'_, 'py>>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let weights = owned_weights(weights)?;
    let rows = moments::rows(n, weights.as_deref());
    Ok(rows.into_iter().map(|row| row as i64).collect::<Vec<_>>().into_pyarray(py))
}

/// Weight of the pull of codewords to the mean of their codebook, in the unit of the diagonal of A.
#[pyfunction]
pub(crate) fn pull(
    shrinkage: f64,
    n_codebooks: usize,
    objective: f64,
    variance: f64,
    mean_weight: f64,
) -> f64 {
    moments::pull(shrinkage, n_codebooks, objective, variance, mean_weight)
}

/// The seed of one pass over the vectors.
#[pyfunction]
pub(crate) fn pass_seed(seed: u64, pass_number: u64) -> u64 {
    anneal::pass_seed(seed, pass_number)
}

/// Codebooks with the noise of one iteration, which decreases to none in the last.
#[pyfunction]
#[pyo3(signature = (codebooks, deviation, selection, seed, iteration, iterations))]
pub(crate) fn perturbed<'py>(
    py: Python<'py>,
    codebooks: Any<'_, 'py>,
    deviation: Any<'_, 'py>,
    selection: &str,
    seed: u64,
    iteration: usize,
    iterations: usize,
) -> PyResult<Bound<'py, PyArray3<f32>>> {
    let books = self::codebooks(codebooks, "codebooks")?;
    let shared = self::selection(selection)?.is_shared();
    let deviation = numbers(deviation, "deviation")?.as_array().to_vec();
    let noisy = py.detach(|| anneal::perturbed(&books, &deviation, shared, seed, iteration, iterations));
    Ok(noisy.map_err(to_python)?.into_inner().into_pyarray(py))
}

/// ‖x‖ for each row, stretched along `directions`, (n,) f64.
#[pyfunction]
#[pyo3(signature = (x, directions=None, n_jobs=None))]
pub(crate) fn norms<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    directions: Option<Any<'_, 'py>>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (rows, directions) = (Rows::new(x, "X")?, self::directions(directions)?);
    let x = rows.view();
    let norms = run(py, n_jobs, None, |monitor| weights::norms(&*x, directions.as_ref(), monitor))?;
    Ok(norms.into_pyarray(py))
}

/// `norms` (n,) f64 to the power `power`, 1 on average; None if that is 1 for every row.
#[pyfunction]
pub(crate) fn weights_by_norm<'py>(
    py: Python<'py>,
    norms: Any<'_, 'py>,
    power: f64,
) -> PyResult<Option<Bound<'py, PyArray1<f64>>>> {
    let norms = numbers(norms, "norms")?.as_array().to_vec();
    Ok(weights::by_norm(&norms, power).map(|weights| weights.into_pyarray(py)))
}

/// Rows (r,) and weights (r,) of the part that an iteration with noise trains on; `None` if it consists of all vectors.
#[pyfunction]
#[pyo3(signature = (n, weights, n_codewords, seed, iteration))]
#[expect(clippy::type_complexity, reason = "a tuple in Python")]
pub(crate) fn part<'py>(
    py: Python<'py>,
    n: usize,
    weights: Option<Any<'_, 'py>>,
    n_codewords: usize,
    seed: u64,
    iteration: usize,
) -> PyResult<Option<(Bound<'py, PyArray1<i64>>, Option<Bound<'py, PyArray1<f64>>>)>> {
    let weights = owned_weights(weights)?;
    let drawn = py
        .detach(|| compcodes::train::parts::drawn(n, weights.as_deref(), n_codewords, seed, iteration))
        .map_err(to_python)?;
    Ok(drawn.map(|(rows, weights)| {
        let rows: Vec<i64> = rows.into_iter().map(|row| row as i64).collect();
        (rows.into_pyarray(py), weights.map(|weights| weights.into_pyarray(py)))
    }))
}

/// (codebooks, codes, history): the training loop of the Rust crate; a test checks Python's loop against it.
#[pyfunction]
#[pyo3(signature = (x, n_codebooks, n_codewords, selection="group", *, init=None, encoding=None, eta=1.0, directions=None, weight_power=0.0, anneal=None, max_iter=None, tol=None, ridge=None, shrinkage=None, seed=0, n_jobs=None, progress=None, lists=None))]
#[expect(clippy::too_many_arguments, clippy::type_complexity, reason = "keywords in Python")]
pub(crate) fn train<'py>(
    py: Python<'py>,
    x: Any<'_, 'py>,
    n_codebooks: usize,
    n_codewords: usize,
    selection: &str,
    init: Option<Any<'_, 'py>>,
    encoding: Option<(String, usize)>,
    eta: f64,
    directions: Option<Any<'_, 'py>>,
    weight_power: f64,
    anneal: Option<usize>,
    max_iter: Option<usize>,
    tol: Option<f64>,
    ridge: Option<f64>,
    shrinkage: Option<f64>,
    seed: u64,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
    lists: Option<Bound<'py, Lists>>,
) -> PyResult<(Bound<'py, PyArray3<f32>>, Bound<'py, PyArray2<u8>>, Vec<f64>)> {
    let rows = Rows::new(x, "X")?;
    let x = rows.view();
    let default = Training::default();
    let training = Training {
        n_codebooks,
        n_codewords,
        selection: self::selection(selection)?,
        init: match init {
            None => Init::Residual,
            Some(name) if name.extract::<&str>().is_ok_and(|name| name == "random") => Init::Random,
            Some(codebooks) => Init::Codebooks(self::codebooks(codebooks, "init")?),
        },
        encoding: match encoding {
            None => default.encoding,
            Some((name, effort)) => self::encoding(&name, effort, None, 0)?,
        },
        objective: objective(eta, directions)?,
        weight_power,
        anneal: anneal.unwrap_or(default.anneal),
        noiseless: anneal.is_none(),
        max_iter: max_iter.or(default.max_iter),
        tolerance: tol.unwrap_or(default.tolerance),
        ridge: ridge.unwrap_or(default.ridge),
        shrinkage: shrinkage.unwrap_or(default.shrinkage),
        seed,
    };
    let centroids = lists.as_ref().map(|lists| &lists.get().centroids);
    let trained = run(py, n_jobs, progress, |monitor| match centroids {
        None => compcodes::train::train(&*x, &training, monitor),
        Some(centroids) => {
            compcodes::train::train_in_lists(&*x, centroids, &training, monitor).map(|(trained, _)| trained)
        }
    })?;
    Ok((trained.codebooks.into_inner().into_pyarray(py), trained.codes.into_pyarray(py), trained.history))
}
