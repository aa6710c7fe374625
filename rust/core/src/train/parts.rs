//! Random parts of the vectors, one per iteration with noise: codebooks that are moved about by noise need only enough
//! vectors to tell where they should be, and a new part each time keeps them from fitting one part.

use super::weights::weighing;
use crate::error::{Result, argument};
use rand::seq::{SliceRandom, index};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Vectors per part, for each codeword of a codebook. With half as many the squared error of SIFT (100,000 vectors, 8 ×
/// 256) was 4 % larger than with all of them in each iteration, and the recall of the plain loss lower by 0.01.
const PER_CODEWORD: usize = 200;
/// If few vectors hold most of the weight a part needs fewer, but no smaller share than this.
const LEAST: f64 = 0.4;
/// The streams of random numbers that parts draw from, separate from those of the start and of the noise.
const STREAM: u64 = 1 << 32;

/// Some rows, and the weight of each.
pub type Part = (Vec<usize>, Option<Vec<f64>>);

/// The rows, in order, and weights of the part of `n` vectors that iteration `iteration` trains on; `None` if it
/// consists of all vectors. With `weights`, half of the draw is uniform and half by weight, and a row counts by its
/// weight divided by its probability.
///
/// # Errors
/// There is not one weight per vector.
pub fn drawn(
    n: usize,
    weights: Option<&[f64]>,
    n_codewords: usize,
    seed: u64,
    iteration: usize,
) -> Result<Option<Part>> {
    let mut count = size(n_codewords);
    if let Some(weights) = weights {
        let (sum, squares) = weights.iter().fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
        // As many rows with equal weights would carry the same information.
        let effective = if squares > 0.0 { sum * sum / squares / n as f64 } else { 1.0 };
        count = (count as f64 * effective.clamp(LEAST, 1.0)) as usize;
    }
    draw(n, weights, count, seed, iteration)
}

/// The number of vectors in a part, unless few of them hold most of the weight.
pub(super) fn size(n_codewords: usize) -> usize {
    PER_CODEWORD * n_codewords
}

/// Like [`drawn`], `count` rows.
pub(super) fn draw(
    n: usize,
    weights: Option<&[f64]>,
    count: usize,
    seed: u64,
    iteration: usize,
) -> Result<Option<Part>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(STREAM + iteration as u64);
    let Some(weights) = weights else {
        if n <= count {
            return Ok(None);
        }
        let mut rows = index::sample(&mut rng, n, count).into_vec();
        rows.sort_unstable();
        return Ok(Some((rows, None)));
    };
    if weights.len() != n {
        return Err(argument!("sample_weight", "has {} entries, X has {n} rows", weights.len()));
    }
    let mut rows = weighing(n, Some(weights));
    if rows.len() <= count {
        return Ok(None);
    }
    let mean = weights.iter().sum::<f64>() / rows.len() as f64;
    let chances = chances(rows.iter().map(|&row| 1.0 + weights[row] / mean).collect(), count);
    // Systematic sampling: a grid with a random offset over the probabilities, laid end to end in random order.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.shuffle(&mut rng);
    let (mut next, mut end, mut taken) = (rng.random::<f64>(), 0.0, Vec::with_capacity(count + 1));
    for &i in &order {
        end += chances[i];
        if next < end {
            taken.push(i);
            next += 1.0;
        }
    }
    taken.sort_unstable();
    let part = taken.iter().map(|&i| weights[rows[i]] / (mean * chances[i])).collect();
    rows = taken.into_iter().map(|i| rows[i]).collect();
    Ok(Some((rows, Some(part))))
}

/// Probabilities proportional to `shares`, but at most 1, that sum to `count`, which is less than the number of shares.
fn chances(shares: Vec<f64>, count: usize) -> Vec<f64> {
    let mut chances = shares;
    let (mut certain, mut left) = (0, chances.iter().sum::<f64>());
    loop {
        let factor = (count - certain) as f64 / left;
        let (mut more, mut rest) = (0, 0.0);
        for chance in chances.iter_mut().filter(|chance| **chance < 1.0 || certain == 0) {
            *chance *= factor;
            if *chance >= 1.0 {
                *chance = 1.0;
                more += 1;
            } else {
                rest += *chance;
            }
        }
        certain += more;
        left = rest;
        if more == 0 || certain >= count {
            return chances;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_size_and_weighs_what_the_whole_does() {
        assert_eq!(drawn(200, None, 1, 0, 0).unwrap(), None);
        let (rows, none) = drawn(1000, None, 1, 0, 0).unwrap().unwrap();
        assert!(none.is_none() && rows.len() == 200 && rows.is_sorted_by(|a, b| a < b) && rows[199] < 1000);
        assert_ne!(drawn(1000, None, 1, 0, 1).unwrap().unwrap().0, rows);
        let weights: Vec<f64> =
            (0..5000).map(|i| if i % 7 == 0 { 0.0 } else { f64::from(i).powi(3) }).collect();
        let mean = weights.iter().sum::<f64>() / weights.iter().filter(|&&w| w > 0.0).count() as f64;
        let mut sums = vec![0.0; 5000];
        for iteration in 0..400 {
            let (rows, part) = drawn(5000, Some(&weights), 2, 3, iteration).unwrap().unwrap();
            let part = part.unwrap();
            assert!(rows.len() <= 400 && rows.len() + 2 >= (0.4f64 * 400.0) as usize);
            assert!(rows.is_sorted_by(|a, b| a < b) && rows.len() == part.len());
            rows.iter().zip(part).for_each(|(&row, weight)| sums[row] += weight / 400.0);
        }
        // On average each row has the weight that it has in the whole.
        for group in 0..10 {
            let rows = group * 500..(group + 1) * 500;
            let want = weights[rows.clone()].iter().sum::<f64>() / mean;
            let got = sums[rows].iter().sum::<f64>();
            assert!((got / want - 1.0).abs() < 0.2, "{group}: {got} for {want}");
        }
        assert!(drawn(3, Some(&[1.0]), 1, 0, 0).is_err());
    }
}
