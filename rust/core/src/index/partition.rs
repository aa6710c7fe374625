//! Which list each vector of a divided index is in, and where in memory.
//!
//! Codes lie list after list, end to end and within a list in the order of adding, in *places* 0 … n−1. A list is thus
//! a run of consecutive blocks of codes, of which the first and the last may also hold vectors of its neighbours.
//! Nothing is lost to padding, however short the lists are.
//!
//! Adding vectors to these lists would move all others. So new vectors form a *generation* of their own, with its own
//! lists, at the end; it absorbs the generations before it as long as they are less than [`RATIO`] times as large. So
//! there are few generations (at most 1 + log n / log [`RATIO`]), and a vector is moved about as many times. The places
//! of a generation are the positions of its vectors in a different order: both begin at the same number.
//!
//! | place | 0 1 2 | 3 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|
//! | generation | 0 | | | 1 | |
//! | list | 0 | 1 | 3 | 1 | 2 |
//! | position | 0 2 5 | 1 4 | 3 | 7 | 6 |

use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use rayon::prelude::*;
use std::ops::Range;

/// A generation is at least this many times as large as the next.
const RATIO: usize = 4;
/// The most vectors: positions take 32 bits.
pub(crate) const MAX_LEN: usize = u32::MAX as usize;

/// Vectors that were divided into lists together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Generation {
    /// Its first place, which is also its lowest position.
    pub(crate) first: usize,
    /// Where each list begins, counted from `first`; and the end of the last.
    pub(crate) starts: Vec<u32>,
}

impl Generation {
    /// Divides vectors at positions `first ..` into these lists: returns the generation, and the vector at each place,
    /// counted from `first`.
    fn new(first: usize, n_lists: usize, lists: &[u32]) -> (Self, Vec<u32>) {
        let mut starts = vec![0; n_lists + 1];
        lists.iter().for_each(|&list| starts[list as usize + 1] += 1);
        for list in 0..n_lists {
            starts[list + 1] += starts[list];
        }
        let (mut next, mut order) = (starts.clone(), vec![0; lists.len()]);
        for (at, &list) in (0..).zip(lists) {
            let next = &mut next[list as usize];
            order[*next as usize] = at;
            *next += 1;
        }
        (Self { first, starts }, order)
    }

    fn len(&self) -> usize {
        *self.starts.last().expect("never empty") as usize
    }

    /// The places of a list.
    fn places(&self, list: usize) -> Range<usize> {
        self.first + self.starts[list] as usize..self.first + self.starts[list + 1] as usize
    }

    /// The list that contains a place.
    fn list(&self, place: usize) -> u32 {
        (self.starts.partition_point(|&start| start as usize <= place - self.first) - 1) as u32
    }
}

/// The lists of all vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Partition {
    n_lists: usize,
    generations: Vec<Generation>,
    /// The position of the vector at each place.
    positions: Vec<u32>,
}

/// What replaces the last generations.
pub(super) struct Tail {
    kept: usize,
    generation: Generation,
    positions: Vec<u32>,
}

impl Tail {
    /// The first place that changes.
    pub(super) fn first(&self) -> usize {
        self.generation.first
    }

    /// The position of the vector at each place from the first on.
    pub(super) fn positions(&self) -> &[u32] {
        &self.positions
    }
}

impl Partition {
    pub(super) fn new(n_lists: usize) -> Self {
        Self { n_lists, generations: Vec::new(), positions: Vec::new() }
    }

    /// Makes one generation of all vectors, given the list of each.
    pub(super) fn of(n_lists: usize, lists: &[u32]) -> Self {
        let (generation, positions) = Generation::new(0, n_lists, lists);
        let generations = if lists.is_empty() { Vec::new() } else { vec![generation] };
        Self { n_lists, generations, positions }
    }

    /// Restores what a file holds.
    pub(crate) fn restored(
        n_lists: usize,
        generations: Vec<Generation>,
        positions: Vec<u32>,
    ) -> Result<Self> {
        let mut end = 0;
        let mut seen = vec![false; positions.len()];
        for generation in &generations {
            let Generation { first, starts } = generation;
            let ascend = starts.len() == n_lists + 1 && starts[0] == 0 && starts.is_sorted();
            if *first != end || !ascend || generation.len() == 0 || generation.len() > positions.len() - end {
                return Err(invalid!("lists do not fit {} vectors", positions.len()));
            }
            let next = end + generation.len();
            for list in 0..n_lists {
                let own = &positions[generation.places(list)];
                let is_own = |&position: &u32| (end..next).contains(&(position as usize));
                if !own.iter().all(is_own) || !own.is_sorted_by(|a, b| a < b) {
                    return Err(invalid!("list {list} holds positions that are not its own"));
                }
                own.iter().for_each(|&position| seen[position as usize] = true);
            }
            end = next;
        }
        if end != positions.len() || !seen.iter().all(|&seen| seen) {
            return Err(invalid!("lists do not hold each of {} vectors once", positions.len()));
        }
        Ok(Self { n_lists, generations, positions })
    }

    pub(crate) fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// The position of the vector at each place.
    pub(crate) fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The places of a list, for each generation where it has any.
    pub(super) fn places(&self, list: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.generations
            .iter()
            .map(move |generation| generation.places(list))
            .filter(|places| !places.is_empty())
    }

    /// How many vectors each list holds.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.n_lists];
        for generation in &self.generations {
            for (size, ends) in sizes.iter_mut().zip(generation.starts.windows(2)) {
                *size += (ends[1] - ends[0]) as usize;
            }
        }
        sizes
    }

    /// The list of the vector at a place.
    pub(super) fn list(&self, place: usize) -> u32 {
        let at = self.generations.partition_point(|generation| generation.first <= place) - 1;
        self.generations[at].list(place)
    }

    /// The list of each vector, in the order of positions, starting at `first`, where a generation begins.
    fn lists_from(&self, first: usize) -> Vec<u32> {
        let mut lists = vec![0; self.positions.len() - first];
        for generation in self.generations.iter().filter(|generation| generation.first >= first) {
            for list in 0..self.n_lists {
                for &position in &self.positions[generation.places(list)] {
                    lists[position as usize - first] = list as u32;
                }
            }
        }
        lists
    }

    /// The list of each vector, in the order of positions.
    pub(super) fn lists(&self) -> Vec<u32> {
        self.lists_from(0)
    }

    /// The places of the vectors at `positions`.
    pub(super) fn places_of(&self, positions: &[usize]) -> Vec<usize> {
        // Searching every list for one vector takes about as long as reading 16 · lists places.
        if positions.len().saturating_mul(16 * self.n_lists) < self.positions.len() {
            return positions.par_iter().map(|&position| self.place_of(position)).collect();
        }
        let places = self.all_places();
        positions.iter().map(|&position| places[position] as usize).collect()
    }

    fn place_of(&self, position: usize) -> usize {
        let at = self.generations.partition_point(|generation| generation.first <= position) - 1;
        let generation = &self.generations[at];
        let find = |list| {
            let places = generation.places(list);
            let own = &self.positions[places.clone()];
            own.binary_search(&(position as u32)).ok().map(|at| places.start + at)
        };
        (0..self.n_lists).find_map(find).expect("every position is in a list")
    }

    /// The place of each vector, in the order of positions.
    pub(super) fn all_places(&self) -> Vec<u32> {
        self.places_from(0)
    }

    /// The place of each vector, in the order of positions, starting at `first`, where a generation begins.
    pub(super) fn places_from(&self, first: usize) -> Vec<u32> {
        let mut places = vec![0; self.positions.len() - first];
        let own = (first as u32..).zip(&self.positions[first..]);
        own.for_each(|(place, &position)| places[position as usize - first] = place);
        places
    }

    /// Prepares appending vectors of these lists, together with the generations that they absorb; applied by
    /// [`extend`](Self::extend).
    pub(super) fn appended(&self, lists: &[u32]) -> Result<Tail> {
        let len = self.positions.len() + lists.len();
        if len > MAX_LEN {
            return Err(invalid!("{len} vectors: an index with lists holds at most {MAX_LEN}"));
        }
        let (mut kept, mut first) = (self.generations.len(), self.positions.len());
        while kept > 0 && self.generations[kept - 1].len() < RATIO * (len - first) {
            kept -= 1;
            first = self.generations[kept].first;
        }
        let all = [&self.lists_from(first)[..], lists].concat();
        let (generation, mut positions) = Generation::new(first, self.n_lists, &all);
        positions.iter_mut().for_each(|position| *position += first as u32);
        Ok(Tail { kept, generation, positions })
    }

    /// Makes room for what [`extend`](Self::extend) adds, so that it cannot fail.
    pub(super) fn reserve(&mut self, tail: &Tail) -> Result<()> {
        let more = tail.first() + tail.positions.len() - self.positions.len();
        self.positions.try_reserve(more).map_err(|error| invalid!("no memory for {more} positions: {error}"))
    }

    pub(super) fn extend(&mut self, tail: Tail) {
        self.generations.truncate(tail.kept);
        self.positions.truncate(tail.first());
        self.positions.extend(tail.positions);
        self.generations.push(tail.generation);
    }

    /// Converts bits for positions into bits for places.
    pub(super) fn by_place(&self, allowed: &[u64]) -> Vec<u64> {
        let mut words = vec![0; allowed.len()];
        let positions = self.positions.par_chunks(BLOCK);
        words.par_iter_mut().zip(positions).with_min_len(1024).for_each(|(word, positions)| {
            let is_allowed = |&position: &u32| allowed[position as usize / BLOCK] >> (position % 64) & 1;
            *word = positions.iter().rev().fold(0, |word, position| word << 1 | is_allowed(position));
        });
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_vector_is_in_its_list(n_lists in 1..9usize, pieces in prop::collection::vec(0..300usize, 0..12), seed in any::<u32>()) {
            let mut partition = Partition::new(n_lists);
            let mut all: Vec<u32> = Vec::new();
            for n in pieces.into_iter().filter(|&n| n > 0) {
                let list = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) % n_lists as u32;
                let new: Vec<u32> = (all.len()..all.len() + n).map(list).collect();
                let tail = partition.appended(&new).unwrap();
                partition.reserve(&tail).unwrap();
                partition.extend(tail);
                all.extend(new);
                let parts = (n_lists, partition.generations.clone(), partition.positions.clone());
                prop_assert_eq!(&Partition::restored(parts.0, parts.1, parts.2).unwrap(), &partition);
                prop_assert!(partition.generations.is_sorted_by(|a, b| a.len() >= RATIO * b.len()));
            }
            prop_assert_eq!(partition.lists(), &all[..]);
            let want: Vec<usize> = (0..n_lists).map(|l| all.iter().filter(|&&list| list as usize == l).count()).collect();
            prop_assert_eq!(partition.sizes(), want);
            let positions: Vec<usize> = (0..all.len()).collect();
            let places = partition.places_of(&positions);
            for (&position, &place) in positions.iter().zip(&places) {
                prop_assert_eq!((partition.positions[place] as usize, partition.list(place)), (position, all[position]));
                prop_assert_eq!(partition.place_of(position), place);
            }
            let allowed: Vec<u64> = (0..all.len().div_ceil(64) as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            let by_place = partition.by_place(&allowed);
            for (position, place) in places.into_iter().enumerate() {
                prop_assert_eq!(by_place[place / 64] >> (place % 64) & 1, allowed[position / 64] >> (position % 64) & 1);
            }
        }
    }

    #[test]
    fn refuses_what_is_no_partition() {
        let generation = |first, starts: &[u32]| Generation { first, starts: starts.to_vec() };
        let restored =
            |generations, positions: &[u32]| Partition::restored(2, generations, positions.to_vec());
        assert!(restored(vec![generation(0, &[0, 1, 2])], &[1, 0]).is_ok());
        assert!(restored(vec![generation(0, &[0, 2, 2])], &[1, 0]).is_err());
        assert!(restored(vec![generation(0, &[0, 1, 2])], &[1, 1]).is_err());
        assert!(restored(vec![generation(0, &[0, 1, 2])], &[1, 2]).is_err());
        assert!(restored(vec![generation(0, &[0, 1, 3])], &[1, 0]).is_err());
        assert!(restored(vec![generation(0, &[0, 1, 1])], &[0, 1]).is_err());
        assert!(restored(vec![generation(0, &[0, 1])], &[0]).is_err());
        assert!(restored(vec![], &[]).is_ok());
    }
}
