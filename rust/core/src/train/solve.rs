//! Solving the update's linear system, for programs without the Python layer (which uses numpy's LAPACK).
//!
//! B Bᵀ is always singular: shifting one codebook by a vector and another by its negative changes no sum, so its rank is
//! at most M·K − M + 1, and less where codewords are unused. A *proximal* ridge λ‖D − D₀‖² picks the solution nearest
//! the codebooks D₀ at hand; a ridge toward zero would shrink rarely used codewords and ruin long vectors. With it the
//! matrix is positive definite, so an unpivoted Cholesky decomposition is enough, and this crate offers its own rather
//! than ask every user for a LAPACK.

use crate::error::{Result, invalid};
use crate::train::equations::NormalEquations;
use ndarray::{Array2, ArrayView2, s};

/// Rows decomposed at once: the rest of the work is products of matrices.
const BLOCK: usize = 64;

/// The D that minimises ‖X − D B‖² + λ‖D − D₀‖², both (M·K, d), where λ is `ridge` times the mean diagonal entry of
/// B Bᵀ.
///
/// # Errors
/// `ridge` is not above 0, shapes that do not fit, or a system that is not positive definite even so.
pub fn solve_proximal(
    equations: &NormalEquations,
    previous: ArrayView2<'_, f64>,
    ridge: f64,
) -> Result<Array2<f64>> {
    let n = equations.a.nrows();
    if !(ridge > 0.0 && ridge.is_finite()) {
        return Err(invalid!("ridge is {ridge}: want a finite number above 0"));
    }
    if previous.dim() != equations.b.dim() {
        return Err(invalid!("previous has shape {:?}, b has {:?}", previous.dim(), equations.b.dim()));
    }
    let mut a = equations.a.clone();
    let mean = a.diag().sum() / n as f64;
    let lambda = ridge * if mean > 0.0 { mean } else { 1.0 };
    a.diag_mut().iter_mut().for_each(|entry| *entry += lambda);
    // Solving for the change D − D₀ loses fewer digits than solving for D.
    let mut change = &equations.b - &equations.a.dot(&previous);
    cholesky(&mut a)?;
    solve_triangular(&a, &mut change);
    Ok(change + previous)
}

/// Replaces the lower triangle of a symmetric positive definite matrix by L with L Lᵀ = A.
fn cholesky(a: &mut Array2<f64>) -> Result<()> {
    let n = a.nrows();
    for first in (0..n).step_by(BLOCK) {
        let last = n.min(first + BLOCK);
        // The block column, less what the columns before contribute.
        if first > 0 {
            let (before, mut here) = a.multi_slice_mut((s![first.., ..first], s![first.., first..last]));
            let product = before.dot(&before.slice(s![..last - first, ..]).t());
            here -= &product;
        }
        for j in first..last {
            for i in j..n {
                let sum: f64 = (first..j).map(|p| a[[i, p]] * a[[j, p]]).sum();
                let value = a[[i, j]] - sum;
                if i == j && !(value > 0.0 && value.is_finite()) {
                    return Err(invalid!(
                        "the normal equations are not positive definite; a larger ridge helps"
                    ));
                }
                a[[i, j]] = if i == j { value.sqrt() } else { value / a[[j, j]] };
            }
        }
    }
    Ok(())
}

/// Replaces `b` by the solution of L Lᵀ D = b.
fn solve_triangular(l: &Array2<f64>, b: &mut Array2<f64>) {
    let n = l.nrows();
    for i in 0..n {
        let (solved, mut row) = b.multi_slice_mut((s![..i, ..], s![i, ..]));
        row -= &l.slice(s![i, ..i]).dot(&solved);
        row /= l[[i, i]];
    }
    for i in (0..n).rev() {
        let (solved, mut row) = b.multi_slice_mut((s![i + 1.., ..], s![i, ..]));
        row -= &l.slice(s![i + 1.., i]).dot(&solved);
        row /= l[[i, i]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_solution_is_stationary() {
        for n in [1, 5, BLOCK, 2 * BLOCK + 3] {
            let factor = Array2::from_shape_fn((n, n), |(i, j)| ((i * 13 + j * 7) % 19) as f64 / 19.0 - 0.4);
            let a = factor.dot(&factor.t());
            let b = Array2::from_shape_fn((n, 2), |(i, j)| (i + j) as f64);
            let previous = Array2::from_shape_fn((n, 2), |(i, j)| (i as f64 - j as f64).sin());
            let lambda = 0.1 * a.diag().sum() / n as f64;
            let equations = NormalEquations { a, b };
            let d = solve_proximal(&equations, previous.view(), 0.1).unwrap();
            let gradient = equations.a.dot(&d) - &equations.b + lambda * (&d - &previous);
            assert!(gradient.iter().all(|g| g.abs() < 1e-8), "n = {n}: {gradient}");
        }
    }

    #[test]
    fn refuses_a_ridge_that_cannot_help() {
        let equations = NormalEquations { a: Array2::eye(1), b: Array2::zeros((1, 1)) };
        assert!(solve_proximal(&equations, Array2::zeros((1, 1)).view(), 0.0).is_err());
    }
}
