//! Mean and spread of the training vectors, which determine the scale of noise and shrinkage.

use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::weights::{check_weights, weighing};
use crate::vectors::basis::Directions;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array1, Array2, ArrayView1, Zip};

/// About this many rows determine mean and spread well enough.
const ROWS: usize = 20_000;
/// Rows that are summed separately.
const CHUNK: usize = 64;

/// The rows, out of `n`, that are examined, in order: fewer than 40,000 of those that have any weight.
#[must_use]
pub fn rows(n: usize, weights: Option<&[f64]>) -> Vec<usize> {
    let rows = weighing(n, weights);
    let step = (rows.len() / ROWS).max(1);
    rows.into_iter().step_by(step).collect()
}

/// Sums over some rows, from which mean and variance follow. Those of shards are merged.
#[derive(Clone, Debug)]
pub struct Moments {
    /// The number of rows that have any weight.
    pub rows: f64,
    /// Σ w over all rows.
    pub weight: f64,
    /// Σ w over the rows that were examined.
    seen: f64,
    mean: Array1<f64>,
    /// Σ w (x − mean)² over the rows that were examined.
    squares: Array1<f64>,
}

impl Moments {
    /// Computes the moments of `x` (n, d) from regularly spaced rows, about 20,000 in all; `weights` (n) are 1 if not
    /// given. With `directions`, they are those of the stretched vectors.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, or the monitor cancels.
    pub fn of(
        x: &dyn Vectors,
        weights: Option<&[f64]>,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        check_weights(x, weights)?;
        let stretched = directions.map(|directions| directions.stretched(x)).transpose()?;
        let x = stretched.as_ref().map_or(x, |stretched| stretched as &dyn Vectors);
        let (n, d) = (x.n(), x.dim());
        let rows = rows(n, weights);
        let mut moments = Self::none(d);
        moments.rows = weighing(n, weights).len() as f64;
        moments.weight = weights.map_or(n as f64, |weights| weights.iter().sum());
        let mut buffer = Array2::<f32>::zeros((CHUNK, d));
        for rows in rows.chunks(CHUNK) {
            for (mut x_row, &row) in buffer.outer_iter_mut().zip(rows) {
                read_finite(x, "X", row, x_row.as_slice_mut().expect("contiguous"))?;
            }
            let weight = |i: usize| weights.map_or(1.0, |weights| weights[rows[i]]);
            moments.add(buffer.outer_iter().take(rows.len()).enumerate().map(|(i, x)| (x, weight(i))));
            monitor.report(0, n as u64)?;
        }
        Ok(moments)
    }

    /// Merges the moments of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.weight += other.weight;
        if other.seen <= 0.0 {
            return;
        }
        // Chan et al., 1979: avoids differences of large squares.
        let seen = self.seen + other.seen;
        let between = self.seen * (other.seen / seen);
        Zip::from(&mut self.squares).and(&other.squares).and(&self.mean).and(&other.mean).for_each(
            |squares, other, mean, other_mean| *squares += other + between * (other_mean - mean).powi(2),
        );
        let share = other.seen / seen;
        self.mean.zip_mut_with(&other.mean, |mean, other| *mean += share * (other - *mean));
        self.seen = seen;
    }

    /// Mean weight of the rows that have any.
    #[must_use]
    pub fn mean_weight(&self) -> f64 {
        self.weight / self.rows
    }

    /// Standard deviation of each dimension, (d).
    #[must_use]
    pub fn deviation(&self) -> Array1<f64> {
        self.squares.mapv(|square| if self.seen > 0.0 { (square / self.seen).sqrt() } else { 0.0 })
    }

    /// Mean squared distance to the mean: the sum of the dimensions' variances.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.seen > 0.0 { self.squares.sum() / self.seen } else { 0.0 }
    }

    fn none(d: usize) -> Self {
        let zeros = Array1::zeros(d);
        Self { rows: 0.0, weight: 0.0, seen: 0.0, mean: zeros.clone(), squares: zeros }
    }

    /// Adds rows and their weights.
    fn add<'a>(&mut self, rows: impl Iterator<Item = (ArrayView1<'a, f32>, f64)> + Clone) {
        let mut part = Self::none(self.mean.len());
        part.seen = rows.clone().map(|(_, weight)| weight).sum();
        if part.seen <= 0.0 {
            return;
        }
        for (x, weight) in rows.clone() {
            part.mean.zip_mut_with(&x, |mean, &x| *mean += weight / part.seen * f64::from(x));
        }
        for (x, weight) in rows {
            Zip::from(&mut part.squares)
                .and(&x)
                .and(&part.mean)
                .for_each(|square, &x, mean| *square += weight * (f64::from(x) - mean).powi(2));
        }
        self.merge(&part);
    }
}

/// Weight of the pull of codewords to the mean of their codebook, in the unit of the diagonal of A.
///
/// If codewords are normally distributed about the mean, and residuals are too, the best weight is the ratio of two
/// variances: that of the residuals (`objective`, the mean loss) and what one of M codebooks holds (an M-th of
/// `variance`, the data's). The pull is `shrinkage` times that, for rows of `mean_weight`. So it vanishes where the
/// codes are nearly exact, and is negligible for codewords that many vectors use.
#[must_use]
pub fn pull(shrinkage: f64, n_codebooks: usize, objective: f64, variance: f64, mean_weight: f64) -> f64 {
    if shrinkage == 0.0 || !(variance > 0.0 && variance.is_finite()) {
        return 0.0;
    }
    shrinkage * n_codebooks as f64 * (objective / variance).min(1.0) * mean_weight
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, Axis, s};

    #[test]
    fn shards_merge_to_the_whole_even_far_from_the_origin() {
        let x = Array2::from_shape_fn((1000, 3), |(i, j)| 1e6 * j as f64 + ((i * 7 + j * 11) % 64) as f64);
        let weights: Vec<f64> = (0..1000).map(|i| f64::from(i % 4)).collect();
        let total: f64 = weights.iter().sum();
        let of = |rows: std::ops::Range<usize>| {
            Moments::of(&x.slice(s![rows.clone(), ..]), Some(&weights[rows]), None, &()).unwrap()
        };
        let mut merged = of(0..300);
        merged.merge(&of(300..1000));
        for moments in [merged, of(0..1000)] {
            assert_eq!((moments.rows, moments.weight, moments.mean_weight()), (750.0, total, total / 750.0));
            for (column, deviation) in x.axis_iter(Axis(1)).zip(moments.deviation()) {
                let pairs = || column.iter().zip(&weights);
                let mean = pairs().map(|(x, w)| x * w).sum::<f64>() / total;
                let variance = pairs().map(|(x, w)| w * (x - mean).powi(2)).sum::<f64>() / total;
                assert!((deviation / variance.sqrt() - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn the_pull_vanishes_with_the_error_and_is_bounded() {
        assert_eq!(pull(4.0, 8, 0.0, 2.0, 1.0), 0.0);
        assert_eq!(pull(4.0, 8, 1.0, 2.0, 3.0), 48.0);
        assert_eq!(pull(4.0, 8, 9.0, 2.0, 1.0), 32.0);
        assert_eq!(pull(4.0, 8, 1.0, f64::INFINITY, 1.0), 0.0);
    }
}
