//! The weight of each vector.

use crate::error::{Result, argument};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::vectors::basis::Directions;
use crate::vectors::{Vectors, read_finite};
use rayon::prelude::*;

/// Rows that a task reads at a time.
const CHUNK: usize = 256;

/// ‖x‖ of each row of `x` (n, d), (n), stretched along `directions`.
///
/// # Errors
/// A different d, a row that is not finite, or the monitor cancels.
pub fn norms(x: &dyn Vectors, directions: Option<&Directions>, monitor: &dyn Monitor) -> Result<Vec<f64>> {
    let stretched = directions.map(|directions| directions.stretched(x)).transpose()?;
    let x = stretched.as_ref().map_or(x, |stretched| stretched as &dyn Vectors);
    let (d, rows) = (x.dim(), parallel::rows(CHUNK));
    let mut norms = vec![0.0; x.n()];
    let counter = Counter::new(monitor, x.n() as u64);
    let failed = norms
        .par_chunks_mut(rows)
        .enumerate()
        .map_init(
            || vec![0.0f32; rows * d],
            |buffer, (i, norms)| {
                let buffer = &mut buffer[..norms.len() * d];
                read_finite(x, "X", i * rows, buffer)?;
                for (norm, x) in norms.iter_mut().zip(buffer.chunks_exact(d)) {
                    *norm = crate::vectors::metric::squared_norm(x).sqrt();
                }
                counter.add(norms.len() as u64)
            },
        )
        .find_first(Result::is_err);
    failed.unwrap_or(Ok(()))?;
    Ok(norms)
}

/// The rows, out of `n`, that have any weight, in order; `weights` are 1 if not given.
pub(super) fn weighing(n: usize, weights: Option<&[f64]>) -> Vec<usize> {
    (0..n).filter(|&row| weights.is_none_or(|weights| weights[row] > 0.0)).collect()
}

/// The largest share of Σ w‖x‖² that one row may have: the maximum in the data sets that were tried is 0.092, for w =
/// ‖x‖⁴.
const SHARE: f64 = 0.1;
/// If there are few rows, each may have this many times the mean.
const TIMES: f64 = 10.0;

/// `norms` to the power `power`, scaled to 1 on average; `None` if that is 1 for every row.
///
/// Weights are limited so that no row has more than a tenth of Σ w‖x‖², which errors are a share of. Otherwise a row a
/// hundred times as long as the others, quite possibly an error in the data, would dominate the training, and a search
/// would find few of the others.
#[must_use]
pub fn by_norm(norms: &[f64], power: f64) -> Option<Vec<f64>> {
    let largest = norms.iter().fold(0.0f64, |largest, &norm| largest.max(norm));
    if power == 0.0 || !(largest > 0.0 && largest.is_finite()) {
        return None;
    }
    let lengths = || norms.iter().map(|norm| norm / largest);
    let most = most(lengths().map(|length| length.powf(power) * length * length).collect());
    let mut weights: Vec<f64> =
        lengths().map(|length| length.powf(power).min(most / (length * length))).collect();
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    weights.iter_mut().for_each(|weight| *weight /= mean);
    Some(weights)
}

/// The largest number that is at most [`SHARE`] of the sum of `sizes`, after larger sizes are reduced to it.
fn most(mut sizes: Vec<f64>) -> f64 {
    let share = SHARE.max(TIMES / sizes.len() as f64);
    // No more rows than this can exceed their share.
    let count = (1.0 / share) as usize;
    if count == 0 {
        return f64::INFINITY;
    }
    let (above, last, below) = sizes.select_nth_unstable_by(count, |a, b| b.total_cmp(a));
    above.sort_unstable_by(|a, b| b.total_cmp(a));
    // From the smallest to the largest: otherwise the rest would be lost in the rounding of a huge one.
    let mut rest = *last + below.iter().sum::<f64>();
    let mut most = f64::INFINITY;
    for (place, &size) in above.iter().enumerate().rev() {
        // The limit if this is the last row that is reduced to its share.
        let limit = share * rest / (1.0 - (place + 1) as f64 * share);
        if size >= limit && limit > 0.0 {
            most = limit;
            break;
        }
        rest += size;
    }
    most
}

/// Rejects weights that are not one per row, finite and at least 0.
pub(crate) fn check_weights(x: &dyn Vectors, weights: Option<&[f64]>) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    if weights.len() != x.n() {
        return Err(argument!("sample_weight", "has {} entries, X has {} rows", weights.len(), x.n()));
    }
    if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        return Err(argument!(
            "sample_weight",
            "[{row}] is {}: want a finite number of at least 0",
            weights[row]
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn weights_are_powers_of_the_norm_and_1_on_average() {
        let x = array![[3.0f32, 4.0], [0.0, 0.0], [6.0, 8.0]];
        let norms = norms(&x.view(), None, &()).unwrap();
        assert_eq!(norms, [5.0, 0.0, 10.0]);
        assert_eq!(by_norm(&norms, 2.0).unwrap(), [0.6, 0.0, 2.4]);
        assert_eq!(by_norm(&norms, 0.0), None);
        assert_eq!(by_norm(&[0.0, 0.0], 2.0), None);
        let mut norms = vec![1.0; 1000];
        (norms[3], norms[5]) = (1e3, 1e30);
        let weights = by_norm(&norms, 4.0).unwrap();
        assert!((weights.iter().sum::<f64>() - 1000.0).abs() < 1e-9);
        let sizes: Vec<f64> = norms.iter().zip(&weights).map(|(norm, weight)| norm * norm * weight).collect();
        let sum = sizes.iter().sum::<f64>();
        assert!(
            sizes[3] < 0.1001 * sum && sizes[3] > 0.0999 * sum && (sizes[3] / sizes[5] - 1.0).abs() < 1e-9
        );
        assert_eq!(weights[0], weights[999]);
        // Next to the largest, the others are nothing, or too small for f64.
        for small in [0.0, 1e-80] {
            norms.fill(small);
            norms[3] = 1e38;
            let weights = by_norm(&norms, 4.0).unwrap();
            assert!(weights[3] > 999.0 && weights.iter().all(|weight| weight.is_finite()));
        }
        let x = array![[3.0f32, 4.0], [0.0, 0.0], [6.0, 8.0]];
        let directions = Directions::new(array![[0.0, 1.0]]).unwrap();
        assert_eq!(super::norms(&x.view(), Some(&directions), &()).unwrap()[0], 73f64.sqrt());
    }
}
