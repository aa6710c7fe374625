//! The numbers that name vectors: their positions, until others are given.

use crate::error::{Result, invalid};
use std::borrow::Cow;
use std::collections::HashMap;

/// An id for each position; different ones, at least 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ids {
    /// The position is the id, for this many.
    Positions(usize),
    Given(Vec<i64>),
}

impl Ids {
    pub(super) fn given(&self) -> Option<&[i64]> {
        match self {
            Ids::Positions(_) => None,
            Ids::Given(ids) => Some(ids),
        }
    }

    pub(super) fn at(&self, position: usize) -> i64 {
        match self {
            Ids::Positions(_) => position as i64,
            Ids::Given(ids) => ids[position],
        }
    }

    /// Those of `n` vectors in a file.
    pub(super) fn loaded(n: usize, ids: Option<Vec<i64>>) -> Result<Self> {
        let Some(ids) = ids else { return Ok(Ids::Positions(n)) };
        Ids::Positions(0).check(&ids, n)?;
        Ok(Ids::Given(ids))
    }

    /// The ids of `n` more: those given, or the numbers that follow the largest; `None` if these are positions.
    pub(super) fn next(&self, n: usize, given: Option<&[i64]>) -> Result<Option<Vec<i64>>> {
        if let Some(given) = given {
            self.check(given, n)?;
            return Ok(Some(given.to_vec()));
        }
        let Ids::Given(old) = self else { return Ok(None) };
        let first = old.iter().max().map_or(Some(0), |largest| largest.checked_add(1));
        let last = first.and_then(|first| first.checked_add(n as i64));
        match (first, last) {
            (Some(first), Some(last)) => Ok(Some((first..last).collect())),
            _ => Err(invalid!("no ids are left above the largest: give ids")),
        }
    }

    /// Adds what [`next`](Self::next) returned for `n` vectors.
    pub(super) fn extend(&mut self, n: usize, ids: Option<Vec<i64>>) {
        match (&mut *self, ids) {
            (Ids::Positions(len), None) => *len += n,
            (Ids::Positions(len), Some(ids)) => *self = Ids::Given((0..*len as i64).chain(ids).collect()),
            (Ids::Given(old), ids) => old.extend(ids.into_iter().flatten()),
        }
    }

    fn check(&self, ids: &[i64], n: usize) -> Result<()> {
        if ids.len() != n {
            return Err(invalid!("ids has {} entries for {n} vectors", ids.len()));
        }
        if let Some(row) = ids.iter().position(|&id| id < 0) {
            return Err(invalid!("ids[{row}] is {}: want at least 0 (−1 marks a missing result)", ids[row]));
        }
        // Ids mostly come in order, and then need no copy.
        let mut sorted = Cow::Borrowed(ids);
        if !ids.is_sorted_by(|a, b| a < b) {
            sorted.to_mut().sort_unstable();
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid!("ids holds {} twice", pair[0]));
        }
        let taken = match self {
            Ids::Positions(len) => sorted.first().copied().filter(|&id| id < *len as i64),
            Ids::Given(old) => old.iter().copied().find(|id| sorted.binary_search(id).is_ok()),
        };
        match taken {
            Some(id) => Err(invalid!("ids holds {id}, which the index has already")),
            None => Ok(()),
        }
    }

    /// The positions of `ids`, in their order; `None` for those that are not here.
    pub(super) fn find(&self, ids: &[i64]) -> Vec<Option<usize>> {
        match self {
            Ids::Positions(n) => {
                ids.iter().map(|&id| usize::try_from(id).ok().filter(|position| position < n)).collect()
            }
            Ids::Given(all) => {
                let wanted: HashMap<i64, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
                let mut first = vec![None; ids.len()];
                for (position, id) in all.iter().enumerate() {
                    if let Some(&i) = wanted.get(id) {
                        first[i] = Some(position);
                    }
                }
                ids.iter().map(|id| first[wanted[id]]).collect()
            }
        }
    }

    /// Those at `positions`.
    pub(super) fn select(&self, positions: &[usize]) -> Ids {
        Ids::Given(positions.iter().map(|&position| self.at(position)).collect())
    }
}
