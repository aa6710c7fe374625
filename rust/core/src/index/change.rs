//! Changes of an index: prepared alongside it, which takes long and may be cancelled, then applied, which is quick.
//!
//! A change happens completely or not at all. A program whose threads search at the same time needs exclusive access
//! only while a change is applied: [`Index::add`] is [`Index::prepare_add`] followed by [`Index::apply`], and so on.

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
    /// A different d, a row that is not finite or, for Euclidean distances, whose square is beyond f32; invalid ids; or
    /// the monitor cancels. Nothing is added in that case.
    pub fn add(&mut self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_add(x, ids, monitor)?;
        self.apply(change).map(drop)
    }

    /// Adds codes (n, M). Without `ids` they get the numbers that follow all ids there ever were: their positions, if
    /// no ids were ever given or removed. `side` (n) holds what the settings require alongside the codes: scales, 1 by
    /// default, or [`residuals`](crate::Model::residuals).
    ///
    /// # Errors
    /// Codes with a different M or beyond K; ids that are not n, negative, repeated, or taken; `side` that is not n
    /// finite numbers, is given though the settings do not use it, or is missing though they require residuals; or the
    /// monitor cancels. Nothing is added in that case.
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

    /// Adds the rows of `x` (n, d), each with a key, to an index that was created [`with_keys`](Self::with_keys).
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
    /// A different d, a row that is not finite; keys that are not n, repeated, or already present; the index has no
    /// keys; or the monitor cancels. Nothing is added in that case.
    pub fn add_keyed<S: AsRef<str>>(
        &mut self,
        x: &dyn Vectors,
        keys: &[S],
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let change = self.prepare_add_keyed(x, keys, monitor)?;
        self.apply(change).map(drop)
    }

    /// Adds all vectors of another index. They keep their ids if any were given there; otherwise they get the numbers
    /// that follow.
    ///
    /// # Errors
    /// The other index has a different model or settings, or ids that are taken; or the monitor cancels. Nothing is
    /// added in that case.
    pub fn merge(&mut self, other: &Index, monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_merge(other, monitor)?;
        self.apply(change).map(drop)
    }

    /// Removes the vectors with these ids; the vectors after them move up. Returns how many were removed.
    ///
    /// # Errors
    /// An id is not in the index, or the monitor cancels; nothing is removed in that case.
    pub fn remove(&mut self, ids: &[i64], monitor: &dyn Monitor) -> Result<usize> {
        let change = self.prepare_remove(ids, monitor)?;
        self.apply(change)
    }

    /// Removes all vectors. Their ids are not reused.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn clear(&mut self) -> Result<()> {
        let change = self.prepare_clear()?;
        self.apply(change).map(drop)
    }

    /// Replaces the vectors with these ids by the rows of `x` (n, d); they keep their ids and positions.
    ///
    /// # Errors
    /// A different d, a row that is not finite; ids that are not n, repeated, or not in the index; or the monitor
    /// cancels. Nothing is changed in that case.
    pub fn update(&mut self, x: &dyn Vectors, ids: &[i64], monitor: &dyn Monitor) -> Result<()> {
        let change = self.prepare_update(x, ids, monitor)?;
        self.apply(change).map(drop)
    }

    /// Applies a change that was prepared for the present state of the index; returns how many vectors it adds, removes
    /// or replaces.
    ///
    /// # Errors
    /// The index was changed since, or there is not enough memory. Nothing is changed in that case.
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
                // Everything that may fail comes first.
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

    /// Changes the codes, or the `unmapped` copy that replaces them; if that fails, nothing has changed.
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

    /// Adopts the new meaning of the side's column, and the bytes that change with it.
    pub(super) fn relay(&mut self, column: Option<Column>, relaid: Vec<(usize, Vec<u8>)>) -> Result<()> {
        let packed = self.packed.to_mut()?;
        relaid.into_iter().for_each(|(first, bytes)| packed.set_last(first, &bytes));
        if let Some(column) = column {
            self.column = Some(column);
        }
        Ok(())
    }
}
