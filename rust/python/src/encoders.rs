//! The encoders: built from codebooks, and used pass after pass.

use crate::arrays::{codebooks, codes, directions};
use crate::errors::{to_python, wrong_value};
use crate::run::run;
use crate::targets::Wanted;
use compcodes::Selection;
use compcodes::encode::{self, Encode, Encoding, Loss, Objective, Start};
use compcodes::model::{Grouping, Subspaces};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

pub(crate) fn selection(name: &str) -> PyResult<Selection> {
    name.parse().map_err(to_python)
}

/// The limit on the width of beams: memory and time grow with it.
const WIDEST: usize = 4096;

fn width(width: usize) -> PyResult<usize> {
    if (1..=WIDEST).contains(&width) {
        return Ok(width);
    }
    Err(wrong_value("width", format!("is {width}: want 1 to {WIDEST}")))
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
        _ => {
            Err(wrong_value("encoder", format!("is {name:?}: want \"greedy\", \"beam\" or \"local-search\"")))
        }
    }
}

fn start(start: Option<(String, usize)>) -> PyResult<Start> {
    match start.as_ref().map(|(name, effort)| (name.as_str(), *effort)) {
        None | Some(("greedy", _)) => Ok(Start::Greedy),
        Some(("beam", effort)) => Ok(Start::Beam { width: width(effort)? }),
        Some((name, _)) => Err(wrong_value("start", format!("is {name:?}: want \"greedy\" or \"beam\""))),
    }
}

pub(crate) fn objective(eta: f64, directions: Option<Any<'_, '_>>) -> PyResult<Objective> {
    let loss = Loss::inner_product(eta).map_err(to_python)?;
    Ok(Objective { loss, directions: self::directions(directions)? })
}

/// Codebooks and dimensions of each group, the basis (d, Σ d_g) f32, and how many codebooks come before the groups.
pub(crate) type Grouped<Basis> = (Vec<usize>, Vec<usize>, Basis, usize);
pub(crate) type Groups<'py> = Grouped<PyReadonlyArray2<'py, f32>>;

pub(crate) fn grouping((members, sizes, basis, trunk): Groups<'_>) -> PyResult<Grouping> {
    let grouping = Grouping::new(members, sizes, basis.as_array().to_owned());
    grouping.and_then(|grouping| grouping.with_trunk(trunk)).map_err(to_python)
}

/// Encodes with fixed codebooks.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Encoder {
    encoder: Box<dyn Encode>,
}

#[pymethods]
impl Encoder {
    /// `encoding` is ("greedy", 0), ("beam", width) or ("local-search", rounds), whose `start` is one of the other two.
    #[new]
    #[pyo3(signature = (codebooks, selection="group", eta=1.0, encoding=None, seed=0, n_jobs=None, start=None, directions=None, groups=None))]
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
        groups: Option<Groups<'_>>,
    ) -> PyResult<Self> {
        let objective = objective(eta, directions)?;
        let (books, selection) = (self::codebooks(codebooks, "codebooks")?, self::selection(selection)?);
        let (name, effort) = encoding.unwrap_or(("greedy".to_owned(), 0));
        let encoding = self::encoding(&name, effort, start, seed)?;
        let groups = groups.map(grouping).transpose()?;
        let encoder = run(py, n_jobs, None, |_| match groups {
            None => encode::encoder(&books, selection, &objective, encoding),
            Some(groups) => Ok(Box::new(groups.encoder(&books, &objective, encoding)?) as Box<dyn Encode>),
        })?;
        Ok(Self { encoder })
    }

    /// The encoder of the trunk of a model of `n_codebooks` in groups, as the first sweep of encoding has it.
    #[staticmethod]
    #[pyo3(signature = (codebooks, n_codebooks, eta, encoding, n_jobs=None, directions=None))]
    fn of_trunk(
        py: Python<'_>,
        codebooks: Any<'_, '_>,
        n_codebooks: usize,
        eta: f64,
        encoding: (String, usize),
        n_jobs: Option<i64>,
        directions: Option<Any<'_, '_>>,
    ) -> PyResult<Self> {
        let objective = objective(eta, directions)?;
        let books = self::codebooks(codebooks, "codebooks")?;
        let encoding = self::encoding(&encoding.0, encoding.1, None, 0)?;
        let encoder =
            run(py, n_jobs, None, |_| encode::trunk_encoder(&books, n_codebooks, &objective, encoding))?;
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
        let wanted = Wanted::new(x)?;
        let views = wanted.views();
        let codes = run(py, n_jobs, progress, |monitor| {
            views.with(|target| self.encoder.encode_target(target, monitor))
        })?;
        Ok(codes.into_pyarray(py))
    }

    /// (codes, errors before, errors after): new codes where they are better than the given ones.
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
        improve(&*self.encoder, py, x, codes, n_jobs, progress)
    }
}

#[expect(clippy::type_complexity, reason = "three arrays")]
fn improve<'py>(
    encoder: &dyn Encode,
    py: Python<'py>,
    x: Any<'_, 'py>,
    codes: Any<'_, 'py>,
    n_jobs: Option<i64>,
    progress: Callback<'_, 'py>,
) -> PyResult<(Bound<'py, PyArray2<u8>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
    let wanted = Wanted::new(x)?;
    let views = wanted.views();
    let mut codes = self::codes(codes, "codes")?.as_array().as_standard_layout().into_owned();
    let improved = run(py, n_jobs, progress, |monitor| {
        views.with(|target| encoder.improve_target(target, &mut codes, monitor))
    })?;
    Ok((codes.into_pyarray(py), improved.before.into_pyarray(py), improved.after.into_pyarray(py)))
}

/// Encodes with codebooks in orthogonal subspaces.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct SubspaceEncoder {
    encoder: encode::SubspaceEncoder,
}

#[pymethods]
impl SubspaceEncoder {
    /// `words` (K, d_m) f32 for each subspace, `rotation` (d, Σ d_m) f32.
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

    /// Builds the encoder from codebooks in subspaces: `sizes` are the dimensions of each; a basis (d, Σ d_m) f32 spans
    /// them all, unless they consist of the dimensions themselves. Encodes exactly like a model of these codebooks.
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
        let wanted = Wanted::new(x)?;
        let views = wanted.views();
        let codes = run(py, n_jobs, progress, |monitor| {
            views.with(|target| self.encoder.encode_target(target, monitor))
        })?;
        Ok(codes.into_pyarray(py))
    }

    /// (codes, errors before, errors after): new codes where they are better than the given ones.
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
        improve(&self.encoder, py, x, codes, n_jobs, progress)
    }
}
