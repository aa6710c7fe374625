//! A few steps of conjugate gradients, for a system that is too large to be solved directly: (A + λ) D = b with (p, d)
//! unknowns. A couples the columns of D and is only ever applied.

use crate::error::Result;
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;

/// The number of steps: they go as far from the start as training can use before codes change again.
const STEPS: usize = 8;
/// Rows of the dense product per task: constant, so that bits do not depend on the number of threads.
const ROWS: usize = 128;

/// A D = b, with a proximal term λ‖D − D₀‖².
pub(crate) struct System<'a> {
    /// A D.
    pub(crate) apply: &'a dyn Fn(&Array2<f64>) -> Result<Array2<f64>>,
    /// b, (p, d).
    pub(crate) b: Array2<f64>,
    /// The approximate diagonal of A, (p).
    pub(crate) diagonal: Array1<f64>,
    /// λ.
    pub(crate) lambda: f64,
}

impl System<'_> {
    /// A better D than `start`, D₀; never worse except by rounding.
    pub(crate) fn descend(self, start: Array2<f64>) -> Result<Array2<f64>> {
        let Self { apply, b, diagonal, lambda } = self;
        let diagonal = (diagonal + lambda).insert_axis(Axis(1));
        let mut residual = b - apply(&start)?;
        let mut change = Array2::zeros(start.raw_dim());
        let mut direction = &residual / &diagonal;
        let mut product = inner(&residual, &direction);
        for _ in 0..STEPS {
            if product <= 0.0 {
                break;
            }
            let mut image = apply(&direction)?;
            image.scaled_add(lambda, &direction);
            let step = product / inner(&direction, &image);
            change.scaled_add(step, &direction);
            residual.scaled_add(-step, &image);
            let preconditioned = &residual / &diagonal;
            let next = inner(&residual, &preconditioned);
            direction = preconditioned + (next / product) * direction;
            product = next;
        }
        Ok(start + change)
    }
}

/// A P in f32, for A (p, p) and P (p, d), on all threads.
///
/// # Panics
/// If the shapes do not fit.
#[must_use]
pub fn multiply(a: ArrayView2<'_, f32>, p: ArrayView2<'_, f64>) -> Array2<f64> {
    let p = p.mapv(|entry| entry as f32);
    let mut out = Array2::zeros((a.nrows(), p.ncols()));
    let blocks: Vec<_> = out.axis_chunks_iter_mut(Axis(0), ROWS).enumerate().collect();
    blocks.into_par_iter().for_each(|(i, mut out)| {
        let product = a.slice(s![i * ROWS..i * ROWS + out.nrows(), ..]).dot(&p);
        out.zip_mut_with(&product, |out, &entry| *out = f64::from(entry));
    });
    out
}

fn inner(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    let mut sum = 0.0;
    Zip::from(a).and(b).for_each(|a, b| sum += a * b);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_system_is_solved() {
        let factor = Array2::from_shape_fn((5, 5), |(i, j)| {
            ((i * 13 + j * 7) % 19) as f64 / 19.0 + f64::from(u8::from(i == j))
        });
        let (a, b) = (factor.dot(&factor.t()), Array2::from_shape_fn((5, 2), |(i, j)| (i + j) as f64));
        let apply = |p: &Array2<f64>| Ok(a.dot(p) + p * 0.5);
        let diagonal = &a.diag() + 0.5;
        let system = System { apply: &apply, b: b.clone(), diagonal, lambda: 0.0 };
        let d = system.descend(Array2::zeros((5, 2))).unwrap();
        let left = a.dot(&d) + 0.5 * &d - b;
        assert!(left.iter().all(|value| value.abs() < 1e-3), "{left}");
    }
}
