//! Codes and ids, ready to be searched.

mod among;
mod candidates;
mod certify;
mod change;
mod checked;
mod column;
mod filter;
mod frame;
mod given;
mod ids;
mod keys;
mod lists;
mod measure;
mod part;
mod partition;
mod prepare;
mod prepared;
mod probing;
mod queries;
mod restored;
mod search;
mod settings;
pub mod sharded;
mod side;
mod whole;

use crate::codes::packed::{Layout, PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::encode::Encode;
use crate::error::{Result, argument, invalid};
use crate::model::Model;
use crate::monitor::Monitor;
pub use candidates::{Candidates, rows_of};
pub(crate) use column::Column;
pub use filter::{Allowed, Marks};
use frame::Frame;
pub(crate) use given::Given;
use ids::Ids;
pub(crate) use ids::Order;
pub(crate) use keys::Keys;
pub use keys::shown;
use ndarray::{Array2, ArrayView2, Axis, s};
pub(crate) use partition::{Generation, Partition};
pub use prepared::Change;
use prepared::State;
pub use probing::{Reach, Within};
pub(crate) use restored::Parts;
pub use search::Above;
pub use settings::Settings;
use side::Side;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A database of codes, one per vector, and the model that decodes them.
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
    is_centered: bool,
    /// M columns of codes, as nibbles if K ≤ 16, and one column of bytes if there is a side.
    packed: Store,
    /// The meaning of those bytes; `None` without vectors.
    column: Option<Column>,
    /// The side's number for each vector, if the side keeps them.
    numbers: Vec<f32>,
    /// The largest number, at least 0.
    largest: f32,
    ids: Ids,
    /// The vectors of each list, if the model has centroids: codes and numbers are then in the order of the lists.
    partition: Option<Partition>,
    state: State,
    /// Created on first use, since it costs the products of all codewords; copies of the index share it.
    encoder: OnceLock<Arc<dyn Encode>>,
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

    /// Makes an empty index whose vectors have keys: strings that identify them, and that files keep. The index then
    /// chooses the ids.
    ///
    /// # Errors
    /// The index holds vectors.
    pub fn with_keys(self) -> Result<Self> {
        if self.next_id() > 0 {
            return Err(invalid!("the index has held vectors without keys: make a new one"));
        }
        let ids = self.ids.keyed();
        Ok(Self { ids, ..self })
    }

    fn framed(model: Model, settings: Settings, is_centered: bool) -> Result<Self> {
        let side = Side::of(settings)?;
        model.centroids.as_ref().map_or(Ok(()), |centroids| centroids.check(&model.codebooks))?;
        let frame = match side {
            Side::InverseNorm => Frame::centered(&model),
            Side::SquaredNorm { .. } if is_centered => Frame::centered(&model),
            _ => Frame::plain(&model),
        };
        let packed = Store::Owned(PackedCodes::with(layout(&model, side))?);
        let (column, numbers, largest) = (None, Vec::new(), 0.0);
        let (ids, state, encoder) = (Ids::new(), State::new(), OnceLock::new());
        let partition = model.centroids.as_ref().map(|centroids| Partition::new(centroids.n_lists()));
        Ok(Self {
            model,
            settings,
            side,
            frame,
            is_centered,
            packed,
            column,
            numbers,
            largest,
            ids,
            partition,
            state,
            encoder,
        })
    }

    /// Rejects packed codes that name codewords beyond K.
    fn check_packed(&self, packed: PackedView<'_>) -> Result<()> {
        checked::codewords(packed, self.n_codes(), self.model.codebooks.n_codewords())
    }

    /// Rejects mapped codes that name codewords beyond K, and returns the checksum that they must have; `None` for
    /// codes that are not mapped.
    pub(crate) fn check_store(&self) -> Result<Option<u32>> {
        let Store::Mapped(mapped) = &self.packed else { return Ok(None) };
        self.check_packed(self.packed.view())?;
        Ok(Some(mapped.crc()))
    }

    /// A verified copy of mapped codes, to be changed; `None` for codes that are not mapped.
    fn unmapped(&self) -> Result<Option<PackedCodes>> {
        self.packed.unmapped(self.layout(), |packed| self.check_packed(packed))
    }

    /// The same index with its codes in memory in the present layout, if they are mapped from a file of an earlier
    /// version with a different layout; `None` if they already have the present layout.
    fn packed_anew(&self) -> Result<Option<Self>> {
        if self.packed.view().layout() == self.layout() {
            return Ok(None);
        }
        let packed = self.unmapped()?;
        Ok(packed.map(|packed| Self { packed: Store::Owned(packed), ..self.clone() }))
    }

    /// The model that decodes the codes.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the index measures and keeps.
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

    /// Bytes kept per vector, excluding ids: the codes, what the settings require, and the position if codes are in the
    /// order of lists.
    #[must_use]
    pub fn bytes_per_vector(&self) -> usize {
        let numbers = if self.side.keeps_numbers() { size_of::<f32>() } else { 0 };
        let positions = if self.partition.is_some() { size_of::<u32>() } else { 0 };
        self.packed.view().n_lines() + numbers + positions
    }

    /// All codes, (n, M), in the order they were added.
    #[must_use]
    pub fn codes(&self) -> Array2<u8> {
        let all = self.packed.view().unpack();
        let codes = all.slice(s![.., ..self.n_codes()]);
        match &self.partition {
            None => codes.to_owned(),
            Some(partition) => {
                let places: Vec<usize> = partition.all_places().into_iter().map(|at| at as usize).collect();
                codes.select(Axis(0), &places)
            }
        }
    }

    /// The ids in the order they were added; `None` if each id is its position.
    #[must_use]
    pub fn ids(&self) -> Option<Cow<'_, [i64]>> {
        self.ids.all()
    }

    pub(crate) fn stored_ids(&self) -> Option<&Given> {
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

    pub(crate) fn is_centered(&self) -> bool {
        self.is_centered
    }

    fn encoder(&self) -> Result<&dyn Encode> {
        if let Some(encoder) = self.encoder.get() {
            return Ok(&**encoder);
        }
        let encoder = Arc::from(self.model.encoder()?);
        Ok(&**self.encoder.get_or_init(|| encoder))
    }

    /// The id that the next vector gets if none is given: above every id that the index ever held, including those of
    /// vectors that were removed.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.ids.next()
    }

    /// Whether there is a vector with this id.
    #[must_use]
    pub fn contains(&self, id: i64) -> bool {
        self.ids.contains(id)
    }

    /// Whether the vectors have keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.ids.keys().is_some()
    }

    /// The keys, in the order the vectors were added; none if vectors have no keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        let keys = self.ids.keys();
        (0..keys.map_or(0, Keys::len)).map(move |position| keys.expect("there is one").at(position))
    }

    /// The key of the vector with an id; `None` if there is no such vector, or it has no key.
    #[must_use]
    pub fn key(&self, id: i64) -> Option<&str> {
        self.ids.key(id)
    }

    /// The ids of the vectors with these keys, in the order of `keys`; `None` for a key that is not in the index.
    ///
    /// # Errors
    /// The vectors have no keys.
    pub fn find_keys<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<Option<i64>>> {
        self.ids.by_keys(keys)
    }

    /// The ids of the vectors with these keys, in the order of `keys`.
    ///
    /// # Errors
    /// A key is not in the index, or the vectors have no keys.
    pub fn ids_of<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<i64>> {
        let found = self.find_keys(keys)?;
        match found.iter().position(Option::is_none) {
            Some(at) => Err({
                let key = shown(keys[at].as_ref());
                argument!("ids", "hold {key}, and the index has no key {key}")
            }),
            None => Ok(found.into_iter().flatten().collect()),
        }
    }

    pub(crate) fn stored_keys(&self) -> Option<&Keys> {
        self.ids.keys()
    }

    pub(crate) fn order(&self) -> Order {
        self.ids.order()
    }

    /// The approximations of the vectors with these ids, (n, d).
    ///
    /// # Errors
    /// An id is not in the index; or the monitor cancels.
    pub fn reconstruct(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Array2<f32>> {
        let places = self.places(self.ids.positions(ids, monitor)?);
        let codes = self.packed.view().select(&places);
        let lists = self.lists_of(&places);
        self.model.decode(codes.slice(s![.., ..self.n_codes()]), lists.as_deref(), monitor)
    }

    /// The layout of new codes; those of an older file that is mapped may have another.
    fn layout(&self) -> Layout {
        layout(&self.model, self.side)
    }

    fn n_codes(&self) -> usize {
        self.model.codebooks.n_codebooks()
    }

    /// The side's numbers for codes, if they follow from these.
    fn numbers_of(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        self.frame.numbers(&self.model, self.settings.metric, (codes, lists), monitor)
    }

    /// The side's numbers for the existing vectors at these places.
    fn old_numbers(&self, places: Range<usize>) -> Vec<f32> {
        if self.side.keeps_numbers() {
            return self.numbers[places].to_vec();
        }
        let places: Vec<usize> = places.collect();
        let codes = self.packed.view().select(&places);
        let lists = self.lists_of(&places);
        // Such codes are rejected when they are added, but the codes of a damaged file, which are not checked, may
        // contain them.
        self.numbers_of(codes.slice(s![.., ..self.n_codes()]), lists.as_deref(), &())
            .unwrap_or_else(|_| vec![0.0; places.len()])
    }
}

/// The layout of the codes of an index: the smallest that they fit in.
fn layout(model: &Model, side: Side) -> Layout {
    let (m, k, _) = model.codebooks.view().dim();
    Layout::smallest(m, k, side.n_columns())
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;
