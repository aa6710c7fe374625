//! Codes and ids, ready to be searched.

mod candidates;
mod certify;
mod change;
mod column;
mod filter;
mod ids;
mod search;

use crate::codebooks::MAX_CODEWORDS;
use crate::codes::packed::{BLOCK, PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::encode::error_bounds;
use crate::error::{Result, invalid};
use crate::model::Model;
use crate::monitor::{Counter, Monitor};
use crate::scan::Levels;
use crate::scan::tables::TableBuilder;
use crate::vectors::Vectors;
use crate::vectors::metric::{Metric, squared_norm};
pub use candidates::{Candidates, rows_of};
pub use change::Change;
use change::State;
use column::Column;
use ids::Ids;
pub(crate) use ids::Order;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;

/// What an index measures, and what it keeps for that beside the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What scores measure.
    pub metric: Metric,
    /// Whether scores are multiplied by ‖x‖² / ⟨x, x̄⟩, one byte a vector: the approximation then has the length along x
    /// that x has. For inner products only.
    pub scale: bool,
    /// Whether ‖x̄‖² is kept in f32 (four bytes a vector) besides its level (one byte): Euclidean scores are then exact
    /// for x̄. Without it they are those of a level up to 1/255 of the norms' spread away.
    pub exact_norms: bool,
    /// Whether ‖x − x̄‖ is kept in f32 (four bytes a vector) besides its level (one byte), so that
    /// [`Index::search_certified`] can prove its results. For inner products without a scale only.
    pub residuals: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { metric: Metric::InnerProduct, scale: false, exact_norms: true, residuals: false }
    }
}

/// A database of codes, one for each vector, and the model that decodes them.
///
/// ```
/// use compcodes::{Codebooks, Index, Model, Selection};
/// use ndarray::array;
/// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
/// let mut index = Index::new(Model::new(codebooks, Selection::Group));
/// index.add(&array![[3.5, 1.2], [0.3, 2.9], [4.2, 3.1]].view(), None, &())?;
/// let hits = index.search(array![[1.0, 1.0]].view(), 2, None, &())?;
/// assert_eq!(hits.positions, array![[2, 0]]);
/// assert_eq!(hits.scores, array![[7.0, 5.0]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
#[derive(Clone)]
pub struct Index {
    model: Model,
    settings: Settings,
    tables: TableBuilder,
    /// M columns of codes, and one of levels where the settings ask for it.
    packed: Store,
    column: Option<Column>,
    /// −½‖x̄‖² or ‖x − x̄‖ of each vector, where the settings ask for one of them.
    biases: Vec<f32>,
    ids: Ids,
    state: State,
}

/// What files keep of an index beside its model and settings.
pub(crate) struct Parts {
    pub(crate) packed: Store,
    pub(crate) levels: Option<Box<Levels>>,
    pub(crate) biases: Vec<f32>,
    pub(crate) ids: Option<Vec<i64>>,
    /// What older files lack.
    pub(crate) next_id: Option<u64>,
    pub(crate) order: Option<Order>,
}

impl Index {
    /// An empty index for inner products.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self::with(model, Settings::default()).expect("the default settings fit each other")
    }

    /// An empty index.
    ///
    /// # Errors
    /// Settings that do not fit each other.
    pub fn with(model: Model, settings: Settings) -> Result<Self> {
        if settings.scale && settings.metric != Metric::InnerProduct {
            return Err(invalid!("scale goes with metric \"ip\", not \"{}\"", settings.metric.name()));
        }
        if settings.residuals && (settings.metric != Metric::InnerProduct || settings.scale) {
            return Err(invalid!("residuals go with metric \"ip\" and without a scale"));
        }
        let has_column = settings.scale || settings.residuals || settings.metric != Metric::InnerProduct;
        let packed = Store::Owned(PackedCodes::new(model.codebooks.n_codebooks() + usize::from(has_column))?);
        let tables = TableBuilder::new(&model.codebooks);
        let (biases, ids, state) = (Vec::new(), Ids::new(), State::new());
        Ok(Self { tables, packed, column: None, biases, ids, state, settings, model })
    }

    pub(crate) fn from_parts(model: Model, settings: Settings, parts: Parts) -> Result<Self> {
        let mut index = Self::with(model, settings)?;
        let Parts { packed, levels, biases, ids, next_id, order } = parts;
        let n = packed.len();
        if packed.n_columns() != index.packed.n_columns() {
            let (have, want) = (packed.n_columns(), index.packed.n_columns());
            return Err(invalid!("codes have {have} columns, want {want}"));
        }
        if levels.is_some() != (n > 0 && index.has_column())
            || biases.len() != if index.keeps_biases() { n } else { 0 }
        {
            return Err(invalid!("levels or norms do not fit the settings"));
        }
        let k = index.model.codebooks.n_codewords();
        let (columns, m) = (packed.n_columns(), index.n_codes());
        let lines = packed.view().as_bytes().chunks_exact(BLOCK).enumerate();
        // Mapped codes are not gone through: any byte is safe to look up, beyond K it counts as codeword 0.
        if k < MAX_CODEWORDS
            && matches!(packed, Store::Owned(_))
            && lines
                .filter(|(line, _)| line % columns < m)
                .any(|(_, line)| line.iter().any(|&code| usize::from(code) >= k))
        {
            return Err(invalid!("codes name codewords beyond the {k} of the model"));
        }
        index.ids = Ids::restored(n, ids, next_id, order)?;
        (index.packed, index.biases, index.column) = (packed, biases, levels.map(|levels| Column { levels }));
        Ok(index)
    }

    /// The model that decodes the codes.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What it measures and keeps.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Number of vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.len() == 0
    }

    /// Bytes kept for each vector, ids aside: the codes and what the settings ask for.
    #[must_use]
    pub fn bytes_per_vector(&self) -> usize {
        self.packed.n_columns() + if self.keeps_biases() { size_of::<f32>() } else { 0 }
    }

    /// All codes, (n, M), in the order they were added.
    #[must_use]
    pub fn codes(&self) -> Array2<u8> {
        self.packed.view().unpack().slice_move(s![.., ..self.n_codes()])
    }

    /// The ids in that order; `None` if each is its position.
    #[must_use]
    pub fn ids(&self) -> Option<&[i64]> {
        self.ids.given()
    }

    pub(crate) fn packed(&self) -> PackedView<'_> {
        self.packed.view()
    }

    pub(crate) fn levels(&self) -> Option<&Levels> {
        self.column.as_ref().map(|column| &*column.levels)
    }

    pub(crate) fn biases(&self) -> &[f32] {
        &self.biases
    }

    /// The id that the next vector gets where none is given: above every id that the index ever held, also of vectors that
    /// were removed.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.ids.next()
    }

    /// Whether there is a vector with this id.
    #[must_use]
    pub fn contains(&self, id: i64) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn order(&self) -> Order {
        self.ids.order()
    }

    /// The approximations of the vectors with these ids, (n, d).
    ///
    /// # Errors
    /// The index has no such id; or a cancelling monitor.
    pub fn reconstruct(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Array2<f32>> {
        let codes = self.packed.view().select(&self.ids.positions(ids, monitor)?);
        self.model.codebooks.decode(codes.slice(s![.., ..self.n_codes()]), monitor)
    }

    fn n_codes(&self) -> usize {
        self.model.codebooks.n_codebooks()
    }

    fn has_column(&self) -> bool {
        self.settings.scale || self.settings.residuals || self.settings.metric != Metric::InnerProduct
    }

    fn keeps_biases(&self) -> bool {
        self.settings.residuals || self.settings.metric == Metric::Euclidean && self.settings.exact_norms
    }

    /// The numbers that the metric needs of each code.
    fn values(&self, codes: ArrayView2<'_, u8>, monitor: &dyn Monitor) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(codes.nrows());
        for part in codes.axis_chunks_iter(Axis(0), change::CHUNK) {
            monitor.report(0, codes.nrows() as u64)?;
            let norms = self.model.codebooks.squared_norms(part).into_iter();
            match self.settings.metric {
                Metric::Euclidean => {
                    values.extend(norms.map(|norm| (-0.5 * norm).max(f64::from(f32::MIN)) as f32));
                }
                // Where x̄ is 0 so is every product, whatever multiplies it.
                _ => values.extend(
                    norms.map(|norm| norm.sqrt().recip().clamp(2f64.powi(-59), 2f64.powi(59)) as f32),
                ),
            }
        }
        Ok(values)
    }

    /// The levels' bytes for new values; and the levels and codes of all vectors laid anew, if these fall outside.
    #[expect(clippy::type_complexity, reason = "taken apart at once")]
    fn levelled(&self, new: &[f32], monitor: &dyn Monitor) -> Result<(Vec<u8>, Option<(Store, Column)>)> {
        let euclidean = self.settings.metric == Metric::Euclidean;
        let is_added = euclidean || self.settings.residuals;
        let bytes = |column: &Column, values: &[f32]| {
            if is_added { column.above(values) } else { column.nearest(values) }
        };
        if self.settings.scale && self.column.is_none() {
            let column = Column::scales();
            return Ok((column.nearest(new), Some((self.packed.clone(), column))));
        }
        if let Some(column) = self.column.as_ref().filter(|column| self.settings.scale || column.holds(new)) {
            return Ok((bytes(column, new), None));
        }
        let codes = self.codes();
        let old = if self.keeps_biases() { self.biases.clone() } else { self.values(codes.view(), monitor)? };
        let all = [&old, new].concat();
        let column = if is_added {
            Column::even(&all, if euclidean { 0.0 } else { f32::MAX })
        } else {
            Column::geometric(&all)
        };
        let mut packed = PackedCodes::new(self.packed.n_columns())?;
        for (codes, old) in codes.axis_chunks_iter(Axis(0), change::CHUNK).zip(old.chunks(change::CHUNK)) {
            monitor.report(0, self.len() as u64)?;
            let old = bytes(&column, old);
            let old = ArrayView2::from_shape((old.len(), 1), &old).expect("one a vector");
            packed.extend(concatenate(Axis(1), &[codes, old]).expect("equal rows").view())?;
        }
        Ok((bytes(&column, new), Some((Store::Owned(packed), column))))
    }
}

impl Model {
    /// ‖x‖² / ⟨x, x̄⟩ of each row of `x`: what an approximation is multiplied with to have the length along x that x has.
    /// 1 where that is not a positive number.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, or a cancelling monitor.
    pub fn scales(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        crate::vectors::check_dim(x, "X", self.codebooks.dim())?;
        let counter = Counter::new(monitor, x.n() as u64);
        let scale = |row: usize| {
            let mut vector = vec![0.0; x.dim()];
            crate::vectors::read_finite(x, "X", row, &mut vector)?;
            let code = codes.slice(s![row..=row, ..]);
            let approximation = self.codebooks.decode(code, &())?;
            let along = Metric::InnerProduct.score(approximation.as_slice().expect("fresh"), &vector);
            let scale = squared_norm(&vector) / along;
            if row % 1024 == 1023 {
                counter.add(1024)?;
            }
            Ok(if scale.is_finite() && scale > 0.0 { scale as f32 } else { 1.0 })
        };
        (0..x.n()).into_par_iter().map(scale).collect::<Vec<_>>().into_iter().collect()
    }

    /// ‖x − x̄‖ of each row of `x`, rounded up.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, a residual beyond the range of f32, or a cancelling monitor.
    pub fn residuals(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        let bounds = error_bounds(&self.codebooks, x, codes, monitor)?;
        let up = |(row, &bound): (usize, &f64)| {
            let nearest = bound as f32;
            let up = if f64::from(nearest) < bound { nearest.next_up() } else { nearest };
            if up.is_finite() { Ok(up) } else { Err(invalid!("X[{row}] is too far from its approximation")) }
        };
        bounds.iter().enumerate().map(up).collect()
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;
