//! Training without the Python layer: the same alternation of encoding and update, with this crate's own solver.

pub mod conjugate;
pub mod equations;
pub mod init;
pub mod kmeans;
pub mod reseed;
pub mod solve;

use crate::codebooks::{Codebooks, Selection};
use crate::encode::{self, Encoder, Encoding, Loss};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::conjugate::descend;
use crate::train::equations::{Prior, Problem};
use crate::train::init::{random_vectors, residual_kmeans};
use crate::train::reseed::reseed;
use crate::train::solve::solve_proximal;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array1, Array2};

/// How training starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Codebooks by residual k-means.
    Residual,
    /// Codebooks of random vectors.
    Random,
}

/// What training is asked for.
#[derive(Clone, Debug)]
pub struct Training {
    /// M, 1 to 64: the bytes of a code.
    pub n_codebooks: usize,
    /// K, 1 to 256.
    pub n_codewords: usize,
    /// The scheme.
    pub selection: Selection,
    /// The start.
    pub init: Init,
    /// How codes are chosen.
    pub encoding: Encoding,
    /// What is made small.
    pub loss: Loss,
    /// The most iterations.
    pub max_iter: usize,
    /// Training ends when an iteration lowers the objective by less than this share of it.
    pub tolerance: f64,
    /// λ of the proximal ridge, as a share of the mean use of a codeword.
    pub ridge: f64,
    /// How strongly codewords are pulled to the mean of their codebook, in multiples of what would be right were all of
    /// it normally distributed. Without it codebooks fit the noise of small data.
    pub shrinkage: f64,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            n_codebooks: 8,
            n_codewords: 256,
            selection: Selection::Group,
            init: Init::Residual,
            encoding: Encoding::Greedy,
            loss: Loss::RECONSTRUCTION,
            max_iter: 25,
            tolerance: 1e-3,
            ridge: 1e-3,
            shrinkage: 4.0,
            seed: 0,
        }
    }
}

/// What training gives.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The codebooks.
    pub codebooks: Codebooks,
    /// The codes of the training vectors, (n, M).
    pub codes: Array2<u8>,
    /// The mean loss after each iteration, the start first: it never rises.
    pub history: Vec<f64>,
}

/// Learns codebooks for `x` (n, d): alternates codebooks given codes and codes given codebooks.
///
/// # Errors
/// Arguments out of range, a row that is not finite, or a cancelling monitor, which hears of each iteration.
pub fn train(x: &dyn Vectors, training: &Training, monitor: &dyn Monitor) -> Result<Trained> {
    let Training { n_codebooks: m, n_codewords: k, selection, loss, seed, .. } = *training;
    let encoder = |codebooks: &Codebooks| {
        Ok(Encoder::new(codebooks, selection)?.with_loss(loss).with_encoding(training.encoding))
    };
    let mut codebooks = match training.init {
        Init::Residual => residual_kmeans(x, m, k, selection, seed, &())?,
        Init::Random => random_vectors(x, m, k, selection, seed)?,
    };
    let mut codes = encoder(&codebooks)?.encode(x, &())?;
    let mut errors = encode::errors(&codebooks, loss, x, codes.view(), &())?;
    let mut history = vec![mean(&errors)];
    let variance = variance(x)?;
    for iteration in 0..training.max_iter {
        monitor.report(iteration as u64, training.max_iter as u64)?;
        let share = if variance > 0.0 { (mean(&errors) / variance).min(1.0) } else { 0.0 };
        let better = update(x, &codes, &codebooks, training, training.shrinkage * m as f64 * share)?;
        let worst = encode::errors(&better, loss, x, codes.view(), &())?;
        let worst = worst.as_slice().expect("contiguous");
        let (better, _) = reseed(&better, x, codes.view(), worst, selection.is_shared())?;
        let mut better_codes = codes.clone();
        errors = encoder(&better)?.improve(x, &mut better_codes, &())?.after;
        // The pull of the codewords to their mean can cost more than new codes gain: then the rest is overfitting.
        if mean(&errors) > history[iteration] {
            break;
        }
        (codebooks, codes) = (better, better_codes);
        history.push(mean(&errors));
        if history[iteration] - history[iteration + 1] <= training.tolerance * history[iteration] {
            break;
        }
    }
    Ok(Trained { codebooks, codes, history })
}

fn mean(errors: &Array1<f64>) -> f64 {
    errors.sum() / errors.len() as f64
}

fn update(
    x: &dyn Vectors,
    codes: &Array2<u8>,
    previous: &Codebooks,
    training: &Training,
    shrink: f64,
) -> Result<Codebooks> {
    let n_codewords = previous.n_codewords();
    let shared = training.selection.is_shared();
    let problem = Problem { x, codes: codes.view(), weights: None, n_codewords, shared };
    let prior = Prior { shrink, past: None };
    if training.loss != Loss::RECONSTRUCTION {
        return descend(&problem, previous, training.loss, training.ridge, &prior, &());
    }
    let unknowns = problem.unknowns(previous);
    let mut equations = problem.normal_equations(&())?;
    prior.add_to(&mut equations, unknowns.view(), n_codewords)?;
    problem.codebooks(solve_proximal(&equations, unknowns.view(), training.ridge)?)
}

/// Mean squared distance of some 20,000 rows to their mean.
fn variance(x: &dyn Vectors) -> Result<f64> {
    let step = (x.n() / 20_000).max(1);
    let mut row = vec![0.0; x.dim()];
    let (mut sum, mut squares, mut n) = (vec![0.0; x.dim()], 0.0, 0.0);
    for i in (0..x.n()).step_by(step) {
        read_finite(x, "X", i, &mut row)?;
        for (sum, &value) in sum.iter_mut().zip(&row) {
            let value = f64::from(value);
            *sum += value;
            squares += value * value;
        }
        n += 1.0;
    }
    let mean: f64 = sum.iter().map(|sum| (sum / n) * (sum / n)).sum();
    Ok(squares / n - mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Start;

    #[test]
    fn the_objective_never_rises_and_is_the_error_of_what_is_returned() {
        let x =
            Array2::from_shape_fn((400, 6), |(i, j)| ((i * 31 + j * 17) % 101) as f32 + (i * j % 7) as f32);
        for selection in Selection::ALL {
            let search = Encoding::LocalSearch { start: Start::Greedy, rounds: 2, seed: 1 };
            for (init, encoding, loss) in [
                (Init::Residual, Encoding::Greedy, Loss::RECONSTRUCTION),
                (Init::Random, Encoding::Greedy, Loss::RECONSTRUCTION),
                (Init::Residual, search, Loss::RECONSTRUCTION),
                (Init::Residual, search, Loss::inner_product(5.0).unwrap()),
                (Init::Residual, Encoding::Beam { width: 3 }, Loss::RECONSTRUCTION),
            ] {
                let sizes = Training { n_codebooks: 3, n_codewords: 12, ..Default::default() };
                let training = Training { selection, init, encoding, loss, ..sizes };
                let trained = train(&x.view(), &training, &()).unwrap();
                assert!(trained.history.is_sorted_by(|a, b| a >= b), "{:?}", trained.history);
                let error = mean(
                    &encode::errors(&trained.codebooks, loss, &x.view(), trained.codes.view(), &()).unwrap(),
                );
                assert_eq!(Some(&error), trained.history.last());
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_model_for_any_number_of_threads() {
        let x = Array2::from_shape_fn((500, 5), |(i, j)| ((i * 37 + j * 11) % 89) as f32);
        let training = Training { n_codebooks: 2, n_codewords: 16, max_iter: 3, ..Default::default() };
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| train(&x.view(), &training, &()).unwrap())
        };
        let (one, three) = (on(1), on(3));
        assert_eq!(one.codebooks, three.codebooks);
        assert_eq!(one.codes, three.codes);
    }
}
