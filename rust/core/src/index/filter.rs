//! Which vectors a search may find: a bit for each position, from a mask, ids, or a range of ids; and sets of each query.

use super::Index;
use super::whole::Part;
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument, invalid};
use crate::monitor::{Counter, Monitor};
use crate::scan::{Each, Sets};
use ndarray::ArrayView2;
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// Which vectors of an index, as it is, its searches may find: what [`Index::allow_ids`] and its like return.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed {
    /// Bit i of word b stands for position 64 b + i.
    pub(super) bits: Option<Vec<u64>>,
    /// Nothing but these, of each query.
    pub(super) only: Option<Sets>,
    /// None of these, of each query.
    pub(super) except: Option<Sets>,
}

impl Allowed {
    /// What is allowed for all queries: bit i of word b stands for position 64 b + i; `None` for all.
    #[must_use]
    pub fn bits(&self) -> Option<&[u64]> {
        self.bits.as_deref()
    }

    /// What is allowed for each query beside that, the first of them being query `first`.
    #[must_use]
    pub fn each(&self, first: usize) -> Each<'_> {
        Each { only: self.only.as_ref(), except: self.except.as_ref(), first }
    }

    /// The same where vectors are named by their places in lists, with these bits.
    pub(super) fn by_place(&self, bits: Option<&[u64]>, parts: &[Part<'_>]) -> Self {
        let moved = |words: &[u64]| match parts {
            [part] => part.partition().by_place(words),
            parts => parts.iter().flat_map(|part| part.partition().by_place(&words[part.words()])).collect(),
        };
        let sets = |sets: &Sets| match sets {
            Sets::Listed { starts, positions } => {
                let places: Vec<_> = parts.iter().map(|part| part.partition().all_places()).collect();
                let place = |&position: &u64| {
                    let part = parts.partition_point(|part| part.first as u64 <= position) - 1;
                    let first = parts[part].first as u64;
                    first + u64::from(places[part][(position - first) as usize])
                };
                let places = positions.iter().map(place).collect();
                Sets::listed(starts.clone(), places).expect("starts that were checked before")
            }
            Sets::Marked { words, n_words } => {
                let of = words.chunks((*n_words).max(1)).flat_map(moved);
                Sets::Marked { words: of.collect(), n_words: *n_words }
            }
        };
        Self {
            bits: bits.map(moved),
            only: self.only.as_ref().map(sets),
            except: self.except.as_ref().map(sets),
        }
    }

    /// What both allow.
    ///
    /// # Errors
    /// Both have sets of each query to which they keep, or to which they do not; or are of different indexes.
    pub fn and(self, other: Self) -> Result<Self> {
        let bits = match (self.bits, other.bits) {
            (Some(a), Some(b)) if a.len() != b.len() => {
                return Err(argument!("other", "is of an index of another size"));
            }
            (Some(a), Some(b)) => Some(a.into_iter().zip(b).map(|(a, b)| a & b).collect()),
            (a, b) => a.or(b),
        };
        if self.only.is_some() && other.only.is_some() || self.except.is_some() && other.except.is_some() {
            return Err(argument!("other", "has sets of the same kind, too, for each query: give one"));
        }
        Ok(Self { bits, only: self.only.or(other.only), except: self.except.or(other.except) })
    }

    /// The opposite of what was asked for: for all queries, or for each.
    ///
    /// # Errors
    /// It is of both kinds.
    pub fn inverse(self) -> Result<Self> {
        match self {
            Self { bits: Some(bits), only: None, except: None } => {
                Ok(Self { bits: Some(bits.into_iter().map(|word| !word).collect()), ..Self::default() })
            }
            Self { bits: None, only, except } => Ok(Self { bits: None, only: except, except: only }),
            _ => Err(invalid!("a filter for all queries and sets of each have no simple opposite")),
        }
    }
}

/// Words of 64 bits that are made between two reports.
const WORDS: usize = 1024;

impl Index {
    /// The vectors with these ids. Ids that are not in the index allow nothing.
    ///
    /// # Errors
    /// A cancelling monitor.
    pub fn allow_ids(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
        let among = Among::new(ids, self.len());
        self.allow(|id| among.contains(id), monitor)
    }

    /// The vectors with the ids of a range: its first, and every `step`-th that follows up to its last.
    ///
    /// # Errors
    /// `step` is 0, or a cancelling monitor.
    pub fn allow_range(&self, ids: RangeInclusive<i64>, step: u64, monitor: &dyn Monitor) -> Result<Allowed> {
        let (first, last) = ids.into_inner();
        match step {
            0 => Err(argument!("step", "is 0: want at least 1")),
            1 => self.allow(|id| (first..=last).contains(&id), monitor),
            _ => self
                .allow(|id| (first..=last).contains(&id) && id.abs_diff(first).is_multiple_of(step), monitor),
        }
    }

    /// The vectors at the positions where `mask` is true.
    ///
    /// # Errors
    /// The mask has another length than the index, or a cancelling monitor.
    pub fn allow_mask(&self, mask: &[bool], monitor: &dyn Monitor) -> Result<Allowed> {
        if mask.len() != self.len() {
            return Err(argument!(
                "filter",
                "has {} entries, the index holds {} vectors",
                mask.len(),
                self.len()
            ));
        }
        let bits = self.bits(|position| mask[position], monitor)?;
        Ok(Allowed { bits: Some(bits), ..Allowed::default() })
    }

    /// Of each query, the vectors with the ids `ids[starts[query]..starts[query + 1]]`; those that are not in the index
    /// allow nothing. [`Allowed::inverse`] makes them those that a query must not find.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of ids, or a cancelling monitor.
    pub fn allow_each(&self, starts: &[usize], ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
        each_of(starts, &self.ids.find(ids, monitor)?, self.len().div_ceil(BLOCK))
    }

    /// Of each query, the vectors at the positions where its row of `mask` (nq, n) is true.
    ///
    /// # Errors
    /// The mask has another number of columns than the index has vectors, or a cancelling monitor.
    pub fn allow_each_mask(&self, mask: ArrayView2<'_, bool>, monitor: &dyn Monitor) -> Result<Allowed> {
        if mask.ncols() != self.len() {
            let columns = mask.ncols();
            return Err(argument!("filter", "has {columns} columns, the index holds {} vectors", self.len()));
        }
        let words = mask.outer_iter().map(|row| self.bits(|position| row[position], monitor));
        let words = words.collect::<Result<Vec<_>>>()?.concat();
        let marked = Sets::Marked { words, n_words: self.len().div_ceil(BLOCK) };
        Ok(Allowed { only: Some(marked), ..Allowed::default() })
    }

    /// The vectors with the ids that `allows` accepts.
    ///
    /// # Errors
    /// A cancelling monitor.
    pub fn allow(&self, allows: impl Fn(i64) -> bool + Sync, monitor: &dyn Monitor) -> Result<Allowed> {
        let bits = match self.ids.given() {
            Some(ids) => self.bits(|position| allows(ids.at(position)), monitor),
            None => self.bits(|position| allows(position as i64), monitor),
        };
        Ok(Allowed { bits: Some(bits?), ..Allowed::default() })
    }

    pub(super) fn bits(
        &self,
        allows: impl Fn(usize) -> bool + Sync,
        monitor: &dyn Monitor,
    ) -> Result<Vec<u64>> {
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

/// Of each query, the positions `found[starts[query]..starts[query + 1]]` that there are, of 64 `n_words`.
pub(super) fn each_of(starts: &[usize], found: &[Option<usize>], n_words: usize) -> Result<Allowed> {
    if starts.first() != Some(&0) || !starts.is_sorted() || starts.last() != Some(&found.len()) {
        return Err(argument!(
            "starts",
            "of sets do not fit: want ascending ones, from 0 to {}",
            found.len()
        ));
    }
    if found.len() / 4 > n_words * (starts.len() - 1) {
        // Marks take less memory than long lists, and need not be sorted.
        let mut words = vec![0; n_words * (starts.len() - 1)];
        for (words, ends) in words.chunks_mut(n_words.max(1)).zip(starts.windows(2)) {
            let here = found[ends[0]..ends[1]].iter().flatten();
            here.for_each(|position| words[position / BLOCK] |= 1u64 << (position % BLOCK));
        }
        let only = Some(Sets::Marked { words, n_words });
        return Ok(Allowed { only, ..Allowed::default() });
    }
    let (mut kept, mut positions) = (vec![0], Vec::with_capacity(found.len()));
    for ends in starts.windows(2) {
        let here = found[ends[0]..ends[1]].iter().flatten().map(|&position| position as u64);
        positions.extend(here);
        kept.push(positions.len());
    }
    Ok(Allowed { only: Some(Sets::listed(kept, positions)?), ..Allowed::default() })
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
