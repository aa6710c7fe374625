//! The core's errors as Python's exceptions.

use compcodes::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};

pub(crate) fn to_python(error: Error) -> PyErr {
    match error {
        // With the number of the error Python makes it a FileNotFoundError, a PermissionError and so on.
        Error::Io { path, source } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, reason(&source), path)),
            None => PyOSError::new_err(format!("{}: {source}", path.display())),
        },
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
        // The core's argument has a longer name.
        Error::NotFinite { what: "queries", row } => to_python(Error::NotFinite { what: "Q", row }),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// What the system says, without the number that Rust appends and Python prepends.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
