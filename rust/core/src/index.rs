//! Codes and ids, ready to be searched.

use crate::error::{Error, Result, invalid};
use crate::isa::Isa;
use crate::model::Model;
use crate::monitor::Monitor;
use crate::packed::PackedCodes;
use crate::scan::{self, Hits, Options};
use crate::tables::TableBuilder;
use crate::vectors::Vectors;
use ndarray::{Array2, ArrayView2};

/// A database of codes, one for each vector, and the model that decodes them.
///
/// ```
/// use compcodes::{Codebooks, Index, Model, Selection};
/// use ndarray::array;
/// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
/// let mut index = Index::new(Model::new(codebooks, Selection::Group));
/// index.add(&array![[3.5, 1.2], [0.3, 2.9], [4.2, 3.1]].view(), None, &())?;
/// let hits = index.search(array![[1.0, 1.0]].view(), 2, &())?;
/// assert_eq!(hits.positions, array![[2, 0]]);
/// assert_eq!(hits.scores, array![[7.0, 5.0]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
pub struct Index {
    model: Model,
    tables: TableBuilder,
    codes: PackedCodes,
    /// `None`: the position is the id.
    ids: Option<Vec<i64>>,
}

impl Index {
    /// An empty index.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let codes = PackedCodes::new(model.codebooks.n_codebooks()).expect("a model has codebooks");
        Self { tables: TableBuilder::new(&model.codebooks), codes, ids: None, model }
    }

    /// An index of given parts, as files keep them.
    ///
    /// # Errors
    /// Codes or ids that do not fit.
    pub fn from_parts(model: Model, codes: PackedCodes, ids: Option<Vec<i64>>) -> Result<Self> {
        let mut index = Self::new(model);
        if codes.n_columns() != index.codes.n_columns() {
            let (have, want) = (codes.n_columns(), index.codes.n_columns());
            return Err(invalid!("codes have {have} columns, the model has {want} codebooks"));
        }
        let n_codewords = index.model.codebooks.n_codewords();
        if n_codewords < crate::codebooks::MAX_CODEWORDS
            && codes.view().as_bytes().iter().any(|&code| usize::from(code) >= n_codewords)
        {
            return Err(invalid!("codes name codewords beyond the {n_codewords} of the model"));
        }
        if let Some(ids) = &ids {
            index.check_ids(ids, codes.len())?;
        }
        (index.codes, index.ids) = (codes, ids);
        Ok(index)
    }

    /// The model that decodes the codes.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Number of vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// All codes in the order they were added.
    #[must_use]
    pub fn codes(&self) -> &PackedCodes {
        &self.codes
    }

    /// The ids in that order; `None` if each is its position.
    #[must_use]
    pub fn ids(&self) -> Option<&[i64]> {
        self.ids.as_deref()
    }

    /// Encodes `x` (n, d) and adds the codes. See [`add_codes`](Self::add_codes).
    ///
    /// # Errors
    /// Another d, a row that is not finite, ids that do not fit, or a cancelling monitor; nothing is added then.
    pub fn add(&mut self, x: &dyn Vectors, ids: Option<&[i64]>, monitor: &dyn Monitor) -> Result<()> {
        let codes = self.model.encoder()?.encode(x, monitor)?;
        self.add_codes(codes.view(), ids)
    }

    /// Adds codes (n, M). Without `ids` they get the numbers that follow the largest id so far: positions, if no ids
    /// were ever given.
    ///
    /// # Errors
    /// Codes of another M or beyond K; ids that are not n, negative, repeated, or taken. Nothing is added then.
    pub fn add_codes(&mut self, codes: ArrayView2<'_, u8>, ids: Option<&[i64]>) -> Result<()> {
        self.model.codebooks.check_codes(codes)?;
        let n = codes.nrows();
        let new_ids = match ids {
            Some(ids) => {
                self.check_ids(ids, n)?;
                Some(ids.to_vec())
            }
            None if self.ids.is_some() => {
                let first = self.ids.iter().flatten().max().map_or(Some(0), |largest| largest.checked_add(1));
                let last = first.and_then(|first| first.checked_add(n as i64));
                let (Some(first), Some(last)) = (first, last) else {
                    return Err(invalid!("no ids are left above the largest: give ids"));
                };
                Some((first..last).collect())
            }
            None => None,
        };
        let old = self.codes.len();
        self.codes.extend(codes)?;
        if let Some(new_ids) = new_ids {
            self.ids.get_or_insert_with(|| (0..old as i64).collect()).extend(new_ids);
        }
        Ok(())
    }

    fn check_ids(&self, ids: &[i64], n: usize) -> Result<()> {
        if ids.len() != n {
            return Err(invalid!("ids has {} entries for {n} vectors", ids.len()));
        }
        if let Some(row) = ids.iter().position(|&id| id < 0) {
            return Err(invalid!("ids[{row}] is {}: want at least 0 (−1 marks a missing result)", ids[row]));
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid!("ids holds {} twice", pair[0]));
        }
        let taken = match &self.ids {
            None => sorted.first().copied().filter(|&id| id < self.len() as i64),
            Some(ids) => ids.iter().copied().find(|id| sorted.binary_search(id).is_ok()),
        };
        match taken {
            Some(id) => Err(invalid!("ids holds {id}, which the index has already")),
            None => Ok(()),
        }
    }

    /// The `k` largest scores of each query (nq, d) and their *positions*: rows in the order of adding.
    ///
    /// # Errors
    /// Another d, a query that is not finite, or a cancelling monitor.
    pub fn search_positions(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let isa = Isa::current()?;
        let tables = self.tables.tables(queries, isa)?;
        scan::search(self.codes.view(), &tables, k, Options::default(), isa, monitor)
    }

    /// Like [`search_positions`](Self::search_positions), but the hits' positions are ids.
    ///
    /// # Errors
    /// The same.
    pub fn search(&self, queries: ArrayView2<'_, f32>, k: usize, monitor: &dyn Monitor) -> Result<Hits> {
        let mut hits = self.search_positions(queries, k, monitor)?;
        self.to_ids(&mut hits.positions);
        Ok(hits)
    }

    /// Replaces positions by ids; −1 stays.
    pub fn to_ids(&self, positions: &mut Array2<i64>) {
        if let Some(ids) = &self.ids {
            positions.iter_mut().filter(|position| **position >= 0).for_each(|p| *p = ids[*p as usize]);
        }
    }

    /// The approximation of the vector with this id, (d).
    ///
    /// # Errors
    /// The index has no such id.
    pub fn reconstruct(&self, id: i64) -> Result<Vec<f32>> {
        let position = match &self.ids {
            None => usize::try_from(id).ok().filter(|&position| position < self.len()),
            Some(ids) => ids.iter().position(|&other| other == id),
        };
        let position = position.ok_or_else(|| Error::Invalid(format!("the index has no id {id}")))?;
        let codes = self.codes.view().select(&[position]);
        Ok(self.model.codebooks.decode(codes.view())?.into_raw_vec_and_offset().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::{Codebooks, Selection};
    use ndarray::{Array3, array};

    fn index() -> Index {
        let codebooks =
            Codebooks::new(Array3::from_shape_fn((2, 4, 1), |(m, k, _)| (m * 4 + k) as f32)).unwrap();
        Index::new(Model::new(codebooks, Selection::Group))
    }

    #[test]
    fn ids_continue_after_the_largest() {
        let mut index = index();
        index.add_codes(array![[0, 0], [1, 1]].view(), None).unwrap();
        assert_eq!(index.ids(), None);
        index.add_codes(array![[2, 2]].view(), Some(&[7])).unwrap();
        index.add_codes(array![[3, 3]].view(), None).unwrap();
        assert_eq!(index.ids(), Some(&[0, 1, 7, 8][..]));
        let hits = index.search(array![[1.0]].view(), 5, &()).unwrap();
        assert_eq!(hits.positions, array![[8, 7, 1, 0, -1]]);
        assert_eq!(index.reconstruct(7).unwrap(), [8.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut index = index();
        index.add_codes(array![[0, 0], [1, 1]].view(), Some(&[5, 3])).unwrap();
        let one = array![[0, 0]];
        for ids in [&[3][..], &[-1], &[], &[1, 2]] {
            assert!(index.add_codes(one.view(), Some(ids)).is_err(), "{ids:?}");
        }
        assert!(index.add_codes(array![[0, 0], [0, 0]].view(), Some(&[9, 9])).is_err());
        assert!(index.add_codes(array![[0, 4]].view(), None).is_err());
        assert!(index.add_codes(array![[0]].view(), None).is_err());
        assert_eq!((index.len(), index.ids()), (2, Some(&[5, 3][..])));
        assert!(index.reconstruct(4).is_err());
    }
}
