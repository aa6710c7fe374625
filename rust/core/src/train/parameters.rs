//! The parameters of training.

use crate::codebooks::{Codebooks, Selection};
use crate::encode::{Encoding, Loss, Objective, Start};
use crate::train::halves;
use crate::train::noiseless::doubtful;

/// The start of training.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Codebooks by residual k-means.
    Residual,
    /// Codebooks of random vectors.
    Random,
    /// Given codebooks, (M, K, d). There is no annealing then, since it would destroy them.
    Codebooks(Codebooks),
}

/// The parameters of training. The defaults are those of the Python package, except for the loss: Python chooses η and
/// the weights by trials on the data, starting from the defaults given here.
#[derive(Clone, Debug)]
pub struct Training {
    /// M, 1 to 64: the number of bytes of a code.
    pub n_codebooks: usize,
    /// K, 1 to 256.
    pub n_codewords: usize,
    /// The scheme.
    pub selection: Selection,
    /// The start.
    pub init: Init,
    /// How the model will choose codes. A training pass takes less effort: see [`Encoding::for_training`].
    pub encoding: Encoding,
    /// What is minimised. By default errors along a vector count 4 times.
    pub objective: Objective,
    /// Vectors are weighted by ‖x‖ to this power: 2 by default, 0 for equal weights.
    pub weight_power: f64,
    /// Iterations with noise, which are part of the start; for local search only.
    pub anneal: usize,
    /// Whether training is tried without noise too where that is [`doubtful`], and the better result kept.
    pub noiseless: bool,
    /// The most iterations after that; `None` means 16 after iterations with noise (4 after a start in halves), and 24
    /// without.
    pub max_iter: Option<usize>,
    /// Training ends when an iteration lowers the objective by less than this fraction of it.
    pub tolerance: f64,
    /// λ of the proximal ridge, as a fraction of the mean use of a codeword.
    pub ridge: f64,
    /// How strongly codewords are pulled to the mean of their codebook, in multiples of the optimum for normally
    /// distributed data. Without it, codebooks overfit the noise of small data.
    pub shrinkage: f64,
    /// The seed of everything random.
    pub seed: u64,
}

impl Training {
    /// Training for the squared error, which suits Euclidean distances and decoding.
    #[must_use]
    pub fn reconstruction() -> Self {
        Self { objective: Objective::default(), weight_power: 0.0, ..Self::default() }
    }

    /// The number of iterations with noise.
    #[must_use]
    pub fn annealed(&self) -> usize {
        let own = matches!(self.init, Init::Codebooks(_));
        if self.encoding.anneals() && !own { self.anneal } else { 0 }
    }
}

impl Training {
    /// The second training of `n` vectors (d) that have any weight, without noise, if there is one.
    pub(super) fn without_noise(&self, n: usize, d: usize) -> Option<Self> {
        let pays = self.noiseless && self.annealed() > 0 && !self.in_halves(n);
        let pays = pays && doubtful(n, d, self.n_codebooks, self.n_codewords);
        pays.then(|| Self { anneal: 0, ..self.clone() })
    }

    /// Whether training of `n` vectors that have any weight starts with half of the codebooks: see [`halves`].
    #[must_use]
    pub fn in_halves(&self, n: usize) -> bool {
        let apart = self.init == Init::Residual && !self.selection.is_shared();
        apart && self.annealed() > 1 && halves::pay(n, self.n_codebooks, self.n_codewords)
    }

    /// The most iterations after those with noise, for `n` vectors.
    #[must_use]
    pub fn iterations(&self, n: usize) -> usize {
        self.max_iter.unwrap_or(match (self.annealed() > 0, self.in_halves(n)) {
            (false, _) => 24,
            (true, false) => 16,
            (true, true) => 4,
        })
    }
}

impl Default for Training {
    fn default() -> Self {
        Self {
            n_codebooks: 8,
            n_codewords: 256,
            selection: Selection::Group,
            init: Init::Residual,
            encoding: Encoding::LocalSearch { start: Start::Greedy, rounds: Encoding::ROUNDS, seed: 0 },
            objective: Loss::inner_product(4.0).expect("at least 1").into(),
            weight_power: 2.0,
            anneal: 50,
            noiseless: true,
            max_iter: None,
            tolerance: 1e-3,
            ridge: 1e-3,
            shrinkage: 4.0,
            seed: 0,
        }
    }
}
