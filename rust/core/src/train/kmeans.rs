//! k-means by Lloyd's algorithm: the codebook of a product quantizer in each subspace, and of a residual quantizer at
//! each level.

use crate::codebooks::MAX_CODEWORDS;
use crate::encode::Nearest;
use crate::error::{Result, argument};
use crate::isa::Isa;
use crate::monitor::Monitor;
use crate::parallel;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array1, Array2};
use rand::{SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// Vectors per task that finds codewords.
const CHUNK: usize = 480;
/// Vectors that are summed separately: constant, so that sums do not depend on threads.
const PART: usize = 16_384;

/// The result of [`kmeans`].
#[derive(Clone, Debug)]
pub struct Clusters {
    /// The means, (K, d).
    pub centroids: Array2<f32>,
    /// Mean squared distance of the vectors from their means after each iteration: it never rises.
    pub history: Vec<f64>,
}

/// K means of `x` (n, d), starting from random vectors, in at most `max_iter` iterations.
///
/// `x` is held in memory as f32. A mean without vectors moves to the vector that is farthest from its own mean; if
/// there are fewer different vectors than means, some means remain unused.
///
/// # Errors
/// No vectors, sizes out of range, a row that is not finite, or the monitor cancels; it is told of each iteration.
pub fn kmeans(
    x: &dyn Vectors,
    n_codewords: usize,
    max_iter: usize,
    seed: u64,
    monitor: &dyn Monitor,
) -> Result<Clusters> {
    if x.n() == 0 || x.dim() == 0 {
        return Err(argument!("X", "has shape ({}, {}): training needs at least one vector", x.n(), x.dim()));
    }
    if !(1..=MAX_CODEWORDS).contains(&n_codewords) {
        return Err(argument!("n_codewords", "is {n_codewords}: want 1 to {MAX_CODEWORDS}"));
    }
    let isa = Isa::current()?;
    let data = Data::read(x)?;
    let mut centroids = data.random(n_codewords, seed);
    let mut codes = vec![0u8; x.n()];
    let mut history = Vec::new();
    for iteration in 0..max_iter {
        monitor.report(iteration as u64, max_iter as u64)?;
        let changed = data.assign(&Nearest::new(isa, &centroids, data.dim), &mut codes);
        if !changed && iteration > 0 {
            break;
        }
        let (sums, counts) = data.sums(&codes, n_codewords);
        history.push(data.objective(&sums, &counts));
        data.update(&mut centroids, &sums, &counts, &codes);
    }
    let shape = (n_codewords, data.dim);
    let centroids = Array2::from_shape_vec(shape, centroids).expect("as many as were drawn") + &data.mean;
    Ok(Clusters { centroids, history })
}

/// The vectors, relative to their mean.
struct Data {
    rows: Vec<f32>,
    dim: usize,
    mean: Array1<f32>,
    /// Σ ‖x‖².
    squares: f64,
}

impl Data {
    fn read(x: &dyn Vectors) -> Result<Self> {
        let dim = x.dim();
        let mut rows = vec![0.0; x.n() * dim];
        let chunks = rows.par_chunks_mut(CHUNK * dim).enumerate();
        let failed = chunks.map(|(i, rows)| read_finite(x, "X", i * CHUNK, rows)).find_first(Result::is_err);
        failed.unwrap_or(Ok(()))?;
        let mut sums = Array1::<f64>::zeros(dim);
        for row in rows.chunks_exact(dim) {
            sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        let mean = sums.mapv(|sum| (sum / x.n() as f64) as f32);
        let mut squares = 0.0;
        for row in rows.chunks_exact_mut(dim) {
            for (x, mean) in row.iter_mut().zip(&mean) {
                *x -= mean;
                squares += f64::from(*x) * f64::from(*x);
            }
        }
        Ok(Self { rows, dim, mean, squares })
    }

    fn n(&self) -> usize {
        self.rows.len() / self.dim
    }

    /// Different vectors, if there are enough.
    fn random(&self, n_codewords: usize, seed: u64) -> Vec<f32> {
        let (n, mut rng) = (self.n(), ChaCha8Rng::seed_from_u64(seed));
        let chosen: Vec<usize> = match n_codewords {
            k if n >= k => index::sample(&mut rng, n, k).into_vec(),
            k => (0..k).map(|i| i % n).collect(),
        };
        chosen.iter().flat_map(|&row| &self.rows[row * self.dim..][..self.dim]).copied().collect()
    }

    /// Assigns each vector to its nearest codeword; returns whether any assignment changed.
    fn assign(&self, nearest: &Nearest, codes: &mut [u8]) -> bool {
        let size = parallel::rows(CHUNK);
        let chunks = codes.par_chunks_mut(size).zip(self.rows.par_chunks(size * self.dim));
        let assign = |desk: &mut _, (codes, rows): (&mut [u8], &[f32])| {
            let mut changed = false;
            nearest.find(rows, self.dim, desk, |row, k| {
                changed |= codes[row] != k;
                codes[row] = k;
            });
            changed
        };
        chunks.map_init(|| nearest.desk(), assign).reduce(|| false, |a, b| a | b)
    }

    /// Sum (K, d) and number (K) of the vectors assigned to each codeword.
    fn sums(&self, codes: &[u8], n_codewords: usize) -> (Vec<f64>, Vec<f64>) {
        let dim = self.dim;
        let part = |(codes, rows): (&[u8], &[f32])| {
            let (mut sums, mut counts) = (vec![0.0; n_codewords * dim], vec![0.0; n_codewords]);
            for (&code, row) in codes.iter().zip(rows.chunks_exact(dim)) {
                let code = usize::from(code);
                counts[code] += 1.0;
                sums[code * dim..][..dim].iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            (sums, counts)
        };
        let parts: Vec<_> = codes.par_chunks(PART).zip(self.rows.par_chunks(PART * dim)).map(part).collect();
        let add =
            |total: &mut Vec<f64>, part: Vec<f64>| total.iter_mut().zip(part).for_each(|(a, b)| *a += b);
        let sum = parts.into_iter().reduce(|(mut sums, mut counts), part| {
            add(&mut sums, part.0);
            add(&mut counts, part.1);
            (sums, counts)
        });
        sum.expect("at least one vector")
    }

    /// Mean squared distance from the means: the vectors' mean square minus that of the means.
    fn objective(&self, sums: &[f64], counts: &[f64]) -> f64 {
        let square = |sum: &[f64]| sum.iter().map(|s| s * s).sum::<f64>();
        let means = sums.chunks_exact(self.dim).zip(counts).filter(|(_, count)| **count > 0.0);
        let within = self.squares - means.map(|(sum, count)| square(sum) / count).sum::<f64>();
        within.max(0.0) / self.n() as f64
    }

    /// Moves the centroids to the means.
    fn update(&self, centroids: &mut [f32], sums: &[f64], counts: &[f64], codes: &[u8]) {
        let mut empty = Vec::new();
        let words = centroids.chunks_exact_mut(self.dim).zip(sums.chunks_exact(self.dim));
        for (word, &count) in words.zip(counts) {
            let (word, sum) = word;
            if count > 0.0 {
                word.iter_mut().zip(sum).for_each(|(c, sum)| *c = (sum / count) as f32);
            } else {
                empty.push(word);
            }
        }
        if empty.is_empty() {
            return;
        }
        let mean = |code: u8| {
            let k = usize::from(code);
            sums[k * self.dim..][..self.dim].iter().map(move |sum| sum / counts[k])
        };
        let distance = |(row, &code): (&[f32], &u8)| {
            row.iter().zip(mean(code)).map(|(&x, mean)| (f64::from(x) - mean).powi(2)).sum::<f64>()
        };
        let distances: Vec<f64> = self.rows.chunks_exact(self.dim).zip(codes).map(distance).collect();
        let mut farthest: Vec<usize> = (0..self.n()).filter(|&row| distances[row] > 0.0).collect();
        farthest.sort_by(|&a, &b| distances[b].total_cmp(&distances[a]));
        for (word, row) in empty.into_iter().zip(farthest) {
            word.copy_from_slice(&self.rows[row * self.dim..][..self.dim]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_objective_never_rises_and_is_that_of_the_means() {
        let x = Array2::from_shape_fn((900, 3), |(i, j)| 1e4 + ((i * 31 + j * 17) % 101) as f32);
        let Clusters { centroids, history } = kmeans(&x.view(), 20, 30, 1, &()).unwrap();
        assert!(history.is_sorted_by(|a, b| a >= b), "{history:?}");
        let nearest = |row: ndarray::ArrayView1<'_, f32>| {
            let distance = |word| (&row - &word).mapv(|r: f32| f64::from(r * r)).sum();
            centroids.outer_iter().map(distance).fold(f64::INFINITY, f64::min)
        };
        let objective = x.outer_iter().map(nearest).sum::<f64>() / 900.0;
        assert!(objective <= history.last().unwrap() * 1.001, "{objective} {history:?}");
        assert!(objective >= history.last().unwrap() * 0.9);
    }

    #[test]
    fn fewer_vectors_than_means_are_found_exactly() {
        let x = array![[1.0f32, 2.0], [-3.0, 4.0], [5.0, -6.0], [5.0, -6.0]];
        let Clusters { centroids, history } = kmeans(&x.view(), 8, 10, 1, &()).unwrap();
        assert_eq!(centroids.dim(), (8, 2));
        for row in x.outer_iter() {
            assert!(centroids.outer_iter().any(|word| word == row));
        }
        assert!(history.last().unwrap() < &1e-9);
    }
}
