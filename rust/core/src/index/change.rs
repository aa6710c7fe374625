//! Changes of an index: prepared beside it, which takes long and may be cancelled, then applied, which is brief.
//!
//! A change happens wholly or not at all. A program whose threads search meanwhile needs the index for itself only while
//! a change is applied: [`Index::add`] is [`Index::prepare_add`] and [`Index::apply`], and so on.

use super::Index;
use super::column::Column;
use super::lists;
use super::prepared::{Change, Kept, Kind, Place, State};
use crate::codes::packed::PackedCodes;
use crate::codes::store::Store;
use crate::error::{Result, invalid};
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::ArrayView2;

impl Index {
    /// Encodes `x` (n, d) and adds the codes. See [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Another d, a row that is not finite or, for Euclidean distances, whose square is beyond f32; ids that do not fit; or
    /// a cancelling monitor. Nothing is added then.
    pub fn add(&mut self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_add(x, ids, monitor)?;
        self.apply(change).map(drop)
    }

    /// Adds codes (n, M). Without `ids` they get the numbers that follow all ids there ever were: positions, if none were
    /// ever given or removed. `side` (n) are what the settings ask for beside the codes: scales, 1 by default, or
    /// [`residuals`](crate::Model::residuals).
    ///
    /// # Errors
    /// Codes of another M or beyond K; ids that are not n, negative, repeated, or taken; `side` that is not n finite
    /// numbers, that the settings do not ask for, or without the residuals that they do; or a cancelling monitor. Nothing
    /// is added then.
    pub fn add_codes(
        &mut self,
        codes: ArrayView2<'_, u8>,
        ids: Option<&[i64]>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let change = self.prepare_add_codes(codes, ids, side, monitor)?;
        self.apply(change).map(drop)
    }

    /// Adds the rows of `x` (n, d), each with a key, to an index that was made [`with_keys`](Self::with_keys).
    ///
    /// ```
    /// use compcodes::{Codebooks, Index, Model, Selection};
    /// use ndarray::array;
    /// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
    /// let mut index = Index::new(Model::new(codebooks, Selection::Group)).with_keys()?;
    /// index.add_keyed(&array![[3.5, 1.2], [0.3, 2.9]].view(), &["tea", "soup"], &())?;
    /// let hits = index.search(array![[1.0, 0.0]].view(), 1, None, &())?;
    /// assert_eq!(index.key(hits.positions[[0, 0]]), Some("tea"));
    /// index.remove(&index.ids_of(&["tea"])?, &())?;
    /// assert_eq!(index.keys().collect::<Vec<_>>(), ["soup"]);
    /// # Ok::<(), compcodes::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another d, a row that is not finite; keys that are not n, repeated, or there already; the index has no keys; or a
    /// cancelling monitor. Nothing is added then.
    pub fn add_keyed<S: AsRef<str>>(
        &mut self,
        x: &dyn Vectors,
        keys: &[S],
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let change = self.prepare_add_keyed(x, keys, monitor)?;
        self.apply(change).map(drop)
    }

    /// Adds all vectors of another index, with their ids if it was given any, else with the numbers that follow.
    ///
    /// # Errors
    /// The other has another model or settings, or ids that are taken; or a cancelling monitor. Nothing is added then.
    pub fn merge(&mut self, other: &Index, monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_merge(other, monitor)?;
        self.apply(change).map(drop)
    }

    /// Removes the vectors with these ids; those that follow move up. Returns how many there were.
    ///
    /// # Errors
    /// The index has no such id, or a cancelling monitor; nothing is removed then.
    pub fn remove(&mut self, ids: &[i64], monitor: &dyn Monitor) -> Result<usize> {
        let change = self.prepare_remove(ids, monitor)?;
        self.apply(change)
    }

    /// Removes all vectors. Their ids are not chosen again.
    ///
    /// # Errors
    /// There is no memory.
    pub fn clear(&mut self) -> Result<()> {
        let change = self.prepare_clear()?;
        self.apply(change).map(drop)
    }

    /// Puts the rows of `x` (n, d) in the place of the vectors with these ids, which keep their ids and positions.
    ///
    /// # Errors
    /// Another d, a row that is not finite; ids that are not n, repeated, or not in the index; or a cancelling monitor.
    /// Nothing is changed then.
    pub fn update(&mut self, x: &dyn Vectors, ids: &[i64], monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_update(x, ids, monitor)?;
        self.apply(change).map(drop)
    }

    /// Makes a change that was prepared for this index as it is; returns how many vectors it adds, removes or replaces.
    ///
    /// # Errors
    /// The index was changed meanwhile, or there is no memory. Nothing is changed then.
    pub fn apply(&mut self, change: Change) -> Result<usize> {
        let Change { state, n, kind } = change;
        if state != self.state {
            return Err(invalid!("the index was changed after this change was prepared"));
        }
        match kind {
            Kind::Nothing => return Ok(n),
            Kind::Append { laid, ids, place: Place::Lists(tail) } => {
                self.ids.reserve(&ids)?;
                lists::extend(self, laid, tail)?;
                self.ids.extend(ids);
            }
            Kind::Append { laid, ids, place: Place::End } => {
                // All that may fail comes first.
                self.numbers
                    .try_reserve(laid.numbers.len())
                    .map_err(|error| invalid!("no memory for {n} vectors: {error}"))?;
                self.ids.reserve(&ids)?;
                self.packed_with(laid.unmapped, |packed| packed.extend(laid.codes.view()))?;
                self.relay(laid.column, laid.relaid)?;
                self.largest = laid.numbers.iter().copied().fold(self.largest, f32::max);
                self.numbers.extend(laid.numbers);
                self.ids.extend(ids);
            }
            Kind::Replace { positions, laid } => {
                self.packed_with(laid.unmapped, |packed| {
                    packed.replace(&positions, laid.codes.view());
                    Ok(())
                })?;
                self.relay(laid.column, laid.relaid)?;
                self.largest = laid.numbers.iter().copied().fold(self.largest, f32::max);
                let numbers = positions.iter().zip(laid.numbers);
                numbers.for_each(|(&position, number)| self.numbers[position] = number);
            }
            Kind::Keep(kept) => {
                let Kept { packed, column, numbers, ids, partition } = *kept;
                self.largest = numbers.iter().copied().fold(0.0, f32::max);
                (self.packed, self.column, self.numbers, self.ids) =
                    (Store::Owned(packed), column, numbers, ids);
                self.partition = partition;
            }
        }
        self.state = State::new();
        Ok(n)
    }

    /// Changes the codes, or `unmapped` ones that take their place; if that fails, nothing has changed.
    pub(super) fn packed_with(
        &mut self,
        unmapped: Option<PackedCodes>,
        change: impl FnOnce(&mut PackedCodes) -> Result<()>,
    ) -> Result<()> {
        match unmapped {
            None => change(self.packed.to_mut()?),
            Some(mut packed) => {
                change(&mut packed)?;
                self.packed = Store::Owned(packed);
                Ok(())
            }
        }
    }

    /// Takes over what the side's column means, and its bytes that are other ones for that.
    pub(super) fn relay(&mut self, column: Option<Column>, relaid: Vec<(usize, Vec<u8>)>) -> Result<()> {
        let packed = self.packed.to_mut()?;
        relaid.into_iter().for_each(|(first, bytes)| packed.set_last(first, &bytes));
        if let Some(column) = column {
            self.column = Some(column);
        }
        Ok(())
    }
}
