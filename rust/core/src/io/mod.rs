//! Files: models and indexes as safetensors, which other languages read and which can be memory-mapped.
//!
//! docs/file-format.md in the repository describes the contents. A file is written under a new name and renamed, so a
//! reader sees either the complete old one or the complete new one; a damaged file is an error. The contents of a file
//! are also available as bytes.

mod container;
mod entries;
mod index;
mod model;
mod replace;
mod v1;

pub use container::VERSION;

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::path::Path;

/// The path in errors about bytes that are in no file.
const BYTES: &str = "<bytes>";

fn open(path: &Path) -> Result<File> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    // Checked before opening: opening a pipe would wait for somebody to write to it.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::Format {
            path: path.to_owned(),
            reason: "is not a file (folders of shards are for a sharded index)".to_owned(),
        });
    }
    File::open(path).map_err(failed)
}

#[cfg(test)]
mod tests;
