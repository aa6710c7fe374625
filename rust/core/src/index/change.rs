//! Changes of an index: prepared beside it, which takes long and may be cancelled, then applied, which is brief.
//!
//! A change happens wholly or not at all. A program whose threads search meanwhile needs the index for itself only while
//! a change is applied: [`Index::add`] is [`Index::prepare_add`] and [`Index::apply`], and so on.

use super::Index;
use super::column::Column;
use super::ids::{self, Added, Ids};
use super::side::Side;
use crate::codes::packed::{PackedCodes, PackedView};
use crate::codes::store::Store;
use crate::error::{Result, invalid};
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Vectors between two reports.
pub(super) const CHUNK: usize = 1 << 16;

/// What an index held when a change was prepared; each change makes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A change that was prepared, for [`Index::apply`].
#[must_use = "a change that is not applied does nothing"]
pub struct Change {
    state: State,
    /// How many vectors it adds, removes or replaces.
    n: usize,
    kind: Kind,
}

enum Kind {
    Nothing,
    Append { laid: Laid, ids: Added },
    Replace { positions: Vec<usize>, laid: Laid },
    Keep(Box<Kept>),
}

/// Vectors as an index keeps them.
struct Laid {
    /// With the side's column.
    codes: Array2<u8>,
    /// The side's numbers, where it keeps them.
    numbers: Vec<f32>,
    /// What the bytes of the side's column mean from now on.
    column: Option<Column>,
    /// That column's bytes of vectors that are there, from some position on, where their intervals are laid anew.
    relaid: Vec<(usize, Vec<u8>)>,
    /// A copy of codes that are mapped from a file.
    unmapped: Option<PackedCodes>,
}

/// What is left of an index.
struct Kept {
    packed: PackedCodes,
    column: Option<Column>,
    numbers: Vec<f32>,
    ids: Ids,
}

impl Change {
    /// How many vectors it adds, removes or replaces.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }
}

impl Index {
    /// Encodes `x` (n, d) and adds the codes. See [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Another d, a row that is not finite, ids that do not fit, or a cancelling monitor; nothing is added then.
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

    /// What [`add`](Self::add) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn prepare_add(&self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<Change> {
        // First: codes of vectors with wrong ids are of no use.
        let ids = self.ids.added(x.n(), ids, &Start { monitor, total: x.n() as u64 })?;
        self.prepare_added(x, ids, monitor)
    }

    /// What [`add_keyed`](Self::add_keyed) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`add_keyed`](Self::add_keyed).
    pub fn prepare_add_keyed<S: AsRef<str>>(
        &self,
        x: &dyn Vectors,
        keys: &[S],
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        check_number(keys.len(), x.n())?;
        let ids = self.ids.added_keyed(keys, &Start { monitor, total: x.n() as u64 })?;
        self.prepare_added(x, ids, monitor)
    }

    fn prepare_added(&self, x: &dyn Vectors, ids: Added, monitor: &dyn Monitor) -> Result<Change> {
        let (codes, side) = self.encoded(x, monitor)?;
        self.check(codes.view(), side.as_deref())?;
        self.append(codes.view(), ids, side.as_deref(), &Done { monitor, total: x.n() as u64 })
    }

    /// What [`add_codes`](Self::add_codes) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`add_codes`](Self::add_codes).
    pub fn prepare_add_codes(
        &self,
        codes: ArrayView2<'_, u8>,
        ids: Option<&[i64]>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        let ids = self.ids.added(codes.nrows(), ids, monitor)?;
        self.append(codes, ids, side, monitor)
    }

    /// As [`prepare_add_codes`](Self::prepare_add_codes), with a key for each vector.
    ///
    /// # Errors
    /// Those of [`add_codes`](Self::add_codes) and of [`add_keyed`](Self::add_keyed).
    pub fn prepare_add_keyed_codes<S: AsRef<str>>(
        &self,
        codes: ArrayView2<'_, u8>,
        keys: &[S],
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        check_number(keys.len(), codes.nrows())?;
        let ids = self.ids.added_keyed(keys, monitor)?;
        self.append(codes, ids, side, monitor)
    }

    /// What [`merge`](Self::merge) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`merge`](Self::merge).
    pub fn prepare_merge(&self, other: &Index, monitor: &dyn Monitor) -> Result<Change> {
        if other.model.codebooks != self.model.codebooks || other.settings != self.settings {
            return Err(invalid!("the indexes have different models or settings"));
        }
        let copy = other.unmapped()?;
        let all = copy.as_ref().map_or_else(|| other.packed.view(), PackedCodes::view).unpack();
        let side = match (self.side, other.column().and_then(Column::as_levels)) {
            (Side::ResidualNorm, _) => Some(other.numbers.clone()),
            (Side::Scale, Some(levels)) => {
                let last = all.column(all.ncols() - 1).mapv(|byte| levels[usize::from(byte)]);
                Some(last.to_vec())
            }
            _ => None,
        };
        let codes = all.slice(s![.., ..self.n_codes()]);
        let ids = self.ids.merged(&other.ids, monitor)?;
        self.append(codes, ids, side.as_deref(), monitor)
    }

    /// What [`remove`](Self::remove) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn prepare_remove(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Change> {
        let mut kept = vec![true; self.len()];
        self.ids.positions(ids, monitor)?.into_iter().for_each(|position| kept[position] = false);
        let positions: Vec<usize> = (0..self.len()).filter(|&position| kept[position]).collect();
        self.keep(&positions, monitor)
    }

    /// What [`clear`](Self::clear) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`clear`](Self::clear).
    pub fn prepare_clear(&self) -> Result<Change> {
        self.keep(&[], &())
    }

    /// What [`update`](Self::update) does, but for the last step.
    ///
    /// # Errors
    /// Those of [`update`](Self::update).
    pub fn prepare_update(&self, x: &dyn Vectors, ids: &[i64], monitor: &dyn Monitor) -> Result<Change> {
        self.replaced(x.n(), ids, &Start { monitor, total: x.n() as u64 })?;
        let (codes, side) = self.encoded(x, monitor)?;
        self.prepare_update_codes(codes.view(), ids, side.as_deref(), &Done { monitor, total: x.n() as u64 })
    }

    /// As [`prepare_update`](Self::prepare_update), with codes (n, M) and what the settings ask for beside them: see
    /// [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Those of [`prepare_update`](Self::prepare_update) and of [`add_codes`](Self::add_codes).
    pub fn prepare_update_codes(
        &self,
        codes: ArrayView2<'_, u8>,
        ids: &[i64],
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        let positions = self.replaced(codes.nrows(), ids, monitor)?;
        if positions.is_empty() {
            return Ok(self.nothing());
        }
        let laid = self.laid(codes, side, Some(&positions), monitor)?;
        Ok(Change { state: self.state, n: ids.len(), kind: Kind::Replace { positions, laid } })
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
            Kind::Append { laid, ids } => {
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
                let Kept { packed, column, numbers, ids } = *kept;
                self.largest = numbers.iter().copied().fold(0.0, f32::max);
                (self.packed, self.column, self.numbers, self.ids) =
                    (Store::Owned(packed), column, numbers, ids);
            }
        }
        self.state = State::new();
        Ok(n)
    }

    /// Changes the codes, or `unmapped` ones that take their place; if that fails, nothing has changed.
    fn packed_with(
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
    fn relay(&mut self, column: Option<Column>, relaid: Vec<(usize, Vec<u8>)>) -> Result<()> {
        let packed = self.packed.to_mut()?;
        relaid.into_iter().for_each(|(first, bytes)| packed.set_last(first, &bytes));
        if let Some(column) = column {
            self.column = Some(column);
        }
        Ok(())
    }

    /// The codes of `x`, and what the settings ask for beside them.
    fn encoded(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<(Array2<u8>, Option<Vec<f32>>)> {
        let codes = self.encoder()?.encode(x, monitor)?;
        let done = Done { monitor, total: x.n() as u64 };
        let side = match self.side {
            Side::Scale => Some(self.model.scales(x, codes.view(), &done)?),
            Side::ResidualNorm => Some(self.model.residuals(x, codes.view(), &done)?),
            _ => None,
        };
        Ok((codes, side))
    }

    fn check(&self, codes: ArrayView2<'_, u8>, side: Option<&[f32]>) -> Result<()> {
        self.model.codebooks.check_codes(codes)?;
        self.side.check(codes.nrows(), side)
    }

    /// The positions of `n` vectors to be replaced.
    fn replaced(&self, n: usize, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<usize>> {
        check_number(ids.len(), n)?;
        ids::unique("ids", ids)?;
        self.ids.positions(ids, monitor)
    }

    fn append(
        &self,
        codes: ArrayView2<'_, u8>,
        ids: Added,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        let n = codes.nrows();
        if n == 0 {
            return Ok(self.nothing());
        }
        let laid = self.laid(codes, side, None, monitor)?;
        Ok(Change { state: self.state, n, kind: Kind::Append { laid, ids } })
    }

    fn nothing(&self) -> Change {
        Change { state: self.state, n: 0, kind: Kind::Nothing }
    }

    /// Codes as the index keeps them, at the end or at `positions`.
    fn laid(
        &self,
        codes: ArrayView2<'_, u8>,
        side: Option<&[f32]>,
        positions: Option<&[usize]>,
        monitor: &dyn Monitor,
    ) -> Result<Laid> {
        let n = codes.nrows();
        monitor.report(0, n as u64)?;
        // A mapped file is copied, and verified, before it is changed.
        let unmapped = self.unmapped()?;
        if self.side == Side::None {
            monitor.report(n as u64, n as u64)?;
            let (numbers, relaid) = (Vec::new(), Vec::new());
            return Ok(Laid { codes: codes.to_owned(), numbers, column: None, relaid, unmapped });
        }
        let new = match self.side.given(n, side) {
            Some(given) => given,
            None => self.numbers_of(codes, &Start { monitor, total: n as u64 })?,
        };
        let new_column = || match self.side {
            Side::Scale => Column::scales(),
            _ => Column::runs(),
        };
        let mut column = self.column.clone().unwrap_or_else(new_column);
        let old = |range| self.old_numbers(range);
        let (bytes, relaid) = match positions {
            None => {
                let (first, mut bytes) = column.extend(self.len(), &new, old);
                let new_bytes = bytes.split_off(self.len() - first);
                (new_bytes, vec![(first, bytes)])
            }
            Some(positions) => column.replace(self.len(), positions, &new, old),
        };
        let bytes = ArrayView2::from_shape((n, 1), &bytes).expect("one per vector");
        let codes = concatenate(Axis(1), &[codes, bytes]).expect("equal rows");
        let numbers = if self.side.keeps_numbers() { new } else { Vec::new() };
        monitor.report(n as u64, n as u64)?;
        Ok(Laid { codes, numbers, column: Some(column), relaid, unmapped })
    }

    /// Keeps the vectors at `positions`, which ascend.
    fn keep(&self, positions: &[usize], monitor: &dyn Monitor) -> Result<Change> {
        let n = self.len() - positions.len();
        if n == 0 {
            return Ok(self.nothing());
        }
        let unmapped = if positions.is_empty() { None } else { self.unmapped()? };
        let all = unmapped.as_ref().map_or_else(|| self.packed.view(), PackedCodes::view);
        let mut packed = selected(all, positions, monitor)?;
        let mut column = None;
        if let Some(all) = &self.column {
            let number = |position: usize| self.old_numbers(position..position + 1)[0];
            let (left, changed) = all.select(positions, number);
            changed.into_iter().for_each(|(at, byte)| packed.set_last(at, &[byte]));
            column = left;
        }
        let numbers = if self.side.keeps_numbers() {
            positions.iter().map(|&position| self.numbers[position]).collect()
        } else {
            Vec::new()
        };
        let ids = self.ids.select(positions);
        monitor.report(self.len() as u64, self.len() as u64)?;
        Ok(Change { state: self.state, n, kind: Kind::Keep(Box::new(Kept { packed, column, numbers, ids })) })
    }
}

fn check_number(ids: usize, n: usize) -> Result<()> {
    if ids == n { Ok(()) } else { Err(invalid!("ids has {ids} entries for {n} vectors")) }
}

/// The vectors at `positions` alone.
fn selected(all: PackedView<'_>, positions: &[usize], monitor: &dyn Monitor) -> Result<PackedCodes> {
    let mut packed = PackedCodes::with(all.layout())?;
    let mut codes = Array2::zeros((positions.len().min(CHUNK), all.n_columns()));
    for (chunk, positions) in positions.chunks(CHUNK).enumerate() {
        monitor.report((chunk * CHUNK) as u64, all.len() as u64)?;
        let rows = codes.as_slice_mut().expect("fresh").par_chunks_exact_mut(all.n_columns());
        rows.zip(positions).for_each(|(row, &position)| {
            row.iter_mut().zip(all.codes(position)).for_each(|(to, from)| *to = from);
        });
        packed.extend(codes.slice(s![..positions.len(), ..]))?;
    }
    Ok(packed)
}

/// Reports the whole as done, for what is left to do after it.
struct Done<'a> {
    monitor: &'a dyn Monitor,
    total: u64,
}

impl Monitor for Done<'_> {
    fn report(&self, _done: u64, _total: u64) -> Result<()> {
        self.monitor.report(self.total, self.total)
    }
}

/// Reports nothing as done, for what is to do before it.
struct Start<'a> {
    monitor: &'a dyn Monitor,
    total: u64,
}

impl Monitor for Start<'_> {
    fn report(&self, _done: u64, _total: u64) -> Result<()> {
        self.monitor.report(0, self.total)
    }
}
