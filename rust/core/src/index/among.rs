//! Sets of ids.

use rayon::prelude::*;

/// Ids prepared for many membership tests: a bitmap over their range if that takes no more memory than the ids do,
/// otherwise a sorted list.
pub(super) struct Among {
    first: i64,
    bits: Vec<u64>,
    sorted: Vec<i64>,
}

impl Among {
    /// Prepares for about `asked` tests. Negative ids are never members.
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
