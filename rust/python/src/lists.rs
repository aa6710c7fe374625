//! The lists of a model: their centroids.

use crate::arrays::{Rows, codebooks, codes, ids, numbers};
use crate::errors::to_python;
use crate::run::run;
use compcodes::Model;
use compcodes::encode::Loss;
use compcodes::index::Reach;
use compcodes::model::Centroids;
use compcodes::train::lists;
use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

/// How many lists to search.
pub(crate) fn reach(n_probe: Option<usize>, recall: Option<f32>) -> Reach {
    match (n_probe, recall) {
        (Some(n), _) => Reach::Lists(n),
        (None, Some(recall)) => Reach::Recall(recall),
        (None, None) => Reach::DEFAULT,
    }
}

type Any<'a, 'py> = &'a Bound<'py, PyAny>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The list of each vector, (n,) i64; a number that is no list becomes one that is rejected.
pub(crate) fn lists_of(lists: Option<Any<'_, '_>>) -> PyResult<Option<Vec<u32>>> {
    let Some(lists) = lists else { return Ok(None) };
    let lists = ids(lists, "lists")?;
    Ok(Some(lists.as_array().iter().map(|&list| u32::try_from(list).unwrap_or(u32::MAX)).collect()))
}

fn as_i64(lists: Vec<u32>) -> Vec<i64> {
    lists.into_iter().map(i64::from).collect()
}

/// Centroids (n, d) f32, the η of the loss that assigns vectors to lists, and what training learned about them: numbers
/// that are added to the product with a query of length 1 when lists are chosen, the share of vectors in each, (r, 2)
/// numbers of lists with the share of the nearest vectors in them, and (g, 2) gaps below the best lists with the same.
/// With `by_residual`, approximations start from the centroid.
#[pyclass(frozen, module = "compcodes._core")]
#[derive(Clone)]
pub(crate) struct Lists {
    pub(crate) centroids: Centroids,
}

#[pymethods]
impl Lists {
    #[new]
    #[pyo3(signature = (centroids, eta=1.0, bonuses=None, shares=None, reach=None, by_residual=true, gaps=None))]
    fn new(
        centroids: PyReadonlyArray2<'_, f32>,
        eta: f64,
        bonuses: Option<PyReadonlyArray1<'_, f32>>,
        shares: Option<PyReadonlyArray1<'_, f32>>,
        reach: Option<PyReadonlyArray2<'_, f64>>,
        by_residual: bool,
        gaps: Option<PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let make = || {
            let mut made = Centroids::new(centroids.as_array().to_owned())?;
            made = made.with_loss(Loss::inner_product(eta)?);
            if let Some(bonuses) = &bonuses {
                made = made.with_bonuses(bonuses.as_array().to_vec())?;
            }
            if let Some(shares) = &shares {
                made = made.with_shares(shares.as_array().to_vec())?;
            }
            if let Some(reach) = &reach {
                let rows = reach.as_array();
                made =
                    made.with_reach(rows.outer_iter().map(|row| (row[0] as usize, row[1] as f32)).collect())?;
            }
            if let Some(gaps) = &gaps {
                let rows = gaps.as_array();
                made =
                    made.with_gaps(rows.outer_iter().map(|row| (row[0] as f32, row[1] as f32)).collect())?;
            }
            Ok(if by_residual { made } else { made.of_whole() })
        };
        Ok(Self { centroids: make().map_err(to_python)? })
    }

    fn __len__(&self) -> usize {
        self.centroids.n_lists()
    }

    /// For pickling and copying.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, own) = (slf.py(), slf.get());
        let reach: Vec<f64> =
            own.centroids.reach().iter().flat_map(|&(n, share)| [n as f64, share.into()]).collect();
        let gaps: Vec<f64> =
            own.centroids.gaps().iter().flat_map(|&(gap, share)| [gap.into(), share.into()]).collect();
        let pairs = |numbers: Vec<f64>| {
            Array2::from_shape_vec((numbers.len() / 2, 2), numbers).expect("two each").into_pyarray(py)
        };
        let (bonuses, shares, by_residual) = (own.bonuses(py), own.shares(py), own.by_residual());
        let parts = (own.centroids(py), own.eta(), bonuses, shares, pairs(reach), by_residual, pairs(gaps));
        Ok((slf.get_type().into_any(), parts.into_pyobject(py)?.into_any()))
    }

    /// A copy, (n, d) f32.
    #[getter]
    fn centroids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f32>> {
        self.centroids.view().to_owned().into_pyarray(py)
    }

    #[getter]
    fn eta(&self) -> f64 {
        self.centroids.loss().eta()
    }

    #[getter]
    fn bonuses<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.centroids.bonuses().to_vec().into_pyarray(py)
    }

    #[getter]
    fn shares<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.centroids.shares().to_vec().into_pyarray(py)
    }

    /// Numbers of lists, and shares.
    #[getter]
    fn reach(&self) -> Vec<(usize, f32)> {
        self.centroids.reach().to_vec()
    }

    /// Gaps, and shares.
    #[getter]
    fn gaps(&self) -> Vec<(f32, f32)> {
        self.centroids.gaps().to_vec()
    }

    /// Whether approximations start from the centroid.
    #[getter]
    fn by_residual(&self) -> bool {
        self.centroids.by_residual()
    }

    /// The list of each row of `x`, (n,) i64, and its loss, (n,) f32.
    #[pyo3(signature = (x, n_jobs=None, progress=None))]
    #[expect(clippy::type_complexity, reason = "two arrays")]
    fn assign<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f32>>)> {
        let rows = Rows::new(x, "X")?;
        let x = rows.view();
        let (lists, losses) = run(py, n_jobs, progress, |monitor| self.centroids.nearest(&*x, monitor))?;
        Ok((as_i64(lists).into_pyarray(py), losses.into_pyarray(py)))
    }

    /// The centroids (n, d) f32 of least loss for vectors in these lists.
    #[pyo3(signature = (x, lists, weights=None, n_jobs=None, progress=None))]
    fn updated<'py>(
        &self,
        py: Python<'py>,
        x: Any<'_, 'py>,
        lists: Any<'_, 'py>,
        weights: Option<Any<'_, 'py>>,
        n_jobs: Option<i64>,
        progress: Callback<'_, 'py>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let rows = Rows::new(x, "X")?;
        let (x, lists) = (rows.view(), lists_of(Some(lists))?.unwrap_or_default());
        let weights = weights.map(|weights| Ok::<_, PyErr>(numbers(weights, "weights")?.as_array().to_vec()));
        let (weights, loss) = (weights.transpose()?, self.centroids.loss());
        let updated = run(py, n_jobs, progress, |monitor| {
            lists::centroids(&*x, &lists, self.centroids.view(), loss, weights.as_deref(), monitor)
        })?;
        Ok(updated.into_pyarray(py))
    }

    /// The approximations of codes (n, M) in their lists, (n, d) f32.
    #[pyo3(signature = (books, codes, lists, n_jobs=None))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        books: Any<'_, 'py>,
        codes: Any<'_, 'py>,
        lists: Any<'_, 'py>,
        n_jobs: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let mut model = Model::new(codebooks(books, "codebooks")?, compcodes::Selection::Group);
        model.centroids = Some(self.centroids.clone());
        let (codes, lists) = (self::codes(codes, "codes")?, lists_of(Some(lists))?);
        let codes = codes.as_array();
        Ok(run(py, n_jobs, None, |monitor| model.decode(codes, lists.as_deref(), monitor))?.into_pyarray(py))
    }
}
