//! Which vectors of shards a search may find, with the same methods as [`Index`](crate::Index).

use super::{Shard, Shards};
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument};
use crate::index::among::Among;
use crate::index::filter::{self, Allowed, Marks};
use crate::monitor::Monitor;
use crate::scan::Sets;
use ndarray::ArrayView2;
use std::ops::RangeInclusive;

impl Shards {
    /// Allows the vectors with these ids. Ids that are not in the index are ignored.
    ///
    /// # Errors
    /// The monitor cancels.
    pub fn allow_ids(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
        let among = Among::new(ids, self.len());
        self.allow(|id| among.contains(id), monitor)
    }

    /// Allows the vectors with the ids of a range: its first, and every `step`-th after it up to its last.
    ///
    /// # Errors
    /// `step` is 0, or the monitor cancels.
    pub fn allow_range(&self, ids: RangeInclusive<i64>, step: u64, monitor: &dyn Monitor) -> Result<Allowed> {
        let (first, last) = ids.into_inner();
        if step == 0 {
            return Err(argument!("step", "is 0: want at least 1"));
        }
        let is_in =
            |id: i64| (first..=last).contains(&id) && (step == 1 || id.abs_diff(first).is_multiple_of(step));
        self.allow(is_in, monitor)
    }

    /// Allows the vectors with the ids that `allows` accepts.
    fn allow(&self, allows: impl Fn(i64) -> bool + Sync, monitor: &dyn Monitor) -> Result<Allowed> {
        let bits = |shard: &Shard| Ok(shard.index.allow(|id| allows(id + shard.offset), monitor)?.bits);
        let bits = self.shards.iter().map(bits).collect::<Result<Vec<_>>>()?;
        let bits = Some(bits.into_iter().flatten().flatten().collect());
        Ok(Allowed { bits, ..Allowed::default() })
    }

    /// Allows the vectors where `mask` is true; it has one entry per vector that is not removed.
    ///
    /// # Errors
    /// The mask has a different length, or the monitor cancels.
    pub fn allow_mask(&self, mask: &[bool], monitor: &dyn Monitor) -> Result<Allowed> {
        self.allow_row(Marks::new(ArrayView2::from_shape((1, mask.len()), mask).expect("one row")), monitor)
    }

    /// Like [`allow_mask`](Self::allow_mask), with a mask that is packed already, as a matrix of one row.
    ///
    /// # Errors
    /// The errors of [`allow_mask`](Self::allow_mask).
    pub fn allow_row(&self, mask: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
        mask.check_row(self.len())?;
        let bits =
            mask.rows().map(|row| self.marked(row, monitor)).next().unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(Allowed { bits: Some(bits), ..Allowed::default() })
    }

    /// For each query, allows the vectors with the ids `ids[starts[query]..starts[query + 1]]`; those that are not in
    /// the index are ignored.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of ids, or the monitor cancels.
    pub fn allow_each(&self, starts: &[usize], ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
        let found = self.find(ids, monitor)?;
        let slots: Vec<Option<usize>> =
            found.into_iter().map(|position| usize::try_from(self.slot(position)).ok()).collect();
        filter::each_of(starts, slots.len(), |at| slots[at], self.n_words())
    }

    /// For each query, allows the vectors with the keys `keys[starts[query]..starts[query + 1]]`; those that are not in
    /// the index are ignored.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of keys, the vectors have no keys, or the monitor cancels.
    pub fn allow_each_keys<S: AsRef<str>>(
        &self,
        starts: &[usize],
        keys: &[S],
        monitor: &dyn Monitor,
    ) -> Result<Allowed> {
        let found = self.find_keys(keys, monitor)?;
        let ids: Vec<i64> = found.into_iter().map(|id| id.unwrap_or(-1)).collect();
        self.allow_each(starts, &ids, monitor)
    }

    /// For each query, allows the vectors where its row of `mask` is true; `mask` has one column per vector that is not
    /// removed.
    ///
    /// # Errors
    /// The mask has a different number of columns, or the monitor cancels.
    pub fn allow_each_mask(&self, mask: ArrayView2<'_, bool>, monitor: &dyn Monitor) -> Result<Allowed> {
        self.allow_marks(Marks::new(mask), monitor)
    }

    /// Like [`allow_each_mask`](Self::allow_each_mask), with a matrix that is packed already.
    ///
    /// # Errors
    /// The errors of [`allow_each_mask`](Self::allow_each_mask).
    pub fn allow_marks(&self, marks: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
        marks.check(self.len())?;
        let words = marks.rows().map(|row| self.marked(row, monitor));
        let words = words.collect::<Result<Vec<_>>>()?.concat();
        let marked = Sets::Marked { words, n_words: self.n_words() };
        Ok(Allowed { only: Some(marked), ..Allowed::default() })
    }

    fn n_words(&self) -> usize {
        self.slots[self.shards.len()] / BLOCK
    }

    /// Bits by slot, from one entry per vector that is not removed.
    fn marked(&self, mut mask: impl Iterator<Item = bool>, monitor: &dyn Monitor) -> Result<Vec<u64>> {
        let mut words = vec![0; self.n_words()];
        for (shard, &first) in self.shards.iter().zip(&self.slots) {
            monitor.report(0, self.n_words() as u64)?;
            for position in (0..shard.index.len()).filter(|&position| shard.is_live(position)) {
                let slot = first + position;
                words[slot / BLOCK] |= u64::from(mask.next().unwrap_or(false)) << (slot % BLOCK);
            }
        }
        Ok(words)
    }
}
