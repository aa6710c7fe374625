//! Reading and writing indexes.
#![allow(unsafe_code)] // to map files into memory

use super::container::{Content, Numbers, Reader, Tensor};
use super::entries::Entries;
use super::model::describe;
use super::replace::replace;
use super::{BYTES, open};
use crate::codes::packed::{BLOCK, Layout, PackedCodes};
use crate::codes::store::{Mapped, Store};
use crate::error::{Error, Result};
use crate::index::{Column, Generation, Given, Index, Keys, Partition, Parts, Settings};
use crate::monitor::Monitor;
use crate::scan::{Edges, Levels};
use safetensors::tensor::Dtype;
use std::fs::File;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

/// Edges of 256 intervals.
const N_EDGES: usize = 257;

impl Index {
    /// Writes the index with its model to `path`, replacing any existing file.
    ///
    /// # Errors
    /// The file cannot be written; or the codes are mapped from a file that is damaged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_heeding(path, &())
    }

    /// Like [`save`](Self::save), but `monitor` may stop it; an existing file is then kept.
    ///
    /// # Errors
    /// The errors of [`save`](Self::save), or the monitor cancels.
    pub fn save_heeding(&self, path: impl AsRef<Path>, monitor: &dyn Monitor) -> Result<()> {
        let path = path.as_ref();
        let content = content(self, monitor)?;
        replace(path, |file| content.write(path, file, monitor))
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_heeding(path, &())
    }

    /// Like [`load`](Self::load), but `monitor` may stop it.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load), or the monitor cancels.
    pub fn load_heeding(path: impl AsRef<Path>, monitor: &dyn Monitor) -> Result<Self> {
        let path = path.as_ref();
        Reader::new(path, open(path)?, monitor)?.index(None)
    }

    /// Like [`load`](Self::load), but leaves the codes in the file and maps it into memory: searching can begin at
    /// once, and processes share the pages. The codes are verified and copied only when they are first changed or
    /// saved.
    ///
    /// The file may be replaced in the meantime, as saving does, but must not be written in place: searches would see
    /// the changed codes, and a process that reads a page beyond the end of a truncated file is killed (SIGBUS).
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = open(path)?;
        let again = file.try_clone().map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Reader::new(path, file, &())?.index(Some(&again))
    }

    /// The bytes that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// The codes are mapped from a file that is damaged, or the monitor cancels.
    pub fn to_bytes(&self, monitor: &dyn Monitor) -> Result<Vec<u8>> {
        let content = content(self, monitor)?;
        let mut bytes = Vec::with_capacity(content.n_bytes());
        content.write(Path::new(BYTES), &mut bytes, monitor)?;
        Ok(bytes)
    }

    /// Reads bytes from [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// The bytes are damaged, or something else; or the monitor cancels.
    pub fn from_bytes(bytes: &[u8], monitor: &dyn Monitor) -> Result<Self> {
        Reader::new(Path::new(BYTES), Cursor::new(bytes), monitor)?.index(None)
    }
}

fn content<'a>(index: &'a Index, monitor: &dyn Monitor) -> Result<Content<'a>> {
    let (codes, settings) = (index.packed(), index.settings());
    let mut entries = Entries::new();
    for (name, value) in [
        ("kind", "index".to_owned()),
        ("n", index.len().to_string()),
        ("metric", settings.metric.name().to_owned()),
        ("scale", settings.scale.to_string()),
        ("exact_norms", settings.exact_norms.to_string()),
        ("residuals", settings.residuals.to_string()),
        ("centred", index.is_centered().to_string()),
        ("next_id", index.next_id().to_string()),
        ("order", index.order().name().to_owned()),
    ] {
        entries.insert(name.to_owned(), value);
    }
    if codes.layout().n_nibbles() > 0 {
        entries.insert("nibbles".to_owned(), codes.layout().n_nibbles().to_string());
    }
    // Tensors are ordered from the widest type to the narrowest, except the codes, whose size is a multiple of 64: so
    // all are aligned.
    let shape = [codes.n_blocks(), codes.n_lines(), BLOCK];
    let want = index.check_store()?;
    let mut tensors = vec![Tensor { want, ..Tensor::new("codes", &shape, Numbers::Bytes(codes.as_bytes())) }];
    match index.stored_ids() {
        Some(Given::Short(ids)) => tensors.push(Tensor::new("ids", &[index.len()], Numbers::Short(ids))),
        Some(Given::Long(ids)) => tensors.push(Tensor::new("ids", &[index.len()], &ids[..])),
        None => {}
    }
    let runs = index.column().map_or(&[][..], Column::as_runs);
    if runs.len() > 1 {
        let firsts: Vec<i64> = runs.iter().map(|run| run.first as i64).collect();
        tensors.push(Tensor::new("runs", &[runs.len()], firsts));
    }
    if !runs.is_empty() {
        let edges: Vec<f32> = runs.iter().flat_map(|run| *run.edges).collect();
        tensors.push(Tensor::new("edges", &[runs.len(), N_EDGES], edges));
    }
    if let Some(levels) = index.column().and_then(Column::as_levels) {
        tensors.push(Tensor::new("levels", &[levels.len()], &levels[..]));
    }
    if !index.numbers().is_empty() {
        tensors.push(Tensor::new("biases", &[index.len()], index.numbers()));
    }
    if let Some(partition) = index.partition() {
        let generations = partition.generations();
        let starts = generations.iter().flat_map(|generation| &generation.starts);
        let starts: Vec<i64> = starts.map(|&start| start.into()).collect();
        let shape = [generations.len(), starts.len() / generations.len().max(1)];
        tensors.push(Tensor::new("lists", &shape, starts));
        tensors.push(Tensor::new("positions", &[index.len()], partition.positions()));
    }
    if let Some(keys) = index.stored_keys() {
        let ends: Vec<i64> = keys.parts().1.iter().map(|&end| end as i64).collect();
        tensors.push(Tensor::new("key_ends", &[index.len()], ends));
    }
    describe(index.model(), &mut entries, &mut tensors);
    if let Some(keys) = index.stored_keys() {
        let text = keys.parts().0.as_bytes();
        tensors.push(Tensor::new("keys", &[text.len()], Numbers::Bytes(text)));
    }
    Content::new(entries, tensors, monitor)
}

impl Reader<'_> {
    /// The index, with its codes mapped from `file` if that is given.
    pub(super) fn index(&self, file: Option<&File>) -> Result<Index> {
        if self.text("kind")? != "index" {
            return Err(self.error("holds a model without codes, not an index"));
        }
        let model = self.model()?;
        let settings = Settings {
            metric: self.named("metric")?,
            scale: self.value("scale")?,
            exact_norms: self.value("exact_norms")?,
            residuals: self.optional("residuals")?.unwrap_or(false),
        };
        let n: usize = self.value("n")?;
        let shape = self.shape("codes", Dtype::U8)?.ok_or_else(|| self.error("lacks codes"))?;
        let &[blocks, lines, BLOCK] = shape else {
            return Err(self.error(format!("codes have shape {shape:?}: want (…, …, {BLOCK})")));
        };
        if blocks != n.div_ceil(BLOCK) {
            return Err(self.error(format!("codes have {blocks} blocks, which do not fit {n} vectors")));
        }
        let n_nibbles: usize = self.optional("nibbles")?.unwrap_or(0);
        let layout = match lines.checked_sub(n_nibbles.div_ceil(2)) {
            Some(n_bytes) => Layout::nibbles(n_nibbles, n_bytes),
            None => {
                return Err(self.error(format!("codes have {lines} lines: too few for {n_nibbles} nibbles")));
            }
        };
        let packed = match file {
            Some(file) => Store::Mapped(self.map(file, n, layout)?),
            None => {
                Store::Owned(self.blame(PackedCodes::filled(n, layout, |bytes| self.fill("codes", bytes)))?)
            }
        };
        let levels: Option<Box<Levels>> = match self.floats("levels")? {
            None => None,
            Some((_, levels)) => {
                Some(levels.into_boxed_slice().try_into().map_err(|levels: Box<[f32]>| {
                    self.error(format!("levels are {}: want 256", levels.len()))
                })?)
            }
        };
        let runs = self.runs()?;
        let numbers = self.of_each("biases", n, self.floats("biases")?)?.unwrap_or_default();
        let is_centered = self.optional("centred")?.unwrap_or(false);
        let ids = self.of_each("ids", n, self.integers("ids")?)?;
        let next_id = self.optional("next_id")?;
        let order = match self.has("order") {
            false => None,
            true => Some(self.named("order")?),
        };
        let partition = match &model.centroids {
            None if self.integers("lists")?.is_some() || self.words("positions")?.is_some() => {
                return Err(self.error("holds vectors in lists, but lacks centroids"));
            }
            None => None,
            Some(centroids) => Some(self.partition(centroids.n_lists(), n)?),
        };
        let keys = self.keys(n)?;
        let parts =
            Parts { packed, levels, runs, numbers, is_centered, ids, next_id, order, partition, keys };
        self.blame(Index::from_parts(model, settings, parts))
    }

    /// The partition of the vectors into lists.
    fn partition(&self, n_lists: usize, n: usize) -> Result<Partition> {
        let (Some((shape, starts)), Some(positions)) =
            (self.integers("lists")?, self.of_each("positions", n, self.words("positions")?)?)
        else {
            return Err(self.error("lacks lists or positions"));
        };
        if !matches!(shape, [rows, columns] if *rows == 0 || *columns == n_lists + 1) {
            return Err(self.error(format!("lists have shape {shape:?}: want (…, {})", n_lists + 1)));
        }
        let starts: std::result::Result<Vec<u32>, _> = starts.into_iter().map(u32::try_from).collect();
        let Ok(starts) = starts else {
            return Err(self.error("lists are no places of vectors"));
        };
        let mut first = 0;
        let generations = starts.chunks(n_lists + 1).map(|starts| {
            let generation = Generation { first, starts: starts.to_vec() };
            first = first.saturating_add(starts.last().map_or(0, |&len| len as usize));
            generation
        });
        self.blame(Partition::restored(n_lists, generations.collect(), positions))
    }

    /// The keys of n vectors, if they have any.
    fn keys(&self, n: usize) -> Result<Option<Keys>> {
        let ends = self.of_each("key_ends", n, self.integers("key_ends")?)?;
        let shape = self.shape("keys", Dtype::U8)?;
        let (Some(ends), Some(&[size])) = (&ends, shape) else {
            let is_none = ends.is_none() && shape.is_none();
            return if is_none { Ok(None) } else { Err(self.error("keys do not fit their ends")) };
        };
        let mut text = vec![0; size];
        self.fill("keys", &mut text)?;
        let text = String::from_utf8(text).map_err(|_| self.error("keys are not UTF-8"))?;
        self.blame(Keys::restored(text, ends)).map(Some)
    }

    /// The first vector of each run of intervals, and the edges.
    fn runs(&self) -> Result<Vec<(usize, Box<Edges>)>> {
        let Some((shape, edges)) = self.floats("edges")? else { return Ok(Vec::new()) };
        let &[n, N_EDGES] = shape else {
            return Err(self.error(format!("edges have shape {shape:?}: want (…, {N_EDGES})")));
        };
        let firsts = self.of_each("runs", n, self.integers("runs")?)?.unwrap_or_else(|| vec![0; n]);
        let edges = edges.as_chunks::<N_EDGES>().0.iter().map(|&edges| Box::new(edges));
        // A negative number becomes one beyond all vectors, and is rejected as such.
        Ok(firsts.into_iter().map(|first| first as usize).zip(edges).collect())
    }

    /// The values of a tensor that has one per vector, or per run.
    fn of_each<T>(&self, name: &str, n: usize, found: Option<(&[usize], Vec<T>)>) -> Result<Option<Vec<T>>> {
        match found {
            Some((shape, _)) if shape != [n] => {
                Err(self.error(format!("{name} has shape {shape:?}: want [{n}]")))
            }
            found => Ok(found.map(|(_, values)| values)),
        }
    }

    fn map(&self, file: &File, n: usize, layout: Layout) -> Result<Mapped> {
        // SAFETY: the bytes are only read, and any bytes are valid codes. The documentation of `Index::map` warns
        // against writing the file in place.
        let map = unsafe { memmap2::Mmap::map(file) }.map_err(|source| self.io(source))?;
        let range = self.range("codes")?;
        let bytes = range.start as usize..range.end as usize;
        self.blame(Mapped::new(Arc::new(map), bytes, (n, layout), self.crc("codes")?))
    }
}
