//! Codebooks in mutually orthogonal subspaces, as in product quantizers.

use crate::codebooks::{Codebooks, MAX_CODEWORDS};
use crate::encode::SubspaceEncoder;
use crate::error::{Result, argument};
use ndarray::{Array2, ArrayView2, s};

/// The subspace of each codebook.
#[derive(Clone, Debug, PartialEq)]
pub struct Subspaces {
    sizes: Vec<usize>,
    basis: Option<Array2<f32>>,
}

impl Subspaces {
    /// Subspaces with `sizes` dimensions, one per codebook: the first d_1 columns of `basis` (d, Σ d_m) span the first,
    /// and so on. Without a basis, they consist of the dimensions themselves, in order.
    ///
    /// # Errors
    /// A size is 0, or the basis has a number of columns other than the sum of `sizes`, or a number that is not finite.
    pub fn new(sizes: Vec<usize>, basis: Option<Array2<f32>>) -> Result<Self> {
        let total = sizes.iter().try_fold(0usize, |total, &size| total.checked_add(size));
        let (false, Some(total)) = (sizes.contains(&0), total) else {
            return Err(argument!("subspaces", "have {sizes:?} dimensions: want at least 1 each"));
        };
        if let Some(basis) = &basis {
            if basis.ncols() != total || basis.nrows() == 0 {
                return Err(argument!("basis", "has shape {:?}: want (d, {total})", basis.dim()));
            }
            if basis.iter().any(|value| !value.is_finite()) {
                return Err(argument!("basis", "holds NaN or an infinity"));
            }
        }
        Ok(Self { sizes, basis: basis.map(|basis| basis.as_standard_layout().into_owned()) })
    }

    /// The dimensions of each subspace.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The columns that span the subspaces, (d, Σ d_m); `None` if these consist of the dimensions themselves.
    #[must_use]
    pub fn basis(&self) -> Option<ArrayView2<'_, f32>> {
        self.basis.as_ref().map(|basis| basis.view())
    }

    /// Rejects subspaces that do not fit `codebooks`.
    ///
    /// # Errors
    /// The number of codebooks or dimensions differs.
    pub fn check(&self, codebooks: &Codebooks) -> Result<()> {
        let total: usize = self.sizes.iter().sum();
        let dim = self.basis.as_ref().map_or(total, |basis| basis.nrows());
        if (self.sizes.len(), dim) != (codebooks.n_codebooks(), codebooks.dim()) {
            return Err(argument!(
                "subspaces",
                "are {} in {dim} dimensions: want {} in {}",
                self.sizes.len(),
                codebooks.n_codebooks(),
                codebooks.dim()
            ));
        }
        Ok(())
    }

    /// The encoder that finds the nearest codeword of each codebook in its subspace.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn encoder(&self, codebooks: &Codebooks) -> Result<SubspaceEncoder> {
        self.check(codebooks)?;
        let mut first = 0;
        let books = codebooks.view();
        let words = books.outer_iter().zip(&self.sizes).map(|(book, &size)| {
            let own = s![.., first..first + size];
            first += size;
            match &self.basis {
                None => book.slice(own).to_owned(),
                Some(basis) => book.mapv(f64::from).dot(&basis.slice(own).mapv(f64::from)).mapv(|x| x as f32),
            }
        });
        SubspaceEncoder::new(&words.collect::<Vec<_>>(), self.basis())
    }
}

/// The encoder of checked codebooks whose codewords are sums of ± eight directions: in the coordinates of these
/// directions, the nearest sign pattern is the signs of the products.
pub(super) fn signs(codebooks: &Codebooks) -> Result<SubspaceEncoder> {
    let (m, _, d) = codebooks.view().dim();
    let sign = |(code, bit)| if code >> bit & 1 == 1 { 1.0 } else { -1.0 };
    let words = vec![Array2::from_shape_fn((MAX_CODEWORDS, 8), sign); m];
    let directions = Array2::from_shape_fn((d, 8 * m), |(j, column)| {
        let (book, bit) = (column / 8, column % 8);
        codebooks.codeword(book, 1 << bit)[j] - codebooks.codeword(book, 0)[j]
    });
    SubspaceEncoder::new(&words, Some(directions.view()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encode;
    use crate::model::{Recipe, Structure};
    use ndarray::{Array3, array};

    #[test]
    fn the_nearest_codeword_of_each_subspace_is_chosen() {
        let codebooks = Codebooks::new(array![[[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [4.0, -3.0]]]).unwrap();
        let basis = array![[0.6f32, 0.8], [0.8, -0.6]];
        let subspaces = Subspaces::new(vec![1, 1], Some(basis)).unwrap();
        let x = array![[3.0f32, 4.0], [4.0, -3.0], [7.0, 1.0], [0.1, 0.1]];
        let codes = subspaces.encoder(&codebooks).unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(codes, array![[1, 0], [0, 1], [1, 1], [0, 0]]);
    }

    #[test]
    fn signs_are_those_of_the_products() {
        let directions = Array2::from_shape_fn((8, 3), |(i, j)| ((i * 7 + j * 5) % 11) as f32 - 5.0);
        let word = |k: usize, j: usize| -> f32 {
            (0..8).map(|i| if k >> i & 1 == 1 { directions[[i, j]] } else { -directions[[i, j]] }).sum()
        };
        let codebooks = Codebooks::new(Array3::from_shape_fn((1, 256, 3), |(_, k, j)| word(k, j))).unwrap();
        let x = array![[1.0f32, 2.0, -0.5], [-3.0, 0.25, 1.5]];
        let want = x.dot(&directions.t()).map_axis(ndarray::Axis(1), |products| {
            products.iter().enumerate().map(|(i, &product)| u8::from(product > 0.0) << i).sum::<u8>()
        });
        let codes = signs(&codebooks).unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(codes.column(0), want);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let codebooks = Codebooks::new(Array3::zeros((2, 2, 3))).unwrap();
        assert!(Subspaces::new(vec![2, 0], None).is_err());
        assert!(Subspaces::new(vec![usize::MAX, 2], None).is_err());
        assert!(Subspaces::new(vec![1, 1], Some(Array2::zeros((3, 3)))).is_err());
        assert!(Subspaces::new(vec![1, 1], Some(Array2::from_elem((3, 2), f32::NAN))).is_err());
        assert!(Subspaces::new(vec![1, 1], None).unwrap().encoder(&codebooks).is_err());
        assert!(Subspaces::new(vec![3], None).unwrap().encoder(&codebooks).is_err());
        let signs = Recipe { structure: Structure::Signs, ..Recipe::default() };
        assert!(signs.check(&codebooks).is_err());
    }
}
