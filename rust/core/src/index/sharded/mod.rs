//! Several indexes of one model searched as one: the shards of a database, each in its own file.
//!
//! A search sees the vectors of all shards one after the other: its tables, its choice of lists, its top-k and its
//! floor are shared, and among equal scores the vector of the earlier shard comes first. So the results are those of
//! one index with all vectors in that order, to the last bit.
//!
//! Positions are numbered through all shards, including removed vectors. Within a search each shard begins at a
//! multiple of 64 (a *slot*), so that each word of bits belongs to one shard.

mod allow;
mod search;

use super::Index;
use super::keys::shown;
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument};
use crate::monitor::Monitor;
use ndarray::Array2;
use std::sync::Arc;

/// An index that is part of a larger one.
#[derive(Clone)]
pub struct Shard {
    index: Arc<Index>,
    /// The offset that is added to its ids.
    offset: i64,
    /// A bit for each position that is not removed; `None` if none are.
    live: Option<Vec<u64>>,
    n_live: usize,
}

impl Shard {
    /// The vectors of `index` except those at the positions `removed`, each with its id raised by `offset`.
    ///
    /// # Errors
    /// A position that does not exist, a negative `offset`, or one that makes ids too large.
    pub fn new(index: Arc<Index>, offset: i64, removed: &[i64]) -> Result<Self> {
        let n = index.len();
        let largest = (i64::MAX as u64).checked_sub(index.next_id().saturating_sub(1));
        if !u64::try_from(offset).is_ok_and(|offset| largest.is_some_and(|largest| offset <= largest)) {
            return Err(argument!("offset", "is {offset}: want at least 0, and ids of at most 2⁶³ − 1"));
        }
        let mut live = (!removed.is_empty()).then(|| vec![u64::MAX; n.div_ceil(BLOCK)]);
        for &given in removed {
            let position = usize::try_from(given).ok().filter(|&position| position < n);
            let position = position
                .ok_or_else(|| argument!("removed", "hold {given}, which is not one of the shard's {n}"))?;
            if let Some(live) = &mut live {
                live[position / BLOCK] &= !(1 << (position % BLOCK));
            }
        }
        if let (Some(live), tail) = (&mut live, n % BLOCK)
            && tail > 0
            && let Some(last) = live.last_mut()
        {
            *last &= (1 << tail) - 1;
        }
        let count = |live: &Vec<u64>| live.iter().map(|word| word.count_ones() as usize).sum();
        let n_live = live.as_ref().map_or(n, count);
        Ok(Self { index, offset, live, n_live })
    }

    fn is_live(&self, position: usize) -> bool {
        self.live.as_ref().is_none_or(|live| live[position / BLOCK] >> (position % BLOCK) & 1 == 1)
    }
}

/// Shards that are searched as one.
pub struct Shards {
    shards: Vec<Shard>,
    /// The number of vectors before each shard, including removed ones; and the total.
    starts: Vec<usize>,
    /// The number of slots before each shard, and the total.
    slots: Vec<usize>,
    /// A bit for each slot whose vector is not removed; `None` if none are.
    live: Option<Vec<u64>>,
}

impl Shards {
    /// Combines shards, in the order in which their vectors are numbered. If only some of them store half-byte codes in
    /// pairs, the codes of the others, which come from files of earlier versions, are copied into memory.
    ///
    /// # Errors
    /// There are no shards, they differ in codebooks, lists or settings, only some have keys, or codes to be copied are
    /// damaged.
    pub fn new(mut shards: Vec<Shard>) -> Result<Self> {
        let Some(first) = shards.first() else {
            return Err(argument!("shards", "are none: want at least one"));
        };
        let (mut starts, mut slots) = (vec![0], vec![0]);
        for (i, shard) in shards.iter().enumerate() {
            let (one, index) = (&first.index, &shard.index);
            if index.model.codebooks.view() != one.model.codebooks.view() {
                return Err(argument!("shards", "[{i}] has other codebooks than the first"));
            }
            if index.model.centroids != one.model.centroids {
                return Err(argument!("shards", "[{i}] has other lists than the first"));
            }
            if index.settings != one.settings || index.is_centered != one.is_centered {
                return Err(argument!("shards", "[{i}] measures or keeps something else than the first"));
            }
            if index.has_keys() != one.has_keys() {
                return Err(argument!("shards", "[{i}] and the first do not both have keys"));
            }
            starts.push(starts[i] + index.len());
            slots.push(slots[i] + index.len().next_multiple_of(BLOCK));
        }
        let layout = |shard: &Shard| shard.index.packed.view().layout();
        if shards.iter().any(|shard| layout(shard) != layout(&shards[0])) {
            for shard in &mut shards {
                if let Some(packed) = shard.index.packed_anew()? {
                    shard.index = Arc::new(packed);
                }
            }
        }
        let live = shards.iter().any(|shard| shard.live.is_some()).then(|| {
            let all = |shard: &Shard| vec![u64::MAX; shard.index.len().div_ceil(BLOCK)];
            shards.iter().flat_map(|shard| shard.live.clone().unwrap_or_else(|| all(shard))).collect()
        });
        Ok(Self { shards, starts, slots, live })
    }

    /// Number of vectors that are not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.n_live).sum()
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether vectors are identified by keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.one().has_keys()
    }

    fn one(&self) -> &Index {
        &self.shards[0].index
    }

    /// The positions of all vectors that are not removed, in order.
    #[must_use]
    pub fn positions(&self) -> Vec<i64> {
        let of = |(shard, &start): (&Shard, &usize)| {
            let live = (0..shard.index.len()).filter(|&position| shard.is_live(position));
            live.map(|position| (start + position) as i64).collect::<Vec<_>>()
        };
        self.shards.iter().zip(&self.starts).flat_map(of).collect()
    }

    /// The ids of all vectors that are not removed, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<i64> {
        self.positions().into_iter().map(|position| self.id(position)).collect()
    }

    /// How many vectors each list holds, excluding removed ones; `None` if the model has no centroids.
    #[must_use]
    pub fn list_sizes(&self) -> Option<Vec<usize>> {
        let mut sizes = vec![0; self.one().model.centroids.as_ref()?.n_lists()];
        for shard in &self.shards {
            let partition = shard.index.partition.as_ref()?;
            if shard.live.is_none() {
                sizes.iter_mut().zip(partition.sizes()).for_each(|(sum, size)| *sum += size);
            } else {
                let lists = partition.lists();
                let live = lists.iter().enumerate().filter(|&(position, _)| shard.is_live(position));
                live.for_each(|(_, &list)| sizes[list as usize] += 1);
            }
        }
        Some(sizes)
    }

    /// The positions of the vectors with these ids; −1 for those that do not exist.
    ///
    /// # Errors
    /// The monitor cancels.
    pub fn find(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<i64>> {
        let mut found = vec![-1; ids.len()];
        for (shard, &start) in self.shards.iter().zip(&self.starts) {
            let own: Vec<i64> = ids.iter().map(|&id| if id < 0 { -1 } else { id - shard.offset }).collect();
            for (found, position) in found.iter_mut().zip(shard.index.ids.find(&own, monitor)?) {
                if let Some(position) = position.filter(|&position| shard.is_live(position)) {
                    *found = (start + position) as i64;
                }
            }
        }
        Ok(found)
    }

    /// The ids of the vectors with these keys; `None` for those that do not exist.
    ///
    /// # Errors
    /// The vectors have no keys, or the monitor cancels.
    pub fn find_keys<S: AsRef<str>>(&self, keys: &[S], monitor: &dyn Monitor) -> Result<Vec<Option<i64>>> {
        let mut found = vec![None; keys.len()];
        for shard in &self.shards {
            let ids = shard.index.find_keys(keys)?;
            // A key may have been removed from one shard, and added to another.
            let known: Vec<i64> = ids.iter().flatten().copied().collect();
            let mut positions = shard.index.ids.find(&known, monitor)?.into_iter();
            for (found, id) in found.iter_mut().zip(ids) {
                let Some(id) = id else { continue };
                if positions.next().flatten().is_some_and(|position| shard.is_live(position)) {
                    *found = Some(id + shard.offset);
                }
            }
        }
        Ok(found)
    }

    /// The ids of the vectors with these keys.
    ///
    /// # Errors
    /// A key does not exist, the vectors have no keys, or the monitor cancels.
    pub fn ids_of<S: AsRef<str>>(&self, keys: &[S], monitor: &dyn Monitor) -> Result<Vec<i64>> {
        let found = self.find_keys(keys, monitor)?;
        match found.iter().position(Option::is_none) {
            Some(at) => Err({
                let key = shown(keys[at].as_ref());
                argument!("ids", "hold {key}, and the index has no key {key}")
            }),
            None => Ok(found.into_iter().flatten().collect()),
        }
    }

    /// The id of the vector at a position; −1 stays.
    #[must_use]
    pub fn id(&self, position: i64) -> i64 {
        match self.place(position) {
            Ok((shard, at)) => self.shards[shard].index.ids.at(at) + self.shards[shard].offset,
            Err(_) => -1,
        }
    }

    /// The key of the vector at a position, if there is one and it has a key.
    #[must_use]
    pub fn key(&self, position: i64) -> Option<&str> {
        let (shard, at) = self.place(position).ok()?;
        let ids = &self.shards[shard].index.ids;
        Some(ids.keys()?.at(at))
    }

    /// The approximations of the vectors at these positions, (n, d).
    ///
    /// # Errors
    /// A position does not exist, or the monitor cancels.
    pub fn reconstruct(&self, positions: &[i64], monitor: &dyn Monitor) -> Result<Array2<f32>> {
        let (codes, lists) = self.codes_of(positions)?;
        self.one().model.decode(codes.view(), lists.as_deref(), monitor)
    }

    /// The codes of the vectors at these positions, and their lists if there are any.
    fn codes_of(&self, positions: &[i64]) -> Result<(Array2<u8>, Option<Vec<u32>>)> {
        let one = self.one();
        let mut codes = Array2::<u8>::zeros((positions.len(), one.n_codes()));
        let mut lists = one.model.centroids.as_ref().map(|_| vec![0; positions.len()]);
        let mut own: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.shards.len()];
        for (row, &position) in positions.iter().enumerate() {
            let (shard, at) = self.place(position)?;
            own[shard].push((row, at));
        }
        for (shard, own) in self.shards.iter().zip(own).filter(|(_, own)| !own.is_empty()) {
            let places = shard.index.places(own.iter().map(|&(_, at)| at).collect());
            let of = shard.index.lists_of(&places);
            for (i, (&(row, _), &place)) in own.iter().zip(&places).enumerate() {
                let kept = shard.index.packed();
                codes.row_mut(row).iter_mut().zip(kept.codes(place)).for_each(|(code, kept)| *code = kept);
                if let (Some(lists), Some(of)) = (&mut lists, &of) {
                    lists[row] = of[i];
                }
            }
        }
        Ok((codes, lists))
    }

    /// The shard of a position, and the position in it.
    fn place(&self, position: i64) -> Result<(usize, usize)> {
        let n = self.starts[self.shards.len()];
        let place = usize::try_from(position).ok().filter(|&position| position < n);
        let place = place.ok_or_else(|| argument!("positions", "hold {position}: there are {n}"))?;
        let shard = self.starts.partition_point(|&start| start <= place) - 1;
        Ok((shard, place - self.starts[shard]))
    }

    /// The position of a slot; −1 stays.
    fn position(&self, slot: i64) -> i64 {
        let Ok(slot) = usize::try_from(slot) else { return -1 };
        let shard = self.slots.partition_point(|&first| first <= slot) - 1;
        (slot - self.slots[shard] + self.starts[shard]) as i64
    }

    /// The slot of a position; −1 stays.
    fn slot(&self, position: i64) -> i64 {
        self.place(position).map_or(-1, |(shard, at)| (self.slots[shard] + at) as i64)
    }
}

#[cfg(test)]
mod tests;
