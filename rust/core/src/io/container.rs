//! The container: a safetensors file with a checksum for each tensor and one for the header. docs/file-format.md
//! describes its layout.

use super::entries::Entries;
use super::v1;
use crate::error::{Error, Result, damaged};
use crate::monitor::Monitor;
use safetensors::tensor::{Dtype, Metadata};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::str::FromStr;

/// The newest version: this code reads it and all older ones.
pub const VERSION: u64 = 3;
/// The version of files without any entry or tensor of [`SINCE_3`], so that earlier releases can read them.
const PLAIN: u64 = 2;
/// The entries and tensors that require version 3.
const SINCE_3: [&str; 4] = ["keys", "nibbles", "centroids", "groups"];

/// The longest header that the safetensors library accepts.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes read or written at once.
const PIECE: usize = 1 << 20;
/// The prefix of metadata entries with the checksums of tensors.
const CRC: &str = "crc32.";

/// The numbers of a tensor.
pub(super) enum Numbers<'a> {
    Bytes(&'a [u8]),
    Floats(Cow<'a, [f32]>),
    Words(&'a [u32]),
    Integers(Cow<'a, [i64]>),
    /// Integers as well, stored with eight bytes each.
    Short(&'a [u32]),
}

impl<'a> From<&'a [f32]> for Numbers<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::Floats(values.into())
    }
}

impl<'a> From<&'a [i64]> for Numbers<'a> {
    fn from(values: &'a [i64]) -> Self {
        Self::Integers(values.into())
    }
}

impl<'a> From<&'a [u32]> for Numbers<'a> {
    fn from(values: &'a [u32]) -> Self {
        Self::Words(values)
    }
}

impl From<Vec<f32>> for Numbers<'_> {
    fn from(values: Vec<f32>) -> Self {
        Self::Floats(values.into())
    }
}

impl From<Vec<i64>> for Numbers<'_> {
    fn from(values: Vec<i64>) -> Self {
        Self::Integers(values.into())
    }
}

impl Numbers<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Bytes(_) => Dtype::U8,
            Self::Floats(_) => Dtype::F32,
            Self::Words(_) => Dtype::U32,
            Self::Integers(_) | Self::Short(_) => Dtype::I64,
        }
    }

    fn n_bytes(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => size_of_val(&**values),
            Self::Words(values) => size_of_val(*values),
            Self::Integers(values) => size_of_val(&**values),
            Self::Short(values) => values.len() * size_of::<i64>(),
        }
    }

    /// The bytes as stored in a file, a piece at a time.
    fn pieces(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Self::Bytes(values) => values.chunks(PIECE).try_for_each(each),
            Self::Floats(values) => values
                .chunks(PIECE / 4)
                .try_for_each(|piece| each(&piece.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
            Self::Words(values) => values
                .chunks(PIECE / 4)
                .try_for_each(|piece| each(&piece.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
            Self::Integers(values) => values
                .chunks(PIECE / 8)
                .try_for_each(|piece| each(&piece.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
            Self::Short(values) => values.chunks(PIECE / 8).try_for_each(|piece| {
                each(&piece.iter().flat_map(|&x| i64::from(x).to_le_bytes()).collect::<Vec<u8>>())
            }),
        }
    }
}

/// A tensor to be written.
pub(super) struct Tensor<'a> {
    pub(super) name: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers<'a>,
    /// The checksum that it must have, if it comes from a mapped file.
    pub(super) want: Option<u32>,
}

impl<'a> Tensor<'a> {
    pub(super) fn new(name: &'static str, shape: &[usize], numbers: impl Into<Numbers<'a>>) -> Self {
        Self { name, shape: shape.to_vec(), numbers: numbers.into(), want: None }
    }
}

/// The content of a new file: its header, including checksums, and its tensors.
pub(super) struct Content<'a> {
    header: Vec<u8>,
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Content<'a> {
    /// Adds the checksums of the tensors, the version and the checksum of the header to the entries.
    ///
    /// # Errors
    /// The checksum of a tensor is not the required one, or the monitor cancels.
    pub(super) fn new(mut entries: Entries, tensors: Vec<Tensor<'a>>, monitor: &dyn Monitor) -> Result<Self> {
        for tensor in &tensors {
            let mut hasher = crc32fast::Hasher::new();
            tensor.numbers.pieces(|piece| {
                hasher.update(piece);
                monitor.report(0, 1)
            })?;
            let sum = hasher.finalize();
            if tensor.want.is_some_and(|want| want != sum) {
                return Err(damaged(tensor.name));
            }
            entries.insert(format!("{CRC}{}", tensor.name), sum.to_string());
        }
        let has = |name: &str| entries.contains_key(name) || tensors.iter().any(|tensor| tensor.name == name);
        let version = if SINCE_3.into_iter().any(has) { VERSION } else { PLAIN };
        entries.insert("compcodes".to_owned(), json!({ "version": version }).to_string());
        let described = tensors.iter().map(|tensor| (tensor.name, tensor.numbers.dtype(), &tensor.shape[..]));
        entries.insert("checksum".to_owned(), checksum(&entries, described).to_string());
        let mut end = 0;
        let mut header = serde_json::Map::from_iter([("__metadata__".to_owned(), json!(entries))]);
        for Tensor { name, shape, numbers, .. } in &tensors {
            let first = end;
            end += numbers.n_bytes();
            let info = json!({ "dtype": numbers.dtype(), "shape": shape, "data_offsets": [first, end] });
            header.insert((*name).to_owned(), info);
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        // Padded with spaces, so that the tensors begin at a multiple of 64 bytes: codes are mapped into memory as
        // whole cache lines.
        text.resize((text.len() + 8).next_multiple_of(64) - 8, b' ');
        Ok(Self { header: [&(text.len() as u64).to_le_bytes(), &text[..]].concat(), tensors })
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.header.len() + self.tensors.iter().map(|tensor| tensor.numbers.n_bytes()).sum::<usize>()
    }

    /// Writes everything; `path` is used in errors.
    pub(super) fn write(&self, path: &Path, out: &mut dyn Write, monitor: &dyn Monitor) -> Result<()> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let total = self.n_bytes() as u64;
        let mut done = 0;
        let mut write = |piece: &[u8]| {
            out.write_all(piece).map_err(failed)?;
            done += piece.len() as u64;
            monitor.report(done, total)
        };
        write(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| tensor.numbers.pieces(&mut write))
    }
}

/// The checksum of everything in the header: one line per entry except the checksum itself, and one per tensor, by
/// name.
fn checksum<'a>(entries: &Entries, tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>) -> u32 {
    let entries = entries.iter().filter(|(name, _)| *name != "checksum");
    let entries: String = entries.map(|(name, text)| format!("{name}={text}\n")).collect();
    let mut lines: Vec<String> = tensors
        .map(|(name, dtype, shape)| {
            let sizes: String = shape.iter().map(|size| format!(" {size}")).collect();
            format!("{name} {dtype:?}{sizes}\n")
        })
        .collect();
    lines.sort_unstable();
    crc32fast::hash((entries + &lines.concat()).as_bytes())
}

/// A source that a file is read from.
pub(super) trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// A file whose header is checked. Its tensors are read on demand, from the file and not from a mapping: if someone
/// writes the file in place in the meantime, the result is an error, not a crash.
pub(super) struct Reader<'a> {
    path: &'a Path,
    source: RefCell<Box<dyn Source + 'a>>,
    monitor: &'a dyn Monitor,
    /// Where the tensors begin.
    first: u64,
    metadata: Metadata,
    version: u64,
    entries: Entries,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path, source: impl Source + 'a, monitor: &'a dyn Monitor) -> Result<Self> {
        let error = |reason: String| Error::Format { path: path.to_owned(), reason };
        let broken = |e: &dyn Display| error(format!("not a compcodes file, or damaged ({e})"));
        let mut source: Box<dyn Source + 'a> = Box::new(source);
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => broken(&"it ends within the header"),
            _ => Error::Io { path: path.to_owned(), source: e },
        };
        let size = source.seek(SeekFrom::End(0)).map_err(failed)?;
        source.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut length = [0; 8];
        source.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER.min(size.saturating_sub(8)) {
            return Err(broken(&"the length of the header is beyond the file"));
        }
        let mut header = vec![0; length as usize];
        source.read_exact(&mut header).map_err(failed)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|e| broken(&e))?;
        let first = 8 + length;
        if (metadata.data_len() as u64).checked_add(first) != Some(size) {
            return Err(broken(&"the header tells of another size of the file"));
        }
        let mut entries: Entries =
            metadata.metadata().iter().flatten().map(|(name, text)| (name.clone(), text.clone())).collect();
        let ours = entries.get("compcodes");
        let ours = ours.ok_or_else(|| error("a safetensors file, but not of compcodes".to_owned()))?;
        let ours: Value = serde_json::from_str(ours).map_err(|e| broken(&e))?;
        let version = ours.get("version").and_then(Value::as_u64);
        let names = metadata.offset_keys();
        let tensors = names.iter().map(|name| {
            let info = metadata.info(name).expect("a name of its own");
            (&name[..], info.dtype, &info.shape[..])
        });
        let (version, have, want) = match version {
            Some(1) => {
                let want = v1::checksum(&ours, tensors);
                let have = ours.get("checksum").and_then(Value::as_u64);
                entries = v1::entries(&ours).map_err(|e| error(e.to_string()))?;
                (1, have, want)
            }
            Some(version @ PLAIN..=VERSION) => {
                let have = entries.get("checksum").and_then(|text| text.parse().ok());
                (version, have, checksum(&entries, tensors))
            }
            Some(later) if later > VERSION => {
                return Err(error(format!("format version {later}; this release reads up to {VERSION}")));
            }
            _ => return Err(error("its version is not a number".to_owned())),
        };
        if have != Some(want.into()) {
            return Err(error("damaged: the checksum of the header does not match".to_owned()));
        }
        Ok(Self { path, source: RefCell::new(source), monitor, first, metadata, version, entries })
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// An error about this file.
    pub(super) fn error(&self, reason: impl Display) -> Error {
        Error::Format { path: self.path.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.to_owned(), source }
    }

    /// Turns an error about an argument that comes from this file into an error about the file.
    pub(super) fn blame<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| match e {
            Error::Invalid(_) | Error::Argument { .. } => self.error(e),
            e => e,
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<&str> {
        self.entries
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| self.error(format!("the metadata lack {name}")))
    }

    /// An entry as a number or a boolean.
    pub(super) fn value<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| self.error(format!("{name} is {text:?}: want a {}", std::any::type_name::<T>())))
    }

    /// Like [`value`](Self::value), but `None` if there is no such entry.
    pub(super) fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        if self.has(name) { self.value(name).map(Some) } else { Ok(None) }
    }

    /// An entry as the value with that name.
    pub(super) fn named<T: FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        self.blame(self.text(name)?.parse())
    }

    /// The shape of a tensor, if a tensor of that name exists; its type must be right.
    pub(super) fn shape(&self, name: &str, dtype: Dtype) -> Result<Option<&[usize]>> {
        match self.metadata.info(name) {
            Some(info) if info.dtype != dtype => {
                Err(self.error(format!("{name} is of type {:?}, not {dtype:?}", info.dtype)))
            }
            info => Ok(info.map(|info| &info.shape[..])),
        }
    }

    /// The range of a tensor's bytes in the file.
    pub(super) fn range(&self, name: &str) -> Result<std::ops::Range<u64>> {
        let info = self.metadata.info(name).ok_or_else(|| self.error(format!("lacks {name}")))?;
        let (first, last) = info.data_offsets;
        Ok(self.first + first as u64..self.first + last as u64)
    }

    /// The checksum that a tensor must have.
    pub(super) fn crc(&self, name: &str) -> Result<u32> {
        self.value(&format!("{CRC}{name}"))
    }

    /// Fills `out` with the bytes of a tensor of that size, and verifies them.
    pub(super) fn fill(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let mut first = 0;
        self.pieces(name, |piece| {
            out[first..first + piece.len()].copy_from_slice(piece);
            first += piece.len();
        })
    }

    /// The numbers of N bytes that a tensor holds.
    fn numbers<T, const N: usize>(&self, name: &str, from: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let range = self.range(name)?;
        let mut values = Vec::with_capacity((range.end - range.start) as usize / N);
        self.pieces(name, |piece| values.extend(piece.as_chunks().0.iter().map(|&bytes| from(bytes))))?;
        Ok(values)
    }

    /// Reads a tensor in pieces, each a multiple of 8 bytes except the last, and then verifies what was read.
    fn pieces(&self, name: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.error(format!("it ends within {name}: written meanwhile?")),
            _ => self.io(e),
        };
        let range = self.range(name)?;
        let mut left = (range.end - range.start) as usize;
        let mut source = self.source.borrow_mut();
        source.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; PIECE.min(left)];
        while left > 0 {
            let piece = &mut buffer[..PIECE.min(left)];
            source.read_exact(piece).map_err(failed)?;
            hasher.update(piece);
            each(piece);
            left -= piece.len();
            self.monitor.report(0, 1)?;
        }
        if hasher.finalize() != self.crc(name)? {
            return self.blame(Err(damaged(name)));
        }
        Ok(())
    }

    /// Shape and finite numbers of a tensor, if a tensor of that name exists.
    pub(super) fn floats(&self, name: &str) -> Result<Option<(&[usize], Vec<f32>)>> {
        let Some(shape) = self.shape(name, Dtype::F32)? else { return Ok(None) };
        let values = self.numbers(name, f32::from_le_bytes)?;
        if values.iter().all(|value| value.is_finite()) {
            return Ok(Some((shape, values)));
        }
        Err(self.error(format!("{name} holds NaN or an infinity")))
    }

    /// Shape and 32-bit integers of a tensor, if a tensor of that name exists.
    pub(super) fn words(&self, name: &str) -> Result<Option<(&[usize], Vec<u32>)>> {
        let Some(shape) = self.shape(name, Dtype::U32)? else { return Ok(None) };
        Ok(Some((shape, self.numbers(name, u32::from_le_bytes)?)))
    }

    /// Shape and integers of a tensor, if a tensor of that name exists.
    pub(super) fn integers(&self, name: &str) -> Result<Option<(&[usize], Vec<i64>)>> {
        let Some(shape) = self.shape(name, Dtype::I64)? else { return Ok(None) };
        Ok(Some((shape, self.numbers(name, i64::from_le_bytes)?)))
    }
}
