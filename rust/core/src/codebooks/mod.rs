//! The codebooks: M sets of K codewords of d numbers. A vector is approximated by the sum of one codeword from each.

mod grouping;
mod groups;
mod selection;
mod stretched;

use crate::error::{Result, argument};
use crate::monitor::{Counter, Monitor};
pub use grouping::Grouping;
pub use groups::Groups;
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, ArrayViewMut2};
pub use selection::Selection;

/// The most codebooks a model may have: one byte of code each.
pub const MAX_CODEBOOKS: usize = 256;
/// The most codebooks that are trained and encoded together: their Gram matrix has (M·K)² entries. A model with more
/// codebooks has them in [groups](Grouping), or in subspaces.
pub const MAX_TOGETHER: usize = 64;
/// The most codewords a codebook may have: as many as one byte can index.
pub const MAX_CODEWORDS: usize = 256;

/// Vectors decoded between two checks of the monitor.
const DECODED: usize = 256;

/// M codebooks of K codewords each, (M, K, d), contiguous and finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Codebooks {
    data: Array3<f32>,
    groups: Groups,
}

impl Codebooks {
    /// Takes codebooks of shape (M, K, d).
    ///
    /// # Errors
    /// M is not in 1..=256, K is not in 1..=256, d is 0, or a value is not finite.
    pub fn new(data: Array3<f32>) -> Result<Self> {
        let (m, k, d) = data.dim();
        if !(1..=MAX_CODEBOOKS).contains(&m) || !(1..=MAX_CODEWORDS).contains(&k) || d == 0 {
            return Err(argument!(
                "codebooks",
                "have shape ({m}, {k}, {d}): want 1 to {MAX_CODEBOOKS} codebooks of 1 to {MAX_CODEWORDS} codewords of at least 1 dimension"
            ));
        }
        let data = data.as_standard_layout().into_owned();
        if let Some(at) = data.iter().position(|v| !v.is_finite()) {
            return Err(argument!(
                "codebooks",
                "[{}, {}] holds NaN or an infinity",
                at / (k * d),
                at / d % k
            ));
        }
        let groups = Groups::of(data.view());
        Ok(Self { data, groups })
    }

    /// The number of codebooks, M.
    #[must_use]
    pub fn n_codebooks(&self) -> usize {
        self.data.dim().0
    }

    /// The number of codewords per codebook, K.
    #[must_use]
    pub fn n_codewords(&self) -> usize {
        self.data.dim().1
    }

    /// The length of the vectors, d.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.data.dim().2
    }

    /// Which dimensions each codebook uses.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// All codebooks, (M, K, d).
    #[must_use]
    pub fn view(&self) -> ArrayView3<'_, f32> {
        self.data.view()
    }

    /// Codeword `k` of codebook `m`.
    #[must_use]
    pub fn codeword(&self, m: usize, k: usize) -> &[f32] {
        let (_, n_codewords, d) = self.data.dim();
        &self.as_slice()[(m * n_codewords + k) * d..][..d]
    }

    /// All numbers, codebook by codebook and codeword by codeword.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        self.data.as_slice().expect("standard layout by construction")
    }

    /// Returns the array, (M, K, d).
    #[must_use]
    pub fn into_inner(self) -> Array3<f32> {
        self.data
    }

    /// Rejects codebooks that `selection` cannot choose from.
    ///
    /// # Errors
    /// `selection` shares one codebook and these are not M copies of one; or it needs M different codewords and there
    /// are fewer.
    pub fn check_selection(&self, selection: Selection) -> Result<()> {
        let (m, k, d) = self.view().dim();
        let mut books = self.as_slice().chunks_exact(k * d);
        if selection.is_shared() && books.any(|book| book != &self.as_slice()[..k * d]) {
            return Err(argument!("selection", "{} takes M equal codebooks; these differ", selection.name()));
        }
        if selection == Selection::MCombination && k < m {
            return Err(argument!("selection", "m-combination chooses {m} different codewords of only {k}"));
        }
        Ok(())
    }

    /// Rejects codes (n, M) that have a different M, or that name a codeword ≥ K.
    ///
    /// # Errors
    /// `codes` have a different M, or name a codeword ≥ K.
    pub fn check_codes(&self, codes: ArrayView2<'_, u8>) -> Result<()> {
        let (m, k) = (self.n_codebooks(), self.n_codewords());
        if codes.ncols() != m {
            return Err(argument!("codes", "have {} columns, the model has {m} codebooks", codes.ncols()));
        }
        if k < MAX_CODEWORDS
            && let Some(((row, _), &code)) = codes.indexed_iter().find(|&(_, &code)| usize::from(code) >= k)
        {
            return Err(argument!("codes", "row {row} names codeword {code}, the codebooks have {k}"));
        }
        Ok(())
    }

    /// The approximations of `codes` (n, M): sums of codewords, added in the order m = 0 … M−1, (n, d).
    ///
    /// # Errors
    /// See [`check_codes`](Self::check_codes); or the monitor cancels.
    pub fn decode(&self, codes: ArrayView2<'_, u8>, monitor: &dyn Monitor) -> Result<Array2<f32>> {
        let mut out = Array2::zeros((codes.nrows(), self.dim()));
        self.add_decoded(codes, out.view_mut(), monitor)?;
        Ok(out)
    }

    /// Adds to each row of `out` (n, d) the codewords of a row of `codes` (n, M), in the order m = 0 … M−1.
    ///
    /// # Errors
    /// See [`check_codes`](Self::check_codes); `out` has another shape or is not in standard layout; or the monitor
    /// cancels.
    pub fn add_decoded(
        &self,
        codes: ArrayView2<'_, u8>,
        mut out: ArrayViewMut2<'_, f32>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        use rayon::prelude::*;
        self.check_codes(codes)?;
        let wanted = [codes.nrows(), self.dim()];
        let shape = out.shape().to_vec();
        let Some(rows) = out.as_slice_mut().filter(|_| shape == wanted) else {
            return Err(argument!("out", "has shape {shape:?}, want {wanted:?} in standard layout"));
        };
        let counter = Counter::new(monitor, codes.nrows() as u64);
        let chunks = rows.par_chunks_mut(DECODED * self.dim()).enumerate();
        chunks.try_for_each(|(i, rows)| {
            for (row, code) in rows.chunks_exact_mut(self.dim()).zip(codes.outer_iter().skip(i * DECODED)) {
                for (m, &code) in code.iter().enumerate() {
                    let codeword = self.codeword(m, usize::from(code));
                    row.iter_mut().zip(codeword).for_each(|(x, c)| *x += c);
                }
            }
            counter.add((rows.len() / self.dim()) as u64)
        })
    }
}
