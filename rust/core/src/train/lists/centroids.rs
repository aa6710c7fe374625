//! The centroids of lists, given the list of each vector.

use crate::encode::Loss;
use crate::error::{Result, argument};
use crate::monitor::{Counter, Monitor};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// Steps of conjugate gradients for a centroid if the loss is not the squared error: they start from the mean, and each
/// list's matrix is the identity plus a few directions.
const STEPS: usize = 16;

/// The centroids (n, d) of least loss for the vectors in their lists, by weight; those of lists without vectors stay.
///
/// For the squared error they are means. With η they satisfy Σ w W c = η Σ w x, W = I + (η − 1) uuᵀ, u = x / ‖x‖.
///
/// # Errors
/// Shapes that do not fit, a row that is not finite, or the monitor cancels.
pub fn centroids(
    x: &dyn Vectors,
    lists: &[u32],
    previous: ArrayView2<'_, f32>,
    loss: Loss,
    weights: Option<&[f64]>,
    monitor: &dyn Monitor,
) -> Result<Array2<f32>> {
    let (n_lists, dim) = previous.dim();
    check_dim(x, "X", dim)?;
    let fits = |len: usize| len == x.n();
    if !fits(lists.len()) || !weights.is_none_or(|weights| fits(weights.len())) {
        return Err(argument!("lists", "are {} for {} vectors", lists.len(), x.n()));
    }
    let mut members = vec![Vec::new(); n_lists];
    for (row, &list) in lists.iter().enumerate() {
        let Some(members) = members.get_mut(list as usize) else {
            return Err(argument!("lists", "hold {list}: want below {n_lists}"));
        };
        members.push(row);
    }
    let counter = Counter::new(monitor, x.n() as u64);
    let mut centroids = previous.as_standard_layout().into_owned();
    let rows = centroids.as_slice_mut().expect("standard layout").par_chunks_mut(dim).zip(&members);
    let failed = rows
        .map(|(centroid, members)| {
            let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
            let mut own = List { dim, vectors: vec![0.0; members.len() * dim], shares: Vec::new() };
            for (&row, vector) in members.iter().zip(own.vectors.chunks_exact_mut(dim)) {
                read_finite(x, "X", row, vector)?;
                let square: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                own.shares.push((
                    weight(row),
                    if square > 0.0 { loss.extra() * weight(row) / square } else { 0.0 },
                ));
            }
            own.update(centroid, loss.eta());
            counter.add(members.len() as u64)
        })
        .find_first(Result::is_err);
    failed.unwrap_or(Ok(())).map(|()| centroids)
}

/// The vectors of a list, with w and w (η − 1) / ‖x‖² for each.
struct List {
    dim: usize,
    vectors: Vec<f32>,
    shares: Vec<(f64, f64)>,
}

impl List {
    fn update(&self, centroid: &mut [f32], eta: f64) {
        let total: f64 = self.shares.iter().map(|(weight, _)| weight).sum();
        if total <= 0.0 {
            return;
        }
        let mut sum = vec![0.0; self.dim];
        for (vector, (weight, _)) in self.vectors.chunks_exact(self.dim).zip(&self.shares) {
            sum.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += weight * f64::from(x));
        }
        let mut solution: Vec<f64> = sum.iter().map(|sum| sum / total).collect();
        if eta > 1.0 {
            let right: Vec<f64> = sum.iter().map(|sum| sum * eta).collect();
            self.solve(total, &right, &mut solution);
        }
        let is_finite = solution.iter().all(|&value| (value as f32).is_finite());
        if is_finite {
            centroid.iter_mut().zip(solution).for_each(|(c, value)| *c = value as f32);
        }
    }

    /// Solves Σ w (I + (η − 1) uuᵀ) c = right by conjugate gradients.
    fn solve(&self, total: f64, right: &[f64], solution: &mut [f64]) {
        let apply = |p: &[f64]| {
            let mut out: Vec<f64> = p.iter().map(|p| total * p).collect();
            for (vector, (_, share)) in self.vectors.chunks_exact(self.dim).zip(&self.shares) {
                let along = vector.iter().zip(p).map(|(&x, p)| f64::from(x) * p).sum::<f64>() * share;
                out.iter_mut().zip(vector).for_each(|(out, &x)| *out += along * f64::from(x));
            }
            out
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let start = apply(solution);
        let mut residual: Vec<f64> = right.iter().zip(start).map(|(right, start)| right - start).collect();
        let mut direction = residual.clone();
        let (mut product, enough) = (dot(&residual, &residual), 1e-12 * dot(right, right));
        for _ in 0..STEPS {
            if product <= enough {
                return;
            }
            let image = apply(&direction);
            let step = product / dot(&direction, &image);
            for j in 0..self.dim {
                solution[j] += step * direction[j];
                residual[j] -= step * image[j];
            }
            let before = std::mem::replace(&mut product, dot(&residual, &residual));
            direction.iter_mut().zip(&residual).for_each(|(p, r)| *p = r + product / before * *p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn centroids_have_the_least_loss() {
        let x = array![[1.0f32, 0.0], [3.0, 1.0], [0.0, 5.0], [2.0, 2.0]];
        let previous = array![[9.0f32, 9.0], [8.0, 8.0], [7.0, 7.0]];
        let weights = [1.0, 2.0, 1.0, 0.5];
        let lists = [0, 0, 2, 0];
        let of = |loss| centroids(&x.view(), &lists, previous.view(), loss, Some(&weights), &()).unwrap();
        let means = of(Loss::RECONSTRUCTION);
        assert_eq!(means, array![[8.0 / 3.5, 3.0 / 3.5], [8.0, 8.0], [0.0, 5.0]]);
        let loss = Loss::inner_product(6.0).unwrap();
        let best = of(loss);
        let total = |c: [f64; 2]| -> f64 {
            [0, 1, 3]
                .iter()
                .map(|&i| {
                    let (x, y) = (f64::from(x[[i, 0]]), f64::from(x[[i, 1]]));
                    let (r, s) = (x - c[0], y - c[1]);
                    weights[i] * (r * r + s * s + 5.0 * (r * x + s * y).powi(2) / (x * x + y * y))
                })
                .sum()
        };
        let c = [f64::from(best[[0, 0]]), f64::from(best[[0, 1]])];
        for (dx, dy) in [(0.01, 0.0), (-0.01, 0.0), (0.0, 0.01), (0.0, -0.01)] {
            assert!(total(c) < total([c[0] + dx, c[1] + dy]));
        }
        assert_eq!(best.row(1), previous.row(1));
        assert!(centroids(&x.view(), &[0, 0, 3, 0], previous.view(), loss, None, &()).is_err());
    }
}
