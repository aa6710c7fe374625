//! What can go wrong, in terms that help the caller.

use std::path::PathBuf;

/// A `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be carried out in the present state, whatever the arguments; or parts of a file do not fit
    /// each other.
    #[error("{0}")]
    Invalid(String),
    /// An argument has an unusable shape or value. Its name is kept separately, for callers that know it by a different
    /// name.
    #[error("{}", told(name, problem))]
    Argument {
        /// The argument's name.
        name: &'static str,
        /// Its value or shape, and what would be valid.
        problem: String,
    },
    /// A vector holds NaN, an infinity, or a value that is infinite in 32 bits.
    #[error("{what} row {row} holds NaN, an infinity or a value beyond float32")]
    NotFinite {
        /// The argument's name.
        what: &'static str,
        /// The lowest row with such a value.
        row: usize,
    },
    /// The [`Monitor`](crate::monitor::Monitor) asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file is not one of ours, is damaged, or is from a later version.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// The same error with the argument renamed from `from` to `to`, if it is about `from`: callers may use a different
    /// name.
    pub(crate) fn renamed(self, from: &'static str, to: &'static str) -> Self {
        match self {
            Self::Argument { name, problem } if name == from => Self::Argument { name: to, problem },
            Self::NotFinite { what, row } if what == from => Self::NotFinite { what: to, row },
            error => error,
        }
    }
}

/// A problem may concern an element of the argument: `[3] is …`.
fn told(name: &str, problem: &str) -> String {
    if problem.starts_with('[') { format!("{name}{problem}") } else { format!("{name} {problem}") }
}

/// Shorthand for `Error::Invalid(format!(…))`.
macro_rules! invalid {
    ($($arg:tt)*) => { $crate::error::Error::Invalid(format!($($arg)*)) };
}
pub(crate) use invalid;

/// Shorthand for `Error::Argument { name, problem: format!(…) }`.
macro_rules! argument {
    ($name:expr, $($arg:tt)*) => { $crate::error::Error::Argument { name: $name, problem: format!($($arg)*) } };
}
pub(crate) use argument;

/// The stored data does not match its checksum.
pub(crate) fn damaged(what: &str) -> Error {
    invalid!("damaged: the checksum of {what} does not match")
}
