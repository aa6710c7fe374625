//! Training without the Python layer: the same alternation of encoding and update, with this crate's own solver.

use crate::codebooks::{Codebooks, Selection};
use crate::conjugate::descend;
use crate::encode::{self, Encoder, Encoding, Loss};
use crate::error::Result;
use crate::init::{random_vectors, residual_kmeans};
use crate::monitor::Monitor;
use crate::solve::solve_proximal;
use crate::update::{Problem, reseed};
use crate::vectors::Vectors;
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
    for iteration in 0..training.max_iter {
        monitor.report(iteration as u64, training.max_iter as u64)?;
        let better = update(x, &codes, &codebooks, training)?;
        let now = encode::errors(&better, loss, x, codes.view(), &())?;
        // Least squares cannot raise the objective but by rounding; then there is nothing left to gain.
        if mean(&now) > history[iteration] {
            break;
        }
        let now = now.as_slice().expect("contiguous");
        (codebooks, _) = reseed(&better, x, codes.view(), now, selection.is_shared())?;
        errors = encoder(&codebooks)?.improve(x, &mut codes, &())?.after;
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
) -> Result<Codebooks> {
    let n_codewords = previous.n_codewords();
    let shared = training.selection.is_shared();
    let problem = Problem { x, codes: codes.view(), weights: None, n_codewords, shared };
    if training.loss != Loss::RECONSTRUCTION {
        return descend(&problem, previous, training.loss, training.ridge, &());
    }
    let equations = problem.normal_equations(&())?;
    problem.codebooks(solve_proximal(&equations, problem.unknowns(previous).view(), training.ridge)?)
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
