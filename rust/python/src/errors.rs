//! The core's errors as Python's exceptions.

use compcodes::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};

pub(crate) fn to_python(error: Error) -> PyErr {
    match error {
        Error::Io(error) => error.into(),
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
        error => PyValueError::new_err(error.to_string()),
    }
}
