//! numpy arrays as the core's vectors and codes, without copying them.

use crate::errors::{wrong_type, wrong_value};
use compcodes::Codebooks;
use compcodes::encode::Loss;
use compcodes::vectors::basis::Directions;
use compcodes::vectors::rest::Rest;
use compcodes::vectors::unit::Unit;
use compcodes::vectors::{Subset, Vectors};
use half::f16;
use numpy::{
    PyArrayDescrMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use std::borrow::Cow;

macro_rules! rows {
    ($($variant:ident: $type:ty),*) => {
        /// A two-dimensional numpy array of any real number type and layout, borrowed.
        pub(crate) enum Rows<'py> {
            $(
                #[doc = stringify!($type)]
                $variant(PyReadonlyArray2<'py, $type>),
            )*
            /// Such an array, with its rows scaled to length 1 when they are read.
            Unit(Box<Rows<'py>>),
            /// Such an array minus rows of another one.
            Rest(Box<(Rows<'py>, Rows<'py>)>, Py<RestRows>),
            /// Some rows of such an array.
            Some(Box<Rows<'py>>, Py<SomeRows>),
        }

        impl<'py> Rows<'py> {
            fn try_from(array: &Bound<'py, PyAny>) -> Option<Self> {
                $(
                    if let Ok(array) = array.extract() {
                        return Some(Self::$variant(array));
                    }
                )*
                None
            }

            /// The view that the core reads.
            pub(crate) fn view(&self) -> Box<dyn Vectors + Send + '_> {
                match self {
                    $(Self::$variant(array) => Box::new(array.as_array()),)*
                    Self::Unit(rows) => Box::new(Unit(rows.view())),
                    Self::Rest(rows, rest) => {
                        Box::new(OwnedRest { x: rows.0.view(), base: rows.1.view(), rest })
                    }
                    Self::Some(rows, some) => Box::new(OwnedSome { x: rows.view(), some }),
                }
            }
        }
    };
}
rows!(F32: f32, F16: f16, F64: f64, U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64);

/// Vectors minus the rows of others, together with what they are read from.
struct OwnedRest<'a> {
    x: Box<dyn Vectors + Send + 'a>,
    base: Box<dyn Vectors + Send + 'a>,
    rest: &'a Py<RestRows>,
}

impl Vectors for OwnedRest<'_> {
    fn n(&self) -> usize {
        self.x.n()
    }

    fn dim(&self) -> usize {
        self.x.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        self.x.numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let RestRows { places, extra, directions, .. } = self.rest.get();
        let (x, base, directions) = (&*self.x, &*self.base, directions.as_ref());
        Rest { x, base, places, extra: *extra, directions }.read(first, out);
    }
}

/// Some rows of vectors, together with what they are read from.
struct OwnedSome<'a> {
    x: Box<dyn Vectors + Send + 'a>,
    some: &'a Py<SomeRows>,
}

impl Vectors for OwnedSome<'_> {
    fn n(&self) -> usize {
        self.some.get().rows.len()
    }

    fn dim(&self) -> usize {
        self.x.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        Subset::new(&*self.x, &self.some.get().rows).numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        Subset::new(&*self.x, &self.some.get().rows).read(first, out);
    }
}

/// Some rows of an array (n, d), by position: the core reads them in place, without a copy.
#[pyclass(frozen, subclass, module = "compcodes._core")]
pub(crate) struct SomeRows {
    #[pyo3(get)]
    array: Py<PyAny>,
    rows: Vec<usize>,
    dim: usize,
}

#[pymethods]
impl SomeRows {
    #[new]
    fn new(py: Python<'_>, array: Py<PyAny>, rows: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let (n, dim): (usize, usize) = array.getattr(py, "shape")?.extract(py)?;
        let place = |&row: &i64| usize::try_from(row).ok().filter(|&row| row < n);
        let rows: Option<Vec<usize>> = rows.as_array().iter().map(place).collect();
        let rows = rows.ok_or_else(|| wrong_value("rows", format!("are not all below {n}")))?;
        Ok(Self { array, rows, dim })
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.dim)
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }
}

/// Vectors (n, d) minus the rows of `base` that `places` (n,) i64 refers to, as the core reads them; with `eta` weighed
/// along the vectors, and with `directions` stretched.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct RestRows {
    x: Py<PyAny>,
    base: Py<PyAny>,
    places: Vec<usize>,
    extra: f64,
    directions: Option<Directions>,
}

#[pymethods]
impl RestRows {
    #[new]
    #[pyo3(signature = (x, base, places, eta=1.0, directions=None))]
    fn new(
        py: Python<'_>,
        x: Py<PyAny>,
        base: Py<PyAny>,
        places: PyReadonlyArray1<'_, i64>,
        eta: f64,
        directions: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (n, rows) = (x.bind(py).len()?, base.bind(py).len()?);
        let places: Option<Vec<usize>> = places
            .as_array()
            .iter()
            .map(|&place| usize::try_from(place).ok().filter(|&place| place < rows))
            .collect();
        let places = places.filter(|places| places.len() == n);
        let places = places.ok_or_else(|| wrong_value("places", format!("are not {n} of {rows} rows")))?;
        let extra = Loss::inner_product(eta).map_err(crate::errors::to_python)?.extra();
        Ok(Self { x, base, places, extra, directions: self::directions(directions)? })
    }

    fn __len__(&self) -> usize {
        self.places.len()
    }
}

/// A numpy array (n, d) whose rows the core reads scaled to length 1.
#[pyclass(frozen, subclass, module = "compcodes._core")]
pub(crate) struct UnitRows {
    #[pyo3(get)]
    array: Py<PyAny>,
}

#[pymethods]
impl UnitRows {
    #[new]
    fn new(array: Py<PyAny>) -> Self {
        Self { array }
    }
}

impl<'py> Rows<'py> {
    /// Borrows `array`, or says what is wrong with the argument `name`.
    pub(crate) fn new(array: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(unit) = array.cast::<UnitRows>() {
            let rows = Self::new(unit.get().array.bind(array.py()), name)?;
            return Ok(Self::Unit(Box::new(rows)));
        }
        if let Ok(some) = array.cast::<SomeRows>() {
            let rows = Self::new(some.get().array.bind(array.py()), name)?;
            return Ok(Self::Some(Box::new(rows), some.clone().unbind()));
        }
        if let Ok(rest) = array.cast::<RestRows>() {
            let (py, of) = (array.py(), rest.get());
            let rows = (Self::new(of.x.bind(py), name)?, Self::new(of.base.bind(py), "base")?);
            return Ok(Self::Rest(Box::new(rows), rest.clone().unbind()));
        }
        let untyped = of_rank(array, name, "(n, d)", 2)?;
        if untyped.shape()[1] == 0 {
            return Err(wrong_value(
                name,
                format!("has shape {}: want at least one dimension", tuple(untyped.shape())),
            ));
        }
        Self::try_from(array).ok_or_else(|| {
            dtype(untyped, name, "aligned integers or floats of at most 64 bits, in native byte order")
        })
    }
}

/// Codes (n, M), u8.
pub(crate) fn codes<'py>(array: &Bound<'py, PyAny>, name: &str) -> PyResult<PyReadonlyArray2<'py, u8>> {
    let untyped = of_rank(array, name, "(n, M)", 2)?;
    array.extract().map_err(|_| dtype(untyped, name, "uint8"))
}

/// Codebooks (M, K, d), f32.
pub(crate) fn codebooks(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Codebooks> {
    let untyped = of_rank(array, name, "(M, K, d)", 3)?;
    let array: PyReadonlyArray3<'_, f32> = array.extract().map_err(|_| dtype(untyped, name, "float32"))?;
    Codebooks::new(array.as_array().to_owned()).map_err(crate::errors::to_python)
}

/// Directions (r, d), f32; `None` if there are no rows.
pub(crate) fn directions(array: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Directions>> {
    let Some(array) = array else { return Ok(None) };
    let untyped = of_rank(array, "directions", "(r, d)", 2)?;
    let array: PyReadonlyArray2<'_, f32> =
        array.extract().map_err(|_| dtype(untyped, "directions", "float32"))?;
    let rows = array.as_array().to_owned();
    (rows.nrows() > 0).then(|| Directions::new(rows).map_err(crate::errors::to_python)).transpose()
}

/// One number per row, f64.
pub(crate) fn numbers<'py>(array: &Bound<'py, PyAny>, name: &str) -> PyResult<PyReadonlyArray1<'py, f64>> {
    let untyped = of_rank(array, name, "(n,)", 1)?;
    array.extract().map_err(|_| dtype(untyped, name, "float64"))
}

/// Ids, (n,) i64.
pub(crate) fn ids<'py>(array: &Bound<'py, PyAny>, name: &str) -> PyResult<PyReadonlyArray1<'py, i64>> {
    let untyped = of_rank(array, name, "(n,)", 1)?;
    array.extract().map_err(|_| dtype(untyped, name, "int64"))
}

/// Queries (nq, d), f32.
pub(crate) fn queries<'py>(array: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray2<'py, f32>> {
    let untyped = of_rank(array, "Q", "(nq, d)", 2)?;
    array.extract().map_err(|_| dtype(untyped, "Q", "float32"))
}

/// A numpy array with as many dimensions as `shape` names.
fn of_rank<'a, 'py>(
    array: &'a Bound<'py, PyAny>,
    name: &str,
    shape: &str,
    rank: usize,
) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
    let Ok(array) = array.cast::<PyUntypedArray>() else {
        return Err(wrong_type(name, format!("is {}: want a numpy array", array.get_type())));
    };
    // Fields of records, for example: their rows may begin between the places of numbers, which the core could not
    // address.
    let size = array.dtype().itemsize() as isize;
    let aligned = array.getattr("flags")?.getattr("aligned")?.is_truthy()?;
    if !aligned || size == 0 || array.strides().iter().any(|stride| stride % size != 0) {
        return Err(wrong_value(name, format!("is not aligned to its numbers: pass a copy, {name}.copy()")));
    }
    if array.ndim() != rank {
        return Err(wrong_value(name, format!("has shape {}: want {shape}", tuple(array.shape()))));
    }
    Ok(array)
}

/// A shape as Python writes it.
fn tuple(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("({}{})", sizes.join(", "), if shape.len() == 1 { "," } else { "" })
}

fn dtype(array: &Bound<'_, PyUntypedArray>, name: &str, want: &str) -> PyErr {
    let have = array.dtype();
    let order = if have.is_native_byteorder() == Some(false) { " in foreign byte order" } else { "" };
    wrong_type(name, format!("has dtype {have}{order}: want {want}"))
}

/// The weights of rows, f64, if there are any.
pub(crate) fn weights_of<'py>(
    weights: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<PyReadonlyArray1<'py, f64>>> {
    weights.map(|weights| numbers(weights, "sample_weight")).transpose()
}

/// The weights of rows, copied, if there are any.
pub(crate) fn owned_weights(weights: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<f64>>> {
    Ok(weights_of(weights)?.map(|weights| weights.as_array().to_vec()))
}

/// The weights in the form the core takes; they are copied only if they are not contiguous.
pub(crate) fn in_a_row<'a>(numbers: &'a Option<PyReadonlyArray1<'_, f64>>) -> Option<Cow<'a, [f64]>> {
    numbers.as_ref().map(|numbers| match numbers.as_slice() {
        Ok(numbers) => Cow::Borrowed(numbers),
        Err(_) => Cow::Owned(numbers.as_array().to_vec()),
    })
}
