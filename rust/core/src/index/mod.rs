//! Codes and ids, ready to be searched.

mod certify;
mod checked;
mod column;
mod frame;
mod ids;
mod measure;
mod search;
mod side;

use crate::codes::packed::{BLOCK, PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::encode::{Encode, error_bounds};
use crate::error::{Error, Result, invalid};
use crate::model::Model;
use crate::monitor::Monitor;
use crate::scan::{Edges, Levels};
use crate::vectors::Vectors;
use crate::vectors::metric::{Metric, squared_norm};
pub(crate) use column::Column;
use column::{Run, former};
use frame::Frame;
use ids::Ids;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;
use side::Side;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What an index measures, and what it keeps for that beside the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What scores measure.
    pub metric: Metric,
    /// Whether scores are multiplied by ‖x‖² / ⟨x, x̄⟩, one byte a vector: the approximation then has the length along x
    /// that x has. For inner products only.
    pub scale: bool,
    /// Whether −½‖x̄ − c‖² is kept in f32 (four bytes per vector) besides the interval that it lies in (one byte). Euclidean
    /// scores are exact without it too: more vectors are then scored to find the best.
    pub exact_norms: bool,
    /// Whether ‖x − x̄‖ is kept in f32 (four bytes per vector) besides the interval that it lies in (one byte), so that
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
    side: Side,
    frame: Frame,
    /// Whether numbers are −½‖x̄ − c‖²; in files of earlier versions they are −½‖x̄‖².
    is_centred: bool,
    /// M columns of codes, and one of bytes where there is a side.
    packed: Store,
    /// What those bytes mean; `None` without vectors.
    column: Option<Column>,
    /// The side's number of each vector, where it keeps them.
    numbers: Vec<f32>,
    /// The largest number, 0 if they are below.
    largest: f32,
    ids: Ids,
    /// Made when it is first asked for, at the cost of the codewords' products; the copies of an index share it.
    encoder: OnceLock<Arc<dyn Encode>>,
}

/// What files keep of an index beside its model and settings.
pub(crate) struct Parts {
    pub(crate) packed: Store,
    /// Of scales; or what stood for intervals in earlier versions.
    pub(crate) levels: Option<Box<Levels>>,
    /// Where runs of intervals begin, and their edges.
    pub(crate) runs: Vec<(usize, Box<Edges>)>,
    pub(crate) numbers: Vec<f32>,
    pub(crate) is_centred: bool,
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
        Self::framed(model, settings, true)
    }

    fn framed(model: Model, settings: Settings, is_centred: bool) -> Result<Self> {
        let side = Side::of(settings)?;
        let frame = match side {
            Side::InverseNorm => Frame::centred(&model.codebooks),
            Side::SquaredNorm { .. } if is_centred => Frame::centred(&model.codebooks),
            _ => Frame::plain(&model.codebooks),
        };
        let packed = Store::Owned(PackedCodes::new(model.codebooks.n_codebooks() + side.n_columns())?);
        let (column, numbers, largest) = (None, Vec::new(), 0.0);
        let (ids, encoder) = (Ids::Positions(0), OnceLock::new());
        Ok(Self { model, settings, side, frame, is_centred, packed, column, numbers, largest, ids, encoder })
    }

    pub(crate) fn from_parts(model: Model, settings: Settings, parts: Parts) -> Result<Self> {
        let Parts { packed, levels, runs, numbers, is_centred, ids } = parts;
        let mut index = Self::framed(model, settings, is_centred)?;
        let n = packed.len();
        if packed.n_columns() != index.packed.n_columns() {
            let (have, want) = (packed.n_columns(), index.packed.n_columns());
            return Err(invalid!("codes have {have} columns, want {want}"));
        }
        if let Some(levels) = &levels {
            checked::levels(index.side, levels)?;
        }
        runs.iter().try_for_each(|(_, edges)| checked::edges(index.side, edges))?;
        let column = match (index.side, levels) {
            // Earlier versions kept the levels of an index without vectors, or not.
            _ if n == 0 => None,
            (Side::None, None) if runs.is_empty() => None,
            (Side::Scale, Some(levels)) if runs.is_empty() => Some(Column::Levels(levels)),
            (Side::InverseNorm, Some(levels)) if runs.is_empty() => {
                Some(Column::Runs(vec![Run::stored(0, former::nearest(&levels))]))
            }
            (Side::SquaredNorm { .. } | Side::ResidualNorm, Some(levels)) if runs.is_empty() => {
                Some(Column::Runs(vec![Run::stored(0, former::above(&levels))]))
            }
            (Side::InverseNorm | Side::SquaredNorm { .. } | Side::ResidualNorm, None) if !runs.is_empty() => {
                let runs = runs.into_iter().map(|(first, edges)| Run::stored(first, edges));
                Some(Column::Runs(runs.collect()))
            }
            _ => return Err(invalid!("levels or norms do not fit the settings")),
        };
        let runs = column.as_ref().map_or(&[][..], Column::as_runs);
        if runs.first().is_some_and(|run| run.first != 0)
            || !runs.is_sorted_by(|a, b| a.first < b.first)
            || !runs.iter().all(|run| run.first % BLOCK == 0 && run.first < n && run.edges.is_sorted())
        {
            return Err(invalid!("the intervals of norms do not fit the codes"));
        }
        if numbers.len() != if index.side.keeps_numbers() { n } else { 0 } {
            return Err(invalid!("levels or norms do not fit the settings"));
        }
        checked::numbers(index.side, &numbers)?;
        // Mapped codes are not gone through: any byte is safe to look up, beyond K it counts as codeword 0.
        if let Store::Owned(codes) = &packed {
            index.check_packed(codes.view())?;
            if !numbers.is_empty() {
                checked::intervals(codes.view(), runs, &numbers)?;
            }
        }
        index.ids = Ids::loaded(n, ids)?;
        index.largest = numbers.iter().copied().fold(0.0, f32::max);
        (index.packed, index.numbers, index.column) = (packed, numbers, column);
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
        self.packed.n_columns() + if self.side.keeps_numbers() { size_of::<f32>() } else { 0 }
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

    pub(crate) fn column(&self) -> Option<&Column> {
        self.column.as_ref()
    }

    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    pub(crate) fn is_centred(&self) -> bool {
        self.is_centred
    }

    fn encoder(&self) -> Result<&dyn Encode> {
        if let Some(encoder) = self.encoder.get() {
            return Ok(&**encoder);
        }
        let encoder = Arc::from(self.model.encoder()?);
        Ok(&**self.encoder.get_or_init(|| encoder))
    }

    /// Encodes `x` (n, d) and adds the codes. See [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Another d, a row that is not finite, or whose distances or norm f32 cannot hold, ids that do not fit, or a cancelling
    /// monitor; nothing is added then.
    pub fn add(&mut self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<()> {
        let codes = self.encoder()?.encode(x, monitor)?;
        let side = match self.side {
            Side::Scale => Some(self.model.scales(x, codes.view())?),
            Side::ResidualNorm => Some(self.model.residuals(x, codes.view())?),
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
        let given = self.side.given(n, side)?;
        let ids = self.ids.next(n, ids)?;
        if n == 0 {
            return Ok(());
        }
        self.own()?;
        if self.side == Side::None {
            self.packed.to_mut()?.extend(codes)?;
        } else {
            let new = match given {
                Some(given) => given,
                None => self.numbers_of(codes, &())?,
            };
            let (len, new_column) = (self.len(), || match self.side {
                Side::Scale => Column::scales(),
                _ => Column::runs(),
            });
            // A copy, so that nothing is changed if there is no memory for the codes.
            let mut column = self.column.clone().unwrap_or_else(new_column);
            let (first, bytes) = column.extend(len, &new, |range| self.old_numbers(range));
            let (old, bytes) = bytes.split_at(len - first);
            let bytes = ArrayView2::from_shape((n, 1), bytes).expect("one per vector");
            let columns = concatenate(Axis(1), &[codes, bytes]).expect("equal rows");
            let packed = self.packed.to_mut()?;
            packed.extend(columns.view())?;
            packed.set_last(first, old);
            if self.side.keeps_numbers() {
                self.largest = new.iter().copied().fold(self.largest, f32::max);
                self.numbers.extend(new);
            }
            self.column = Some(column);
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
        let side = match (self.side, other.column().and_then(Column::as_levels)) {
            (Side::ResidualNorm, _) => Some(other.numbers.clone()),
            (Side::Scale, Some(levels)) => {
                let view = other.packed.view();
                let last = view.unpack().column(view.n_columns() - 1).mapv(|byte| levels[usize::from(byte)]);
                Some(last.to_vec())
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
            self.keep(&positions)?;
            self.ids = self.ids.select(&positions);
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

    /// Keeps the codes and numbers of the vectors at `positions`, ascending; ids are left to the caller.
    ///
    /// # Errors
    /// There is no memory for them; nothing is changed then.
    fn keep(&mut self, positions: &[usize]) -> Result<()> {
        let mut packed = PackedCodes::pack(self.packed.view().select(positions).view())?;
        if let Some(column) = &self.column {
            let number = |position: usize| self.old_numbers(position..position + 1)[0];
            let (column, changed) = column.select(positions, number);
            changed.into_iter().for_each(|(at, byte)| packed.set_last(at, &[byte]));
            self.column = column;
        }
        self.packed = Store::Owned(packed);
        if self.side.keeps_numbers() {
            self.numbers = positions.iter().map(|&position| self.numbers[position]).collect();
            self.largest = self.numbers.iter().copied().fold(0.0, f32::max);
        }
        Ok(())
    }

    /// The side's numbers of codes that they follow from.
    fn numbers_of(&self, codes: ArrayView2<'_, u8>, monitor: &dyn Monitor) -> Result<Vec<f32>> {
        self.frame.numbers(&self.model.codebooks, self.settings.metric, codes, monitor)
    }

    /// The side's numbers of vectors that are there.
    fn old_numbers(&self, positions: Range<usize>) -> Vec<f32> {
        if self.side.keeps_numbers() {
            return self.numbers[positions].to_vec();
        }
        let positions: Vec<usize> = positions.collect();
        let codes = self.packed.view().select(&positions);
        // They were not refused when they were added; codes of a damaged file, which are not gone through, may be.
        self.numbers_of(codes.slice(s![.., ..self.n_codes()]), &())
            .unwrap_or_else(|_| vec![0.0; positions.len()])
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
