//! Systems of linear equations, for programs without the Python layer (which uses numpy's LAPACK): an unpivoted
//! Cholesky decomposition is all that least squares with a proximal term need, so there is no reason to make every user
//! install a LAPACK.

use crate::error::{Result, invalid};
use crate::monitor::Monitor;
use ndarray::{Array2, Axis, s};
use rayon::prelude::*;

/// Rows decomposed at once: the rest of the work is matrix products.
const BLOCK: usize = 64;
/// Rows computed per task, and columns of the right-hand side solved per task: constant, so that bits do not depend on
/// the number of threads.
const ROWS: usize = 64;
const COLUMNS: usize = 16;

/// Solves A D = b, (p, p) and (p, d), for a symmetric positive definite A, which is overwritten.
///
/// # Errors
/// A is not positive definite, or the monitor cancels.
pub(crate) fn solve(mut a: Array2<f64>, b: &mut Array2<f64>, monitor: &dyn Monitor) -> Result<()> {
    decompose(&mut a, monitor)?;
    let mut columns: Vec<_> = b.axis_chunks_iter_mut(Axis(1), COLUMNS).collect();
    columns.par_iter_mut().try_for_each(|columns| {
        let mut own = columns.to_owned();
        solve_triangular(&a, &mut own);
        columns.assign(&own);
        monitor.report(0, 1)
    })
}

/// Replaces the lower triangle of a symmetric positive definite matrix by L with L Lᵀ = A.
fn decompose(a: &mut Array2<f64>, monitor: &dyn Monitor) -> Result<()> {
    let n = a.nrows();
    for first in (0..n).step_by(BLOCK) {
        let last = n.min(first + BLOCK);
        let (before, mut rest) = a.multi_slice_mut((s![first.., ..first], s![first.., first..last]));
        // The block column, minus the contribution of the columns before it.
        if first > 0 {
            let head = before.slice(s![..last - first, ..]);
            let tasks = rest.axis_chunks_iter_mut(Axis(0), ROWS).zip(before.axis_chunks_iter(Axis(0), ROWS));
            let tasks: Vec<_> = tasks.collect();
            tasks.into_par_iter().for_each(|(mut rows, before)| rows -= &before.dot(&head.t()));
        }
        let (mut corner, mut below) = rest.split_at(Axis(0), last - first);
        for j in 0..last - first {
            for i in j..last - first {
                let sum: f64 = (0..j).map(|p| corner[[i, p]] * corner[[j, p]]).sum();
                let value = corner[[i, j]] - sum;
                if i == j && !(value > 0.0 && value.is_finite()) {
                    return Err(invalid!(
                        "the normal equations are not positive definite; a larger ridge helps"
                    ));
                }
                corner[[i, j]] = if i == j { value.sqrt() } else { value / corner[[j, j]] };
            }
        }
        let corner = corner.view();
        let tasks: Vec<_> = below.axis_chunks_iter_mut(Axis(0), ROWS).collect();
        tasks.into_par_iter().for_each(|mut rows| {
            for mut row in rows.outer_iter_mut() {
                for j in 0..corner.nrows() {
                    let sum: f64 = (0..j).map(|p| row[p] * corner[[j, p]]).sum();
                    row[j] = (row[j] - sum) / corner[[j, j]];
                }
            }
        });
        monitor.report(0, n as u64)?;
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
    fn the_solution_solves() {
        for n in [1, 5, BLOCK, 2 * BLOCK + 3] {
            let factor = Array2::from_shape_fn((n, n), |(i, j)| ((i * 13 + j * 7) % 19) as f64 / 19.0 - 0.4);
            let a = factor.dot(&factor.t()) + Array2::<f64>::eye(n);
            let b = Array2::from_shape_fn((n, COLUMNS + 2), |(i, j)| (i + j) as f64);
            let mut d = b.clone();
            solve(a.clone(), &mut d, &()).unwrap();
            let left = a.dot(&d) - b;
            assert!(left.iter().all(|value| value.abs() < 1e-7), "n = {n}: {left}");
        }
    }

    #[test]
    fn refuses_what_is_not_positive_definite() {
        assert!(solve(-Array2::<f64>::eye(3), &mut Array2::zeros((3, 1)), &()).is_err());
    }
}
