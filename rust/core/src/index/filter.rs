//! Which vectors a search may find: a bit per position, from a mask, ids, or a range of ids; and sets per query.

use super::Index;
use super::among::Among;
use super::part::Part;
use crate::codes::packed::BLOCK;
use crate::error::{Result, argument, invalid};
use crate::monitor::{Counter, Monitor};
use crate::scan::{Each, Sets};
use ndarray::ArrayView2;
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// The vectors of an index, in its present state, that searches may find; returned by [`Index::allow_ids`] and similar
/// methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed {
    /// Bit i of word b stands for position 64 b + i.
    pub(super) bits: Option<Vec<u64>>,
    /// For each query, only these may be found.
    pub(super) only: Option<Sets>,
    /// For each query, none of these may be found.
    pub(super) except: Option<Sets>,
}

impl Allowed {
    /// The vectors allowed for all queries: bit i of word b stands for position 64 b + i; `None` if all are.
    #[must_use]
    pub fn bits(&self) -> Option<&[u64]> {
        self.bits.as_deref()
    }

    /// The additional restrictions of each query, for a search whose first query is query `first`.
    #[must_use]
    pub fn each(&self, first: usize) -> Each<'_> {
        Each { only: self.only.as_ref(), except: self.except.as_ref(), first }
    }

    /// The same restrictions for vectors identified by their places in lists, with these bits.
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

    /// The vectors that both allow.
    ///
    /// # Errors
    /// Both have sets per query that the queries are limited to, or both have sets that they exclude; or they belong to
    /// different indexes.
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

    /// The complement, for all queries or for each.
    ///
    /// # Errors
    /// It has restrictions for all queries and for each.
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

/// A boolean matrix with one bit per entry: which vectors each query may or may not find, by position.
#[derive(Clone, Debug)]
pub struct Marks {
    words: Vec<u64>,
    /// Words per row.
    n_words: usize,
    n_columns: usize,
}

impl Marks {
    /// Packs a matrix (nq, n).
    #[must_use]
    pub fn new(mask: ArrayView2<'_, bool>) -> Self {
        Self::of(mask)
    }

    /// Packs a matrix (nq, n) of bytes, all of which but 0 stand for true.
    #[must_use]
    pub fn of_bytes(mask: ArrayView2<'_, u8>) -> Self {
        Self::of(mask)
    }

    fn of<T: Copy + Into<u8>>(mask: ArrayView2<'_, T>) -> Self {
        let (n_rows, n_columns) = mask.dim();
        let n_words = n_columns.div_ceil(BLOCK);
        let mut words = vec![0; n_rows * n_words];
        for (row, words) in mask.outer_iter().zip(words.chunks_mut(n_words.max(1))) {
            match row.as_slice() {
                Some(row) => row.chunks(BLOCK).zip(words).for_each(|(marks, word)| *word = packed(marks)),
                None => row.iter().enumerate().for_each(|(at, &mark)| {
                    words[at / BLOCK] |= u64::from(mark.into() != 0) << (at % BLOCK);
                }),
            }
        }
        Self { words, n_words, n_columns }
    }

    /// Rejects a matrix for a different number of vectors.
    pub(super) fn check(&self, n: usize) -> Result<()> {
        if self.n_columns != n {
            return Err(argument!("filter", "has {} columns, the index holds {n} vectors", self.n_columns));
        }
        Ok(())
    }

    /// Rejects what is not a mask of `n` vectors for all queries.
    pub(super) fn check_row(&self, n: usize) -> Result<()> {
        if self.n_columns != n || self.words.len() != self.n_words {
            return Err(argument!("filter", "has {} entries, the index holds {n} vectors", self.n_columns));
        }
        Ok(())
    }

    /// The entries of each row.
    pub(super) fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = bool>> {
        let n = self.n_columns;
        let bits = move |words: &'_ [u64], at: usize| words[at / BLOCK] >> (at % BLOCK) & 1 == 1;
        self.words.chunks(self.n_words.max(1)).map(move |words| (0..n).map(move |at| bits(words, at)))
    }
}

/// Packs at most 64 entries into bits. Nearly all are false: eight bytes are tested at once as one word, which mostly
/// suffices.
fn packed<T: Copy + Into<u8>>(marks: &[T]) -> u64 {
    let (eights, rest) = marks.as_chunks::<8>();
    let bytes = |eight: &[T; 8]| u64::from_le_bytes(eight.map(T::into));
    let rest = || rest.iter().map(|&mark| mark.into() != 0);
    if eights.iter().fold(0, |any, eight| any | bytes(eight)) == 0 && !rest().any(|mark| mark) {
        return 0;
    }
    // The addition carries into the highest bit of each byte whose other bits are not all 0, and no further.
    const LOWER: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let ones = |bytes: u64| (((bytes & LOWER) + LOWER) | bytes) >> 7 & 0x0101_0101_0101_0101;
    // Since these bytes are 0 or 1, the product has byte i in bit 56 + i, and nothing else from bit 56 on.
    let eight = |eight: &[T; 8]| ones(bytes(eight)).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let whole = eights.iter().rev().fold(0, |word, marks| word << 8 | eight(marks));
    let last = rest().rev().fold(0, |word, mark| word << 1 | u64::from(mark));
    if rest().len() == 0 { whole } else { whole | last << (8 * eights.len()) }
}

/// Words of 64 bits that are computed between two reports.
const WORDS: usize = 1024;

impl Index {
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
        match step {
            0 => Err(argument!("step", "is 0: want at least 1")),
            1 => self.allow(|id| (first..=last).contains(&id), monitor),
            _ => self
                .allow(|id| (first..=last).contains(&id) && id.abs_diff(first).is_multiple_of(step), monitor),
        }
    }

    /// Allows the vectors at the positions where `mask` is true.
    ///
    /// # Errors
    /// The length of the mask differs from that of the index, or the monitor cancels.
    pub fn allow_mask(&self, mask: &[bool], monitor: &dyn Monitor) -> Result<Allowed> {
        self.allow_row(Marks::new(ArrayView2::from_shape((1, mask.len()), mask).expect("one row")), monitor)
    }

    /// Like [`allow_mask`](Self::allow_mask), with a mask that is packed already, as a matrix of one row.
    ///
    /// # Errors
    /// The errors of [`allow_mask`](Self::allow_mask).
    pub fn allow_row(&self, mask: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
        mask.check_row(self.len())?;
        monitor.report(0, self.len() as u64)?;
        Ok(Allowed { bits: Some(mask.words), ..Allowed::default() })
    }

    /// For each query, allows the vectors with the ids `ids[starts[query]..starts[query + 1]]`; those that are not in
    /// the index are ignored. [`Allowed::inverse`] turns them into those that a query must not find.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of ids, or the monitor cancels.
    pub fn allow_each(&self, starts: &[usize], ids: &[i64], monitor: &dyn Monitor) -> Result<Allowed> {
        let n_words = self.len().div_ceil(BLOCK);
        if self.ids.given().is_none() {
            let position =
                |at: usize| usize::try_from(ids[at]).ok().filter(|&position| position < self.len());
            return each_of(starts, ids.len(), position, n_words);
        }
        let found = self.ids.find(ids, monitor)?;
        each_of(starts, found.len(), |at| found[at], n_words)
    }

    /// For each query, allows the vectors with the keys `keys[starts[query]..starts[query + 1]]`; those that are not in
    /// the index are ignored.
    ///
    /// # Errors
    /// `starts` do not ascend from 0 to the number of keys, or the vectors have no keys.
    pub fn allow_each_keys<S: AsRef<str>>(
        &self,
        starts: &[usize],
        keys: &[S],
        monitor: &dyn Monitor,
    ) -> Result<Allowed> {
        monitor.report(0, keys.len() as u64)?;
        let found = self.ids.positions_of_keys(keys)?;
        each_of(starts, found.len(), |at| found[at], self.len().div_ceil(BLOCK))
    }

    /// For each query, allows the vectors at the positions where its row of `mask` (nq, n) is true.
    ///
    /// # Errors
    /// The number of columns of the mask differs from the number of vectors, or the monitor cancels.
    pub fn allow_each_mask(&self, mask: ArrayView2<'_, bool>, monitor: &dyn Monitor) -> Result<Allowed> {
        self.allow_marks(Marks::new(mask), monitor)
    }

    /// Like [`allow_each_mask`](Self::allow_each_mask), with a matrix that is packed already.
    ///
    /// # Errors
    /// The errors of [`allow_each_mask`](Self::allow_each_mask).
    pub fn allow_marks(&self, marks: Marks, monitor: &dyn Monitor) -> Result<Allowed> {
        marks.check(self.len())?;
        monitor.report(0, self.len() as u64)?;
        let Marks { words, n_words, .. } = marks;
        Ok(Allowed { only: Some(Sets::Marked { words, n_words }), ..Allowed::default() })
    }

    /// Allows the vectors with the ids that `allows` accepts.
    ///
    /// # Errors
    /// The monitor cancels.
    pub fn allow(&self, allows: impl Fn(i64) -> bool + Sync, monitor: &dyn Monitor) -> Result<Allowed> {
        let bits = match self.ids.given() {
            Some(ids) => self.bits(|position| allows(ids.at(position)), monitor),
            None => self.bits(|position| allows(position as i64), monitor),
        };
        Ok(Allowed { bits: Some(bits?), ..Allowed::default() })
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

/// The most words for which a bitmap is used even if lists would take less memory, because lists take longer: 16 MB.
const QUICK: usize = 1 << 21;

/// The set of each query: the positions `found(starts[query]) .. found(starts[query + 1])`, in 64 `n_words` bits; there
/// are `n` in all, of which some may be `None`.
pub(super) fn each_of(
    starts: &[usize],
    n: usize,
    found: impl Fn(usize) -> Option<usize>,
    n_words: usize,
) -> Result<Allowed> {
    if starts.first() != Some(&0) || !starts.is_sorted() || starts.last() != Some(&n) {
        return Err(argument!("starts", "of sets do not fit: want ascending ones, from 0 to {n}"));
    }
    let all_words = n_words * (starts.len() - 1);
    // Bitmaps take less memory than long lists, and need not be sorted: sorting a position takes longer than clearing
    // eight words.
    if n / 4 > all_words || (all_words <= QUICK && n * 8 > all_words) {
        let mut words = vec![0; all_words];
        for (words, ends) in words.chunks_mut(n_words.max(1)).zip(starts.windows(2)) {
            let here = (ends[0]..ends[1]).filter_map(&found);
            here.for_each(|position| words[position / BLOCK] |= 1u64 << (position % BLOCK));
        }
        let only = Some(Sets::Marked { words, n_words });
        return Ok(Allowed { only, ..Allowed::default() });
    }
    let (mut kept, mut positions) = (vec![0], Vec::with_capacity(n));
    for ends in starts.windows(2) {
        positions.extend((ends[0]..ends[1]).filter_map(&found).map(|position| position as u64));
        kept.push(positions.len());
    }
    Ok(Allowed { only: Some(Sets::listed(kept, positions)?), ..Allowed::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_packed() {
        for n in [0, 1, 5, 8, 63, 64, 65, 200] {
            let mask = ndarray::Array2::from_shape_fn((3, n), |(i, j)| {
                (i * 7 + j * j * 13) % 5 == 0 || j % 64 == 63
            });
            for mask in [mask.view(), mask.view().reversed_axes().to_owned().reversed_axes().view()] {
                let marks = Marks::new(mask);
                assert_eq!(marks.words.len(), 3 * n.div_ceil(64));
                let rows: Vec<Vec<bool>> = marks.rows().map(Iterator::collect).collect();
                let want: Vec<Vec<bool>> = mask.outer_iter().map(|row| row.to_vec()).collect();
                assert!(n == 0 || rows == want, "{n}");
            }
        }
    }

    #[test]
    fn all_bytes_but_zero_are_true() {
        for n in [1, 7, 8, 63, 64, 65, 300] {
            let mask = ndarray::Array2::from_shape_fn((5, n), |(i, j)| {
                let byte = (i * 71 + j * 37 + j / 8) as u8;
                if (i + j * j) % 3 == 0 { 0 } else { byte }
            });
            for mask in [mask.view(), mask.view().reversed_axes().to_owned().reversed_axes().view()] {
                assert_eq!(Marks::of_bytes(mask).words, Marks::new(mask.map(|&byte| byte != 0).view()).words);
            }
        }
    }

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
