//! Decreasing noise on the codebooks while vectors are encoded.
//!
//! Codes that are best for the present codebooks hold these in place; noise lets both move on to a better optimum
//! (Martinez et al., *LSQ++*, 2018, there "SR-D"). The schedule and the generator are defined here, once for every
//! training loop.

use crate::codebooks::Codebooks;
use crate::error::{Result, argument};
use crate::train::equations::too_large;
use ndarray::Axis;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// The seed of one pass over the vectors: each pass has its own random numbers, whatever came before it.
#[must_use]
pub fn pass_seed(seed: u64, pass: u64) -> u64 {
    seed.wrapping_add(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(pass))
}

/// The amount of noise in iteration `iteration` of `iterations`: it decreases to none in the last.
#[must_use]
pub fn temperature(iteration: usize, iterations: usize) -> f64 {
    (1.0 - (iteration as f64 + 1.0) / iterations as f64).max(0.0).sqrt()
}

/// Adds normal noise to `codebooks`. Its scale is the share of `deviation` (d), the data's standard deviation, that one
/// of M codebooks holds, times the [`temperature`]. Equal codebooks (`shared`) stay equal. The noise depends on `seed`
/// and `iteration` alone.
///
/// # Errors
/// `deviation` has a different d, or the result is beyond f32.
pub fn perturbed(
    codebooks: &Codebooks,
    deviation: &[f64],
    shared: bool,
    seed: u64,
    iteration: usize,
    iterations: usize,
) -> Result<Codebooks> {
    let (m, _, d) = codebooks.view().dim();
    if deviation.len() != d {
        return Err(argument!(
            "deviation",
            "has {} entries, the codebooks have {d} dimensions",
            deviation.len()
        ));
    }
    let share = temperature(iteration, iterations) / m as f64;
    if share == 0.0 {
        return Ok(codebooks.clone());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(iteration as u64 + 1);
    let mut data = codebooks.clone().into_inner();
    let books = if shared { 1 } else { m };
    for mut book in data.outer_iter_mut().take(books) {
        for mut word in book.outer_iter_mut() {
            for (value, deviation) in word.iter_mut().zip(deviation) {
                let normal: f64 = StandardNormal.sample(&mut rng);
                *value = (f64::from(*value) + share * deviation * normal) as f32;
            }
        }
    }
    if shared {
        let first = data.index_axis(Axis(0), 0).to_owned();
        data.outer_iter_mut().for_each(|mut book| book.assign(&first));
    }
    Codebooks::new(data).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array3;

    #[test]
    fn noise_has_the_share_that_one_codebook_holds_and_ends_with_none() {
        let zeros = Codebooks::new(Array3::zeros((4, 200, 2))).unwrap();
        let noisy = |iteration| perturbed(&zeros, &[1.0, 8.0], false, 3, iteration, 10).unwrap();
        for (iteration, want) in [(0, 0.9f64.sqrt()), (7, 0.2f64.sqrt())] {
            let noise = noisy(iteration);
            for (j, deviation) in [(0, 0.25), (1, 2.0)] {
                let squares = noise.view().iter().skip(j).step_by(2).map(|&v| f64::from(v * v)).sum::<f64>();
                let found = (squares / 800.0).sqrt();
                assert!((found / (want * deviation) - 1.0).abs() < 0.1, "{iteration} {j}: {found}");
            }
        }
        assert_eq!(noisy(9), zeros);
        assert_eq!(noisy(2), noisy(2));
        assert_ne!(noisy(2), noisy(3));
        let shared = perturbed(&zeros, &[1.0, 8.0], true, 3, 0, 10).unwrap();
        assert_eq!(shared.view().index_axis(Axis(0), 0), shared.view().index_axis(Axis(0), 3));
        assert_ne!(shared, zeros);
    }
}
