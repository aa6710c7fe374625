//! The ways of choosing codes, and how much effort each takes.

/// How codes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The paper's encoder: each step takes the codebook and codeword that leave the smallest loss.
    #[default]
    Greedy,
    /// Goes through the codebooks in turn, keeping the best partial codes.
    Beam {
        /// How many partial codes are kept, at least 1.
        width: usize,
    },
    /// Changes a few codewords at random and lets the others settle, `rounds` times, keeping improvements.
    LocalSearch {
        /// How the initial code is chosen.
        start: Start,
        /// The number of rounds.
        rounds: usize,
        /// Seed of the random changes: each vector has its own sequence, which depends on the seed and the vector.
        seed: u64,
    },
}

/// Where local search starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// From a greedy code.
    #[default]
    Greedy,
    /// From the code of a beam search.
    Beam {
        /// How many partial codes the beam keeps, at least 1.
        width: usize,
    },
}

impl Encoding {
    /// The default width of a beam: twice the width takes twice the time.
    pub const WIDTH: usize = 8;

    /// The default number of rounds of local search: twice as many take twice the time and lower the error by a few
    /// percent.
    pub const ROUNDS: usize = 128;

    /// Rounds of local search in a training pass, which starts from the codes of the previous pass.
    const TRAINING_ROUNDS: usize = 8;

    /// The same encoding with the effort of a training pass, and random numbers from `seed`.
    #[must_use]
    pub fn for_training(self, seed: u64) -> Self {
        match self {
            Self::LocalSearch { start, rounds, .. } => {
                Self::LocalSearch { start, rounds: rounds.min(Self::TRAINING_ROUNDS), seed }
            }
            other => other,
        }
    }

    /// Whether training with this encoding benefits from noise on the codebooks.
    #[must_use]
    pub fn anneals(self) -> bool {
        matches!(self, Self::LocalSearch { .. })
    }
}
