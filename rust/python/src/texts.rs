//! Keys on their way from Python and back: one text for all, so that a key needs no allocation of its own.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};
use std::sync::Arc;

/// Strings, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    /// Builds from a list of strings.
    pub(crate) fn new(keys: &Bound<'_, PyList>) -> PyResult<Self> {
        let mut texts = Self { text: String::new(), ends: Vec::with_capacity(keys.len()) };
        for key in keys.iter() {
            texts.push(key.cast::<PyString>()?.to_str()?);
        }
        Ok(texts)
    }

    fn push(&mut self, key: &str) {
        self.text.push_str(key);
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn at(&self, i: usize) -> &str {
        let first = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[first..self.ends[i]]
    }

    pub(crate) fn all(&self) -> Vec<&str> {
        (0..self.len()).map(|i| self.at(i)).collect()
    }
}

/// Strings of results, some of which may be missing.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    texts: Texts,
    is_there: Vec<bool>,
}

impl<'a> FromIterator<Option<&'a str>> for Answers {
    fn from_iter<I: IntoIterator<Item = Option<&'a str>>>(keys: I) -> Self {
        let mut answers = Self::default();
        for key in keys {
            answers.texts.push(key.unwrap_or_default());
            answers.is_there.push(key.is_some());
        }
        answers
    }
}

impl Answers {
    /// A list of strings and None.
    pub(crate) fn into_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let key = |(i, &is_there): (usize, &bool)| is_there.then(|| self.texts.at(i));
        Ok(PyList::new(py, self.is_there.iter().enumerate().map(key))?.into_any())
    }
}

/// Keys as they are stored: a sequence of str.
#[pyclass(frozen, sequence, module = "compcodes._core")]
pub(crate) struct Keys {
    pub(crate) texts: Arc<Texts>,
}

#[pymethods]
impl Keys {
    #[new]
    fn new(keys: &Bound<'_, PyList>) -> PyResult<Self> {
        Ok(Self { texts: Arc::new(Texts::new(keys)?) })
    }

    fn __len__(&self) -> usize {
        self.texts.len()
    }

    fn __getitem__(&self, i: isize) -> PyResult<&str> {
        let i = usize::try_from(i).ok().filter(|&i| i < self.texts.len());
        i.map(|i| self.texts.at(i)).ok_or_else(|| PyIndexError::new_err("no such key"))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyList>,))> {
        Ok((slf.get_type().into_any(), (PyList::new(slf.py(), slf.get().texts.all())?,)))
    }
}

/// A str that is stored unchanged: not an instance of a subclass, no leading NUL, and valid Unicode text.
fn plain<'a>(key: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    let text = key.cast_exact::<PyString>().ok()?.to_str().ok()?;
    (!text.starts_with('\0')).then_some(text)
}

/// Whether all keys are stored unchanged.
#[pyfunction]
pub(crate) fn are_plain(keys: &Bound<'_, PyList>) -> bool {
    keys.iter().all(|key| plain(&key).is_some())
}

/// Where the keys of each row begin, (n + 1,) i64, and the keys of all rows; `None` unless rows are lists of keys that
/// are stored unchanged.
#[pyfunction]
pub(crate) fn keys_of_each<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyList>,
) -> Option<(Bound<'py, PyArray1<i64>>, Keys)> {
    let (mut starts, mut texts) = (vec![0], Texts::default());
    for row in rows.iter() {
        for key in row.cast_exact::<PyList>().ok()?.iter() {
            texts.push(plain(&key)?);
        }
        starts.push(texts.len() as i64);
    }
    Some((starts.into_pyarray(py), Keys { texts: Arc::new(texts) }))
}

/// Where the ids of each row begin, (n + 1,) i64, and the ids of all rows, (m,) i64; `None` unless rows are lists,
/// tuples or sets of int that fit 64 bits.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "two arrays")]
pub(crate) fn ids_of_each<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyList>,
) -> Option<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)> {
    let (mut starts, mut ids) = (vec![0], Vec::new());
    for row in rows.iter() {
        if let Ok(row) = row.cast_exact::<PyList>() {
            extend(&mut ids, row.iter())?;
        } else if let Ok(row) = row.cast_exact::<PyTuple>() {
            extend(&mut ids, row.iter())?;
        } else if let Ok(row) = row.cast_exact::<PySet>() {
            extend(&mut ids, row.iter())?;
        } else {
            extend(&mut ids, row.cast_exact::<PyFrozenSet>().ok()?.iter())?;
        }
        starts.push(ids.len() as i64);
    }
    Some((starts.into_pyarray(py), ids.into_pyarray(py)))
}

fn extend<'py>(ids: &mut Vec<i64>, row: impl Iterator<Item = Bound<'py, PyAny>>) -> Option<()> {
    for id in row {
        ids.push(id.cast_exact::<PyInt>().ok()?.extract().ok()?);
    }
    Some(())
}
