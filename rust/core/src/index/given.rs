//! Ids that were given, or chosen after some were given: four bytes each as long as they fit.

use crate::error::{Result, invalid};
use rayon::prelude::*;
use std::borrow::Cow;

/// Ids that are processed between two reports.
pub(super) const CHUNK: usize = 1 << 16;

/// An id for each position. Readers see only the numbers, whichever way they are stored.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Short(Vec<u32>),
    Long(Vec<i64>),
}

impl Given {
    /// Stores these ids, each from 0 to `most`.
    pub(super) fn new(ids: impl Iterator<Item = i64>, most: i64) -> Self {
        match is_short(most) {
            true => Self::Short(ids.map(|id| id as u32).collect()),
            false => Self::Long(ids.collect()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Short(ids) => ids.len(),
            Self::Long(ids) => ids.len(),
        }
    }

    pub(super) fn at(&self, position: usize) -> i64 {
        match self {
            Self::Short(ids) => ids[position].into(),
            Self::Long(ids) => ids[position],
        }
    }

    /// All ids; copied if they are stored in four bytes.
    pub(super) fn all(&self) -> Cow<'_, [i64]> {
        match self {
            Self::Short(ids) => ids.iter().map(|&id| id.into()).collect(),
            Self::Long(ids) => ids.into(),
        }
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        match self {
            Self::Short(ids) => {
                u32::try_from(id).is_ok_and(|id| ids.par_chunks(CHUNK).any(|ids| ids.contains(&id)))
            }
            Self::Long(ids) => ids.par_chunks(CHUNK).any(|ids| ids.contains(&id)),
        }
    }

    /// The position of an id, if the ids ascend.
    pub(super) fn search(&self, id: i64) -> Option<usize> {
        match self {
            Self::Short(ids) => ids.binary_search(&u32::try_from(id).ok()?).ok(),
            Self::Long(ids) => ids.binary_search(&id).ok(),
        }
    }

    /// Makes room for `n` more ids, none of them above `most`, so that [`extend`](Self::extend) cannot fail.
    pub(super) fn reserve(&mut self, n: usize, most: i64) -> Result<()> {
        let failed = |error| invalid!("no memory for {n} ids: {error}");
        match self {
            Self::Short(ids) if is_short(most) => ids.try_reserve(n).map_err(failed),
            Self::Short(ids) => {
                let mut long = Vec::new();
                long.try_reserve(ids.len() + n).map_err(failed)?;
                long.extend(ids.iter().map(|&id| i64::from(id)));
                *self = Self::Long(long);
                Ok(())
            }
            Self::Long(ids) => ids.try_reserve(n).map_err(failed),
        }
    }

    /// Adds ids, none of them above `most`.
    pub(super) fn extend(&mut self, new: &[i64], most: i64) {
        match self {
            Self::Short(ids) if is_short(most) => ids.extend(new.iter().map(|&id| id as u32)),
            Self::Short(ids) => {
                *self = Self::Long(ids.iter().map(|&id| id.into()).chain(new.iter().copied()).collect());
            }
            Self::Long(ids) => ids.extend(new),
        }
    }
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && (0..self.len()).all(|position| self.at(position) == other.at(position))
    }
}

fn is_short(most: i64) -> bool {
    most <= u32::MAX.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: i64 = u32::MAX as i64;

    fn given(ids: &[i64]) -> Given {
        Given::new(ids.iter().copied(), ids.iter().copied().max().unwrap_or(0))
    }

    #[test]
    fn are_short_as_long_as_they_fit() {
        for (ids, is_short) in
            [(&[][..], true), (&[7, 0, LAST], true), (&[7, LAST + 1, 0], false), (&[i64::MAX], false)]
        {
            let made = given(ids);
            assert_eq!(matches!(made, Given::Short(_)), is_short, "{ids:?}");
            assert_eq!((&*made.all(), made.len()), (ids, ids.len()));
            ids.iter().enumerate().for_each(|(position, &id)| assert_eq!(made.at(position), id));
            assert!(ids.iter().all(|&id| made.contains(id)));
            // Ids that differ by 2³² are different.
            assert!([5, LAST + 1 + 7, -1, LAST + 2].into_iter().all(|id| !made.contains(id)));
        }
    }

    #[test]
    fn are_found_where_they_ascend() {
        for ids in [[2, 5, LAST], [2, 5, LAST + 3]] {
            let made = given(&ids);
            assert_eq!(ids.map(|id| made.search(id)), [Some(0), Some(1), Some(2)]);
            assert_eq!([3, LAST + 3 + ids[0], -1].map(|id| made.search(id)), [None; 3]);
        }
    }

    #[test]
    fn grow_long() {
        let want = [3, 1, LAST, LAST + 1, 2];
        for is_reserved in [false, true] {
            let mut made = given(&want[..1]);
            for (new, most) in [(&want[1..3], LAST), (&want[3..4], LAST + 1), (&want[4..], 2)] {
                if is_reserved {
                    made.reserve(new.len(), most).unwrap();
                }
                made.extend(new, most);
            }
            assert_eq!(&*made.all(), want);
            assert_eq!(made, given(&want));
            assert_ne!(made, given(&want[..4]));
        }
        // If the room is not used, the ids are unchanged.
        let mut made = given(&[3, 1]);
        made.reserve(1, LAST + 1).unwrap();
        assert_eq!(made, given(&[3, 1]));
        made.extend(&[4], 4);
        assert_eq!(made, given(&[3, 1, 4]));
    }
}
