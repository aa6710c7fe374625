//! The system of the update for the inner-product loss: its left side is applied to codebooks, and never assembled.

use super::coded::Codes;
use super::equations::rounded;
use crate::codebooks::Codebooks;
use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::{Array1, Array2, ArrayView2};

/// What solving a system that is only applied requires: the diagonal of A, and b. If the M codebooks are one, they are
/// those of its K codewords.
///
/// # Errors
/// The errors of [`NormalEquations::assemble`](super::equations::NormalEquations::assemble).
pub fn sides(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    weights: Option<&[f64]>,
    shared: bool,
    monitor: &dyn Monitor,
) -> Result<(Array1<f64>, Array2<f64>)> {
    let codes = codes.as_standard_layout();
    let codes = Codes::new(x, codes.view(), n_codewords, weights)?;
    let b = codes.sums(x, monitor)?;
    Ok((codes.diagonal(shared), if shared { codes.added(b) } else { b }))
}

/// (A + β E) P: Σ w b (p̄ + β u⟨u, p̄⟩)ᵀ over the vectors of `x` (n, d), where p̄ is the sum of a vector's code in `p`
/// (M·K, d), or (K, d) for a shared codebook, u its direction, and β = η − 1 is `extra`: the left side of the update
/// for the inner-product loss.
///
/// The term along x couples all dimensions, M·K·d unknowns at once, so the matrix is never assembled: P is decoded for
/// every vector and the products are scattered back. A P costs only one more addition here; multiplying by A would take
/// longer unless there are millions of vectors.
///
/// # Errors
/// The errors of [`NormalEquations::assemble`](super::equations::NormalEquations::assemble), or `p` has a different
/// shape.
pub fn apply(
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    n_codewords: usize,
    weights: Option<&[f64]>,
    extra: f64,
    p: ArrayView2<'_, f64>,
    monitor: &dyn Monitor,
) -> Result<Array2<f64>> {
    let (m, k, d) = (codes.ncols(), n_codewords, x.dim());
    if p.ncols() != d {
        return Err(argument!("p", "has shape {:?}, X has {d} dimensions", p.dim()));
    }
    // A power of two, which changes no digit: `p` is a direction whose size may be beyond f32.
    let largest = p.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let unit = if largest.is_normal() { largest.log2().floor().exp2() } else { 1.0 };
    let books = rounded(p.mapv(|value| (value / unit) as f32), m, k)?;
    let codes = codes.as_standard_layout();
    let codes = Codes::new(x, codes.view(), k, weights)?;
    let image = Image { x, codes: codes.codes, books: &books, extra, isa: Isa::current()? };
    let sums = codes.sums(&image, monitor)? * unit;
    Ok(if p.nrows() == m * k { sums } else { codes.added(sums) })
}

/// p̄ + β u⟨u, p̄⟩ for each vector.
struct Image<'a> {
    x: &'a dyn Vectors,
    codes: &'a [u8],
    books: &'a Codebooks,
    extra: f64,
    isa: Isa,
}

impl Vectors for Image<'_> {
    fn n(&self) -> usize {
        self.x.n()
    }

    fn dim(&self) -> usize {
        self.x.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        self.x.numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.x.read(first, out);
        isa::run(self.isa, Imaged { image: self, first, out });
    }
}

/// Turns vectors, starting at number `first`, into their images.
struct Imaged<'a> {
    image: &'a Image<'a>,
    first: usize,
    out: &'a mut [f32],
}

impl Kernel for Imaged<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        let Image { books, codes, extra, .. } = self.image;
        let (d, m) = (books.dim(), books.n_codebooks());
        let mut sum = vec![0.0f32; d];
        for (x, code) in self.out.chunks_exact_mut(d).zip(codes[self.first * m..].chunks_exact(m)) {
            sum.fill(0.0);
            for (book, &k) in code.iter().enumerate() {
                for (s, c) in sum.iter_mut().zip(books.codeword(book, usize::from(k))) {
                    *s += c;
                }
            }
            let [product, square] = products(x, &sum);
            let share = if square > 0.0 { extra * product / square } else { 0.0 };
            // NaN stays NaN, and is rejected.
            for (x, &s) in x.iter_mut().zip(&sum) {
                *x = (f64::from(s) + share * f64::from(*x)) as f32;
            }
        }
    }
}

/// ⟨x, y⟩ and ‖x‖²: eight partial sums each, to avoid one long chain of additions.
#[inline(always)]
fn products(x: &[f32], y: &[f32]) -> [f64; 2] {
    let (mut along, mut square) = ([0.0f64; 8], [0.0f64; 8]);
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<8>(), y.as_chunks::<8>());
    for (x, y) in x.iter().zip(y) {
        for l in 0..8 {
            along[l] += f64::from(x[l]) * f64::from(y[l]);
            square[l] += f64::from(x[l]) * f64::from(x[l]);
        }
    }
    for (l, (&x, &y)) in x_rest.iter().zip(y_rest).enumerate() {
        along[l] += f64::from(x) * f64::from(y);
        square[l] += f64::from(x) * f64::from(x);
    }
    [along.iter().sum(), square.iter().sum()]
}

#[cfg(test)]
mod tests {
    use super::super::equations::NormalEquations;
    use super::*;
    use ndarray::s;

    #[test]
    fn applied_to_codebooks_it_is_the_dense_product_and_the_term_along() {
        let x = Array2::from_shape_fn((100, 3), |(i, j)| ((i * 7 + j * 11) % 17) as f32 - 8.0);
        let codes = Array2::from_shape_fn((100, 2), |(i, j)| ((i * (j + 2)) % 5) as u8);
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
}
