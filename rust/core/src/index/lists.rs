//! Changes of an index whose vectors are divided into lists.

use super::column::Column;
use super::ids::Added;
use super::partition::{Partition, Tail};
use super::prepare::selected;
use super::prepared::{Change, Kept, Kind, Laid, Place};
use super::side::Side;
use super::{Index, Reach};
use crate::codes::packed::PackedCodes;
use crate::error::Result;
use crate::monitor::Monitor;
use ndarray::{Array2, ArrayView2, s};

impl Index {
    /// The list of each vector, in the order of adding; `None` if the model has no centroids.
    #[must_use]
    pub fn lists(&self) -> Option<Vec<u32>> {
        self.partition.as_ref().map(Partition::lists)
    }

    /// How many vectors each list holds; `None` if the model has no centroids.
    #[must_use]
    pub fn list_sizes(&self) -> Option<Vec<usize>> {
        self.partition.as_ref().map(Partition::sizes)
    }

    /// How far the lists have drifted from those of training: the share of the vectors, 0 to 1, that would have to be
    /// in other lists for each list to hold the share that it held then. Some of it is chance: about √(lists / vectors)
    /// / 2.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        let (centroids, sizes) = (self.model.centroids.as_ref()?, self.list_sizes()?);
        let n = self.len().max(1) as f64;
        let off = |(&size, &share): (&usize, &f32)| (size as f64 / n - f64::from(share)).abs();
        let is_any = !self.is_empty();
        Some(if is_any { sizes.iter().zip(centroids.shares()).map(off).sum::<f64>() / 2.0 } else { 0.0 })
    }

    /// Approximately how many vectors a search scans, and how many multiplications its products with the centroids
    /// take.
    #[must_use]
    pub fn passes(&self, reach: Reach) -> (usize, usize) {
        let Some(centroids) = &self.model.centroids else { return (self.len(), 0) };
        let share = reach.lists(centroids) as f64 / centroids.n_lists() as f64;
        ((self.len() as f64 * share) as usize, centroids.n_lists() * centroids.dim())
    }

    pub(crate) fn partition(&self) -> Option<&Partition> {
        self.partition.as_ref()
    }

    /// The places of the codes of the vectors at `positions`.
    pub(super) fn places(&self, positions: Vec<usize>) -> Vec<usize> {
        self.partition.as_ref().map_or(positions.clone(), |partition| partition.places_of(&positions))
    }

    /// The lists of the vectors at these places, if there are lists.
    pub(super) fn lists_of(&self, places: &[usize]) -> Option<Vec<u32>> {
        let partition = self.partition.as_ref()?;
        Some(places.iter().map(|&place| partition.list(place)).collect())
    }

    /// Prepares adding codes (n, M) to these lists.
    pub(super) fn append_in_lists(
        &self,
        partition: &Partition,
        (codes, lists): (ArrayView2<'_, u8>, &[u32]),
        ids: Added,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        let n = codes.nrows();
        monitor.report(0, n as u64)?;
        let tail = partition.appended(lists)?;
        let (first, old) = (tail.first(), self.len() - tail.first());
        let unmapped = self.unmapped()?;
        let new = self.new_numbers(codes, Some(lists), side, monitor)?;
        let (mut column, mut bytes, mut relaid) = (self.column.clone(), None, Vec::new());
        // The numbers of the vectors that move, and of those that are added.
        let mut numbers = Vec::new();
        if self.side != Side::None {
            let mixed = column.get_or_insert_with(|| self.new_column()).mix(self.len(), &new);
            let is_laid_anew = mixed.is_none();
            if is_laid_anew || self.side.keeps_numbers() {
                let from = if is_laid_anew { 0 } else { first };
                numbers = self.old_numbers(from..self.len());
                numbers.extend(&new);
            }
            bytes = Some(match mixed {
                Some(bytes) => bytes,
                None => {
                    let (laid, mut all) = Column::laid(&numbers);
                    column = Some(laid);
                    numbers.drain(..first);
                    // The bytes of vectors that move go along with the codes; the others are set in place.
                    let moved = all.split_off(first);
                    relaid.push((0, all));
                    moved
                }
            });
        }
        let view = self.packed.view();
        let n_codes = self.n_codes();
        let places = partition.places_from(first);
        let mut rows = Array2::zeros((tail.positions().len(), self.packed.n_columns()));
        let mut moved = Vec::with_capacity(if self.side.keeps_numbers() { rows.nrows() } else { 0 });
        for (mut row, &position) in rows.outer_iter_mut().zip(tail.positions()) {
            let at = position as usize - first;
            // For vectors that move, numbers and bytes are in the order of places.
            let source = if at < old { places[at] as usize - first } else { at };
            if at < old {
                row.iter_mut().zip(view.codes(places[at] as usize)).for_each(|(to, from)| *to = from);
            } else {
                row.slice_mut(s![..n_codes]).assign(&codes.row(at - old));
            }
            if let Some(bytes) = &bytes {
                // Vectors that move have bytes here only if all intervals are refitted.
                match bytes.len() == n {
                    true if at >= old => row[n_codes] = bytes[at - old],
                    true => {}
                    false => row[n_codes] = bytes[source],
                }
            }
            if self.side.keeps_numbers() {
                moved.push(numbers[source]);
            }
        }
        monitor.report(n as u64, n as u64)?;
        let column = if self.side == Side::None { None } else { column };
        let laid = Laid { codes: rows, numbers: moved, column, relaid, unmapped };
        Ok(Change { state: self.state, n, kind: Kind::Append { laid, ids, place: Place::Lists(tail) } })
    }

    /// Prepares replacing the codes at `positions`, in these lists.
    pub(super) fn replace_in_lists(
        &self,
        partition: &Partition,
        (codes, lists): (ArrayView2<'_, u8>, &[u32]),
        positions: Vec<usize>,
        side: Option<&[f32]>,
        monitor: &dyn Monitor,
    ) -> Result<Change> {
        let places = partition.places_of(&positions);
        let laid = self.laid(codes, Some(lists), side, Some(&places), monitor)?;
        let stay = places.iter().zip(lists).all(|(&place, &list)| partition.list(place) == list);
        let n = positions.len();
        if stay {
            return Ok(Change { state: self.state, n, kind: Kind::Replace { positions: places, laid } });
        }
        // First as if the vectors stayed where they are, then all of them are arranged by their new lists.
        let mut packed = match laid.unmapped {
            Some(copy) => copy,
            None => PackedCodes::from_view(self.packed.view())?,
        };
        packed.replace(&places, laid.codes.view());
        laid.relaid.iter().for_each(|(first, bytes)| packed.set_last(*first, bytes));
        let mut numbers = self.numbers.clone();
        places.iter().zip(laid.numbers).for_each(|(&place, number)| numbers[place] = number);
        let mut all = partition.lists();
        positions.iter().zip(lists).for_each(|(&position, &list)| all[position] = list);
        let column = laid.column.or_else(|| self.column.clone());
        let positions: Vec<usize> = (0..self.len()).collect();
        let kept = self.arranged((packed, numbers, column), partition, &all, &positions, monitor)?;
        Ok(Change { state: self.state, n, kind: Kind::Keep(Box::new(kept)) })
    }

    /// Prepares keeping only the vectors at `positions`, which ascend.
    pub(super) fn keep_in_lists(
        &self,
        partition: &Partition,
        positions: &[usize],
        monitor: &dyn Monitor,
    ) -> Result<Kept> {
        let packed = match self.unmapped()? {
            Some(copy) if !positions.is_empty() => copy,
            _ => PackedCodes::new(self.packed.n_columns())?,
        };
        let lists = partition.lists();
        let lists: Vec<u32> = positions.iter().map(|&position| lists[position]).collect();
        let column = match &self.column {
            Some(Column::Runs(_)) if positions.is_empty() => None,
            column => column.clone(),
        };
        self.arranged((packed, self.numbers.clone(), column), partition, &lists, positions, monitor)
    }

    /// The codes and numbers that remain, which are arranged by `partition`, if the vectors at `positions` are kept and
    /// are in `lists`.
    fn arranged(
        &self,
        (packed, numbers, column): (PackedCodes, Vec<f32>, Option<Column>),
        partition: &Partition,
        lists: &[u32],
        positions: &[usize],
        monitor: &dyn Monitor,
    ) -> Result<Kept> {
        let n_lists = self.model.centroids.as_ref().map_or(1, |centroids| centroids.n_lists());
        let arranged = Partition::of(n_lists, lists);
        let places = partition.places_of(positions);
        let order: Vec<usize> = arranged.positions().iter().map(|&at| places[at as usize]).collect();
        let view = if packed.len() == self.len() { packed.view() } else { self.packed.view() };
        let packed = selected(view, &order, monitor)?;
        let numbers =
            if numbers.is_empty() { numbers } else { order.iter().map(|&at| numbers[at]).collect() };
        let ids = if positions.len() == self.len() { self.ids.clone() } else { self.ids.select(positions) };
        monitor.report(self.len() as u64, self.len() as u64)?;
        Ok(Kept { packed, column, numbers, ids, partition: Some(arranged) })
    }

    fn new_column(&self) -> Column {
        match self.side {
            Side::Scale => Column::scales(),
            _ => Column::runs(),
        }
    }
}

/// Applies an appended tail; everything that may fail comes first.
pub(super) fn extend(index: &mut Index, laid: Laid, tail: Tail) -> Result<()> {
    let first = tail.first();
    let partition = index.partition.as_mut().expect("an index with lists");
    partition.reserve(&tail)?;
    index.packed_with(laid.unmapped, |packed| packed.rewrite(first, laid.codes.view()))?;
    index.relay(laid.column, laid.relaid)?;
    index.largest = laid.numbers.iter().copied().fold(index.largest, f32::max);
    index.numbers.truncate(first);
    index.numbers.extend(laid.numbers);
    index.partition.as_mut().expect("as before").extend(tail);
    Ok(())
}
