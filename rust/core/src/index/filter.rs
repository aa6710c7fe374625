//! Which vectors a search may find: a bit for each position, from a mask, ids, or a range of ids.

use super::Index;
use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use crate::monitor::{Counter, Monitor};
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// Words of 64 bits that are made between two reports.
const WORDS: usize = 1024;

impl Index {
    /// The bits of [`search`](Self::search)'s `allowed` for the vectors with these ids. Ids that are not in the index
    /// allow nothing.
    ///
    /// # Errors
    /// A cancelling monitor.
    pub fn allow_ids(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<u64>> {
        let among = Among::new(ids, self.len());
        self.allow(|id| among.contains(id), monitor)
    }

    /// The bits for the ids of a range: its first, and every `step`-th that follows up to its last.
    ///
    /// # Errors
    /// `step` is 0, or a cancelling monitor.
    pub fn allow_range(
        &self,
        ids: RangeInclusive<i64>,
        step: u64,
        monitor: &dyn Monitor,
    ) -> Result<Vec<u64>> {
        let (first, last) = ids.into_inner();
        match step {
            0 => Err(invalid!("the step of the range is 0: want at least 1")),
            1 => self.allow(|id| (first..=last).contains(&id), monitor),
            _ => self
                .allow(|id| (first..=last).contains(&id) && id.abs_diff(first).is_multiple_of(step), monitor),
        }
    }

    /// The bits for the positions where `mask` is true.
    ///
    /// # Errors
    /// The mask has another length than the index, or a cancelling monitor.
    pub fn allow_mask(&self, mask: &[bool], monitor: &dyn Monitor) -> Result<Vec<u64>> {
        if mask.len() != self.len() {
            return Err(invalid!(
                "filter has {} entries, the index holds {} vectors",
                mask.len(),
                self.len()
            ));
        }
        self.bits(|position| mask[position], monitor)
    }

    /// The bits for the ids that `allows` accepts.
    ///
    /// # Errors
    /// A cancelling monitor.
    pub fn allow(&self, allows: impl Fn(i64) -> bool + Sync, monitor: &dyn Monitor) -> Result<Vec<u64>> {
        match self.ids() {
            Some(ids) => self.bits(|position| allows(ids[position]), monitor),
            None => self.bits(|position| allows(position as i64), monitor),
        }
    }

    fn bits(&self, allows: impl Fn(usize) -> bool + Sync, monitor: &dyn Monitor) -> Result<Vec<u64>> {
        let mut bits = vec![0; self.len().div_ceil(BLOCK)];
        let counter = Counter::new(monitor, self.len() as u64);
        bits.par_chunks_mut(WORDS).enumerate().try_for_each(|(chunk, words)| {
            for (i, word) in words.iter_mut().enumerate() {
                let first = (chunk * WORDS + i) * BLOCK;
                let positions = first..(first + BLOCK).min(self.len());
                *word = positions.rev().fold(0, |word, position| word << 1 | u64::from(allows(position)));
            }
            counter.add(0)
        })?;
        Ok(bits)
    }
}

/// Ids that are asked many times whether one is among them: a bit for each number in their range where that takes no
/// more memory than they do, else sorted.
pub(super) struct Among {
    first: i64,
    bits: Vec<u64>,
    sorted: Vec<i64>,
}

impl Among {
    /// For about `asked` questions. Negative ids are among none.
    pub(super) fn new(ids: &[i64], asked: usize) -> Self {
        let valid = || ids.iter().copied().filter(|&id| id >= 0);
        let (first, last) = (valid().min().unwrap_or(0), valid().max().unwrap_or(-1));
        let words = (last.wrapping_sub(first).wrapping_add(1) as u64).div_ceil(64);
        if words <= (ids.len() as u64).max(asked as u64 / 8) + 64 {
            let mut bits = vec![0; words as usize];
            for id in valid() {
                let at = (id - first) as usize;
                bits[at / 64] |= 1 << (at % 64);
            }
            return Self { first, bits, sorted: Vec::new() };
        }
        let mut sorted: Vec<i64> = valid().collect();
        if !sorted.is_sorted() {
            sorted.par_sort_unstable();
        }
        Self { first, bits: Vec::new(), sorted }
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        if !self.sorted.is_empty() {
            return self.sorted.binary_search(&id).is_ok();
        }
        let at = id.wrapping_sub(self.first) as u64;
        let word = usize::try_from(at / 64).ok().and_then(|word| self.bits.get(word));
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_are_among_themselves(
            ids in prop::collection::vec(prop_oneof![-5i64..500, any::<i64>(), Just(i64::MAX), Just(i64::MIN)], 0..60),
            others in prop::collection::vec(any::<i64>(), 0..20),
            asked in 0..1000usize,
        ) {
            let among = Among::new(&ids, asked);
            for id in ids.iter().chain(&others).copied().chain(-70..600) {
                prop_assert_eq!(among.contains(id), id >= 0 && ids.contains(&id), "{}", id);
            }
        }
    }
}
