//! Files: models and indexes as safetensors, which other languages read and which can be memory-mapped.
//!
//! | tensor | type | shape | in |
//! |---|---|---|---|
//! | `codebooks` | F32 | (M, K, d) | models and indexes |
//! | `codes` | U8 | (⌈n/64⌉, M, 64), see [`packed`](crate::packed) | indexes |
//! | `ids` | I64 | (n) | indexes with ids of their own |
//!
//! The metadata has one entry, `compcodes`, a JSON object: `kind` ("model" or "index"), `version`, `selection`,
//! `parameters`, `n` (indexes) and `crc32`, a checksum of each tensor. A file is written under a temporary name and
//! renamed, so that a reader meets the old one or the new one whole. A damaged one is an error.
#![allow(unsafe_code)] // to map files into memory

use crate::codebooks::Codebooks;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::model::Model;
use crate::packed::{BLOCK, PackedCodes, PackedView};
use ndarray::Array3;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The version that this code writes; it reads this one and older ones.
pub const VERSION: u64 = 1;

impl Model {
    /// Writes the model to `path`, replacing what is there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), "model", self, Map::new(), vec![])
    }

    /// Reads a model, also from an index.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let map = map(path)?;
        let reader = Reader::new(path, &map)?;
        reader.model()
    }
}

impl Index {
    /// Writes the index with its model to `path`, replacing what is there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let codes = self.codes().view();
        let ids: Option<Vec<u8>> = self.ids().map(|ids| ids.iter().flat_map(|id| id.to_le_bytes()).collect());
        let shape = vec![codes.n_blocks(), codes.n_columns(), BLOCK];
        let mut tensors = vec![("codes", Dtype::U8, shape, codes.as_bytes())];
        if let Some(ids) = &ids {
            tensors.push(("ids", Dtype::I64, vec![self.len()], ids));
        }
        let entries = Map::from_iter([("n".to_owned(), self.len().into())]);
        write(path.as_ref(), "index", self.model(), entries, tensors)
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let map = map(path)?;
        let reader = Reader::new(path, &map)?;
        if reader.kind()? != "index" {
            return Err(reader.error("holds a model without codes, not an index"));
        }
        let model = reader.model()?;
        let n = reader.entry("n")?.as_u64().ok_or_else(|| reader.error("n is not a count"))?;
        let m = model.codebooks.n_codebooks();
        let (shape, bytes) = reader.tensor("codes", Dtype::U8)?;
        let n = usize::try_from(n).map_err(|_| reader.error("n is beyond this machine"))?;
        if shape != [n.div_ceil(BLOCK), m, BLOCK] {
            return Err(reader
                .error(&format!("codes have shape {shape:?}, which does not fit {n} vectors of {m} codes")));
        }
        let codes = PackedView::new(bytes, n, m).map_err(|e| reader.error(&e.to_string()))?;
        let ids = match reader.tensors.tensor("ids") {
            Err(_) => None,
            Ok(_) => {
                let (_, bytes) = reader.tensor("ids", Dtype::I64)?;
                let ids = bytes.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().expect("8 bytes")));
                Some(ids.collect())
            }
        };
        Index::from_parts(model, PackedCodes::from_view(codes), ids).map_err(|e| reader.error(&e.to_string()))
    }
}

/// Name, type, shape and bytes of a tensor to be written.
type Tensor<'a> = (&'static str, Dtype, Vec<usize>, &'a [u8]);

fn write(
    path: &Path,
    kind: &str,
    model: &Model,
    mut entries: Map<String, Value>,
    tensors: Vec<Tensor<'_>>,
) -> Result<()> {
    let (m, k, d) = model.codebooks.view().dim();
    let codebooks: Vec<u8> =
        model.codebooks.as_slice().iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut all = tensors;
    all.push(("codebooks", Dtype::F32, vec![m, k, d], &codebooks[..]));
    let sums = all.iter().map(|(name, _, _, bytes)| ((*name).to_owned(), crc32fast::hash(bytes).into()));
    entries.insert("crc32".to_owned(), Value::Object(sums.collect()));
    entries.insert("kind".to_owned(), json!(kind));
    entries.insert("version".to_owned(), json!(VERSION));
    entries.insert("selection".to_owned(), json!(model.selection.name()));
    entries.insert("parameters".to_owned(), Value::Object(model.parameters.clone()));
    let metadata = HashMap::from([("compcodes".to_owned(), Value::Object(entries).to_string())]);
    let header = header(metadata, &all).map_err(|reason| Error::Format { path: path.to_owned(), reason })?;
    let parts = std::iter::once(&header[..]).chain(all.iter().map(|(_, _, _, bytes)| *bytes));
    replace(path, parts).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Makes `parts` the content of the file: all of them or, after an error, none.
fn replace<'a>(path: &Path, parts: impl Iterator<Item = &'a [u8]>) -> std::io::Result<()> {
    let temporary = Temporary::beside(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary.0)?;
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
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{count}.part", std::process::id()));
        Self(path.with_file_name(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing under this name, and nothing to do about other failures.
        let _ = fs::remove_file(&self.0);
    }
}

fn map(path: &Path) -> Result<memmap2::Mmap> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::Format { path: path.to_owned(), reason: "is not a file".to_owned() });
    }
    // SAFETY: the bytes are only read, and files of ours are replaced by renaming, never written in place.
    unsafe { memmap2::Mmap::map(&file) }.map_err(failed)
}

/// A mapped file and its checked metadata.
struct Reader<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    entries: Map<String, Value>,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let error = |reason: String| Error::Format { path: path.to_owned(), reason };
        let damaged = |e: &dyn std::fmt::Display| error(format!("not a compcodes file, or damaged ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(&e))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| damaged(&e))?;
        let entry = metadata.metadata().as_ref().and_then(|entries| entries.get("compcodes"));
        let entry = entry.ok_or_else(|| error("a safetensors file, but not of compcodes".to_owned()))?;
        let entries: Map<String, Value> = serde_json::from_str(entry).map_err(|e| damaged(&e))?;
        let reader = Self { path, tensors, entries };
        match reader.entry("version")?.as_u64() {
            Some(1..=VERSION) => Ok(reader),
            Some(later) if later > VERSION => {
                Err(reader.error(&format!("format version {later}; this release reads up to {VERSION}")))
            }
            _ => Err(reader.error("version is not a number")),
        }
    }

    fn error(&self, reason: &str) -> Error {
        Error::Format { path: self.path.to_owned(), reason: reason.to_owned() }
    }

    fn entry(&self, name: &str) -> Result<&Value> {
        self.entries.get(name).ok_or_else(|| self.error(&format!("the metadata lack {name}")))
    }

    fn kind(&self) -> Result<&str> {
        self.entry("kind")?.as_str().ok_or_else(|| self.error("kind is not a string"))
    }

    /// Shape and bytes of a tensor whose type and checksum are right.
    fn tensor(&self, name: &str, dtype: Dtype) -> Result<(Vec<usize>, &'a [u8])> {
        let tensor = self.tensors.tensor(name).map_err(|_| self.error(&format!("lacks {name}")))?;
        if tensor.dtype() != dtype {
            return Err(self.error(&format!("{name} is of type {:?}, not {dtype:?}", tensor.dtype())));
        }
        let sum = self.entry("crc32")?.get(name).and_then(Value::as_u64);
        if sum != Some(crc32fast::hash(tensor.data()).into()) {
            return Err(self.error(&format!("damaged: the checksum of {name} does not match")));
        }
        Ok((tensor.shape().to_vec(), tensor.data()))
    }

    fn model(&self) -> Result<Model> {
        let (shape, bytes) = self.tensor("codebooks", Dtype::F32)?;
        let &[m, k, d] = &shape[..] else {
            return Err(self.error(&format!("codebooks have shape {shape:?}, not three dimensions")));
        };
        let values =
            bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().expect("4 bytes")));
        let data = Array3::from_shape_vec((m, k, d), values.collect()).expect("shape and bytes agree");
        let codebooks = Codebooks::new(data).map_err(|e| self.error(&e.to_string()))?;
        let selection = self.entry("selection")?.as_str().unwrap_or_default();
        let selection = selection.parse().map_err(|e: Error| self.error(&e.to_string()))?;
        let parameters = self.entry("parameters")?.as_object().cloned();
        let parameters = parameters.ok_or_else(|| self.error("parameters are not an object"))?;
        Ok(Model { codebooks, selection, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::Selection;
    use ndarray::Array2;

    fn index() -> Index {
        let codebooks =
            Codebooks::new(Array3::from_shape_fn((3, 5, 2), |(m, k, j)| (m * k + j) as f32)).unwrap();
        let mut index = Index::new(Model::new(codebooks, Selection::Group));
        index.add_codes(Array2::from_shape_fn((100, 3), |(n, m)| ((n + m) % 5) as u8).view(), None).unwrap();
        index.add_codes(Array2::zeros((1, 3)).view(), Some(&[1000])).unwrap();
        index
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        let index = index();
        index.save(&path).unwrap();
        let loaded = Index::load(&path).unwrap();
        assert_eq!(loaded.model(), index.model());
        assert_eq!(loaded.codes().view().unpack(), index.codes().view().unpack());
        assert_eq!(loaded.ids(), index.ids());
        assert_eq!(&Model::load(&path).unwrap(), index.model());
        index.model().save(&path).unwrap();
        assert_eq!(&Model::load(&path).unwrap(), index.model());
        assert!(Index::load(&path).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn the_same_index_gives_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        index().save(&a).unwrap();
        index().save(&b).unwrap();
        assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    }

    #[test]
    fn a_file_cut_anywhere_or_with_any_byte_changed_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        index().save(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Index::load(&path).is_err(), "cut at {cut}");
        }
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x11;
            fs::write(&path, &changed).unwrap();
            match Index::load(&path) {
                Err(_) => {}
                // Within the header a change may leave what is read as it was, but never the tensors.
                Ok(loaded) => {
                    assert!(at < data, "byte {at}");
                    assert_eq!(loaded.codes().view().unpack(), index().codes().view().unpack());
                }
            }
        }
    }
}
