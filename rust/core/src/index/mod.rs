//! Codes and ids, ready to be searched.

mod certify;
mod checked;
mod column;
mod ids;
mod search;

use crate::codes::packed::{PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::encode::error_bounds;
use crate::error::{Error, Result, invalid};
use crate::model::Model;
use crate::monitor::Monitor;
use crate::scan::Levels;
use crate::scan::tables::TableBuilder;
use crate::vectors::Vectors;
use crate::vectors::metric::{Metric, squared_norm};
use column::Column;
use ids::Ids;
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
}

/// What files keep of an index beside its model and settings.
pub(crate) struct Parts {
    pub(crate) packed: Store,
    pub(crate) levels: Option<Box<Levels>>,
    pub(crate) biases: Vec<f32>,
    pub(crate) ids: Option<Vec<i64>>,
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
        Ok(Self { tables, packed, column: None, biases: Vec::new(), ids: Ids::Positions(0), settings, model })
    }

    pub(crate) fn from_parts(model: Model, settings: Settings, parts: Parts) -> Result<Self> {
        let mut index = Self::with(model, settings)?;
        let Parts { packed, levels, biases, ids } = parts;
        let n = packed.len();
        if packed.n_columns() != index.packed.n_columns() {
            let (have, want) = (packed.n_columns(), index.packed.n_columns());
            return Err(invalid!("codes have {have} columns, want {want}"));
        }
        // An index that was emptied may have kept its levels.
        let fits = levels.is_some() == index.has_column() || n == 0 && levels.is_none();
        if !fits || biases.len() != if index.keeps_biases() { n } else { 0 } {
            return Err(invalid!("levels or norms do not fit the settings"));
        }
        if let Some(levels) = &levels {
            checked::levels(settings, levels)?;
        }
        checked::biases(settings, &biases)?;
        // Mapped codes are not gone through: any byte is safe to look up, beyond K it counts as codeword 0.
        if let Store::Owned(codes) = &packed {
            index.check_packed(codes.view())?;
            if let Some(levels) = levels.as_ref().filter(|_| !biases.is_empty()) {
                checked::bounds(codes.view(), levels, &biases)?;
            }
        }
        index.ids = Ids::loaded(n, ids)?;
        (index.packed, index.biases, index.column) = (packed, biases, levels.map(|levels| Column { levels }));
        Ok(index)
    }

    /// Refuses packed codes that name codewords beyond K.
    fn check_packed(&self, packed: PackedView<'_>) -> Result<()> {
        checked::codewords(packed, self.n_codes(), self.model.codebooks.n_codewords())
    }

    /// Refuses mapped codes that name codewords beyond K, and returns the checksum that they must have; `None` for codes
    /// that are not mapped.
    pub(crate) fn check_store(&self) -> Result<Option<u32>> {
        let Store::Mapped(mapped) = &self.packed else { return Ok(None) };
        self.check_packed(self.packed.view())?;
        Ok(Some(mapped.crc()))
    }

    /// Copies mapped codes, verified, before they are changed.
    fn own(&mut self) -> Result<()> {
        let (m, k) = (self.n_codes(), self.model.codebooks.n_codewords());
        self.packed.own(|packed| checked::codewords(packed, m, k))
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

    /// Encodes `x` (n, d) and adds the codes. See [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Another d, a row that is not finite, ids that do not fit, or a cancelling monitor; nothing is added then.
    pub fn add(&mut self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<()> {
        let codes = self.model.encoder()?.encode(x, monitor)?;
        let side = match self.settings {
            Settings { scale: true, .. } => Some(self.model.scales(x, codes.view())?),
            Settings { residuals: true, .. } => Some(self.model.residuals(x, codes.view())?),
            _ => None,
        };
        self.add_codes(codes.view(), ids, side.as_deref())
    }

    /// Adds codes (n, M). Without `ids` they get the numbers that follow the largest id so far: positions, if no ids
    /// were ever given. `side` (n) are what the settings ask for beside the codes: scales, 1 by default, or
    /// [`residuals`](Model::residuals).
    ///
    /// # Errors
    /// Codes of another M or beyond K; ids that are not n, negative, repeated, or taken; `side` that is not n finite
    /// numbers, that the settings do not ask for, or without the residuals that they do. Nothing is added then.
    pub fn add_codes(
        &mut self,
        codes: ArrayView2<'_, u8>,
        ids: Option<&[i64]>,
        side: Option<&[f32]>,
    ) -> Result<()> {
        self.model.codebooks.check_codes(codes)?;
        let n = codes.nrows();
        let Settings { scale, residuals, .. } = self.settings;
        if let Some(side) = side {
            if !(scale || residuals) {
                return Err(invalid!("scales are given, but the index keeps none"));
            }
            if side.len() != n || side.iter().any(|value| !value.is_finite()) {
                let name = if scale { "scales" } else { "residuals" };
                return Err(invalid!("{name} have {} entries: want {n} finite numbers", side.len()));
            }
        } else if residuals {
            return Err(invalid!(
                "the index keeps residuals, which codes alone do not tell: add the vectors"
            ));
        }
        let ids = self.ids.next(n, ids)?;
        if n == 0 {
            return Ok(());
        }
        self.own()?;
        if self.has_column() {
            let values = match side {
                Some(side) => side.to_vec(),
                None if scale => vec![1.0; n],
                None => self.values(codes),
            };
            let bytes = self.levelled(&values)?;
            let bytes = ArrayView2::from_shape((n, 1), &bytes).expect("one a vector");
            self.packed
                .to_mut()?
                .extend(concatenate(Axis(1), &[codes, bytes]).expect("equal rows").view())?;
            if self.keeps_biases() {
                self.biases.extend(values);
            }
        } else {
            self.packed.to_mut()?.extend(codes)?;
        }
        self.ids.extend(n, ids);
        Ok(())
    }

    /// Adds all vectors of another index, with their ids if it was given any, else with the numbers that follow.
    ///
    /// # Errors
    /// The other has another model or settings, or ids that are taken. Nothing is added then.
    pub fn merge(&mut self, other: &Index) -> Result<()> {
        if other.model.codebooks != self.model.codebooks || other.settings != self.settings {
            return Err(invalid!("the indexes have different models or settings"));
        }
        let mut owned = None;
        if matches!(other.packed, Store::Mapped(_)) {
            owned.insert(other.clone()).own()?;
        }
        let other = owned.as_ref().unwrap_or(other);
        let side = match &other.column {
            _ if self.settings.residuals => Some(other.biases.clone()),
            Some(column) if self.settings.scale => {
                let last = other.packed.n_columns() - 1;
                Some(
                    other
                        .packed
                        .view()
                        .unpack()
                        .column(last)
                        .mapv(|level| column.levels[usize::from(level)])
                        .to_vec(),
                )
            }
            _ => None,
        };
        self.add_codes(other.codes().view(), other.ids(), side.as_deref())
    }

    /// Removes the vectors with these ids; those that follow move up. Returns how many there were.
    ///
    /// # Errors
    /// The index has no such id; nothing is removed then.
    pub fn remove(&mut self, ids: &[i64]) -> Result<usize> {
        let mut kept = vec![true; self.len()];
        for (position, id) in self.ids.find(ids).into_iter().zip(ids) {
            kept[position.ok_or_else(|| no_such(*id))?] = false;
        }
        let positions: Vec<usize> = (0..self.len()).filter(|&position| kept[position]).collect();
        let removed = self.len() - positions.len();
        if removed > 0 {
            self.own()?;
            self.packed = Store::Owned(PackedCodes::pack(self.packed.view().select(&positions).view())?);
            self.ids = self.ids.select(&positions);
            if self.keeps_biases() {
                self.biases = positions.iter().map(|&position| self.biases[position]).collect();
            }
        }
        Ok(removed)
    }

    /// The approximations of the vectors with these ids, (n, d).
    ///
    /// # Errors
    /// The index has no such id.
    pub fn reconstruct(&self, ids: &[i64]) -> Result<Array2<f32>> {
        let positions: Result<Vec<usize>> = self
            .ids
            .find(ids)
            .into_iter()
            .zip(ids)
            .map(|(position, id)| position.ok_or_else(|| no_such(*id)))
            .collect();
        let codes = self.packed.view().select(&positions?);
        self.model.codebooks.decode(codes.slice(s![.., ..self.n_codes()]), &())
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
    fn values(&self, codes: ArrayView2<'_, u8>) -> Vec<f32> {
        let norms = self.model.codebooks.squared_norms(codes);
        match self.settings.metric {
            Metric::Euclidean => {
                norms.into_iter().map(|norm| (-0.5 * norm).max(f64::from(f32::MIN)) as f32).collect()
            }
            // Where x̄ is 0 so is every product, whatever multiplies it.
            _ => norms
                .into_iter()
                .map(|norm| norm.sqrt().recip().clamp(2f64.powi(-59), 2f64.powi(59)) as f32)
                .collect(),
        }
    }

    /// The levels' bytes for new values, the levels of all vectors laid anew if these fall outside.
    fn levelled(&mut self, new: &[f32]) -> Result<Vec<u8>> {
        let euclidean = self.settings.metric == Metric::Euclidean;
        let is_added = euclidean || self.settings.residuals;
        let bytes = |column: &Column, values: &[f32]| {
            if is_added { column.above(values) } else { column.nearest(values) }
        };
        if self.settings.scale {
            return Ok(self.column.get_or_insert_with(Column::scales).nearest(new));
        }
        if let Some(column) = self.column.as_ref().filter(|column| column.holds(new)) {
            return Ok(bytes(column, new));
        }
        let codes = self.codes();
        let old = if self.keeps_biases() { self.biases.clone() } else { self.values(codes.view()) };
        let all = [&old, new].concat();
        let column = if is_added {
            Column::even(&all, if euclidean { 0.0 } else { f32::MAX })
        } else {
            Column::geometric(&all)
        };
        let old = bytes(&column, &old);
        let old = ArrayView2::from_shape((old.len(), 1), &old).expect("one a vector");
        let all = concatenate(Axis(1), &[codes.view(), old]).expect("equal rows");
        self.packed = Store::Owned(PackedCodes::pack(all.view())?);
        let new = bytes(&column, new);
        self.column = Some(column);
        Ok(new)
    }
}

fn no_such(id: i64) -> Error {
    invalid!("the index has no id {id}")
}

impl Model {
    /// ‖x‖² / ⟨x, x̄⟩ of each row of `x`: what an approximation is multiplied with to have the length along x that x has.
    /// 1 where that is not a positive number.
    ///
    /// # Errors
    /// Shapes that do not fit, or a row that is not finite.
    pub fn scales(&self, x: &dyn Vectors, codes: ArrayView2<'_, u8>) -> Result<Vec<f32>> {
        crate::vectors::check_dim(x, "X", self.codebooks.dim())?;
        let scale = |row: usize| {
            let mut vector = vec![0.0; x.dim()];
            crate::vectors::read_finite(x, "X", row, &mut vector)?;
            let code = codes.slice(s![row..=row, ..]);
            let approximation = self.codebooks.decode(code, &())?;
            let along = Metric::InnerProduct.score(approximation.as_slice().expect("fresh"), &vector);
            let scale = squared_norm(&vector) / along;
            Ok(if scale.is_finite() && scale > 0.0 { scale as f32 } else { 1.0 })
        };
        (0..x.n()).into_par_iter().map(scale).collect::<Vec<_>>().into_iter().collect()
    }

    /// ‖x − x̄‖ of each row of `x`, rounded up.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, or a residual beyond the range of f32.
    pub fn residuals(&self, x: &dyn Vectors, codes: ArrayView2<'_, u8>) -> Result<Vec<f32>> {
        let bounds = error_bounds(&self.codebooks, x, codes, &())?;
        let up = |(row, &bound): (usize, &f64)| {
            let nearest = bound as f32;
            let up = if f64::from(nearest) < bound { nearest.next_up() } else { nearest };
            if up.is_finite() { Ok(up) } else { Err(invalid!("X[{row}] is too far from its approximation")) }
        };
        bounds.iter().enumerate().map(up).collect()
    }
}

#[cfg(test)]
mod tests;
