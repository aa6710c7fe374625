//! Searching the lists that are nearest to a query.
//!
//! For inner products the tables do not depend on the list: the score of a vector is ⟨q, centroid⟩ + Σ table entries.
//! So one set of tables serves all lists, and a list is a segment that is scanned from its own base. The product with
//! each centroid is computed like a table entry, to the same bits everywhere; it also determines which lists are
//! searched. If codes encode whole vectors it only does that, and every list is scanned from base 0.

use super::filter::Allowed;
use super::part::Part;
use super::queries::Scored;
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument};
use crate::isa::Isa;
use crate::model::Centroids;
use crate::scan::tables::Tables;
use crate::scan::{Adjust, Each, Measure, Probe, Segment};
use crate::vectors::metric::{Metric, squared_norm};
use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;
use std::ops::Range;

/// Products with centroids that are held at once: 64 MB.
const MOST_BASES: usize = 1 << 24;
/// Gaps are below the mean score of this many best lists. What they save is in docs/lists.md. The best list alone says
/// less: measured from it, gaps saved half as much on SIFT and nothing on GloVe, and among vectors of very unequal lengths
/// many times as many had to be searched. With the best 3 or 8 the result was nearly the same.
const BEST: usize = 5;

/// How many lists a search covers.
///
/// ```
/// use compcodes::index::{Reach, Within};
/// use compcodes::model::Centroids;
/// use compcodes::{Codebooks, Index, Model, Selection};
/// use ndarray::array;
/// let codebooks = Codebooks::new(array![[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])?;
/// let mut model = Model::new(codebooks, Selection::Group);
/// model.centroids = Some(Centroids::new(array![[10.0, 0.0], [0.0, 10.0]])?);
/// let mut index = Index::new(model);
/// index.add(&array![[11.0, 1.0], [0.0, 11.0], [10.0, 1.0]].view(), None, &())?;
/// assert_eq!(index.lists(), Some(vec![0, 1, 0]));
/// let one = Within { allowed: None, reach: Reach::Lists(1) };
/// let hits = index.search_within(array![[1.0, 0.5]].view(), 2, one, &())?;
/// assert_eq!((hits.positions, hits.scores), (array![[0, 2]], array![[11.5, 10.5]]));
/// # Ok::<(), compcodes::Error>(())
/// ```
///
/// More lists are searched if these hold fewer than k vectors that may be found; an index without lists is always
/// searched as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// As many as hold this share of the nearest vectors, for queries like those of the training: fewer for a query with
    /// some lists far better than the others.
    Recall(f32),
    /// This many.
    Lists(usize),
    /// All of them: the result is that of comparing with all codes.
    All,
}

impl Reach {
    /// The reach of a search that does not specify one.
    pub const DEFAULT: Self = Self::Recall(0.95);

    /// The number of lists, out of those of `centroids`, if it is the same for all queries.
    pub(super) fn lists(self, centroids: &Centroids) -> usize {
        match self {
            Reach::Recall(recall) => centroids.probes_for(recall),
            Reach::Lists(n) => n.clamp(1, centroids.n_lists()),
            Reach::All => centroids.n_lists(),
        }
    }
}

/// Which vectors a search looks at. An `Option<&Allowed>` converts into one, with [`Reach::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub struct Within<'a> {
    /// The vectors that may be found; `None` for all.
    pub allowed: Option<&'a Allowed>,
    /// How many lists to search.
    pub reach: Reach,
}

impl<'a> From<Option<&'a Allowed>> for Within<'a> {
    fn from(allowed: Option<&'a Allowed>) -> Self {
        Self { allowed, reach: Reach::DEFAULT }
    }
}

impl From<Reach> for Within<'_> {
    fn from(reach: Reach) -> Self {
        Self { allowed: None, reach }
    }
}

/// What is scored, and by what, in the lists of one index or several.
pub(super) struct Lists<'a> {
    pub(super) parts: &'a [Part<'a>],
    pub(super) centroids: &'a Centroids,
    /// The allowed vectors, by place.
    pub(super) allowed: Allowed,
    pub(super) reach: Reach,
    /// The number of lists that each query searches, overriding `reach`.
    pub(super) ends: Option<&'a [usize]>,
    pub(super) scored: Scored,
    pub(super) isa: Isa,
}

impl Lists<'_> {
    /// The number of queries, at most `batch`, whose products with all centroids are held at once.
    pub(super) fn batch(&self, batch: usize) -> usize {
        batch.min(MOST_BASES / self.centroids.n_lists()).max(1)
    }

    /// What each query may find, for a batch whose first query is row `first`.
    pub(super) fn each(&self, first: usize) -> Each<'_> {
        self.allowed.each(first)
    }

    /// The lists that queries search for the `k` best, as segments, and which of them each query searches; products are
    /// computed from `inputs`, and `first` is the row of the first query.
    pub(super) fn probes<'b>(
        &'b self,
        inputs: ArrayView2<'_, f32>,
        first: usize,
        k: usize,
        measure: Option<&'b dyn Measure>,
    ) -> Result<(Vec<Segment<'b>>, Vec<Vec<Probe>>)> {
        let (frame, each) = (&self.parts[0].index.frame, self.each(first));
        let bases = frame.bases.as_ref().expect("an index with lists").tables(inputs, self.isa)?;
        let choose = |query: usize| {
            let end = self.ends.map(|ends| ends[first + query]);
            let mut chosen = self.chosen(query, norm(inputs, query), &bases, (k, each), end);
            chosen.sort_unstable();
            chosen
        };
        let chosen: Vec<Vec<u32>> = match inputs.nrows() {
            1 => vec![choose(0)],
            n => (0..n).into_par_iter().map(choose).collect(),
        };

        // One segment per list and generation of a part that any query searches.
        let mut is_chosen = vec![false; self.centroids.n_lists()];
        chosen.iter().flatten().for_each(|&list| is_chosen[list as usize] = true);
        // The range of the segments of each list; empty for lists that no query searches.
        let (mut segments, mut starts) = (Vec::new(), Vec::with_capacity(is_chosen.len() + 1));
        for (list, is_chosen) in is_chosen.into_iter().enumerate() {
            starts.push(segments.len());
            for part in if is_chosen { self.parts } else { &[] } {
                let places = part.partition().places(list);
                segments.extend(places.map(|places| self.segment(part, list as u32, places, measure)));
            }
        }
        starts.push(segments.len());
        let probe = |(query, chosen): (usize, &Vec<u32>)| {
            let bases = bases.entries(query);
            let mut probes = Vec::with_capacity(chosen.len());
            for &list in chosen {
                let base = if self.centroids.by_residual() { bases[list as usize] } else { 0.0 };
                if !base.is_finite() {
                    let row = first + query;
                    return Err(argument!("Q", "row {row} is too large: its score is beyond float32"));
                }
                let at = list as usize;
                probes.extend((starts[at]..starts[at + 1]).map(|segment| Probe { segment, base }));
            }
            Ok(probes)
        };
        let probes = chosen.iter().enumerate().map(probe).collect::<Result<Vec<_>>>()?;
        Ok((segments, probes))
    }

    /// The lists that a query searches: `end` of them, or as many as it takes.
    fn chosen(
        &self,
        query: usize,
        norm: f32,
        bases: &Tables,
        (k, each): (usize, Each<'_>),
        end: Option<usize>,
    ) -> Vec<u32> {
        let n_lists = self.centroids.n_lists();
        let ranks = || self.ranks(query, norm, bases);
        let (mut keys, n) = match self.gap().filter(|_| end.is_none()) {
            Some(gap) => {
                let mut keys = ranks();
                let n = within(&mut keys, gap * self.unit(norm));
                (keys, n)
            }
            None => {
                let n = end.unwrap_or_else(|| self.reach.lists(self.centroids)).clamp(1, n_lists);
                if n == n_lists {
                    return (0..n_lists as u32).collect();
                }
                let mut keys = ranks();
                keys.select_nth_unstable(n - 1);
                (keys, n)
            }
        };
        let mut until = n;
        if end.is_none() {
            let count = |key: &i64| self.n_allowed(list(*key), query, (k, each));
            let mut found: usize = keys[..n].iter().map(count).sum();
            if found < k {
                keys[n..].sort_unstable();
                while found < k && until < n_lists {
                    found += count(&keys[until]);
                    until += 1;
                }
            }
        }
        keys[..until].iter().map(|&key| list(key)).collect()
    }

    /// How far below the best lists of a query those that it searches may score, if that is known: it was measured for
    /// the metric that the model was trained for.
    fn gap(&self) -> Option<f32> {
        let Reach::Recall(recall) = self.reach else { return None };
        let one = self.parts[0].index;
        let trained = one.model.recipe.metric?;
        let of_distances = |metric| metric == Metric::Euclidean;
        (of_distances(trained) == of_distances(one.settings.metric))
            .then(|| self.centroids.gap_for(recall))?
    }

    /// The unit of gaps, for a query of this norm.
    fn unit(&self, norm: f32) -> f32 {
        if self.parts[0].index.settings.metric == Metric::Euclidean { 1.0 } else { norm }
    }

    /// A key for each list, such that keys ascend from the best list for a query; ties go to the lower list.
    fn ranks(&self, query: usize, norm: f32, bases: &Tables) -> Vec<i64> {
        let n_lists = self.centroids.n_lists();
        let bases = &bases.entries(query)[..n_lists];
        let key = |list: usize, score: f32| before(score) | list as i64;
        let one = self.parts[0].index;
        if one.settings.metric == Metric::Euclidean {
            let offsets = &one.frame.offsets;
            bases.iter().zip(offsets).enumerate().map(|(l, (base, offset))| key(l, base + offset)).collect()
        } else {
            let bonuses = self.centroids.bonuses();
            bases
                .iter()
                .zip(bonuses)
                .enumerate()
                .map(|(l, (base, bonus))| key(l, base + norm * bonus))
                .collect()
        }
    }

    /// The number of vectors in a list that a query may find, at most k.
    fn n_allowed(&self, list: u32, query: usize, (k, each): (usize, Each<'_>)) -> usize {
        let (mut found, bits) = (0, self.allowed.bits());
        for part in self.parts {
            // Places are numbered through all parts, as positions are.
            let ahead = part.first;
            for places in part.partition().places(list as usize) {
                let places = places.start + ahead..places.end + ahead;
                found += match bits {
                    _ if !each.is_all() => {
                        let own = each.of(query);
                        let word = |block: usize| {
                            let bits = bits.map_or(u64::MAX, |bits| bits[block]);
                            bits & own.word((block * BLOCK) as u64)
                        };
                        let blocks = places.start / BLOCK..places.end.div_ceil(BLOCK);
                        let words: Vec<u64> = blocks.clone().map(word).collect();
                        let before = blocks.start * BLOCK;
                        count(&words, places.start - before..places.end - before)
                    }
                    None => places.len(),
                    Some(bits) => count(bits, places),
                };
                if found >= k {
                    return found;
                }
            }
        }
        found
    }

    /// How many lists each query searches, if they hold enough vectors.
    pub(super) fn numbers(&self, inputs: ArrayView2<'_, f32>) -> Result<Vec<usize>> {
        let frame = &self.parts[0].index.frame;
        let bases = frame.bases.as_ref().expect("an index with lists").tables(inputs, self.isa)?;
        let number =
            |query| self.chosen(query, norm(inputs, query), &bases, (0, Each::default()), None).len();
        Ok((0..inputs.nrows()).into_par_iter().map(number).collect())
    }

    /// The number of vectors that each query may find in its best list, the second best, and so on: (nq, n_lists).
    pub(super) fn counts(&self, inputs: ArrayView2<'_, f32>, first: usize) -> Result<Array2<u32>> {
        let (frame, each) = (&self.parts[0].index.frame, self.each(first));
        let bases = frame.bases.as_ref().expect("an index with lists").tables(inputs, self.isa)?;
        let mut counts = Array2::zeros((inputs.nrows(), self.centroids.n_lists()));
        let mut rows: Vec<_> = counts.axis_iter_mut(Axis(0)).collect();
        rows.par_iter_mut().enumerate().for_each(|(query, counts)| {
            let mut ranks = self.ranks(query, norm(inputs, query), &bases);
            ranks.sort_unstable();
            let count = |&rank: &i64| self.n_allowed(rank as u32, query, (usize::MAX, each)) as u32;
            counts.iter_mut().zip(&ranks).for_each(|(to, rank)| *to = count(rank));
        });
        Ok(counts)
    }

    fn segment<'b>(
        &'b self,
        part: &'b Part<'_>,
        list: u32,
        places: Range<usize>,
        measure: Option<&'b dyn Measure>,
    ) -> Segment<'b> {
        let index = part.index;
        let blocks = places.start / BLOCK..places.end.div_ceil(BLOCK);
        let codes = index.packed.view().slice(blocks.clone());
        let first = blocks.start * BLOCK;
        let all = first..first + codes.len();
        let adjust = match &index.column {
            None => Adjust::None,
            Some(column) => {
                let exact = index.numbers.get(all.clone());
                index.adjust_of(column, 0, exact, self.scored, measure)
            }
        };
        let words = part.words().start;
        Segment {
            codes,
            adjust,
            allowed: self.allowed.bits().map(|bits| &bits[words + blocks.start..words + blocks.end]),
            // The number by which the sets of a query identify it.
            first: (part.first + first) as u64,
            within: (places.start - first, places.end - first),
            positions: Some(&part.partition().positions()[all]),
            list,
            before: part.first as u64,
        }
    }
}

/// The length of a query.
fn norm(inputs: ArrayView2<'_, f32>, query: usize) -> f32 {
    squared_norm(inputs.row(query).as_slice().expect("standard layout")).sqrt() as f32
}

/// The upper half of the key of a list with this score: keys ascend from the best list.
fn before(score: f32) -> i64 {
    let bits = (score + 0.0).to_bits() as i32;
    let ascending = bits ^ ((bits >> 31) as u32 >> 1) as i32;
    i64::from(!ascending) << 32
}

/// The score in a key.
fn score(key: i64) -> f32 {
    let ascending = !(key >> 32) as i32;
    f32::from_bits((ascending ^ ((ascending >> 31) as u32 >> 1) as i32) as u32)
}

/// The list in a key.
fn list(key: i64) -> u32 {
    key as u32
}

/// Moves the keys of the best list, and of lists that score at most `gap` below the mean of the best, to the front:
/// returns their number.
fn within(keys: &mut [i64], gap: f32) -> usize {
    let n_best = BEST.min(keys.len());
    keys.select_nth_unstable(n_best - 1);
    keys[..n_best].sort_unstable(); // so that the sum does not depend on their order
    let mean = keys[..n_best].iter().map(|&key| f64::from(score(key))).sum::<f64>() / n_best as f64;
    let last = before((mean - f64::from(gap)) as f32) | i64::from(u32::MAX);
    let mut n = 1;
    for at in 1..keys.len() {
        if keys[at] <= last {
            keys.swap(n, at);
            n += 1;
        }
    }
    n
}

/// The number of bits that are set in a range.
fn count(words: &[u64], bits: Range<usize>) -> usize {
    let below = |bit: usize| (1u64 << (bit % BLOCK)) - 1;
    let (first, last) = (bits.start / BLOCK, bits.end / BLOCK);
    let whole: usize = words[first..last].iter().map(|word| word.count_ones() as usize).sum();
    let before = (words[first] & below(bits.start)).count_ones() as usize;
    let rest = if bits.end.is_multiple_of(BLOCK) {
        0
    } else {
        (words[last] & below(bits.end)).count_ones() as usize
    };
    whole + rest - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_near_the_best_are_searched() {
        let scores = [1.0, -7.5, 5.0, 6.0, 3.0, 4.0, 2.0, 3.0];
        let keys = |scores: &[f32]| -> Vec<i64> {
            scores.iter().enumerate().map(|(list, &score)| before(score) | list as i64).collect()
        };
        let found = |gap| {
            let mut keys = keys(&scores);
            let n = within(&mut keys, gap);
            let mut lists: Vec<u32> = keys[..n].iter().map(|&key| list(key)).collect();
            lists.sort_unstable();
            (lists, keys.len())
        };
        // The mean of the best five is 4.2.
        assert_eq!(found(-9.0), (vec![3], 8));
        assert_eq!(found(0.0), (vec![2, 3], 8));
        assert_eq!(found(0.25), (vec![2, 3, 5], 8));
        assert_eq!(found(1.25), (vec![2, 3, 4, 5, 7], 8));
        assert_eq!(found(12.0).0.len(), 8);
        assert_eq!(within(&mut keys(&[2.0, 1.0]), 0.5), 2);
        assert_eq!(within(&mut keys(&[f32::MAX; 9]), f32::MAX), 9);
        for value in [0.0, 1.5, -1.5, f32::MAX, f32::MIN, 1e-40] {
            assert_eq!((score(before(value) | 77), list(before(value) | 77)), (value, 77));
        }
    }

    #[test]
    fn bits_are_counted() {
        let words = [0xF0F0_F0F0_F0F0_F0F0, u64::MAX, 1 << 63 | 1];
        for start in 0..192 {
            for end in start + 1..=192 {
                let want = (start..end).filter(|bit| words[bit / 64] >> (bit % 64) & 1 == 1).count();
                assert_eq!(count(&words, start..end), want, "{start}..{end}");
            }
        }
    }
}
