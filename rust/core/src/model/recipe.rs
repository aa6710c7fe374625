//! How a model encodes, in addition to its codebooks.

use crate::codebooks::{Codebooks, MAX_CODEWORDS};
use crate::encode::{Encoding, Loss, Start};
use crate::error::{Result, argument};
use crate::model::{Grouping, Subspaces};
use crate::vectors::basis::Directions;
use crate::vectors::metric::Metric;

/// How codes are chosen: all that a program needs, besides the codebooks and the selection, to encode exactly like the
/// one that trained them.
///
/// The default is meant for codebooks of unknown origin: local search of [`Encoding::ROUNDS`] rounds for the squared
/// error. Python's `CompositionalCodes.from_codebooks` uses the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The loss that encoding minimises.
    pub loss: Loss,
    /// How the minimum is searched for.
    pub encoding: Encoding,
    /// The directions along which errors count more.
    pub directions: Option<Directions>,
    /// The metric that the codebooks were trained for; `None` if not known. For [`Metric::Cosine`], vectors are scaled
    /// to length 1 before they are encoded.
    pub metric: Option<Metric>,
    /// Known structure of the codebooks, with which the best code may be found without a search.
    pub structure: Structure,
}

/// Known structure of the codebooks. If it determines the best code, the recipe's loss, encoding and directions are not
/// used.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Structure {
    /// No known structure.
    #[default]
    Free,
    /// The codebooks lie in mutually orthogonal subspaces: the nearest codeword of each is the best.
    Subspaces(Subspaces),
    /// The codebooks lie in groups in mutually orthogonal subspaces. Loss, encoding and directions apply; with
    /// directions, it is the stretched codebooks that lie in the subspaces.
    Groups(Grouping),
    /// Codeword k of a codebook is the sum of ± eight directions, with the signs given by the bits of k: a code holds
    /// the signs of the products with the directions.
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
    /// Rejects a recipe that does not fit `codebooks`.
    ///
    /// # Errors
    /// Directions or subspaces with a different number of dimensions, not one subspace per codebook, or signs without
    /// 256 codewords.
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
