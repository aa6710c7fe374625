//! k-means whose lists have about the same size.
//!
//! As in the Python package, lists larger than [`LARGE`] times the mean are split, at the expense of the smallest,
//! until none is left. Random draws differ from those in Python, and so do the centroids.

use super::centroids::centroids;
use crate::encode::{Centroids, Loss};
use crate::error::{Result, argument};
use crate::monitor::Monitor;
use crate::train::weights::check_weights;
use crate::vectors::{Vectors, read_finite};
use ndarray::Array2;
use rand::{RngExt, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;

/// Iterations after which training ends if no list is large.
const ITERATIONS: usize = 10;
/// The most iterations after those.
const ROUNDS: usize = 24;
/// Multiple of the mean size from which on a list is split: what is added later may make it even larger.
const LARGE: f64 = 2.5;

/// `n_lists` centroids of least `loss` for `x` (n, d), by weight, with the share of the vectors that each list holds.
/// About 128 vectors per list are enough to train on; with fewer than 40, lists become uneven.
///
/// # Errors
/// More lists than vectors, or none; weights that do not fit, a row that is not finite, or the monitor cancels.
pub fn balanced(
    x: &dyn Vectors,
    n_lists: usize,
    loss: Loss,
    weights: Option<&[f64]>,
    seed: u64,
    monitor: &dyn Monitor,
) -> Result<Centroids> {
    let (n, dim) = (x.n(), x.dim());
    if !(1..=n).contains(&n_lists) {
        return Err(argument!("n_lists", "is {n_lists}: want 1 to {n}, the number of vectors"));
    }
    check_weights(x, weights)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut all = Array2::zeros((n_lists, dim));
    let read = |row: usize, to: &mut [f32]| read_finite(x, "X", row, to);
    for (row, mut to) in index::sample(&mut rng, n, n_lists).into_iter().zip(all.outer_iter_mut()) {
        read(row, to.as_slice_mut().expect("a fresh row"))?;
    }
    let mean = n as f64 / n_lists as f64;
    let total = (ITERATIONS + ROUNDS) as u64;
    for iteration in 0..ITERATIONS + ROUNDS {
        monitor.report(iteration as u64, total)?;
        let lists = assigned(&all, loss, x)?;
        let sizes = sizes(&lists, n_lists);
        let is_large = |size: usize| size as f64 > (LARGE * mean).max(1.0);
        let mut large: Vec<usize> = (0..n_lists).filter(|&list| is_large(sizes[list])).collect();
        if iteration >= ITERATIONS && large.is_empty() {
            break;
        }
        all = centroids(x, &lists, all.view(), loss, weights, &())?;
        if iteration < 2 {
            large.clear();
        }
        for (to, from) in moves(&sizes, large, mean) {
            // Halfway between its centroid and one of its vectors: so it takes a part of the list, and not just one
            // vector.
            let nth = rng.random_range(0..sizes[from]);
            let row = (0..n).filter(|&row| lists[row] as usize == from).nth(nth).expect("of its vectors");
            let mut vector = vec![0.0; dim];
            read(row, &mut vector)?;
            let half: Vec<f32> = vector.iter().zip(all.row(from)).map(|(x, c)| x / 2.0 + c / 2.0).collect();
            all.row_mut(to).iter_mut().zip(half).for_each(|(to, value)| *to = value);
        }
    }
    let lists = assigned(&all, loss, x)?;
    let shares = sizes(&lists, n_lists).into_iter().map(|size| size as f32 / n as f32).collect();
    monitor.report(total, total)?;
    Centroids::new(all)?.with_loss(loss).with_shares(shares)
}

fn assigned(centroids: &Array2<f32>, loss: Loss, x: &dyn Vectors) -> Result<Vec<u32>> {
    Ok(Centroids::new(centroids.clone())?.with_loss(loss).nearest(x, &())?.0)
}

fn sizes(lists: &[u32], n_lists: usize) -> Vec<usize> {
    let mut sizes = vec![0; n_lists];
    lists.iter().for_each(|&list| sizes[list as usize] += 1);
    sizes
}

/// Lists whose centroids move: empty ones and the smallest, each into a large list.
fn moves(sizes: &[usize], mut large: Vec<usize>, mean: f64) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&list| sizes[list]);
    let empty = order.iter().take_while(|&&list| sizes[list] == 0).count();
    if large.is_empty() {
        large = order.iter().rev().take(empty).copied().filter(|&list| sizes[list] > 0).collect();
    }
    // As many as are needed for each to have about the mean size.
    large.sort_by_key(|&list| Reverse(sizes[list]));
    let pieces = |list: usize| ((sizes[list] as f64 / mean).ceil() as usize).max(2) - 1;
    let wanted = large.iter().flat_map(|&list| std::iter::repeat_n(list, pieces(list)));
    let small = order.iter().copied().filter(|&list| (sizes[list] as f64) < mean / 2.0);
    small.take(empty.max(sizes.len() / 4)).zip(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Axis;

    #[test]
    fn no_list_is_large() {
        // Most vectors are in one cluster.
        let value = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 10_007) as f32 / 10_007.0;
        let x =
            Array2::from_shape_fn((3000, 3), |(i, j)| value(i, j) * if i % 10 == 0 { 100.0 } else { 1.0 });
        let made = balanced(&x.view(), 30, Loss::RECONSTRUCTION, None, 3, &()).unwrap();
        let most = made.shares().iter().copied().fold(0.0, f32::max);
        assert!(most <= 4.0 / 30.0, "{most}");
        assert!((made.shares().iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert_eq!(made, balanced(&x.view(), 30, Loss::RECONSTRUCTION, None, 3, &()).unwrap());
    }

    #[test]
    fn as_many_lists_as_vectors_or_all_alike() {
        let x = Array2::<f32>::ones((5, 2));
        let made = balanced(&x.view(), 5, Loss::RECONSTRUCTION, None, 0, &()).unwrap();
        assert_eq!(made.view().mean_axis(Axis(0)).unwrap(), x.row(0));
        for n_lists in [0, 6] {
            assert!(balanced(&x.view(), n_lists, Loss::RECONSTRUCTION, None, 0, &()).is_err());
        }
    }
}
