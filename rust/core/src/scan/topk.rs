//! The k best of a stream of scored positions.
//!
//! A candidate is one `u128` key: the score in the upper half, so mapped that larger scores are larger integers, and
//! the position in the lower half, reversed. Larger keys are better, "score descending, ties to the lower position"
//! is plain integer order, and no two candidates are equal: the k best are the same in whatever order they come.

use crate::error::{Error, Result, argument};
use ndarray::Array2;

/// Score and position of a candidate as one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// Less than any candidate.
    const LEAST: Self = Self(0);
    /// More than any candidate.
    const MOST: Self = Self(u128::MAX);

    /// NaN counts as −∞ and −0 as 0.
    #[inline]
    pub(crate) fn new(score: f32, position: impl Into<u64>) -> Self {
        let score = if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 };
        let bits = score.to_bits();
        // Negative floats descend as integers: flip all their bits; and set the sign bit of the others.
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Self(u128::from(ordered) << 64 | u128::from(!position.into()))
    }

    #[inline]
    pub(crate) fn score(self) -> f32 {
        let ordered = (self.0 >> 64) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }

    #[inline]
    pub(crate) fn position(self) -> u64 {
        !(self.0 as u64)
    }
}

/// The k that room is reserved for in advance: a search for everything has a huge k.
const ROOM: usize = 1024;

/// Keeps the k best of all candidates offered.
///
/// Candidates gather unsorted in a buffer of about 2k; whenever it is full, the better half is selected. That is
/// amortised O(1) per candidate for any k, and no heap is needed.
#[derive(Clone, Debug)]
pub(crate) struct TopK {
    k: usize,
    /// The first `len` are candidates.
    keys: Vec<Key>,
    len: usize,
    /// Only larger keys can be among the k best: the k-th best of the last selection, or less than all keys.
    floor: Key,
}

impl TopK {
    pub(crate) fn new(k: usize) -> Self {
        // For small k the buffer holds a few more than 2k: selecting costs more than pushing.
        let keys = vec![Key::LEAST; k.min(ROOM) * 2 + 16];
        Self { k, keys, len: 0, floor: if k > 0 { Key::LEAST } else { Key::MOST } }
    }

    /// Whether nothing was kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offers a candidate.
    #[inline]
    pub(crate) fn push(&mut self, key: Key) {
        // Without a branch: whether a candidate is good enough cannot be predicted.
        self.keys[self.len] = key;
        self.len += usize::from(key > self.floor);
        if self.len == self.keys.len() {
            self.make_room();
        }
    }

    /// The score that a candidate must reach: k candidates at least as good have been seen. `None` until then.
    pub(crate) fn floor(&self) -> Option<f32> {
        (self.floor > Key::LEAST).then(|| self.floor.score())
    }

    /// Updates the floor if k candidates have been seen and there is no floor yet.
    pub(crate) fn settle(&mut self) {
        if self.floor == Key::LEAST && self.len >= self.k {
            self.select();
        }
    }

    /// The k best or fewer, in any order.
    pub(crate) fn into_keys(mut self) -> Vec<Key> {
        if self.len > self.k {
            self.select();
        }
        self.keys.truncate(self.len);
        self.keys
    }

    /// The k best or fewer, best first.
    pub(crate) fn into_sorted(self) -> Vec<Key> {
        let mut keys = self.into_keys();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys
    }

    #[cold]
    fn make_room(&mut self) {
        let most = self.k.saturating_mul(2).saturating_add(16);
        if self.len < most {
            self.keys.resize(most.min(2 * self.len), Key::LEAST);
        } else {
            self.select();
        }
    }

    fn select(&mut self) {
        if self.k > 0 && self.len >= self.k {
            let keys = &mut self.keys[..self.len];
            let (_, kth, _) = keys.select_nth_unstable_by(self.k - 1, |a, b| b.cmp(a));
            self.floor = *kth;
            self.len = self.k;
        }
    }
}

/// What a search found, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// (nq, k). −∞ where fewer than k vectors were searched.
    pub scores: Array2<f32>,
    /// (nq, k), positions of the vectors. −1 where fewer than k vectors were searched.
    pub positions: Array2<i64>,
}

/// The most results, queries × k, that a search returns at once: 24 GB of scores and positions.
pub(crate) const MOST: usize = 1 << 31;

/// The most results that may be padding: 3 GB of it.
const PADDED: usize = 1 << 28;

impl Hits {
    /// The number of results if each query has `k` among `n` vectors.
    ///
    /// # Errors
    /// They are more than can be held, or are many and mostly padding.
    pub(crate) fn count(n_queries: usize, k: usize, n: usize) -> Result<usize> {
        let padded = k > n && n_queries.saturating_mul(k - n) > PADDED;
        if padded && k <= MOST {
            return Err(argument!(
                "k",
                "is {k}, of {n} vectors there are: {n_queries} · k results would be padding"
            ));
        }
        let count = n_queries.checked_mul(k).filter(|&count| count <= MOST);
        count.ok_or_else(|| Self::too_many(n_queries, k))
    }

    fn too_many(n_queries: usize, k: usize) -> Error {
        argument!("k", "is {k}: {n_queries} · k results are more than can be held")
    }

    /// Room for `k` results per query among `n` vectors, none found yet: −∞ and −1.
    ///
    /// # Errors
    /// The errors of [`count`](Self::count).
    pub(crate) fn none(n_queries: usize, k: usize, n: usize) -> Result<Self> {
        let count = Self::count(n_queries, k, n)?;
        let too_many = || Self::too_many(n_queries, k);
        let (mut scores, mut positions) = (Vec::new(), Vec::new());
        scores.try_reserve_exact(count).map_err(|_| too_many())?;
        positions.try_reserve_exact(count).map_err(|_| too_many())?;
        scores.resize(count, f32::NEG_INFINITY);
        positions.resize(count, -1);
        let shape = (n_queries, k);
        Ok(Self {
            scores: Array2::from_shape_vec(shape, scores).map_err(|_| too_many())?,
            positions: Array2::from_shape_vec(shape, positions).map_err(|_| too_many())?,
        })
    }

    /// Sets the results of one query, best first.
    pub(crate) fn set(&mut self, query: usize, found: &[Key]) {
        let row = self.scores.row_mut(query).into_iter().zip(self.positions.row_mut(query));
        for ((score, position), key) in row.zip(found) {
            (*score, *position) = (key.score(), key.position() as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_score() -> impl Strategy<Value = f32> {
        prop_oneof![
            any::<f32>(),
            (-3..3i32).prop_map(|v| v as f32),
            Just(f32::NAN),
            Just(f32::INFINITY),
            Just(-0.0)
        ]
    }

    proptest! {
        #[test]
        fn equals_a_full_sort(scores in prop::collection::vec(any_score(), 0..400), k in 0..70usize, cut in 0..400usize) {
            let mut want: Vec<(f32, u64)> = scores.iter().zip(0..).map(|(&s, i)| (if s.is_nan() { f32::NEG_INFINITY } else { s }, i)).collect();
            want.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
            want.truncate(k);
            let (mut left, mut right) = (TopK::new(k), TopK::new(k));
            for (i, &score) in scores.iter().enumerate() {
                if i < cut { left.push(Key::new(score, i as u64)) } else { right.push(Key::new(score, i as u64)) }
            }
            left.into_sorted().into_iter().for_each(|key| right.push(key));
            let got: Vec<_> = right.into_sorted().into_iter().map(|key| (key.score(), key.position())).collect();
            prop_assert_eq!(got, want);
        }

        #[test]
        fn keys_keep_their_parts(score in any::<f32>(), position in any::<u64>()) {
            let key = Key::new(score, position);
            prop_assert_eq!(key.position(), position);
            prop_assert!(key.score() == score || score.is_nan() && key.score() == f32::NEG_INFINITY);
        }
    }
}
