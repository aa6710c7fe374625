//! Which vectors each query may find, if queries differ: not what a user already has, or only what a tenant owns.
//!
//! The sets of queries are consulted when vectors are scored, which few are: the scan costs almost nothing more.

use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use std::ops::Range;

/// A set of positions for each query.
#[derive(Clone, Debug, PartialEq)]
pub enum Sets {
    /// The positions of query i are `positions[starts[i]..starts[i + 1]]`, ascending.
    Listed {
        /// One entry more than there are queries.
        starts: Vec<usize>,
        /// The positions of all queries.
        positions: Vec<u64>,
    },
    /// Bit p % 64 of word p / 64 among query i's `n_words` stands for position p.
    Marked {
        /// The words of all queries.
        words: Vec<u64>,
        /// Words per query.
        n_words: usize,
    },
}

impl Sets {
    /// Takes positions as lists, and sorts them.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of positions.
    pub fn listed(starts: Vec<usize>, mut positions: Vec<u64>) -> Result<Self> {
        if starts.first() != Some(&0) || !starts.is_sorted() || starts.last() != Some(&positions.len()) {
            return Err(invalid!("starts of sets: want ascending ones, from 0 to {}", positions.len()));
        }
        for ends in starts.windows(2) {
            let set = &mut positions[ends[0]..ends[1]];
            if !set.is_sorted() {
                set.sort_unstable();
            }
        }
        Ok(Self::Listed { starts, positions })
    }

    /// How many queries have a set.
    #[must_use]
    pub fn n_queries(&self) -> usize {
        match self {
            Self::Listed { starts, .. } => starts.len() - 1,
            Self::Marked { words, n_words } => words.len().checked_div(*n_words).unwrap_or(0),
        }
    }

    fn of(&self, query: usize) -> Set<'_> {
        match self {
            Self::Listed { starts, positions } => Set::Listed(&positions[starts[query]..starts[query + 1]]),
            Self::Marked { words, n_words } => Set::Marked(&words[query * n_words..][..*n_words]),
        }
    }
}

/// Sets for the queries of a search; by default every query may find everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Each<'a> {
    /// Only these may be found.
    pub only: Option<&'a Sets>,
    /// None of these may be found.
    pub except: Option<&'a Sets>,
    /// The number in the sets of the first query of the search.
    pub first: usize,
}

impl<'a> Each<'a> {
    pub(super) fn check(&self, n_queries: usize) -> Result<()> {
        for sets in [self.only, self.except].into_iter().flatten() {
            // Without vectors there are no words to count.
            let is_empty = matches!(sets, Sets::Marked { n_words: 0, .. });
            if !is_empty && sets.n_queries() < self.first + n_queries {
                let (have, want) = (sets.n_queries(), self.first + n_queries);
                return Err(invalid!("there are sets for {have} queries: want one for each of {want}"));
            }
        }
        Ok(())
    }

    pub(crate) fn is_all(&self) -> bool {
        self.only.is_none() && self.except.is_none()
    }

    pub(crate) fn of(&self, query: usize) -> Own<'a> {
        let of = |sets: &'a Sets| sets.of(self.first + query);
        Own { only: self.only.map(of), except: self.except.map(of) }
    }
}

/// What one query may find.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own<'a> {
    only: Option<Set<'a>>,
    except: Option<Set<'a>>,
}

#[derive(Clone, Copy, Debug)]
enum Set<'a> {
    Listed(&'a [u64]),
    Marked(&'a [u64]),
}

impl Own<'_> {
    /// Whether the set lists what the query may find, rather than what it may not.
    pub(super) fn is_named(&self) -> bool {
        self.only.is_some()
    }

    /// Which of the 64 positions from `first` on it may find.
    pub(crate) fn word(&self, first: u64) -> u64 {
        let only = self.only.map_or(u64::MAX, |set| set.word(first));
        match self.except {
            Some(except) if only != 0 => only & !except.word(first),
            _ => only,
        }
    }

    /// The part of the sets in a range of positions. `skipped` tells how much lay below the previous range: the next
    /// one usually lies above it.
    pub(super) fn within(self, range: &Range<u64>, skipped: &mut [usize; 2]) -> Self {
        let [only, except] = skipped;
        Self {
            only: self.only.map(|set| set.within(range, only)),
            except: self.except.map(|set| set.within(range, except)),
        }
    }

    /// The first of `blocks`, which start at position `first`, where it may find something.
    pub(super) fn first_block(&self, first: u64, blocks: Range<usize>) -> usize {
        let at = |block: usize| first + ((block - blocks.start) * BLOCK) as u64;
        match self.only {
            Some(Set::Listed(positions)) => {
                let next = positions.partition_point(|&position| position < first);
                let next =
                    positions.get(next).map_or(u64::MAX, |&position| (position - first) / BLOCK as u64);
                usize::try_from(next)
                    .map_or(blocks.end, |next| blocks.end.min(blocks.start.saturating_add(next)))
            }
            Some(set) => blocks.clone().find(|&block| set.word(at(block)) != 0).unwrap_or(blocks.end),
            None => blocks.start,
        }
    }

    /// How many of the `n` positions that `allowed` marks it may find; `allowed` has one word per 64 of the `len`
    /// positions from `first` on.
    pub(super) fn count(&self, first: u64, len: usize, (allowed, n): (Option<&[u64]>, usize)) -> usize {
        let marked = |at: usize| allowed.is_none_or(|words| words[at / BLOCK] >> (at % BLOCK) & 1 == 1);
        let range = first..first + len as u64;
        let listed = |positions: &[u64], counts: &dyn Fn(u64) -> bool| {
            let from = positions.partition_point(|&position| position < range.start);
            let within = positions[from..].iter().take_while(|position| range.contains(position));
            let mut last = None;
            // Repeated positions count once.
            let distinct = within.filter(|&&position| last.replace(position) != Some(position));
            distinct.filter(|&&position| counts(position) && marked((position - first) as usize)).count()
        };
        match (self.only, self.except) {
            (None, None) => n,
            (None, Some(Set::Listed(positions))) => n - listed(positions, &|_| true),
            (Some(Set::Listed(positions)), except) => {
                listed(positions, &|at| except.is_none_or(|except| except.word(at) & 1 == 0))
            }
            _ => {
                let word = |block: usize| {
                    let word = filled(len, block) & allowed.map_or(u64::MAX, |words| words[block]);
                    word & self.word(first + (block * BLOCK) as u64)
                };
                (0..len.div_ceil(BLOCK)).map(|block| word(block).count_ones() as usize).sum()
            }
        }
    }
}

/// Which bits of a block exist, given `len` positions.
fn filled(len: usize, block: usize) -> u64 {
    match len - block * BLOCK {
        rest @ 0..BLOCK => (1 << rest) - 1,
        _ => u64::MAX,
    }
}

impl<'a> Set<'a> {
    fn within(self, range: &Range<u64>, skipped: &mut usize) -> Self {
        let Set::Listed(positions) = self else { return self };
        let is_above = skipped.checked_sub(1).is_none_or(|last| positions[last] < range.start);
        let mut from = if is_above { *skipped } else { 0 };
        // Usually a few steps suffice; after a jump, a binary search follows.
        let near = positions[from..].iter().take(8).take_while(|&&position| position < range.start).count();
        from += match near {
            8 => positions[from..].partition_point(|&position| position < range.start),
            near => near,
        };
        *skipped = from;
        let n = positions[from..].iter().take_while(|&&position| position < range.end).count();
        Set::Listed(&positions[from..from + n])
    }

    /// Which of the 64 positions from `first` on are in the set.
    fn word(self, first: u64) -> u64 {
        match self {
            Set::Listed(positions) => {
                let from = positions.partition_point(|&position| position < first);
                let within = positions[from..].iter().map(|position| position - first);
                within.take_while(|&bit| bit < BLOCK as u64).fold(0, |word, bit| word | 1 << bit)
            }
            Set::Marked(words) => {
                let of =
                    |at: u64| usize::try_from(at).ok().and_then(|at| words.get(at)).copied().unwrap_or(0);
                let (at, bit) = (first / BLOCK as u64, first % BLOCK as u64);
                if bit == 0 { of(at) } else { of(at) >> bit | of(at + 1) << (BLOCK as u64 - bit) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_of_both_kinds_are_the_same(
            only in prop::option::of(prop::collection::vec(0..400u64, 0..60)),
            except in prop::option::of(prop::collection::vec(0..400u64, 0..60)),
            (first, len) in (0..130u64, 0..200usize),
            some in any::<u64>(),
        ) {
            let allowed: Vec<u64> = (0..len.div_ceil(64)).map(|i| some.rotate_left(i as u32 * 5)).collect();
            let is = |at: u64| {
                let of = |set: &Option<Vec<u64>>| set.as_ref().map(|set| set.contains(&at));
                of(&only).unwrap_or(true) && !of(&except).unwrap_or(false)
            };
            let listed = |set: &Vec<u64>| Sets::listed(vec![0, set.len()], set.clone()).unwrap();
            let marked = |set: &Vec<u64>| {
                let mut words = vec![0; 7];
                set.iter().for_each(|&at| words[at as usize / 64] |= 1u64 << (at % 64));
                Sets::Marked { words, n_words: 7 }
            };
            for kinds in 0..4 {
                let make = |set: &Option<Vec<u64>>, kind: i32| {
                    set.as_ref().map(|set| if kind > 0 { marked(set) } else { listed(set) })
                };
                let (one, other) = (make(&only, kinds & 1), make(&except, kinds & 2));
                let own = Each { only: one.as_ref(), except: other.as_ref(), first: 0 }.of(0);
                let word = (0..64).fold(0, |word, bit| word | u64::from(is(first + bit)) << bit);
                prop_assert_eq!(own.word(first), word);
                let mut skipped = [0; 2];
                for first in (first % 64..first).step_by(64).chain([first, first, 0, first + 640, first]) {
                    let part = own.within(&(first..first + 128), &mut skipped);
                    prop_assert_eq!((part.word(first), part.word(first + 64)), (own.word(first), own.word(first + 64)));
                }
                for allowed in [None, Some(&allowed[..])] {
                    let want = (0..len).filter(|&at| {
                        is(first + at as u64) && allowed.is_none_or(|words| words[at / 64] >> (at % 64) & 1 == 1)
                    });
                    let n = (0..len).filter(|&at| allowed.is_none_or(|words| words[at / 64] >> (at % 64) & 1 == 1));
                    prop_assert_eq!(own.count(first, len, (allowed, n.count())), want.count());
                }
                let blocks = 3..9;
                let named = |block: usize| only.as_ref().is_none_or(|only| {
                    only.iter().any(|&at| at >= first && (at - first) / 64 == block as u64 - 3)
                });
                let want = blocks.clone().find(|&block| named(block)).unwrap_or(9);
                prop_assert_eq!(own.first_block(first, blocks), want);
            }
        }
    }

    #[test]
    fn starts_must_fit() {
        for starts in [vec![], vec![1, 2], vec![0, 1], vec![0, 2, 1]] {
            assert!(Sets::listed(starts, vec![7, 3]).is_err());
        }
    }
}
