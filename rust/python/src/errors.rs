//! The core's errors as Python's exceptions.

use compcodes::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};

pyo3::import_exception!(compcodes.errors, ArgumentTypeError);
pyo3::import_exception!(compcodes.errors, ArgumentValueError);

pub(crate) fn to_python(error: Error) -> PyErr {
    match error {
        // Given the error number, Python makes it a FileNotFoundError, a PermissionError and so on.
        Error::Io { path, source } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, reason(&source), path.into_os_string())),
            None => PyOSError::new_err(format!("{}: {source}", path.display())),
        },
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
        Error::NotFinite { what, row } => {
            wrong_value(what, format!("row {row} holds NaN, an infinity or a value beyond float32"))
        }
        Error::Argument { name, problem } => wrong_value(name, problem),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Python's error about an argument, by its name in Python: what the core calls `queries`, Python calls `Q`.
pub(crate) fn wrong_value(name: &str, problem: impl Into<String>) -> PyErr {
    let name = if name == "queries" { "Q" } else { name };
    ArgumentValueError::new_err((name.to_owned(), problem.into()))
}

/// Like [`wrong_value`], for an argument of a wrong type or dtype.
pub(crate) fn wrong_type(name: &str, problem: String) -> PyErr {
    ArgumentTypeError::new_err((name.to_owned(), problem))
}

/// The system's message, without the number that Rust appends and Python prepends.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
