//! Training without the Python layer: the same alternation of encoding and update, with this crate's own solver.

use crate::codebooks::{Codebooks, Selection};
use crate::encode::{self, Encoder, Loss};
use crate::error::Result;
use crate::init::{check, random_codes, residual_kmeans};
use crate::monitor::Monitor;
use crate::solve::solve_proximal;
use crate::update::{NormalEquations, reseed};
use crate::vectors::Vectors;
use ndarray::{Array1, Array2, Array3, s};

/// How training starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Codebooks by residual k-means.
    Residual,
    /// Random codes.
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
    /// The mean squared error ‖x − x̄‖² after each iteration, the start first: it never rises.
    pub history: Vec<f64>,
}

/// Learns codebooks for `x` (n, d): alternates codebooks given codes and codes given codebooks.
///
/// # Errors
/// Arguments out of range, a row that is not finite, or a cancelling monitor, which hears of each iteration.
pub fn train(x: &dyn Vectors, training: &Training, monitor: &dyn Monitor) -> Result<Trained> {
    let Training { n_codebooks: m, n_codewords: k, selection, ridge, seed, .. } = *training;
    check(x, m, k)?;
    let (mut codebooks, mut codes) = match training.init {
        Init::Residual => {
            let codebooks = residual_kmeans(x, m, k, selection, seed, &())?;
            let codes = Encoder::new(&codebooks, selection)?.encode(x, &())?;
            (codebooks, codes)
        }
        Init::Random => {
            let codes = random_codes(x.n(), m, k, selection, seed)?;
            let zeros = Codebooks::new(Array3::zeros((m, k, x.dim())))?;
            (update(x, &codes, &zeros, selection, ridge)?, codes)
        }
    };
    let mut errors = encode::errors(&codebooks, Loss::RECONSTRUCTION, x, codes.view(), &())?;
    let mut history = vec![mean(&errors)];
    for iteration in 0..training.max_iter {
        monitor.report(iteration as u64, training.max_iter as u64)?;
        let better = update(x, &codes, &codebooks, selection, ridge)?;
        let now = encode::errors(&better, Loss::RECONSTRUCTION, x, codes.view(), &())?;
        // Least squares cannot raise the objective but by rounding; then there is nothing left to gain.
        if mean(&now) > history[iteration] {
            break;
        }
        let now = now.as_slice().expect("contiguous");
        (codebooks, _) = reseed(&better, x, codes.view(), now, selection.is_shared())?;
        errors = Encoder::new(&codebooks, selection)?.improve(x, &mut codes, &())?.after;
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
    selection: Selection,
    ridge: f64,
) -> Result<Codebooks> {
    let (m, k, d) = previous.view().dim();
    let mut equations = NormalEquations::assemble(x, codes.view(), k, None, &())?;
    let books = if selection.is_shared() { 1 } else { m };
    if selection.is_shared() {
        equations = equations.shared(k);
    }
    let previous = previous.view().slice_move(s![..books, .., ..]).mapv(f64::from);
    let previous = previous.into_shape_with_order((books * k, d)).expect("contiguous");
    let solution = solve_proximal(&equations, previous.view(), ridge)?.mapv(|value| value as f32);
    let solution = solution.into_shape_with_order((books, k, d)).expect("contiguous");
    if books == m {
        return Codebooks::new(solution);
    }
    Codebooks::new(solution.broadcast((m, k, d)).expect("one codebook or M").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_never_rises_and_is_the_error_of_what_is_returned() {
        let x =
            Array2::from_shape_fn((400, 6), |(i, j)| ((i * 31 + j * 17) % 101) as f32 + (i * j % 7) as f32);
        for selection in Selection::ALL {
            for init in [Init::Residual, Init::Random] {
                let training =
                    Training { n_codebooks: 3, n_codewords: 12, selection, init, ..Default::default() };
                let trained = train(&x.view(), &training, &()).unwrap();
                assert!(trained.history.is_sorted_by(|a, b| a >= b), "{:?}", trained.history);
                let error = mean(
                    &encode::errors(
                        &trained.codebooks,
                        Loss::RECONSTRUCTION,
                        &x.view(),
                        trained.codes.view(),
                        &(),
                    )
                    .unwrap(),
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
