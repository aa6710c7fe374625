//! The container: a safetensors file whose metadata have one entry of JSON, with a checksum for each tensor and one for the
//! header; written whole or not at all, read by way of a map.
#![allow(unsafe_code)] // to map files into memory

use crate::error::{Error, Result};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The version that this code writes; it reads this one and older ones.
pub const VERSION: u64 = 1;

/// Name, type, shape and bytes of a tensor to be written.
pub(super) type Tensor<'a> = (&'static str, Dtype, Vec<usize>, &'a [u8]);

/// Writes a file of these tensors; their checksums, the version and the header's checksum join the entries.
pub(super) fn write(path: &Path, mut entries: Map<String, Value>, tensors: &[Tensor<'_>]) -> Result<()> {
    let sums = tensors.iter().map(|(name, _, _, bytes)| ((*name).to_owned(), crc32fast::hash(bytes).into()));
    entries.insert("crc32".to_owned(), Value::Object(sums.collect()));
    entries.insert("version".to_owned(), json!(VERSION));
    let checksum =
        checksum(&entries, tensors.iter().map(|(name, dtype, shape, _)| (*name, *dtype, &shape[..])));
    entries.insert("checksum".to_owned(), json!(checksum));
    let metadata = HashMap::from([("compcodes".to_owned(), Value::Object(entries).to_string())]);
    let header =
        header(metadata, tensors).map_err(|reason| Error::Format { path: path.to_owned(), reason })?;
    let parts = std::iter::once(&header[..]).chain(tensors.iter().map(|(_, _, _, bytes)| *bytes));
    replace(path, parts).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Of all that the header says: the entries but for the checksum itself, and the tensors in the order of their names.
fn checksum<'a>(
    entries: &Map<String, Value>,
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>,
) -> u32 {
    let entries: Vec<_> = entries.iter().filter(|(name, _)| *name != "checksum").collect();
    let mut tensors: Vec<_> =
        tensors.map(|(name, dtype, shape)| format!("{name} {dtype:?} {shape:?}")).collect();
    tensors.sort_unstable();
    crc32fast::hash(json!([entries, tensors]).to_string().as_bytes())
}

/// Makes `parts` the content of the file: all of them or, after an error, none.
fn replace<'a>(path: &Path, parts: impl Iterator<Item = &'a [u8]>) -> std::io::Result<()> {
    // A link stays one, what is no file is not replaced by one, and who may read it stays as it was.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(std::io::Error::other("exists and is not a file"));
    }
    let temporary = Temporary::beside(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary.0)?;
    if let Some(old) = old {
        file.set_permissions(old.permissions())?;
    }
    for part in parts {
        file.write_all(part)?;
    }
    // On disk before it gets its name: after a crash the name never leads to half a file.
    file.sync_all()?;
    fs::rename(&temporary.0, path)
}

/// The length and text that a safetensors file begins with. (The library's own writer would make files that only their
/// owner can read.)
fn header(metadata: HashMap<String, String>, tensors: &[Tensor<'_>]) -> std::result::Result<Vec<u8>, String> {
    let mut end = 0;
    let infos = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let start = end;
        end += bytes.len();
        ((*name).to_owned(), TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (start, end) })
    });
    let metadata = Metadata::new(Some(metadata), infos.collect()).map_err(|error| error.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    // Spaces, so that the tensors begin at a multiple of 64 bytes: codes are mapped into memory as whole cache lines.
    text.resize((text.len() + 8).next_multiple_of(64) - 8, b' ');
    Ok([&(text.len() as u64).to_le_bytes(), &text[..]].concat())
}

/// A file name that is removed again unless the file was renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(path.with_file_name(format!(".compcodes-{}-{count}.part", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing under this name, and nothing to do about other failures.
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn map(path: &Path) -> Result<memmap2::Mmap> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    // Asked before it is opened: to open a pipe waits for somebody to write.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::Format { path: path.to_owned(), reason: "is not a file".to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the bytes are only read, and files of ours are replaced by renaming, never written in place.
    unsafe { memmap2::Mmap::map(&file) }.map_err(failed)
}

/// A mapped file and its checked metadata.
pub(super) struct Reader<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    entries: Map<String, Value>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let error = |reason: String| Error::Format { path: path.to_owned(), reason };
        let damaged = |e: &dyn std::fmt::Display| error(format!("not a compcodes file, or damaged ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(&e))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| damaged(&e))?;
        let entry = metadata.metadata().as_ref().and_then(|entries| entries.get("compcodes"));
        let entry = entry.ok_or_else(|| error("a safetensors file, but not of compcodes".to_owned()))?;
        let entries: Map<String, Value> = serde_json::from_str(entry).map_err(|e| damaged(&e))?;
        let reader = Self { path, tensors, entries };
        match reader.entry("version")?.as_u64() {
            Some(1..=VERSION) => {
                let tensors = reader
                    .tensors
                    .iter()
                    .map(|(name, tensor)| (name, tensor.dtype(), tensor.shape().to_vec()));
                let tensors: Vec<_> = tensors.collect();
                let sum = checksum(
                    &reader.entries,
                    tensors.iter().map(|(name, dtype, shape)| (*name, *dtype, &shape[..])),
                );
                if reader.entry("checksum")?.as_u64() != Some(sum.into()) {
                    return Err(reader.error("damaged: the checksum of the header does not match"));
                }
                Ok(reader)
            }
            Some(later) if later > VERSION => {
                Err(reader.error(&format!("format version {later}; this release reads up to {VERSION}")))
            }
            _ => Err(reader.error("version is not a number")),
        }
    }

    pub(super) fn error(&self, reason: &str) -> Error {
        Error::Format { path: self.path.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    pub(super) fn entry(&self, name: &str) -> Result<&Value> {
        self.entries.get(name).ok_or_else(|| self.error(&format!("the metadata lack {name}")))
    }

    pub(super) fn kind(&self) -> Result<&str> {
        self.entry("kind")?.as_str().ok_or_else(|| self.error("kind is not a string"))
    }

    /// Shape and bytes of a tensor whose type and checksum are right.
    pub(super) fn tensor(&self, name: &str, dtype: Dtype) -> Result<(Vec<usize>, &'a [u8])> {
        let (shape, bytes) = self.unverified(name, dtype)?;
        let sum = self.entry("crc32")?.get(name).and_then(Value::as_u64);
        if sum != Some(crc32fast::hash(bytes).into()) {
            return Err(self.error(&format!("damaged: the checksum of {name} does not match")));
        }
        Ok((shape, bytes))
    }

    /// Shape and bytes of a tensor whose type is right.
    pub(super) fn unverified(&self, name: &str, dtype: Dtype) -> Result<(Vec<usize>, &'a [u8])> {
        let tensor = self.tensors.tensor(name).map_err(|_| self.error(&format!("lacks {name}")))?;
        if tensor.dtype() != dtype {
            return Err(self.error(&format!("{name} is of type {:?}, not {dtype:?}", tensor.dtype())));
        }
        Ok((tensor.shape().to_vec(), tensor.data()))
    }

    /// The bytes of a tensor of `n` entries, if there is one of that name.
    pub(super) fn optional(&self, name: &str, dtype: Dtype, n: usize) -> Result<Option<&'a [u8]>> {
        if self.tensors.tensor(name).is_err() {
            return Ok(None);
        }
        match self.tensor(name, dtype)? {
            (shape, bytes) if shape == [n] => Ok(Some(bytes)),
            (shape, _) => Err(self.error(&format!("{name} has shape {shape:?}, not [{n}]"))),
        }
    }

    /// The finite numbers of a tensor of `n` entries, if there is one of that name.
    pub(super) fn floats(&self, name: &str, n: usize) -> Result<Option<Vec<f32>>> {
        let bytes = self.optional(name, Dtype::F32, n)?;
        bytes.map(|bytes| self.finite(name, bytes)).transpose()
    }

    /// The finite numbers of a tensor of any number of rows of `width` entries, if there is one of that name.
    pub(super) fn rows(&self, name: &str, width: usize) -> Result<Option<Vec<f32>>> {
        if self.tensors.tensor(name).is_err() {
            return Ok(None);
        }
        match self.tensor(name, Dtype::F32)? {
            (shape, bytes) if shape.len() == 2 && shape[1] == width => self.finite(name, bytes).map(Some),
            (shape, _) => Err(self.error(&format!("{name} has shape {shape:?}, not (…, {width})"))),
        }
    }

    fn finite(&self, name: &str, bytes: &[u8]) -> Result<Vec<f32>> {
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect();
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        Err(self.error(&format!("{name} holds NaN or an infinity")))
    }
}
