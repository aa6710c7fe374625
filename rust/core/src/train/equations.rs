//! The update of the codebooks: least squares. With B the (M·K × n) matrix of which codewords each vector uses, the best
//! codebooks solve D (B Bᵀ) = X Bᵀ. Here the two sides are assembled; solving them is a step of its own.
//!
//! Both sides are sums over vectors, so those of shards add up to those of the whole.

use crate::codebooks::{Codebooks, MAX_CODEWORDS, MAX_TOGETHER};
use crate::error::{Result, invalid};
use crate::linalg::cholesky;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::train::weights::check_weights;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array1, Array2, Array3, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;

/// Vectors brought into the cache for all M codebooks to add up: 2 MB at d = 128.
const CHUNK: usize = 4096;
/// Dimensions that one task adds up, so that few codebooks still occupy all threads.
const WIDTH: usize = 64;

/// The two sides of the update's linear system.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalEquations {
    /// B Bᵀ, (M·K, M·K): how often (by weight) two codewords occur together.
    pub a: Array2<f64>,
    /// The transpose of X Bᵀ, (M·K, d): the sum of the vectors that use a codeword.
    pub b: Array2<f64>,
}

impl NormalEquations {
    /// Assembles both sides from `x` (n, d) and `codes` (n, M) below `n_codewords`, rows weighted by `weights` (n) if
    /// given. Every entry is summed in the order of the rows, whatever the number of threads.
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
        check(x, codes, n_codewords, weights)?;
        let codes = codes.as_standard_layout();
        let codes = Codes::new(codes.view(), n_codewords, weights);
        let a = codes.co_occurrences(monitor)?;
        let b = codes.sums(x, monitor)?;
        Ok(Self { a, b })
    }

    /// The same for M equal codebooks: their K codewords, used as often as all M together are.
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

    /// A pull of every codeword toward the mean of its codebook, of a weight in the unit of the diagonal of A: vectors.
    /// The unknowns are now `previous` (M·K, d).
    ///
    /// The mean is weighted by use; it may be anything, since a shift of one codebook against another changes no sum.
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
    /// B Bᵀ is always singular: shifting one codebook by a vector and another by its negative changes no sum, so its rank
    /// is at most M·K − M + 1, and less where codewords are unused. The *proximal* term picks the solution nearest the
    /// codebooks at hand; a ridge toward zero would shrink rarely used codewords and ruin long vectors.
    ///
    /// # Errors
    /// `ridge` is not above 0, shapes that do not fit, a system that is not positive definite even so, or a cancelling
    /// monitor.
    pub fn solve(
        mut self,
        previous: ArrayView2<'_, f64>,
        ridge: f64,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f64>> {
        if !(ridge > 0.0 && ridge.is_finite()) {
            return Err(invalid!("ridge is {ridge}: want a finite number above 0"));
        }
        if previous.dim() != self.b.dim() {
            return Err(invalid!("previous has shape {:?}, b has {:?}", previous.dim(), self.b.dim()));
        }
        let lambda = self.lambda(ridge);
        // Solving for the change D − D₀ loses fewer digits than solving for D.
        let mut change = &self.b - &self.a.dot(&previous);
        self.a.diag_mut().iter_mut().for_each(|entry| *entry += lambda);
        cholesky::solve(self.a, &mut change, monitor)?;
        Ok(change + previous)
    }

    /// Adds another shard's sums.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn add(&mut self, other: &Self) {
        self.a += &other.a;
        self.b += &other.b;
    }
}

/// What a pull of `weight` toward the mean of each codebook adds to the right side: see [`NormalEquations::pull`].
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

/// (X Bᵀ)ᵀ, (M·K, d), alone: the sum of the vectors (n, d) that use a codeword.
///
/// # Errors
/// Those of [`NormalEquations::assemble`].
pub fn sums(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    monitor: &dyn Monitor,
) -> Result<Array2<f64>> {
    check(x, codes, n_codewords, None)?;
    let codes = codes.as_standard_layout();
    Codes::new(codes.view(), n_codewords, None).sums(x, monitor)
}

/// Whether vectors, codes and weights fit each other.
fn check(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    weights: Option<&[f64]>,
) -> Result<()> {
    if codes.nrows() != x.n() {
        return Err(invalid!("codes have {} rows, X has {}", codes.nrows(), x.n()));
    }
    if !(1..=MAX_TOGETHER).contains(&codes.ncols()) {
        return Err(invalid!("codes have {} columns: want 1 to {MAX_TOGETHER}", codes.ncols()));
    }
    if !(1..=MAX_CODEWORDS).contains(&n_codewords) {
        return Err(invalid!("n_codewords is {n_codewords}: want 1 to {MAX_CODEWORDS}"));
    }
    if let Some(((row, _), code)) = codes.indexed_iter().find(|&(_, &code)| usize::from(code) >= n_codewords)
    {
        return Err(invalid!("codes row {row} names codeword {code}, there are {n_codewords}"));
    }
    check_weights(x, weights)?;
    Ok(())
}

/// Codebooks as the unknowns of the equations, one codeword a row; the first alone where they are `shared`.
#[must_use]
pub fn unknowns(codebooks: &Codebooks, shared: bool) -> Array2<f64> {
    let (m, k, d) = codebooks.view().dim();
    let books = if shared { 1 } else { m };
    let unknowns = codebooks.view().slice_move(s![..books, .., ..]).mapv(f64::from);
    unknowns.into_shape_with_order((books * k, d)).expect("contiguous")
}

/// The reverse of [`unknowns`]: `m` codebooks of `k` codewords from m·k rows, or from k of a shared one.
///
/// # Errors
/// Another number of rows, or a value beyond f32.
pub fn codebooks(unknowns: &Array2<f64>, m: usize, k: usize) -> Result<Codebooks> {
    rounded(unknowns.mapv(|value| value as f32), m, k)
}

fn rounded(unknowns: Array2<f32>, m: usize, k: usize) -> Result<Codebooks> {
    let (rows, d) = unknowns.dim();
    if rows != k && rows != m * k {
        return Err(invalid!("unknowns have {rows} rows, there are {m} codebooks of {k} codewords"));
    }
    if !unknowns.iter().all(|value| value.is_finite()) {
        return Err(invalid!("X holds values too large for training in float32: scale it down"));
    }
    let books = unknowns.into_shape_with_order((rows / k, k, d)).expect("contiguous");
    if rows == m * k {
        return Codebooks::new(books);
    }
    Codebooks::new(books.broadcast((m, k, d)).expect("one codebook").to_owned())
}

/// What a system that is only applied is solved with: the diagonal of A, and b. Where the M codebooks are one they are
/// those of its K codewords.
///
/// # Errors
/// Those of [`NormalEquations::assemble`].
pub fn sides(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    weights: Option<&[f64]>,
    shared: bool,
    monitor: &dyn Monitor,
) -> Result<(Array1<f64>, Array2<f64>)> {
    check(x, codes, n_codewords, weights)?;
    let codes = codes.as_standard_layout();
    let codes = Codes::new(codes.view(), n_codewords, weights);
    let b = codes.sums(x, monitor)?;
    Ok((codes.diagonal(shared), if shared { codes.added(b) } else { b }))
}

/// (A + β E) P: Σ w b (p̄ + β u⟨u, p̄⟩)ᵀ over the vectors of `x` (n, d), where p̄ is what a vector's code sums up to in
/// `p` (M·K, d), or (K, d) of a shared codebook, u its direction, and `extra` is β = η − 1: the left side of the update
/// for the inner-product loss.
///
/// The term along x ties all dimensions together, M·K·d unknowns at once, so it is never assembled: it decodes P for every
/// vector and scatters the products back. A P comes with it for one addition more; multiplying with A would take longer
/// for all but millions of vectors.
///
/// # Errors
/// Those of [`NormalEquations::assemble`], or `p` has another shape.
pub fn apply(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    weights: Option<&[f64]>,
    extra: f64,
    p: ArrayView2<'_, f64>,
    monitor: &dyn Monitor,
) -> Result<Array2<f64>> {
    check(x, codes, n_codewords, weights)?;
    let (m, k, d) = (codes.ncols(), n_codewords, x.dim());
    if p.ncols() != d {
        return Err(invalid!("p has shape {:?}, X has {d} dimensions", p.dim()));
    }
    // A power of two, which changes no digit: `p` is a direction whose size can be beyond f32.
    let largest = p.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let unit = if largest.is_normal() { largest.log2().floor().exp2() } else { 1.0 };
    let books = rounded(p.mapv(|value| (value / unit) as f32), m, k)?;
    let codes = codes.as_standard_layout();
    let codes = Codes::new(codes.view(), k, weights);
    let sums = codes.sums(&Image { x, codes: codes.codes, books: &books, extra }, monitor)? * unit;
    Ok(if p.nrows() == m * k { sums } else { codes.added(sums) })
}

/// p̄ + β u⟨u, p̄⟩ of each vector.
struct Image<'a> {
    x: &'a dyn Vectors,
    codes: &'a [u8],
    books: &'a Codebooks,
    extra: f64,
}

impl Vectors for Image<'_> {
    fn n(&self) -> usize {
        self.x.n()
    }

    fn dim(&self) -> usize {
        self.x.dim()
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let (d, m) = (self.dim(), self.books.n_codebooks());
        let mut sum = vec![0.0f32; d];
        self.x.read(first, out);
        let codes = self.codes[first * m..].chunks_exact(m);
        for (x, code) in out.chunks_exact_mut(d).zip(codes) {
            sum.fill(0.0);
            for (book, &k) in code.iter().enumerate() {
                sum.iter_mut().zip(self.books.codeword(book, usize::from(k))).for_each(|(s, c)| *s += c);
            }
            let [product, square] = products(x, &sum);
            let share = if square > 0.0 { self.extra * product / square } else { 0.0 };
            // What is no number stays that, and is refused.
            x.iter_mut().zip(&sum).for_each(|(x, &s)| *x = (f64::from(s) + share * f64::from(*x)) as f32);
        }
    }
}

/// ⟨x, y⟩ and ‖x‖²: eight sums each, so that neither is one long chain of additions.
fn products(x: &[f32], y: &[f32]) -> [f64; 2] {
    let mut sums = [[0.0f64; 8]; 2];
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for (l, (&x, &y)) in x.iter().zip(y).enumerate() {
            sums[0][l] += f64::from(x) * f64::from(y);
            sums[1][l] += f64::from(x) * f64::from(x);
        }
    }
    sums.map(|sums| sums.iter().sum())
}

/// Checked codes, row by row, and the rows' weights.
struct Codes<'a> {
    codes: &'a [u8],
    m: usize,
    k: usize,
    weights: Option<&'a [f64]>,
}

impl<'a> Codes<'a> {
    /// Of codes in standard layout.
    fn new(codes: ArrayView2<'a, u8>, k: usize, weights: Option<&'a [f64]>) -> Self {
        let m = codes.ncols();
        Self { codes: codes.to_slice().expect("standard layout"), m, k, weights }
    }

    /// The diagonal of A: how often, by weight, a codeword is used; a shared one with itself, each use with each.
    fn diagonal(&self, shared: bool) -> Array1<f64> {
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

    /// Sums (M·K, d) of a shared codebook, (K, d).
    fn added(&self, sums: Array2<f64>) -> Array2<f64> {
        let shape = (self.m, self.k, sums.ncols());
        sums.into_shape_with_order(shape).expect("contiguous").sum_axis(Axis(0))
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// B Bᵀ: a task for each pair of codebooks counts in a block of its own, which the L2 cache holds.
    fn co_occurrences(&self, monitor: &dyn Monitor) -> Result<Array2<f64>> {
        let (m, k) = (self.m, self.k);
        let pairs: Vec<_> = (0..m).flat_map(|i| (i..m).map(move |j| (i, j))).collect();
        let mut a = Array2::zeros((m * k, m * k));
        // A few pairs at a time: their blocks would otherwise be a second copy of the whole.
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

    /// (X Bᵀ)ᵀ: a task for each codebook and stretch of dimensions, chunk after chunk.
    fn sums(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<f64>> {
        let (m, k, d) = (self.m, self.k, x.dim());
        let counter = Counter::new(monitor, x.n() as u64);
        // Few rows where they are long, so that the buffer stays at tens of megabytes.
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
            tasks.into_par_iter().for_each(|(i, column, mut sums)| {
                let width = sums.ncols();
                let codes = self.codes[first * m..(first + rows) * m].chunks_exact(m);
                for (r, (code, x)) in codes.zip(buffer.chunks_exact(d)).enumerate() {
                    let mut sum = sums.row_mut(usize::from(code[i]));
                    let sum = sum.as_slice_mut().expect("rows are contiguous").iter_mut();
                    let x = sum.zip(&x[column..column + width]);
                    match self.weights {
                        None => x.for_each(|(sum, &x)| *sum += f64::from(x)),
                        Some(weights) => x.for_each(|(sum, &x)| *sum += weights[first + r] * f64::from(x)),
                    }
                }
            });
            counter.add(rows as u64)?;
        }
        Ok(sums.into_shape_with_order((m * k, d)).expect("contiguous"))
    }
}

/// Stretches of at most [`WIDTH`] columns, each with the first one's number.
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
    fn applied_to_codebooks_it_is_the_dense_product_and_the_term_along() {
        let (x, codes) = example();
        let weights: Vec<f64> = (0..100).map(|i| f64::from(i % 4)).collect();
        let p = Array2::from_shape_fn((10, 3), |(i, j)| ((i * 5 + j * 3) % 7) as f64 - 3.0);
        for (weights, shared) in [(None, false), (Some(&weights[..]), false), (Some(&weights[..]), true)] {
            let equations = NormalEquations::assemble(&x.view(), codes.view(), 5, weights, &()).unwrap();
            let equations = if shared { equations.shared(5) } else { equations };
            let p = if shared { p.slice(s![..5, ..]).to_owned() } else { p.clone() };
            let mut want = equations.a.dot(&p);
            for (row, (x, code)) in x.outer_iter().zip(codes.outer_iter()).enumerate() {
                let x = x.mapv(f64::from);
                let words =
                    code.indexed_iter().map(|(m, &k)| usize::from(k) + if shared { 0 } else { m * 5 });
                let words: Vec<usize> = words.collect();
                let sum = words.iter().fold(Array1::zeros(3), |sum, &word| sum + p.row(word));
                let weight = weights.map_or(1.0, |weights| weights[row]);
                if x.dot(&x) > 0.0 {
                    let share = 2.5 * weight * x.dot(&sum) / x.dot(&x);
                    words.iter().for_each(|&word| want.row_mut(word).scaled_add(share, &x));
                }
            }
            let got = apply(&x.view(), codes.view(), 5, weights, 2.5, p.view(), &()).unwrap();
            assert!((&got - &want).iter().all(|difference| difference.abs() < 1e-3), "{got} {want}");
            let (diagonal, b) = sides(&x.view(), codes.view(), 5, weights, shared, &()).unwrap();
            assert_eq!(diagonal, equations.a.diag());
            assert_eq!(b, equations.b);
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
