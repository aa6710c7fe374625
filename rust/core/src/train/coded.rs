//! Sums over vectors by their codes: how often codewords are used, alone and together, and the vectors that use them.
//!
//! Every entry is summed in the order of the rows, whatever the number of threads.

use crate::codebooks::{MAX_CODEWORDS, MAX_TOGETHER};
use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::train::weights::check_weights;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array1, Array2, Array3, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;

/// Vectors loaded into the cache for all M codebooks to add up: 2 MB at d = 128.
const CHUNK: usize = 4096;
/// Dimensions added up per task, so that even few codebooks occupy all threads.
const WIDTH: usize = 64;

/// Only (X Bᵀ)ᵀ, (M·K, d): for each codeword, the sum of the vectors (n, d) that use it.
///
/// # Errors
/// The errors of [`NormalEquations::assemble`](super::equations::NormalEquations::assemble).
pub fn sums(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    monitor: &dyn Monitor,
) -> Result<Array2<f64>> {
    let codes = codes.as_standard_layout();
    Codes::new(x, codes.view(), n_codewords, None)?.sums(x, monitor)
}

/// Checked codes, row by row, and the weights of the rows.
pub(super) struct Codes<'a> {
    pub(super) codes: &'a [u8],
    m: usize,
    k: usize,
    weights: Option<&'a [f64]>,
}

impl<'a> Codes<'a> {
    /// Checks `codes`, which must be in standard layout, against the vectors `x` that they belong to.
    ///
    /// # Errors
    /// Vectors, codes and weights do not fit each other.
    pub(super) fn new(
        x: &dyn Vectors,
        codes: ArrayView2<'a, u8>,
        n_codewords: usize,
        weights: Option<&'a [f64]>,
    ) -> Result<Self> {
        if codes.nrows() != x.n() {
            return Err(argument!("codes", "have {} rows, X has {}", codes.nrows(), x.n()));
        }
        if !(1..=MAX_TOGETHER).contains(&codes.ncols()) {
            return Err(argument!("codes", "have {} columns: want 1 to {MAX_TOGETHER}", codes.ncols()));
        }
        if !(1..=MAX_CODEWORDS).contains(&n_codewords) {
            return Err(argument!("n_codewords", "is {n_codewords}: want 1 to {MAX_CODEWORDS}"));
        }
        if let Some(((row, _), code)) =
            codes.indexed_iter().find(|&(_, &code)| usize::from(code) >= n_codewords)
        {
            return Err(argument!("codes", "row {row} names codeword {code}, there are {n_codewords}"));
        }
        check_weights(x, weights)?;
        let m = codes.ncols();
        Ok(Self { codes: codes.to_slice().expect("standard layout"), m, k: n_codewords, weights })
    }

    /// The diagonal of A: how often, by weight, a codeword is used; for a shared codebook, each use combined with each.
    pub(super) fn diagonal(&self, shared: bool) -> Array1<f64> {
        let mut diagonal = Array1::zeros(if shared { self.k } else { self.m * self.k });
        for (row, code) in self.codes.chunks_exact(self.m).enumerate() {
            let weight = self.weight(row);
            for (book, &k) in code.iter().enumerate() {
                if shared {
                    diagonal[usize::from(k)] +=
                        weight * code.iter().filter(|&&other| other == k).count() as f64;
                } else {
                    diagonal[book * self.k + usize::from(k)] += weight;
                }
            }
        }
        diagonal
    }

    /// Adds up the sums (M·K, d) of a shared codebook to (K, d).
    pub(super) fn added(&self, sums: Array2<f64>) -> Array2<f64> {
        let shape = (self.m, self.k, sums.ncols());
        sums.into_shape_with_order(shape).expect("contiguous").sum_axis(Axis(0))
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// B Bᵀ: one task per pair of codebooks counts in its own block, which fits in the L2 cache.
    pub(super) fn co_occurrences(&self, monitor: &dyn Monitor) -> Result<Array2<f64>> {
        let (m, k) = (self.m, self.k);
        let pairs: Vec<_> = (0..m).flat_map(|i| (i..m).map(move |j| (i, j))).collect();
        let mut a = Array2::zeros((m * k, m * k));
        // A few pairs at a time: otherwise their blocks would be a second copy of the whole matrix.
        for pairs in pairs.chunks(16) {
            let blocks: Vec<_> = pairs.par_iter().map(|&(i, j)| self.block(i, j)).collect();
            for (&(i, j), block) in pairs.iter().zip(&blocks) {
                a.slice_mut(s![i * k..(i + 1) * k, j * k..(j + 1) * k]).assign(block);
                a.slice_mut(s![j * k..(j + 1) * k, i * k..(i + 1) * k]).assign(&block.t());
            }
            monitor.report(0, self.codes.len() as u64)?;
        }
        Ok(a)
    }

    fn block(&self, i: usize, j: usize) -> Array2<f64> {
        let mut block = Array2::zeros((self.k, self.k));
        let counts = block.as_slice_mut().expect("fresh");
        for (row, code) in self.codes.chunks_exact(self.m).enumerate() {
            counts[usize::from(code[i]) * self.k + usize::from(code[j])] += self.weight(row);
        }
        block
    }

    /// (X Bᵀ)ᵀ: one task per codebook and range of dimensions, chunk after chunk.
    pub(super) fn sums(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<f64>> {
        let (m, k, d, isa) = (self.m, self.k, x.dim(), Isa::current()?);
        let counter = Counter::new(monitor, x.n() as u64);
        // Fewer rows if they are long, so that the buffer stays within tens of megabytes.
        let rows = parallel::rows(CHUNK.min((1 << 23) / d).max(1));
        let mut buffer = vec![0.0f32; rows.min(x.n()) * d];
        let mut sums = Array3::<f64>::zeros((m, k, d));
        for first in (0..x.n()).step_by(rows) {
            let rows = rows.min(x.n() - first);
            let buffer = &mut buffer[..rows * d];
            let part = rows.div_ceil(16);
            let failed = buffer
                .par_chunks_mut(part * d)
                .enumerate()
                .map(|(i, buffer)| read_finite(x, "X", first + i * part, buffer))
                .find_first(Result::is_err);
            failed.unwrap_or(Ok(()))?;
            let tasks: Vec<_> = sums
                .outer_iter_mut()
                .enumerate()
                .flat_map(|(i, sums)| {
                    let stretches = split_columns(sums);
                    stretches.into_iter().map(move |(column, sums)| (i, column, sums))
                })
                .collect();
            tasks.into_par_iter().for_each(|(i, column, sums)| {
                let codes = &self.codes[first * m..(first + rows) * m];
                let weights = self.weights.map(|weights| &weights[first..]);
                isa::run(isa, AddUp { i, m, codes, vectors: &*buffer, column, sums, weights });
            });
            counter.add(rows as u64)?;
        }
        Ok(sums.into_shape_with_order((m * k, d)).expect("contiguous"))
    }
}

/// Adds to `sums` (K, width) the vectors that use each codeword of codebook `i`: their numbers from `column` on.
struct AddUp<'a> {
    i: usize,
    m: usize,
    codes: &'a [u8],
    vectors: &'a [f32],
    column: usize,
    sums: ArrayViewMut2<'a, f64>,
    weights: Option<&'a [f64]>,
}

impl Kernel for AddUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        let Self { i, m, codes, vectors, column, mut sums, weights } = self;
        let codes = codes.chunks_exact(m);
        let (width, d) = (sums.ncols(), vectors.len() / codes.len());
        for (r, (code, x)) in codes.zip(vectors.chunks_exact(d)).enumerate() {
            let mut sum = sums.row_mut(usize::from(code[i]));
            let sum = sum.as_slice_mut().expect("rows are contiguous");
            let weight = weights.map_or(1.0, |weights| weights[r]);
            for (sum, &x) in sum.iter_mut().zip(&x[column..column + width]) {
                *sum += weight * f64::from(x);
            }
        }
    }
}

/// Ranges of at most [`WIDTH`] columns, each with the number of its first column.
fn split_columns(mut rest: ArrayViewMut2<'_, f64>) -> Vec<(usize, ArrayViewMut2<'_, f64>)> {
    let mut stretches = Vec::new();
    let mut column = 0;
    while rest.ncols() > WIDTH {
        let (stretch, more) = rest.split_at(Axis(1), WIDTH);
        stretches.push((column, stretch));
        rest = more;
        column += WIDTH;
    }
    stretches.push((column, rest));
    stretches
}
