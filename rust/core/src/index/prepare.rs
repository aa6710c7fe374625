//! Preparing changes of an index: the part that takes long and may be cancelled, and leaves the index unchanged.

use super::Index;
use super::column::Column;
use super::ids::{self, Added};
use super::prepared::{Change, Kept, Kind, Laid, Place};
use super::side::Side;
use crate::codes::packed::{PackedCodes, PackedView};
use crate::error::{Error, Result, argument};
use crate::model::checked_lists;
use crate::monitor::Monitor;
use crate::vectors::metric::Metric;
use crate::vectors::{Vectors, check_dim};
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;

/// Vectors between two reports.
const CHUNK: usize = 1 << 16;

/// The codes of vectors, the list of each if there are lists, and the side's numbers if it keeps any.
type Encoded = (Array2<u8>, Option<Vec<u32>>, Option<Vec<f32>>);

impl Index {
    /// Prepares [`add`](Self::add): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub fn prepare_add(&self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<Change> {
        // Ids first: if they are invalid, encoding the vectors would be wasted.
        let ids = self.ids.added(x.n(), ids, &Start { monitor, total: x.n() as u64 })?;
        self.prepare_added(x, ids, monitor)
    }

    /// Prepares [`add_keyed`](Self::add_keyed): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`add_keyed`](Self::add_keyed).
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
        let (codes, lists, side) = self.encoded(x, monitor)?;
        self.check(codes.view(), side.as_deref())?;
        let done = Done { monitor, total: x.n() as u64 };
        self.append(codes.view(), lists.as_deref(), ids, side.as_deref(), &done).map_err(of_vectors)
    }

    /// Prepares [`add_codes`](Self::add_codes): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`add_codes`](Self::add_codes).
    pub fn prepare_add_codes(
        &self,
        codes: ArrayView2<'_, u8>,
        ids: Option<&[i64]>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.prepare_add_codes_in(codes, None, ids, side, monitor)
    }

    /// Like [`prepare_add_codes`](Self::prepare_add_codes), with the list of each vector, which is required if the
    /// model has centroids, and not accepted otherwise.
    ///
    /// # Errors
    /// The errors of [`add_codes`](Self::add_codes); or `lists` is not one list number per vector, below the number of
    /// lists.
    pub fn prepare_add_codes_in(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        ids: Option<&[i64]>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        let lists = checked_lists(self.model.centroids.as_ref(), lists, codes.nrows())?;
        let ids = self.ids.added(codes.nrows(), ids, monitor)?;
        self.append(codes, lists, ids, side, monitor)
    }

    /// Like [`prepare_add_codes_in`](Self::prepare_add_codes_in), with a key for each vector.
    ///
    /// # Errors
    /// Its errors, and those of [`add_keyed`](Self::add_keyed).
    pub fn prepare_add_keyed_codes_in<S: AsRef<str>>(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        keys: &[S],
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        let lists = checked_lists(self.model.centroids.as_ref(), lists, codes.nrows())?;
        check_number(keys.len(), codes.nrows())?;
        let ids = self.ids.added_keyed(keys, monitor)?;
        self.append(codes, lists, ids, side, monitor)
    }

    /// Prepares [`merge`](Self::merge): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`merge`](Self::merge).
    pub fn prepare_merge(&self, other: &Index, monitor: &dyn Monitor) -> Result<Change> {
        if other.model.codebooks != self.model.codebooks
            || !self.model.is_divided_like(&other.model)
            || other.settings != self.settings
        {
            return Err(argument!("other", "and the index have different models or settings"));
        }
        let copy = other.unmapped()?;
        let mut all = copy.as_ref().map_or_else(|| other.packed.view(), PackedCodes::view).unpack();
        let mut numbers = other.numbers.clone();
        if let Some(partition) = &other.partition {
            let places: Vec<usize> = partition.all_places().into_iter().map(|at| at as usize).collect();
            all = all.select(Axis(0), &places);
            if !numbers.is_empty() {
                numbers = places.into_iter().map(|place| numbers[place]).collect();
            }
        }
        let side = match (self.side, other.column().and_then(Column::as_levels)) {
            (Side::ResidualNorm, _) => Some(numbers),
            (Side::Scale, Some(levels)) => {
                let last = all.column(all.ncols() - 1).mapv(|byte| levels[usize::from(byte)]);
                Some(last.to_vec())
            }
            _ => None,
        };
        let codes = all.slice(s![.., ..self.n_codes()]);
        let ids = self.ids.merged(&other.ids, monitor).map_err(|error| error.renamed("ids", "other"))?;
        self.append(codes, other.lists().as_deref(), ids, side.as_deref(), monitor)
    }

    /// Prepares [`remove`](Self::remove): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`remove`](Self::remove).
    pub fn prepare_remove(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Change> {
        let mut kept = vec![true; self.len()];
        self.ids.positions(ids, monitor)?.into_iter().for_each(|position| kept[position] = false);
        let positions: Vec<usize> = (0..self.len()).filter(|&position| kept[position]).collect();
        self.keep(&positions, monitor)
    }

    /// Prepares [`clear`](Self::clear): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`clear`](Self::clear).
    pub fn prepare_clear(&self) -> Result<Change> {
        self.keep(&[], &())
    }

    /// Prepares [`update`](Self::update): everything but the last step.
    ///
    /// # Errors
    /// The errors of [`update`](Self::update).
    pub fn prepare_update(&self, x: &dyn Vectors, ids: &[i64], monitor: &dyn Monitor) -> Result<Change> {
        self.replaced(x.n(), ids, &Start { monitor, total: x.n() as u64 })?;
        let (codes, lists, side) = self.encoded(x, monitor)?;
        let done = Done { monitor, total: x.n() as u64 };
        self.prepare_update_codes_in(codes.view(), lists.as_deref(), ids, side.as_deref(), &done)
            .map_err(of_vectors)
    }

    /// Like [`prepare_update`](Self::prepare_update), with codes (n, M) and what goes with them: see
    /// [`prepare_add_codes_in`](Self::prepare_add_codes_in). If vectors change lists, it takes as long as removing some.
    ///
    /// # Errors
    /// The errors of both.
    pub fn prepare_update_codes_in(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        ids: &[i64],
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        self.check(codes, side)?;
        let lists = checked_lists(self.model.centroids.as_ref(), lists, codes.nrows())?;
        let positions = self.replaced(codes.nrows(), ids, monitor)?;
        if positions.is_empty() {
            return Ok(self.nothing());
        }
        if let (Some(partition), Some(lists)) = (&self.partition, lists) {
            return self.replace_in_lists(partition, (codes, lists), positions, side, monitor);
        }
        let laid = self.laid(codes, None, side, Some(&positions), monitor)?;
        Ok(Change { state: self.state, n: ids.len(), kind: Kind::Replace { positions, laid } })
    }

    /// Rejects vectors (n, d) that [`add`](Self::add) rejects whatever their codes are.
    ///
    /// # Errors
    /// A different d; for [`Metric::Euclidean`] a row that is not finite, or whose square is beyond f32; or the monitor
    /// cancels.
    pub fn check_vectors(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<()> {
        match self.settings.metric {
            Metric::Euclidean => self.frame.check_vectors(x, monitor),
            _ => check_dim(x, "X", self.model.codebooks.dim()),
        }
    }

    /// Computes the codes of `x`, their lists, and what the settings require alongside them.
    fn encoded(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Encoded> {
        let lists = match &self.model.centroids {
            None => None,
            Some(centroids) => {
                let start = Start { monitor, total: x.n() as u64 };
                Some(centroids.assign(x, self.model.recipe.metric, &start)?)
            }
        };
        let codes = self.model.encode_with(self.encoder()?, x, lists.as_deref(), monitor)?;
        let done = Done { monitor, total: x.n() as u64 };
        self.check_vectors(x, &done)?;
        let side = match self.side {
            Side::Scale => Some(self.model.scales_in(x, codes.view(), lists.as_deref(), &done)?),
            Side::ResidualNorm => Some(self.model.residuals_in(x, codes.view(), lists.as_deref(), &done)?),
            _ => None,
        };
        Ok((codes, lists, side))
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
        lists: Option<&[u32]>,
        ids: Added,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        let n = codes.nrows();
        if n == 0 {
            return Ok(self.nothing());
        }
        if let (Some(partition), Some(lists)) = (&self.partition, lists) {
            return self.append_in_lists(partition, (codes, lists), ids, side, monitor);
        }
        let laid = self.laid(codes, None, side, None, monitor)?;
        Ok(Change { state: self.state, n, kind: Kind::Append { laid, ids, place: Place::End } })
    }

    fn nothing(&self) -> Change {
        Change { state: self.state, n: 0, kind: Kind::Nothing }
    }

    /// The side's numbers for new vectors, given or computed from their codes; `None` if the side has no numbers.
    pub(super) fn new_numbers(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        match self.side.given(codes.nrows(), side) {
            _ if self.side == Side::None => Ok(Vec::new()),
            Some(given) => Ok(given),
            None => self.numbers_of(codes, lists, &Start { monitor, total: codes.nrows() as u64 }),
        }
    }

    /// Codes in the form in which the index keeps them, at the end or at `positions`.
    pub(super) fn laid(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
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
        let new = self.new_numbers(codes, lists, side, monitor)?;
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

    /// Prepares keeping only the vectors at `positions`, which ascend.
    fn keep(&self, positions: &[usize], monitor: &dyn Monitor) -> Result<Change> {
        let n = self.len() - positions.len();
        if n == 0 {
            return Ok(self.nothing());
        }
        if let Some(partition) = &self.partition {
            let kept = self.keep_in_lists(partition, positions, monitor)?;
            return Ok(Change { state: self.state, n, kind: Kind::Keep(Box::new(kept)) });
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
        Ok(Change {
            state: self.state,
            n,
            kind: Kind::Keep(Box::new(Kept { packed, column, numbers, ids, partition: None })),
        })
    }
}

fn check_number(ids: usize, n: usize) -> Result<()> {
    if ids == n { Ok(()) } else { Err(argument!("ids", "has {ids} entries for {n} vectors")) }
}

/// Turns an error about codes into one about `X`, which they were computed from.
fn of_vectors(error: Error) -> Error {
    error.renamed("codes", "X")
}

/// Only the vectors at `positions`, in that order.
pub(super) fn selected(
    all: PackedView<'_>,
    positions: &[usize],
    monitor: &dyn Monitor,
) -> Result<PackedCodes> {
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

/// Reports everything as done, while the work that follows the reported part is under way.
struct Done<'a> {
    monitor: &'a dyn Monitor,
    total: u64,
}

impl Monitor for Done<'_> {
    fn report(&self, _done: u64, _total: u64) -> Result<()> {
        self.monitor.report(self.total, self.total)
    }
}

/// Reports nothing as done, while the work before the reported part is under way.
struct Start<'a> {
    monitor: &'a dyn Monitor,
    total: u64,
}

impl Monitor for Start<'_> {
    fn report(&self, _done: u64, _total: u64) -> Result<()> {
        self.monitor.report(0, self.total)
    }
}
