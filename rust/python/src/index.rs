//! Indexes and searches.

use crate::arrays::{Rows, codes, queries};
use crate::candidates::Candidates;
use crate::errors::to_python;
use crate::late::settle;
use crate::lists::{lists_of, reach};
use crate::model::Model;
use crate::names::{Answer, Certified, Filter, Found, Limits, Name, Named, Names, keys_of, starts};
use crate::run::{changing, here, pool, run, run_holding, run_whole};
use crate::shared::{Shared, Stop, Turn};
use compcodes::Result;
use compcodes::index::{Change, Settings, Within};
use compcodes::monitor::Monitor;
use compcodes::vectors::Vectors;
use ndarray::ArrayView2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
/// Where the results of each query begin, (nq + 1,) i64; names, and scores f32.
pub(crate) type Above<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyAny>, Bound<'py, PyArray1<f32>>);

/// Computes a number for each of some vectors, from their codes and lists.
type Beside =
    fn(&compcodes::Model, &dyn Vectors, ArrayView2<'_, u8>, Option<&[u32]>, &dyn Monitor) -> Result<Vec<f32>>;

/// Codes and table entries below which a search takes less time than waking up other threads for it.
const BRIEF: usize = 16_000_000;
/// The number of vectors that are added, removed or replaced in less time than waking up other threads takes.
const FEW: usize = 4096;

/// Codes, ids and the model; searched by many threads at once. A change is prepared while they search, and applied
/// between two searches: a search sees all of it or nothing.
#[pyclass(frozen, module = "compcodes._core")]
pub(crate) struct Index {
    index: Shared<compcodes::Index>,
}

impl Index {
    fn new_with(index: compcodes::Index) -> Self {
        Self { index: Shared::new(index) }
    }

    /// The index as it is.
    pub(crate) fn now(&self) -> PyResult<Look> {
        self.index.peek()
    }

    /// Prepares a change and applies it; returns how many vectors it adds, removes or replaces. After an exception
    /// nothing is changed.
    fn change(
        &self,
        py: Python<'_>,
        n_jobs: Option<i64>,
        prepare: impl FnOnce(&compcodes::Index, &dyn Monitor) -> Result<Change> + Send,
    ) -> PyResult<usize> {
        let looks = |stop: Stop<'_>| {
            let turn = self.index.turn(stop)?;
            Ok((turn, self.index.look(stop)?))
        };
        let prepare =
            |(turn, index): (Turn, Look), monitor: &dyn Monitor| Ok((turn, prepare(&index, monitor)?));
        let (turn, change) = run_holding(py, n_jobs, None, looks, prepare)?;
        self.commit(py, n_jobs, turn, change)
    }

    fn commit(&self, py: Python<'_>, n_jobs: Option<i64>, turn: Turn, change: Change) -> PyResult<usize> {
        let change = Box::new(change); // which may be handed back
        // If nobody is searching, no other thread needs to wait for this.
        let here_and_now = if change.n() <= FEW {
            let apply = |index: &mut compcodes::Index, change: Box<Change>| index.apply(*change);
            here(py, || self.index.try_commit(&turn, change, apply))?
        } else {
            Err(change)
        };
        let done = match here_and_now {
            Ok(done) => {
                settle(py, None);
                done
            }
            Err(change) => {
                let pool = changing()?;
                run_whole(py, n_jobs, |_, _, stop| {
                    self.index.commit(&turn, stop, |index| pool.install(|| index.apply(*change)))
                })?
            }
        };
        done.map_err(to_python)
    }

    /// Reads the index, without the interpreter lock since it may take a while.
    fn look<T: Send>(&self, py: Python<'_>, look: impl FnOnce(&compcodes::Index) -> T + Send) -> PyResult<T> {
        let pool = pool(None)?;
        py.detach(|| {
            let index = self.index.peek()?;
            Ok(pool.install(|| look(&index)))
        })
    }

    /// What the index keeps alongside the codes of vectors, (n,) f32.
    fn beside<'py>(
        &self,
        py: Python<'py>,
        (x, codes, lists): (Any<'_, 'py>, Any<'_, 'py>, Option<Any<'_, 'py>>),
        n_jobs: Option<i64>,
        of: Beside,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let lists = lists_of(lists)?;
        let (rows, codes) = (Rows::new(x, "X")?, self::codes(codes, "codes")?);
        let (x, codes) = (rows.view(), codes.as_array());
        let beside =
            |index: Look, monitor: &dyn Monitor| of(index.model(), &*x, codes, lists.as_deref(), monitor);
        Ok(run_holding(py, n_jobs, None, |stop| self.index.look(stop), beside)?.into_pyarray(py))
    }

    /// Reads a number of the index.
    fn glance<T: Send>(&self, py: Python<'_>, look: fn(&compcodes::Index) -> T) -> PyResult<T> {
        match self.index.try_look() {
            Some(index) => Ok(look(&index)),
            None => py.detach(|| Ok(look(&*self.index.peek()?))),
        }
    }
}

pub(crate) type Look = Arc<compcodes::Index>;

#[pymethods]
impl Index {
    #[new]
    #[pyo3(signature = (model, metric, scale, exact_norms, residuals, keys=false))]
    fn new(
        model: PyRef<'_, Model>,
        metric: &str,
        scale: bool,
        exact_norms: bool,
        residuals: bool,
        keys: bool,
    ) -> PyResult<Self> {
        let settings = Settings { metric: metric.parse().map_err(to_python)?, scale, exact_norms, residuals };
        let index = compcodes::Index::with(model.model.clone(), settings).map_err(to_python)?;
        Ok(Self::new_with(if keys { index.with_keys().map_err(to_python)? } else { index }))
    }

    #[staticmethod]
    #[pyo3(signature = (path, mmap=false, n_jobs=None))]
    fn load(py: Python<'_>, path: PathBuf, mmap: bool, n_jobs: Option<i64>) -> PyResult<Self> {
        let load = |monitor: &dyn Monitor| match mmap {
            true => compcodes::Index::map(path),
            false => compcodes::Index::load_heeding(path, monitor),
        };
        Ok(Self::new_with(run(py, n_jobs, None, load)?))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        Ok(Self::new_with(run(py, None, None, |monitor| compcodes::Index::from_bytes(content, monitor))?))
    }

    /// After an exception the old file is still there.
    #[pyo3(signature = (path, n_jobs=None))]
    fn save(&self, py: Python<'_>, path: PathBuf, n_jobs: Option<i64>) -> PyResult<()> {
        run_whole(py, n_jobs, |pool, monitor, stop| {
            let index = self.index.look(stop)?;
            pool.install(|| index.save_heeding(path, monitor)).map_err(to_python)
        })
    }

    /// The bytes that `save` writes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = |index: Look, monitor: &dyn Monitor| index.to_bytes(monitor);
        Ok(PyBytes::new(py, &run_holding(py, None, None, |stop| self.index.look(stop), bytes)?))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.glance(py, compcodes::Index::len)
    }

    /// Whether there is a vector with this id or key.
    fn contains(&self, py: Python<'_>, id: Name) -> PyResult<bool> {
        match self.index.try_look() {
            Some(index) if matches!(id, Name::Key(_)) => Ok(id.is_in(&index)),
            _ => self.look(py, |index| id.is_in(index)),
        }
    }

    fn has_keys(&self, py: Python<'_>) -> PyResult<bool> {
        self.glance(py, compcodes::Index::has_keys)
    }

    fn model(&self, py: Python<'_>) -> PyResult<Model> {
        Ok(Model { model: self.look(py, |index| index.model().clone())? })
    }

    /// (metric, scale, exact_norms, residuals).
    fn settings(&self, py: Python<'_>) -> PyResult<(&'static str, bool, bool, bool)> {
        let settings = self.glance(py, compcodes::Index::settings)?;
        Ok((settings.metric.name(), settings.scale, settings.exact_norms, settings.residuals))
    }

    fn bytes_per_vector(&self, py: Python<'_>) -> PyResult<usize> {
        self.glance(py, compcodes::Index::bytes_per_vector)
    }

    /// All codes, (n, M) u8.
    fn codes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        Ok(self.look(py, compcodes::Index::codes)?.into_pyarray(py))
    }

    /// The list of each vector, (n,) i64; `None` without lists.
    fn lists<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        let lists = self.look(py, compcodes::Index::lists)?;
        let wide = |lists: Vec<u32>| lists.into_iter().map(i64::from).collect::<Vec<_>>();
        Ok(lists.map(|lists| wide(lists).into_pyarray(py)))
    }

    /// How many vectors are in each list, (n_lists,) i64; `None` without lists.
    fn list_sizes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        let sizes = self.look(py, compcodes::Index::list_sizes)?;
        let wide = |sizes: Vec<usize>| sizes.into_iter().map(|size| size as i64).collect::<Vec<_>>();
        Ok(sizes.map(|sizes| wide(sizes).into_pyarray(py)))
    }

    /// How far the lists have drifted from those of training, 0 to 1.
    fn drift(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.look(py, compcodes::Index::drift)
    }

    /// All ids, (n,) i64; or all keys, a list.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = self.look(py, |index| {
            let ids = match index.ids() {
                Some(ids) => ids.into_owned(),
                None => (0..index.len() as i64).collect(),
            };
            Named::new(index, ids)
        })?;
        names.into_python(py)
    }

    #[pyo3(signature = (codes, ids=None, side=None, n_jobs=None, lists=None))]
    fn add_codes(
        &self,
        py: Python<'_>,
        codes: Any<'_, '_>,
        ids: Option<Any<'_, '_>>,
        side: Option<PyReadonlyArray1<'_, f32>>,
        n_jobs: Option<i64>,
        lists: Option<Any<'_, '_>>,
    ) -> PyResult<()> {
        let lists = lists_of(lists)?;
        let codes = self::codes(codes, "codes")?;
        let names = ids.map(|array| Names::new(array, "ids")).transpose()?;
        let side = side.map(|side| side.as_array().to_vec());
        let codes = codes.as_array();
        let prepare = |index: &compcodes::Index, monitor: &dyn Monitor| {
            let (side, lists) = (side.as_deref(), lists.as_deref());
            match &names {
                Some(Names::Keys(keys)) => {
                    index.prepare_add_keyed_codes_in(codes, lists, &keys.all(), side, monitor)
                }
                Some(Names::Ids(ids)) => index.prepare_add_codes_in(codes, lists, Some(ids), side, monitor),
                None => index.prepare_add_codes_in(codes, lists, None, side, monitor),
            }
        };
        self.change(py, n_jobs, prepare).map(drop)
    }

    /// Replaces the codes of the vectors with these ids.
    #[pyo3(signature = (codes, ids, side=None, n_jobs=None, lists=None))]
    fn update_codes(
        &self,
        py: Python<'_>,
        codes: Any<'_, '_>,
        ids: Any<'_, '_>,
        side: Option<PyReadonlyArray1<'_, f32>>,
        n_jobs: Option<i64>,
        lists: Option<Any<'_, '_>>,
    ) -> PyResult<()> {
        let lists = lists_of(lists)?;
        let codes = self::codes(codes, "codes")?;
        let names = Names::new(ids, "ids")?;
        let side = side.map(|side| side.as_array().to_vec());
        let codes = codes.as_array();
        let prepare = |index: &compcodes::Index, monitor: &dyn Monitor| {
            let ids = names.ids(index)?;
            index.prepare_update_codes_in(codes, lists.as_deref(), &ids, side.as_deref(), monitor)
        };
        self.change(py, n_jobs, prepare).map(drop)
    }

    /// ‖x‖² / ⟨x, x̄⟩ for each row, (n,) f32.
    #[pyo3(signature = (x, codes, n_jobs=None, lists=None))]
    fn scales<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        n_jobs: Option<i64>,
        lists: Option<Any<'_, 'py>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        self.beside(py, (x, codes, lists), n_jobs, compcodes::Model::scales_in)
    }

    /// ‖x − x̄‖ for each row, rounded up, (n,) f32.
    #[pyo3(signature = (x, codes, n_jobs=None, lists=None))]
    fn residuals<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        n_jobs: Option<i64>,
        lists: Option<Any<'_, 'py>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        self.beside(py, (x, codes, lists), n_jobs, compcodes::Model::residuals_in)
    }

    /// Rejects rows of `x` that `add` rejects whatever their codes are.
    #[pyo3(signature = (x, n_jobs=None))]
    fn check_vectors(&self, py: Python<'_>, x: Any<'_, '_>, n_jobs: Option<i64>) -> PyResult<()> {
        let rows = Rows::new(x, "X")?;
        let x = rows.view();
        let check = |index: Look, monitor: &dyn Monitor| index.check_vectors(&*x, monitor);
        run_holding(py, n_jobs, None, |stop| self.index.look(stop), check)
    }

    /// Returns how many vectors were removed.
    #[pyo3(signature = (ids, n_jobs=None))]
    fn remove(&self, py: Python<'_>, ids: Any<'_, '_>, n_jobs: Option<i64>) -> PyResult<usize> {
        let names = Names::new(ids, "ids")?;
        self.change(py, n_jobs, |index, monitor| index.prepare_remove(&names.ids(index)?, monitor))
    }

    /// Removes all vectors.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, None, |index, _| index.prepare_clear()).map(drop)
    }

    #[pyo3(signature = (other, n_jobs=None))]
    fn merge(&self, py: Python<'_>, other: Bound<'_, Index>, n_jobs: Option<i64>) -> PyResult<()> {
        let other = &other.get().index;
        // In its turn: whoever waits for a turn must not hold a look at an index meanwhile, since it may be this one.
        let looks = |stop: Stop<'_>| {
            let turn = self.index.turn(stop)?;
            Ok((turn, self.index.look(stop)?, other.look(stop)?))
        };
        let prepare = |(turn, index, other): (Turn, Look, Look), monitor: &dyn Monitor| {
            Ok((turn, index.prepare_merge(&other, monitor)?))
        };
        let (turn, change) = run_holding(py, n_jobs, None, looks, prepare)?;
        self.commit(py, n_jobs, turn, change).map(drop)
    }

    /// (scores, ids) of the k best for each query; with `vectors`, by exact scores among the `n_candidates` best by
    /// code.
    #[pyo3(signature = (
        queries, k, vectors=None, n_candidates=0, filter=None, exclude=None, n_jobs=None, progress=None, n_probe=None,
        recall=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Option<Any<'_, 'py>>,
        n_candidates: usize,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
        n_probe: Option<usize>,
        recall: Option<f32>,
    ) -> PyResult<Answer<'py>> {
        let (queries, reach) = (self::queries(queries)?, reach(n_probe, recall));
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let rows = vectors.map(|vectors| Rows::new(vectors, "rerank")).transpose()?;
        let vectors = rows.as_ref().map(Rows::view);
        let search = |index: &compcodes::Index, monitor: &dyn Monitor| {
            let allowed = limits.allowed(index, monitor)?;
            let within = Within { allowed: allowed.as_ref(), reach };
            let hits = match &vectors {
                None => index.search_within(queries, k, within, monitor),
                Some(vectors) => {
                    index.search_rerank_within(queries, k, (&**vectors, n_candidates), within, monitor)
                }
            };
            Ok(Found::new(index, hits?))
        };
        let brief = |index: &compcodes::Index| {
            let (books, words, dim) = index.model().codebooks.view().dim();
            let (n, products) = index.passes(reach);
            let work = books.saturating_mul(n + words * dim).saturating_add(products);
            let work = work.saturating_mul(queries.nrows());
            progress.is_none()
                && vectors.is_none()
                && work < if n_jobs == Some(1) { 4 * BRIEF } else { BRIEF }
        };
        // If a change is under way, the search may not be brief.
        if let Some(index) = self.index.try_look()
            && brief(&index)
        {
            return here(py, || search(&index, &()))?.map_err(to_python)?.into_python(py);
        }
        let search = |index: Look, monitor: &dyn Monitor| search(&index, monitor);
        run_holding(py, n_jobs, progress, |stop| self.index.look(stop), search)?.into_python(py)
    }

    /// (starts, ids, scores) of all vectors that score at least `floors`, one number per query.
    #[pyo3(signature = (queries, floors, filter=None, exclude=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search_above<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        floors: PyReadonlyArray1<'py, f32>,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Above<'py>> {
        let queries = self::queries(queries)?;
        let (queries, floors) = (queries.as_array(), floors.as_array().to_vec());
        let limits = Limits::new(filter, exclude)?;
        let search = |index: Look, monitor: &dyn Monitor| {
            let allowed = limits.allowed(&*index, monitor)?;
            let above = index.search_above(queries, &floors, allowed.as_ref(), monitor)?;
            Ok((above.starts, Named::new(&index, above.ids), above.scores))
        };
        let (firsts, names, scores) =
            run_holding(py, n_jobs, progress, |stop| self.index.look(stop), search)?;
        Ok((starts(py, firsts), names.into_python(py)?, scores.into_pyarray(py)))
    }

    /// (scores, ids, certified): like `search`, and (nq,) bool tells for which queries the results are proven exact.
    #[pyo3(signature = (queries, k, vectors, n_candidates, filter=None, exclude=None, n_jobs=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn search_certified<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        k: usize,
        vectors: Any<'_, 'py>,
        n_candidates: usize,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Certified<'py>> {
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let rows = Rows::new(vectors, "rerank")?;
        let vectors = rows.view();
        let search = |index: Look, monitor: &dyn Monitor| {
            let allowed = limits.allowed(&*index, monitor)?;
            let allowed = allowed.as_ref();
            let (hits, certified) =
                index.search_certified(queries, k, (&*vectors, n_candidates), allowed, monitor)?;
            Ok((Found::new(&index, hits), certified))
        };
        let (found, certified) = run_holding(py, n_jobs, progress, |stop| self.index.look(stop), search)?;
        let (scores, ids) = found.into_python(py)?;
        Ok((scores, ids, certified.into_pyarray(py)))
    }

    /// The vectors that are best by code for some queries, to be scored exactly. With `certify`, results can be proven
    /// exact.
    #[pyo3(signature = (
        queries, n_candidates, certify=false, filter=None, exclude=None, n_jobs=None, progress=None, n_probe=None,
        recall=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        queries: Any<'_, 'py>,
        n_candidates: usize,
        certify: bool,
        filter: Option<Filter<'py>>,
        exclude: Option<Filter<'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
        n_probe: Option<usize>,
        recall: Option<f32>,
    ) -> PyResult<Candidates> {
        let reach = reach(n_probe, recall);
        let queries = self::queries(queries)?;
        let queries = queries.as_array();
        let limits = Limits::new(filter, exclude)?;
        let search = |index: Look, monitor: &dyn Monitor| {
            let allowed = limits.allowed(&*index, monitor)?;
            let candidates = match certify {
                true => index.certifiable_candidates(queries, n_candidates, allowed.as_ref(), monitor),
                false => {
                    let within = Within { allowed: allowed.as_ref(), reach };
                    index.candidates_within(queries, n_candidates, within, monitor)
                }
            }?;
            let keys = keys_of(&index, candidates.ids());
            Ok(Candidates { candidates, keys })
        };
        run_holding(py, n_jobs, progress, |stop| self.index.look(stop), search)
    }

    /// The approximations of the vectors with these ids, (n, d) f32.
    #[pyo3(signature = (ids, n_jobs=None))]
    fn reconstruct<'py>(
        &self,
        py: Python<'py>,
        ids: Any<'_, 'py>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let names = Names::new(ids, "ids")?;
        let reconstruct =
            |index: Look, monitor: &dyn Monitor| index.reconstruct(&names.ids(&index)?, monitor);
        Ok(run_holding(py, n_jobs, None, |stop| self.index.look(stop), reconstruct)?.into_pyarray(py))
    }
}
