//! What codewords should add up to: vectors, or a `Target` that holds them and the given part of their approximations.

use crate::arrays::Rows;
use crate::errors::wrong_value;
use compcodes::encode;
use compcodes::vectors::{Subset, Vectors};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

/// Vectors (n, d), part of whose approximations is given.
///
/// `base`: rows (n, d) that approximations start from; or, with `places` (n,) int64, the rows that `places` refers to.
/// `rest` (n, 2) float64: for vectors that are part of longer ones, the length of the whole and the inner product of
/// error and vector over the other dimensions.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Target {
    x: Py<PyAny>,
    base: Option<Py<PyAny>>,
    places: Option<Vec<usize>>,
    rest: Option<Vec<encode::Rest>>,
}

#[pymethods]
impl Target {
    #[new]
    #[pyo3(signature = (x, base=None, places=None, rest=None))]
    fn new(
        py: Python<'_>,
        x: Py<PyAny>,
        base: Option<Py<PyAny>>,
        places: Option<PyReadonlyArray1<'_, i64>>,
        rest: Option<PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let places = places.map(|places| {
            let Some(base) = &base else { return Err(wrong_value("places", "name rows of no base")) };
            let rows = base.bind(py).len()?;
            let place = |&place: &i64| usize::try_from(place).ok().filter(|&place| place < rows);
            places
                .as_array()
                .iter()
                .map(|given| {
                    place(given)
                        .ok_or_else(|| wrong_value("places", format!("hold {given}: base has {rows} rows")))
                })
                .collect()
        });
        let rest = rest.map(|rest| {
            let rest = rest.as_array();
            if rest.ncols() != 2 {
                return Err(wrong_value("rest", format!("has {} columns: want 2", rest.ncols())));
            }
            Ok(rest.outer_iter().map(|row| encode::Rest { norm: row[0], along: row[1] }).collect())
        });
        Ok(Self { x, base, places: places.transpose()?, rest: rest.transpose()? })
    }
}

/// A target whose arrays are borrowed.
pub(crate) struct Wanted<'py> {
    x: Rows<'py>,
    base: Option<Rows<'py>>,
    target: Option<PyRef<'py, Target>>,
}

impl<'py> Wanted<'py> {
    /// Takes a [`Target`], or an array (n, d).
    pub(crate) fn new(x: &Bound<'py, PyAny>) -> PyResult<Self> {
        let Ok(target) = x.cast::<Target>() else {
            return Ok(Self { x: Rows::new(x, "X")?, base: None, target: None });
        };
        let py = x.py();
        let base = target.get().base.as_ref().map(|base| Rows::new(base.bind(py), "base")).transpose()?;
        Ok(Self { x: Rows::new(target.get().x.bind(py), "X")?, base, target: Some(target.borrow()) })
    }

    /// The views that the core takes.
    pub(crate) fn views(&self) -> Views<'_> {
        let target = self.target.as_deref();
        Views {
            x: self.x.view(),
            base: self.base.as_ref().map(Rows::view),
            places: target.and_then(|target| target.places.as_deref()),
            rest: target.and_then(|target| target.rest.as_deref()),
        }
    }
}

/// Views of the arrays of a target, which other threads may use.
pub(crate) struct Views<'a> {
    x: Box<dyn Vectors + Send + 'a>,
    base: Option<Box<dyn Vectors + Send + 'a>>,
    places: Option<&'a [usize]>,
    rest: Option<&'a [encode::Rest]>,
}

impl Views<'_> {
    /// Calls `f` with the target.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&encode::Target<'_>) -> R) -> R {
        let rest = self.rest;
        match (&self.base, self.places) {
            (Some(base), Some(places)) => {
                f(&encode::Target { x: &*self.x, base: Some(&Subset::new(&**base, places)), rest })
            }
            (base, _) => {
                f(&encode::Target { x: &*self.x, base: base.as_ref().map(|base| &**base as _), rest })
            }
        }
    }
}
