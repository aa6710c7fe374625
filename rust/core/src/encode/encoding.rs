//! The ways of choosing codes, and how much effort each takes.

/// How codes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The paper's: at each step the codebook and codeword that leave the smallest loss.
    #[default]
    Greedy,
    /// The codebooks in turn, keeping the best beginnings of a code.
    Beam {
        /// How many, at least 1.
        width: usize,
    },
    /// Changes a few codewords at random and lets the others settle, `rounds` times, keeping what is better.
    LocalSearch {
        /// The code that it begins with.
        start: Start,
        /// How often.
        rounds: usize,
        /// Of the random changes: each vector has its own sequence, from this and its numbers.
        seed: u64,
    },
}

/// Where local search begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With a greedy code.
    #[default]
    Greedy,
    /// With that of a beam search.
    Beam {
        /// How many beginnings of a code the beam keeps, at least 1.
        width: usize,
    },
}

impl Encoding {
    /// Beginnings of a code that a beam keeps: twice as many take twice the time.
    pub const WIDTH: usize = 8;

    /// Rounds of local search that pay: twice as many take twice the time for a few percent less error.
    pub const ROUNDS: usize = 128;

    /// Rounds of local search in a pass of training, which goes on from the codes of the pass before.
    const TRAINING_ROUNDS: usize = 8;

    /// The same with the effort that a pass of training takes, and the random numbers of `seed`.
    #[must_use]
    pub fn for_training(self, seed: u64) -> Self {
        match self {
            Self::LocalSearch { start, rounds, .. } => {
                Self::LocalSearch { start, rounds: rounds.min(Self::TRAINING_ROUNDS), seed }
            }
            other => other,
        }
    }

    /// Whether training with it gains by noise on the codebooks.
    #[must_use]
    pub fn anneals(self) -> bool {
        matches!(self, Self::LocalSearch { .. })
    }
}
