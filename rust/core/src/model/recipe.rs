//! What a model encodes with, beside its codebooks.

use crate::codebooks::{Codebooks, MAX_CODEWORDS};
use crate::encode::{Encoding, Loss, Start};
use crate::error::{Result, argument};
use crate::model::{Grouping, Subspaces};
use crate::vectors::basis::Directions;
use crate::vectors::metric::Metric;

/// How codes are chosen: all that a program needs, beside the codebooks and the selection, to encode as the one that
/// trained them.
///
/// The default is that of codebooks without a history: local search of [`Encoding::ROUNDS`] rounds for the squared error.
/// Python's `CompositionalCodes.from_codebooks` has the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// What encoding makes small.
    pub loss: Loss,
    /// How it looks for that.
    pub encoding: Encoding,
    /// The directions along which errors count more.
    pub directions: Option<Directions>,
    /// The metric that the codebooks were trained for; `None` where that is not known. For [`Metric::Cosine`] vectors are
    /// scaled to length 1 before they are encoded.
    pub metric: Option<Metric>,
    /// What is known of the codebooks, so that the best code is found without a search.
    pub structure: Structure,
}

/// What is known of codebooks beside their numbers. Where it tells the best code, the recipe's loss, encoding and
/// directions are not used.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Structure {
    /// Nothing.
    #[default]
    Free,
    /// The codebooks lie in subspaces that are orthogonal to each other: the nearest codeword of each is the best.
    Subspaces(Subspaces),
    /// The codebooks lie in groups in subspaces that are orthogonal to each other. Loss, encoding and directions count;
    /// with directions it is the stretched codebooks that lie there.
    Groups(Grouping),
    /// Codeword k of a codebook is the sum of ± eight directions, with the signs of the bits of k: a code holds the signs
    /// of the products with them.
    Signs,
}

impl Default for Recipe {
    fn default() -> Self {
        let encoding = Encoding::LocalSearch { start: Start::Greedy, rounds: Encoding::ROUNDS, seed: 0 };
        Self {
            loss: Loss::RECONSTRUCTION,
            encoding,
            directions: None,
            metric: None,
            structure: Structure::Free,
        }
    }
}

impl Recipe {
    /// Refuses a recipe that is not one for `codebooks`.
    ///
    /// # Errors
    /// Directions or subspaces of another number of dimensions, subspaces that are not one for each codebook, or signs
    /// without 256 codewords.
    pub fn check(&self, codebooks: &Codebooks) -> Result<()> {
        if let Some(directions) = &self.directions {
            directions.stretch(codebooks)?;
        }
        match &self.structure {
            Structure::Free => Ok(()),
            Structure::Signs if codebooks.n_codewords() != MAX_CODEWORDS => Err(argument!(
                "codebooks",
                "have {} codewords: signs of eight directions make {MAX_CODEWORDS}",
                codebooks.n_codewords()
            )),
            Structure::Signs => Ok(()),
            Structure::Subspaces(subspaces) => subspaces.check(codebooks),
            Structure::Groups(grouping) => grouping.check(codebooks),
        }
    }
}
