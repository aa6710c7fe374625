//! Files: models and indexes as safetensors, which other languages read and which can be memory-mapped.
//!
//! docs/file-format.md in the repository tells what is in them. A file is written to a new name and renamed, so that a
//! reader meets the old one or the new one whole; a damaged one is an error. What a file holds can also be had as bytes.

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

/// Where bytes that are in no file come from, for errors.
const BYTES: &str = "<bytes>";

fn open(path: &Path) -> Result<File> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    // Asked before it is opened: to open a pipe waits for somebody to write.
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
