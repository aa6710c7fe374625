//! What identifies vectors in Python: ids, an array of int64; or keys, a list of strings.

use crate::arrays::ids;
use crate::texts::{Answers, Keys, Texts};
use compcodes::index::sharded::Shards;
use compcodes::index::{Allowed, Marks, shown};
use compcodes::monitor::Monitor;
use compcodes::scan::Hits;
use compcodes::{Error, Index, Result};
use ndarray::{Array2, Axis};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Vectors that a caller names.
pub(crate) enum Names {
    Ids(Vec<i64>),
    Keys(Arc<Texts>),
}

impl Names {
    pub(crate) fn new(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(keys) = array.cast::<PyList>() {
            return Ok(Self::Keys(Arc::new(Texts::new(keys)?)));
        }
        match array.cast::<Keys>() {
            Ok(keys) => Ok(Self::Keys(keys.get().texts.clone())),
            Err(_) => Ok(Self::Ids(ids(array, name)?.as_array().to_vec())),
        }
    }

    /// The ids of these vectors, all of which must exist.
    pub(crate) fn ids(&self, index: &Index) -> Result<Vec<i64>> {
        match self {
            Self::Ids(ids) => Ok(ids.clone()),
            Self::Keys(keys) => index.ids_of(&keys.all()),
        }
    }

    /// Ids, with −1 for keys that do not exist.
    pub(crate) fn find(&self, index: &impl Vectors, monitor: &dyn Monitor) -> Result<Vec<i64>> {
        match self {
            Self::Ids(ids) => Ok(ids.clone()),
            Self::Keys(keys) => {
                let found = index.find_keys(&keys.all(), monitor)?;
                Ok(found.into_iter().map(|found| found.unwrap_or(-1)).collect())
            }
        }
    }

    /// Ids in place of keys, for rows that may belong to vectors outside the candidates; for [`Found::keys`].
    pub(crate) fn among(&self, candidates: &[i64], keys: &Option<Vec<String>>) -> Result<Vec<i64>> {
        let refused = |problem| Error::Argument { name: "rerank_ids", problem };
        let (given, keys) = match (self, keys) {
            (Self::Ids(ids), _) => return Ok(ids.clone()),
            (Self::Keys(given), Some(keys)) => (given, keys),
            (Self::Keys(_), None) => {
                return Err(refused("are keys: the vectors of this index have ids, no keys".to_owned()));
            }
        };
        let mut known: HashMap<&str, (i64, bool)> =
            keys.iter().map(String::as_str).zip(candidates.iter().map(|&id| (id, false))).collect();
        let mut ids = Vec::with_capacity(given.len());
        for (row, key) in given.all().into_iter().enumerate() {
            ids.push(match known.get_mut(key) {
                Some((_, true)) => {
                    return Err(refused(format!("holds {} twice", shown(key))));
                }
                Some((id, seen)) => {
                    *seen = true;
                    *id
                }
                None => -2 - row as i64, // none of them
            });
        }
        match known.iter().find(|(_, (_, seen))| !seen) {
            Some((key, _)) => Err(refused(format!("lacks {}, the id of a candidate", shown(key)))),
            None => Ok(ids),
        }
    }
}

/// Ids and, if vectors have keys, the keys: how results identify vectors.
pub(crate) struct Named {
    ids: Vec<i64>,
    keys: Option<Answers>,
}

impl Named {
    pub(crate) fn new(index: &Index, ids: Vec<i64>) -> Self {
        let key = |&id: &i64| index.key(id);
        let keys = index.has_keys().then(|| ids.iter().map(key).collect());
        Self { ids, keys }
    }

    /// The vectors at these positions of shards.
    pub(crate) fn at(shards: &Shards, positions: &[i64]) -> Self {
        let keys =
            shards.has_keys().then(|| positions.iter().map(|&position| shards.key(position)).collect());
        let ids = if keys.is_some() { Vec::new() } else { positions.iter().map(|&p| shards.id(p)).collect() };
        Self { ids, keys }
    }

    /// An array (n,) of ids, or a list of keys.
    pub(crate) fn into_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.keys {
            Some(keys) => keys.into_python(py),
            None => Ok(self.ids.into_pyarray(py).into_any()),
        }
    }
}

/// Scores (nq, k) and the names of the vectors found.
pub(crate) struct Found {
    scores: Array2<f32>,
    ids: Array2<i64>,
    keys: Option<Answers>,
}

/// Scores (nq, k) f32, and ids (nq, k) i64 or a list of nq · k keys.
pub(crate) type Answer<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyAny>);
/// Scores, names, and (nq,) bool: for which queries the results are proven exact.
pub(crate) type Certified<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyAny>, Bound<'py, PyArray1<bool>>);

impl Found {
    pub(crate) fn new(index: &Index, hits: Hits) -> Self {
        let Hits { scores, positions: ids } = hits;
        let key = |&id: &i64| index.key(id);
        let keys = index.has_keys().then(|| ids.iter().map(key).collect());
        Self { scores, ids, keys }
    }

    /// Results for candidates with ascending ids, and with keys if they have any.
    pub(crate) fn of(candidates: &[i64], keys: &Option<Vec<String>>, hits: Hits) -> Self {
        let Hits { scores, positions: ids } = hits;
        let at = |&id: &i64| candidates.binary_search(&id).ok();
        let keys =
            keys.as_ref().map(|keys| ids.iter().map(|id| at(id).map(|at| keys[at].as_str())).collect());
        Self { scores, ids, keys }
    }

    pub(crate) fn into_python<'py>(self, py: Python<'py>) -> PyResult<Answer<'py>> {
        let names = match self.keys {
            Some(keys) => keys.into_python(py)?,
            None => self.ids.into_pyarray(py).into_any(),
        };
        Ok((self.scores.into_pyarray(py), names))
    }
}

/// Vectors to some of which a search can be limited: those of one index, or of several.
pub(crate) trait Vectors {
    fn find_keys(&self, keys: &[&str], monitor: &dyn Monitor) -> Result<Vec<Option<i64>>>;
    fn allow_ids(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed>;
    fn allow_range(&self, ids: RangeInclusive<i64>, step: u64, monitor: &dyn Monitor) -> Result<Allowed>;
    fn allow_row(&self, mask: Marks, monitor: &dyn Monitor) -> Result<Allowed>;
    fn allow_each(&self, starts: &[usize], ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed>;
    fn allow_each_keys(&self, starts: &[usize], keys: &[&str], monitor: &dyn Monitor) -> Result<Allowed>;
    fn allow_marks(&self, marks: Marks, monitor: &dyn Monitor) -> Result<Allowed>;
}

macro_rules! confined {
    ($kind:ty, $find:expr) => {
        impl Vectors for $kind {
            fn find_keys(&self, keys: &[&str], monitor: &dyn Monitor) -> Result<Vec<Option<i64>>> {
                $find(self, keys, monitor)
            }
            fn allow_each_keys(
                &self,
                starts: &[usize],
                keys: &[&str],
                monitor: &dyn Monitor,
            ) -> Result<Allowed> {
                self.allow_each_keys(starts, keys, monitor)
            }
            fn allow_ids(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
                self.allow_ids(ids, monitor)
            }
            fn allow_range(
                &self,
                ids: RangeInclusive<i64>,
                step: u64,
                monitor: &dyn Monitor,
            ) -> Result<Allowed> {
                self.allow_range(ids, step, monitor)
            }
            fn allow_row(&self, mask: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
                self.allow_row(mask, monitor)
            }
            fn allow_each(&self, starts: &[usize], ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
                self.allow_each(starts, ids, monitor)
            }
            fn allow_marks(&self, marks: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
                self.allow_marks(marks, monitor)
            }
        }
    };
}
confined!(Index, |index: &Index, keys, _| index.find_keys(keys));
confined!(Shards, |shards: &Shards, keys, monitor| shards.find_keys(keys, monitor));

/// Which vectors a search may find, or may not.
#[derive(FromPyObject)]
pub(crate) enum Filter<'py> {
    /// The first id, the last id, and the step.
    Range((i64, i64, u64)),
    /// Where the names of each query begin, and the names of all queries.
    Each((Bound<'py, PyArray1<i64>>, Bound<'py, PyAny>)),
    /// A mask (n,) or (nq, n), or names.
    Array(Bound<'py, PyAny>),
}

/// A filter that can be used without the interpreter lock.
pub(crate) enum Choice {
    Range(i64, i64, u64),
    Row(Marks),
    Marks(Marks),
    Named(Names),
    Each(Vec<usize>, Names),
}

impl Filter<'_> {
    fn detach(self, name: &str) -> PyResult<Choice> {
        match self {
            Filter::Range((first, last, step)) => Ok(Choice::Range(first, last, step)),
            Filter::Each((starts, names)) => {
                let starts = starts.try_readonly()?;
                let starts = starts.as_array().iter().map(|&start| start as usize).collect();
                Ok(Choice::Each(starts, Names::new(&names, name)?))
            }
            Filter::Array(array) => {
                let Some(bytes) = bytes_of_mask(&array)? else {
                    return Ok(Choice::Named(Names::new(&array, name)?));
                };
                match bytes.extract::<PyReadonlyArray1<'_, u8>>() {
                    Ok(mask) => Ok(Choice::Row(Marks::of_bytes(mask.as_array().insert_axis(Axis(0))))),
                    Err(_) => {
                        let marks: PyReadonlyArray2<'_, u8> = bytes.extract()?;
                        Ok(Choice::Marks(Marks::of_bytes(marks.as_array())))
                    }
                }
            }
        }
    }
}

/// An array of bool as bytes, without a copy; `None` for other arrays.
///
/// numpy takes every byte but 0 for true, and arrays that were made by `view` hold others than 1; such a byte is no
/// `bool` of Rust.
fn bytes_of_mask<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = array.py();
    match array.cast::<PyUntypedArray>() {
        Ok(mask) if mask.dtype().is_equiv_to(&numpy::dtype::<bool>(py)) => {
            array.call_method1("view", (numpy::dtype::<u8>(py),)).map(Some)
        }
        _ => Ok(None),
    }
}

impl Choice {
    fn allowed(self, index: &impl Vectors, monitor: &dyn Monitor) -> Result<Allowed> {
        match self {
            Choice::Range(first, last, step) => index.allow_range(first..=last, step, monitor),
            Choice::Named(names) => index.allow_ids(&names.find(index, monitor)?, monitor),
            Choice::Row(mask) => index.allow_row(mask, monitor),
            Choice::Marks(marks) => index.allow_marks(marks, monitor),
            Choice::Each(starts, Names::Ids(ids)) => index.allow_each(&starts, &ids, monitor),
            Choice::Each(starts, Names::Keys(keys)) => index.allow_each_keys(&starts, &keys.all(), monitor),
        }
    }
}

/// What a search is limited to.
pub(crate) struct Limits {
    filter: Option<Choice>,
    exclude: Option<Choice>,
}

impl Limits {
    pub(crate) fn new(filter: Option<Filter<'_>>, exclude: Option<Filter<'_>>) -> PyResult<Self> {
        let filter = filter.map(|filter| filter.detach("filter")).transpose()?;
        let exclude = exclude.map(|exclude| exclude.detach("exclude")).transpose()?;
        Ok(Self { filter, exclude })
    }

    pub(crate) fn allowed(self, index: &impl Vectors, monitor: &dyn Monitor) -> Result<Option<Allowed>> {
        let allowed =
            |choice: Option<Choice>| choice.map(|choice| choice.allowed(index, monitor)).transpose();
        let filter = allowed(self.filter)?;
        let exclude = allowed(self.exclude).map_err(|error| match error {
            Error::Argument { name: "filter", problem } => Error::Argument { name: "exclude", problem },
            error => error,
        })?;
        match (filter, exclude) {
            (filter, None) => Ok(filter),
            (None, Some(exclude)) => exclude.inverse().map(Some),
            (Some(filter), Some(exclude)) => filter.and(exclude.inverse()?).map(Some),
        }
    }
}

/// An id, or a key.
#[derive(FromPyObject)]
pub(crate) enum Name {
    Id(i64),
    Key(String),
}

impl Name {
    pub(crate) fn is_in(&self, index: &Index) -> bool {
        match self {
            Self::Id(id) => index.contains(*id),
            Self::Key(key) => index.find_keys(&[key]).is_ok_and(|found| found[0].is_some()),
        }
    }
}

/// The keys of the vectors with these ids, where they have keys.
pub(crate) fn keys_of(index: &Index, ids: &[i64]) -> Option<Vec<String>> {
    let key = |&id: &i64| index.key(id).unwrap_or_default().to_owned();
    index.has_keys().then(|| ids.iter().map(key).collect())
}

/// Where results begin, as a numpy array of int64.
pub(crate) fn starts(py: Python<'_>, starts: Vec<usize>) -> Bound<'_, PyArray1<i64>> {
    starts.into_iter().map(|start| start as i64).collect::<Vec<_>>().into_pyarray(py)
}
