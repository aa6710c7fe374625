//! Models: codebooks, how vectors are encoded, and what Python wants to store.

use crate::arrays::codebooks;
use crate::encoders::{Grouped, Groups, encoding, grouping, objective, selection};
use crate::errors::{to_python, wrong_value};
use crate::lists::Lists;
use compcodes::Model as Core;
use compcodes::encode::{Encoding, Objective, Start};
use compcodes::model::{Recipe, Structure, Subspaces};
use numpy::{IntoPyArray, PyArray2, PyArray3, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
/// The dimensions of each subspace, and the basis (d, Σ d_m) that spans them, f32.
type Spans<'py> = (Vec<usize>, Option<Bound<'py, PyArray2<f32>>>);

/// A model as stored in files.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Model {
    pub(crate) model: Core,
}

#[pymethods]
impl Model {
    /// `encoding` is a name and its effort; `subspaces` are the dimensions of each and a basis (d, Σ d_m) f32 of all;
    /// `signs` says that codewords are sums of ± eight directions; `metric` is what the model was trained for;
    /// `parameters` is a JSON object.
    #[new]
    #[pyo3(signature = (
        codebooks, selection="group", *, eta=1.0, encoding=None, seed=0, start=None, directions=None, subspaces=None,
        signs=false, metric=None, parameters="{}", lists=None, groups=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        codebooks: Any<'_, '_>,
        selection: &str,
        eta: f64,
        encoding: Option<(String, usize)>,
        seed: u64,
        start: Option<(String, usize)>,
        directions: Option<Any<'_, '_>>,
        subspaces: Option<(Vec<usize>, Option<PyReadonlyArray2<'_, f32>>)>,
        signs: bool,
        metric: Option<&str>,
        parameters: &str,
        lists: Option<PyRef<'_, Lists>>,
        groups: Option<Groups<'_>>,
    ) -> PyResult<Self> {
        let codebooks = self::codebooks(codebooks, "codebooks")?;
        let encoding = match encoding {
            Some((name, effort)) => self::encoding(&name, effort, start, seed)?,
            None => Recipe::default().encoding,
        };
        let structure = match subspaces {
            Some((sizes, basis)) => {
                let basis = basis.map(|basis| basis.as_array().to_owned());
                Structure::Subspaces(Subspaces::new(sizes, basis).map_err(to_python)?)
            }
            None if signs => Structure::Signs,
            None => match groups {
                Some(groups) => Structure::Groups(grouping(groups)?),
                None => Structure::Free,
            },
        };
        let Objective { loss, directions } = objective(eta, directions)?;
        let metric = metric.map(str::parse).transpose().map_err(to_python)?;
        let recipe = Recipe { loss, encoding, directions, structure, metric };
        recipe.check(&codebooks).map_err(to_python)?;
        let parameters = serde_json::from_str(parameters)
            .map_err(|e| wrong_value("parameters", format!("are not a JSON object: {e}")))?;
        let selection = self::selection(selection)?;
        codebooks.check_selection(selection).map_err(to_python)?;
        let centroids = lists.map(|lists| lists.centroids.clone());
        centroids.as_ref().map_or(Ok(()), |centroids| centroids.check(&codebooks)).map_err(to_python)?;
        Ok(Self { model: Core { codebooks, selection, recipe, parameters, centroids } })
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let model = py.detach(|| Core::load(path)).map_err(to_python)?;
        Ok(Self { model })
    }

    #[staticmethod]
    fn from_bytes(content: &[u8]) -> PyResult<Self> {
        Ok(Self { model: Core::from_bytes(content).map_err(to_python)? })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.model.save(path)).map_err(to_python)
    }

    /// The bytes that `save` writes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.model.to_bytes().map_err(to_python)?))
    }

    /// A copy, (M, K, d) f32.
    #[getter]
    fn codebooks<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray3<f32>> {
        self.model.codebooks.view().to_owned().into_pyarray(py)
    }

    #[getter]
    fn selection(&self) -> &'static str {
        self.model.selection.name()
    }

    #[getter]
    fn eta(&self) -> f64 {
        self.model.recipe.loss.eta()
    }

    /// Name and effort.
    #[getter]
    fn encoding(&self) -> (&'static str, usize) {
        match self.model.recipe.encoding {
            Encoding::Greedy => ("greedy", 0),
            Encoding::Beam { width } => ("beam", width),
            Encoding::LocalSearch { rounds, .. } => ("local-search", rounds),
        }
    }

    /// The seed of local search.
    #[getter]
    fn seed(&self) -> u64 {
        match self.model.recipe.encoding {
            Encoding::LocalSearch { seed, .. } => seed,
            _ => 0,
        }
    }

    /// The start of local search: name and effort; `None` if it is greedy.
    #[getter]
    fn start(&self) -> Option<(&'static str, usize)> {
        match self.model.recipe.encoding {
            Encoding::LocalSearch { start: Start::Beam { width }, .. } => Some(("beam", width)),
            _ => None,
        }
    }

    /// A copy, (r, d) f32; `None` if errors count equally in all directions.
    #[getter]
    fn directions<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray2<f32>>> {
        let directions = self.model.recipe.directions.as_ref()?;
        Some(directions.rows().to_owned().into_pyarray(py))
    }

    /// `None` if the codebooks are not known to lie in subspaces.
    #[getter]
    fn subspaces<'py>(&self, py: Python<'py>) -> Option<Spans<'py>> {
        let Structure::Subspaces(subspaces) = &self.model.recipe.structure else { return None };
        let basis = subspaces.basis().map(|basis| basis.to_owned().into_pyarray(py));
        Some((subspaces.sizes().to_vec(), basis))
    }

    /// Codebooks and dimensions of each group, the basis (d, Σ d_g) f32, and how many codebooks come before the groups;
    /// `None` without groups.
    #[getter]
    fn groups<'py>(&self, py: Python<'py>) -> Option<Grouped<Bound<'py, PyArray2<f32>>>> {
        let Structure::Groups(grouping) = &self.model.recipe.structure else { return None };
        let basis = grouping.basis().to_owned().into_pyarray(py);
        Some((grouping.members().to_vec(), grouping.sizes().to_vec(), basis, grouping.trunk()))
    }

    /// The metric that the model was trained for; `None` if not known.
    #[getter]
    fn metric(&self) -> Option<&'static str> {
        self.model.recipe.metric.map(|metric| metric.name())
    }

    /// The lists, for an index that is divided into lists.
    #[getter]
    fn lists(&self) -> Option<Lists> {
        self.model.centroids.clone().map(|centroids| Lists { centroids })
    }

    /// A JSON object.
    #[getter]
    fn parameters(&self) -> String {
        serde_json::Value::Object(self.model.parameters.clone()).to_string()
    }
}
