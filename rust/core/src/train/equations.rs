//! The update of the codebooks: least squares. With B the (M·K × n) matrix of which codewords each vector uses, the
//! best codebooks solve D (B Bᵀ) = X Bᵀ. Both sides are assembled here; solving is a separate step.
//!
//! Both sides are sums over vectors, so the sums of shards add up to those of the whole.

use super::coded::Codes;
use crate::codebooks::Codebooks;
use crate::error::{Error, Result, argument};
use crate::linalg::cholesky;
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

/// The two sides of the update's linear system.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalEquations {
    /// B Bᵀ, (M·K, M·K): how often (by weight) two codewords occur together.
    pub a: Array2<f64>,
    /// The transpose of X Bᵀ, (M·K, d): for each codeword, the sum of the vectors that use it.
    pub b: Array2<f64>,
}

impl NormalEquations {
    /// Assembles both sides from `x` (n, d) and `codes` (n, M) below `n_codewords`, with rows weighted by `weights` (n)
    /// if given. Every entry is summed in the order of the rows, whatever the number of threads.
    ///
    /// # Errors
    /// Shapes that do not fit, a code ≥ K, a row that is not finite, a weight that is negative or not finite, or a
    /// cancelling monitor.
    pub fn assemble(
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        n_codewords: usize,
        weights: Option<&[f64]>,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let codes = codes.as_standard_layout();
        let codes = Codes::new(x, codes.view(), n_codewords, weights)?;
        let a = codes.co_occurrences(monitor)?;
        let b = codes.sums(x, monitor)?;
        Ok(Self { a, b })
    }

    /// The equations for M equal codebooks: those of their K codewords, each used as often as all M copies together.
    #[must_use]
    pub fn shared(&self, n_codewords: usize) -> Self {
        let (m, k) = (self.a.nrows() / n_codewords, n_codewords);
        let mut sum = Self { a: Array2::zeros((k, k)), b: Array2::zeros((k, self.b.ncols())) };
        for i in 0..m {
            let rows = i * k..(i + 1) * k;
            sum.b += &self.b.slice(s![rows.clone(), ..]);
            for j in 0..m {
                sum.a += &self.a.slice(s![rows.clone(), j * k..(j + 1) * k]);
            }
        }
        sum
    }

    /// Adds a pull of every codeword toward the mean of its codebook, with a weight in the unit of the diagonal of A:
    /// vectors. The present codebooks are `previous` (M·K, d).
    ///
    /// The mean is weighted by use; it can be chosen freely, since shifting one codebook against another changes no
    /// sum.
    pub fn pull(&mut self, weight: f64, previous: ArrayView2<'_, f64>, n_codewords: usize) {
        let uses = self.a.diag().to_owned();
        pull(&mut self.b, &uses, weight, previous, n_codewords);
        self.a.diag_mut().iter_mut().for_each(|entry| *entry += weight);
    }

    /// λ of the proximal term: `ridge` times the mean use of a codeword.
    #[must_use]
    pub fn lambda(&self, ridge: f64) -> f64 {
        lambda(ridge, self.a.diag().sum() / self.a.nrows() as f64)
    }

    /// The D that minimises ‖X − D B‖² + λ‖D − D₀‖², both (M·K, d), where D₀ is `previous`.
    ///
    /// B Bᵀ is always singular: shifting one codebook by a vector and another by its negative changes no sum, so its
    /// rank is at most M·K − M + 1, and less if codewords are unused. The *proximal* term picks the solution nearest to
    /// the present codebooks; a ridge toward zero would shrink rarely used codewords and ruin long vectors.
    ///
    /// # Errors
    /// `ridge` is not above 0, shapes do not fit, the system is not positive definite even so, or the monitor cancels.
    pub fn solve(
        mut self,
        previous: ArrayView2<'_, f64>,
        ridge: f64,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f64>> {
        if !(ridge > 0.0 && ridge.is_finite()) {
            return Err(argument!("ridge", "is {ridge}: want a finite number above 0"));
        }
        if previous.dim() != self.b.dim() {
            return Err(argument!("previous", "has shape {:?}, b has {:?}", previous.dim(), self.b.dim()));
        }
        let lambda = self.lambda(ridge);
        // Solving for the change D − D₀ loses fewer digits than solving for D.
        let mut change = &self.b - &self.a.dot(&previous);
        self.a.diag_mut().iter_mut().for_each(|entry| *entry += lambda);
        cholesky::solve(self.a, &mut change, monitor)?;
        Ok(change + previous)
    }

    /// Adds the sums of another shard.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn add(&mut self, other: &Self) {
        self.a += &other.a;
        self.b += &other.b;
    }
}

/// The contribution of a pull of `weight` toward the mean of each codebook to the right side: see
/// [`NormalEquations::pull`].
pub(super) fn pull(
    b: &mut Array2<f64>,
    uses: &Array1<f64>,
    weight: f64,
    previous: ArrayView2<'_, f64>,
    n_codewords: usize,
) {
    if weight <= 0.0 {
        return;
    }
    for (i, book) in previous.axis_chunks_iter(Axis(0), n_codewords).enumerate() {
        let rows = i * n_codewords..(i + 1) * n_codewords;
        let counts = uses.slice(s![rows.clone()]);
        let total = counts.sum();
        let mean = if total > 0.0 { counts.dot(&book) / total } else { Array1::zeros(book.ncols()) };
        b.slice_mut(s![rows, ..]).scaled_add(weight, &mean);
    }
}

/// λ of the proximal term: `ridge` times the mean use of a codeword.
pub(super) fn lambda(ridge: f64, mean: f64) -> f64 {
    ridge * if mean > 0.0 { mean } else { 1.0 }
}

/// Codebooks as the unknowns of the equations, one codeword per row; only the first codebook if they are `shared`.
#[must_use]
pub fn unknowns(codebooks: &Codebooks, shared: bool) -> Array2<f64> {
    let (m, k, d) = codebooks.view().dim();
    let books = if shared { 1 } else { m };
    let unknowns = codebooks.view().slice_move(s![..books, .., ..]).mapv(f64::from);
    unknowns.into_shape_with_order((books * k, d)).expect("contiguous")
}

/// The inverse of [`unknowns`]: `m` codebooks of `k` codewords from m·k rows, or from k rows of a shared one.
///
/// # Errors
/// The number of rows is wrong, or a value is beyond f32.
pub fn codebooks(unknowns: &Array2<f64>, m: usize, k: usize) -> Result<Codebooks> {
    rounded(unknowns.mapv(|value| value as f32), m, k)
}

/// Like [`codebooks`], from numbers that are rounded already.
pub(super) fn rounded(unknowns: Array2<f32>, m: usize, k: usize) -> Result<Codebooks> {
    let (rows, d) = unknowns.dim();
    if rows != k && rows != m * k {
        return Err(argument!("unknowns", "have {rows} rows, there are {m} codebooks of {k} codewords"));
    }
    if !unknowns.iter().all(|value| value.is_finite()) {
        return Err(too_large());
    }
    let books = unknowns.into_shape_with_order((rows / k, k, d)).expect("contiguous");
    if rows == m * k {
        return Codebooks::new(books);
    }
    Codebooks::new(books.broadcast((m, k, d)).expect("one codebook").to_owned())
}

/// The error if intermediate results computed from the vectors are beyond f32.
pub(super) fn too_large() -> Error {
    argument!("X", "holds values too large for training in float32: scale it down")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Array2<f32>, Array2<u8>) {
        let x = Array2::from_shape_fn((100, 3), |(i, j)| ((i * 7 + j * 11) % 17) as f32 - 8.0);
        let codes = Array2::from_shape_fn((100, 2), |(i, j)| ((i * (j + 2)) % 5) as u8);
        (x, codes)
    }

    #[test]
    fn equals_the_dense_products() {
        let (x, codes) = example();
        let weights: Vec<f64> = (0..100).map(|i| f64::from(i % 4)).collect();
        for weights in [None, Some(&weights[..])] {
            let equations = NormalEquations::assemble(&x.view(), codes.view(), 5, weights, &()).unwrap();
            let mut b = Array2::<f64>::zeros((100, 10));
            codes.indexed_iter().for_each(|((n, m), &code)| b[[n, m * 5 + usize::from(code)]] = 1.0);
            let mut weighted = b.clone();
            if let Some(weights) = weights {
                weighted.rows_mut().into_iter().zip(weights).for_each(|(mut row, &w)| row *= w);
            }
            assert_eq!(equations.a, weighted.t().dot(&b));
            assert_eq!(equations.b, weighted.t().dot(&x.mapv(f64::from)));
        }
    }

    #[test]
    fn shards_add_up() {
        let (x, codes) = example();
        let part = |rows: std::ops::Range<usize>| {
            let (x, codes) = (x.slice(s![rows.clone(), ..]), codes.slice(s![rows, ..]));
            NormalEquations::assemble(&x, codes, 5, None, &()).unwrap()
        };
        let mut sum = part(0..33);
        sum.add(&part(33..100));
        assert_eq!(sum, part(0..100));
    }

    #[test]
    fn a_pull_is_to_the_mean_of_the_codebook() {
        let (x, codes) = example();
        let mut equations = NormalEquations::assemble(&x.view(), codes.view(), 5, None, &()).unwrap();
        let plain = equations.clone();
        let previous = Array2::from_shape_fn((10, 3), |(i, j)| (i * 3 + j) as f64);
        equations.pull(2.0, previous.view(), 5);
        assert_eq!(equations.a, &plain.a + 2.0 * Array2::<f64>::eye(10));
        let counts = plain.a.diag().slice(s![5..]).to_owned();
        let mean = counts.dot(&previous.slice(s![5.., ..])) / counts.sum();
        let pulled = &equations.b.row(7) - &plain.b.row(7);
        assert!((pulled - 2.0 * mean).iter().all(|difference| difference.abs() < 1e-9));
    }

    #[test]
    fn the_solution_is_stationary() {
        let (x, codes) = example();
        let equations = NormalEquations::assemble(&x.view(), codes.view(), 5, None, &()).unwrap();
        let previous = Array2::from_shape_fn((10, 3), |(i, j)| (i as f64 - j as f64).sin());
        let d = equations.clone().solve(previous.view(), 0.1, &()).unwrap();
        let gradient = equations.a.dot(&d) - &equations.b + equations.lambda(0.1) * (&d - &previous);
        assert!(gradient.iter().all(|g| g.abs() < 1e-8), "{gradient}");
        assert!(equations.solve(previous.view(), 0.0, &()).is_err());
    }
}
