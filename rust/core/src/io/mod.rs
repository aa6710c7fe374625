//! Files: models and indexes as safetensors, which other languages read and which can be memory-mapped.
//!
//! | tensor | type | shape | in |
//! |---|---|---|---|
//! | `codebooks` | F32 | (M, K, d) | models and indexes |
//! | `codes` | U8 | (⌈n/64⌉, columns, 64), see [`packed`](crate::codes::packed) | indexes |
//! | `levels` | F32 | (256), what the last column's bytes stand for | indexes that have one beyond the codes |
//! | `biases` | F32 | (n), −½‖x̄‖², or ‖x − x̄‖ | Euclidean indexes with exact norms, or with residuals |
//! | `ids` | I64 | (n) | indexes with ids of their own |
//!
//! The metadata has one entry, `compcodes`, a JSON object: `kind` ("model" or "index"), `version`, `selection`,
//! `parameters`, `crc32`, a checksum of each tensor, `checksum`, one of the header, and for indexes `n`, `metric`, `scale`, `exact_norms` and `residuals`
//! (if it is missing, false), `next_id` (the id of the next vector; if missing, one above the largest) and `order`, how
//! the order of the vectors came about ("added", "removed" for some removed since, "mixed" for others added after that;
//! if missing, "mixed" where ids do not ascend). A file is written under a temporary name and
//! renamed, so that a reader meets the old one or the new one whole. A damaged one is an error.

mod container;

use crate::codebooks::Codebooks;
use crate::codes::packed::{BLOCK, PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::error::{Error, Result};
use crate::index::{Index, Order, Parts, Settings};
use crate::model::Model;
use crate::monitor::Monitor;
pub use container::VERSION;
use container::{Reader, Tensor, map};
use ndarray::Array3;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

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
        let codes = self.packed();
        let floats =
            |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let ids: Option<Vec<u8>> = self.ids().map(|ids| ids.iter().flat_map(|id| id.to_le_bytes()).collect());
        let (levels, biases) = (self.levels().map(|levels| floats(levels)), floats(self.biases()));
        let shape = vec![codes.n_blocks(), codes.n_columns(), BLOCK];
        // From the widest type to the narrowest but for the codes, whose size is a multiple of 64: all are aligned.
        let mut tensors = vec![("codes", Dtype::U8, shape, codes.as_bytes())];
        if let Some(ids) = &ids {
            tensors.push(("ids", Dtype::I64, vec![self.len()], ids));
        }
        if let Some(levels) = &levels {
            tensors.push(("levels", Dtype::F32, vec![256], levels));
        }
        if !biases.is_empty() {
            tensors.push(("biases", Dtype::F32, vec![self.len()], &biases));
        }
        let settings = self.settings();
        let entries = json!({
            "n": self.len(),
            "metric": settings.metric.name(),
            "scale": settings.scale,
            "exact_norms": settings.exact_norms,
            "residuals": settings.residuals,
            "next_id": self.next_id(),
            "order": self.order().name(),
        });
        let Value::Object(entries) = entries else { unreachable!("an object, as written above") };
        write(path.as_ref(), "index", self.model(), entries, tensors)
    }

    /// Like [`save`](Self::save), but `monitor` may stop it: the old file, if there was one, then stays.
    ///
    /// # Errors
    /// Those of [`save`](Self::save), or a cancelling monitor.
    pub fn save_heeding(&self, path: impl AsRef<Path>, monitor: &dyn Monitor) -> Result<()> {
        monitor.report(0, 1)?;
        self.save(path)
    }

    /// Like [`load`](Self::load), but `monitor` may stop it.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), or a cancelling monitor.
    pub fn load_heeding(path: impl AsRef<Path>, monitor: &dyn Monitor) -> Result<Self> {
        monitor.report(0, 1)?;
        Self::load(path)
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), false)
    }

    /// Like [`load`](Self::load), but leaves the codes in the file and maps it into memory: searching can begin at once,
    /// and processes share the pages. The checksum of the codes is not verified, since that would read them all. The
    /// codes are copied when they are changed. The file must not be written in place meanwhile (saving replaces it).
    ///
    /// # Errors
    /// The same.
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), true)
    }

    fn read(path: &Path, mapped: bool) -> Result<Self> {
        let map = Arc::new(map(path)?);
        let reader = Reader::new(path, &map)?;
        if reader.kind()? != "index" {
            return Err(reader.error("holds a model without codes, not an index"));
        }
        let model = reader.model()?;
        let settings = reader.settings()?;
        let n = reader.entry("n")?.as_u64().and_then(|n| usize::try_from(n).ok());
        let n = n.ok_or_else(|| reader.error("n is not a count"))?;
        let (shape, bytes) =
            if mapped { reader.unverified("codes", Dtype::U8) } else { reader.tensor("codes", Dtype::U8) }?;
        let &[blocks, columns, BLOCK] = &shape[..] else {
            return Err(reader.error(&format!("codes have shape {shape:?}, not (…, …, {BLOCK})")));
        };
        if blocks != n.div_ceil(BLOCK) {
            return Err(reader.error(&format!("codes have {blocks} blocks, which do not fit {n} vectors")));
        }
        let codes = PackedView::new(bytes, n, columns).map_err(|e| reader.error(&e.to_string()))?;
        let parts = Parts {
            packed: if mapped {
                let first = bytes.as_ptr().addr() - map.as_ptr().addr();
                Store::Mapped {
                    map: map.clone(),
                    bytes: first..first + bytes.len(),
                    len: n,
                    n_columns: columns,
                }
            } else {
                Store::Owned(PackedCodes::from_view(codes)?)
            },
            levels: reader
                .floats("levels", 256)?
                .map(|levels| levels.into_boxed_slice().try_into().expect("256 are 256")),
            biases: reader.floats("biases", n)?.unwrap_or_default(),
            ids: reader.optional("ids", Dtype::I64, n)?.map(|bytes| {
                bytes.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().expect("8 bytes"))).collect()
            }),
            next_id: reader.known("next_id", Value::as_u64)?,
            order: reader.known("order", |name| Order::named(name.as_str()?))?,
        };
        Index::from_parts(model, settings, parts).map_err(|e| reader.error(&e.to_string()))
    }
}

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
    let mut tensors = tensors; // of a lifetime that ends with the codebooks' bytes
    tensors.push(("codebooks", Dtype::F32, vec![m, k, d], &codebooks[..]));
    entries.insert("kind".to_owned(), json!(kind));
    entries.insert("selection".to_owned(), json!(model.selection.name()));
    entries.insert("parameters".to_owned(), Value::Object(model.parameters.clone()));
    container::write(path, entries, &tensors)
}

impl Reader<'_> {
    /// An entry that older files lack.
    fn known<T>(&self, name: &str, value: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        if !self.has(name) {
            return Ok(None);
        }
        let value = value(self.entry(name)?);
        value
            .map(Some)
            .ok_or_else(|| self.error(&format!("{name} has a value that this release does not know")))
    }

    fn settings(&self) -> Result<Settings> {
        let truth = |name: &str| {
            self.entry(name)?
                .as_bool()
                .ok_or_else(|| self.error(&format!("{name} is neither true nor false")))
        };
        let metric = self.entry("metric")?.as_str().unwrap_or_default();
        let metric = metric.parse().map_err(|e: Error| self.error(&e.to_string()))?;
        Ok(Settings {
            metric,
            scale: truth("scale")?,
            exact_norms: truth("exact_norms")?,
            residuals: if self.has("residuals") { truth("residuals")? } else { false },
        })
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
        codebooks.check_selection(selection).map_err(|e| self.error(&e.to_string()))?;
        let parameters = self.entry("parameters")?.as_object().cloned();
        let parameters = parameters.ok_or_else(|| self.error("parameters are not an object"))?;
        Ok(Model { codebooks, selection, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::Selection;
    use crate::vectors::metric::Metric;
    use ndarray::Array2;
    use std::fs;

    fn index(settings: Settings) -> Index {
        let codebooks =
            Codebooks::new(Array3::from_shape_fn((3, 5, 2), |(m, k, j)| (m * k + j) as f32)).unwrap();
        let mut index = Index::with(Model::new(codebooks, Selection::Group), settings).unwrap();
        let codes = Array2::from_shape_fn((100, 3), |(n, m)| ((n + m) % 5) as u8);
        let residuals: Option<Vec<f32>> =
            settings.residuals.then(|| (0..100).map(|n| n as f32 / 7.0).collect());
        index.add_codes(codes.view(), None, residuals.as_deref(), &()).unwrap();
        let one = settings.residuals.then_some(&[99.0f32][..]);
        index.add_codes(Array2::zeros((1, 3)).view(), Some(&[1000]), one, &()).unwrap();
        index
    }

    fn all_settings() -> Vec<Settings> {
        let of = |metric| Settings { metric, ..Settings::default() };
        let mut all: Vec<_> = Metric::ALL.map(of).to_vec();
        all.push(Settings { scale: true, ..Settings::default() });
        all.push(Settings { residuals: true, ..Settings::default() });
        all
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        let query = ndarray::array![[0.5f32, 1.0]];
        for settings in all_settings() {
            let index = index(settings);
            index.save(&path).unwrap();
            let loaded = Index::load(&path).unwrap();
            assert_eq!((loaded.model(), loaded.settings()), (index.model(), settings));
            assert_eq!((loaded.codes(), loaded.ids()), (index.codes(), index.ids()));
            let hits = |index: &Index| index.search(query.view(), 101, None, &()).unwrap();
            assert_eq!(hits(&loaded), hits(&index));
            assert_eq!(loaded.biases(), index.biases());
            let mut mapped = Index::map(&path).unwrap();
            assert_eq!(hits(&mapped), hits(&index));
            assert_eq!(mapped.remove(&[3], &()).unwrap(), 1);
            assert_eq!(mapped.len(), 100);
            assert_eq!(Index::load(&path).unwrap().codes(), index.codes());
        }
        let index = index(Settings::default());
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
        index(Settings::default()).save(&a).unwrap();
        index(Settings::default()).save(&b).unwrap();
        assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    }

    #[test]
    fn a_file_cut_anywhere_or_with_any_byte_changed_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        let index = index(Settings { metric: Metric::Euclidean, ..Settings::default() });
        index.save(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Index::load(&path).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for flip in [0x01, 0x10] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                fs::write(&path, &changed).unwrap();
                // Nothing but the kind of white space around the header may change unnoticed.
                if let Ok(loaded) = Index::load(&path) {
                    assert_eq!(
                        (loaded.model(), loaded.settings()),
                        (index.model(), index.settings()),
                        "byte {at}"
                    );
                    assert_eq!((loaded.codes(), loaded.ids()), (index.codes(), index.ids()), "byte {at}");
                    assert_eq!(loaded.biases(), index.biases(), "byte {at}");
                }
            }
        }
    }
}
