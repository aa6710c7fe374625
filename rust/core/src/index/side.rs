//! The number that an index keeps for each vector alongside its code, if any: what it is, and what it is used for.
//!
//! | side | number | kept | is |
//! |---|---|---|---|
//! | none | | | for inner products |
//! | scale | ‖x‖² / ⟨x, x̄⟩ | a level in a byte | multiplied with the inner product |
//! | inverse norm | 1 / ‖x̄‖ | an interval in a byte | what bounds a cosine |
//! | squared norm | −½‖x̄ − c‖² | an interval in a byte, and in f32 with exact norms | what bounds a distance; c is the frame's center |
//! | residual norm | ‖x − x̄‖ | an interval in a byte, and in f32 | what bounds an exact inner product |
//!
//! Norms follow from the codes. Cosines and distances are scored exactly, by [`measure`](super::measure), for the few
//! vectors that the bounds do not exclude.

use super::settings::Settings;
use crate::error::{Result, argument};
use crate::vectors::metric::Metric;

/// What is kept for each vector alongside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    None,
    Scale,
    InverseNorm,
    SquaredNorm { exact: bool },
    ResidualNorm,
}

impl Side {
    /// # Errors
    /// The settings contradict each other.
    pub(super) fn of(settings: Settings) -> Result<Self> {
        let Settings { metric, scale, exact_norms, residuals } = settings;
        if scale && metric != Metric::InnerProduct {
            return Err(argument!("scale", "goes with metric \"ip\", not \"{}\"", metric.name()));
        }
        if residuals && (metric != Metric::InnerProduct || scale) {
            return Err(argument!("residuals", "goes with metric \"ip\" and without a scale"));
        }
        Ok(match metric {
            Metric::Cosine => Side::InverseNorm,
            Metric::Euclidean => Side::SquaredNorm { exact: exact_norms },
            Metric::InnerProduct if scale => Side::Scale,
            Metric::InnerProduct if residuals => Side::ResidualNorm,
            Metric::InnerProduct => Side::None,
        })
    }

    /// Columns of bytes in addition to the codes.
    pub(super) fn n_columns(self) -> usize {
        usize::from(self != Side::None)
    }

    /// Whether the numbers are also kept in f32.
    pub(super) fn keeps_numbers(self) -> bool {
        matches!(self, Side::SquaredNorm { exact: true } | Side::ResidualNorm)
    }

    /// Whether the numbers follow from the codes.
    pub(super) fn follows_from_codes(self) -> bool {
        matches!(self, Side::InverseNorm | Side::SquaredNorm { .. })
    }

    /// Rejects numbers for `n` vectors that are not n finite ones or that the side does not use, and missing numbers
    /// that it requires.
    pub(super) fn check(self, n: usize, numbers: Option<&[f32]>) -> Result<()> {
        let name = if self == Side::Scale { "scales" } else { "residuals" };
        match (self, numbers) {
            (Side::Scale | Side::ResidualNorm, Some(numbers)) => {
                if numbers.len() != n || numbers.iter().any(|number| !number.is_finite()) {
                    return Err(argument!(name, "have {} entries: want {n} finite numbers", numbers.len()));
                }
                Ok(())
            }
            (_, Some(_)) => Err(argument!("scales", "are given, but the index keeps none")),
            (Side::ResidualNorm, None) => Err(argument!(
                "codes",
                "are not enough: the index keeps residuals, which codes alone do not tell: add the vectors"
            )),
            (_, None) => Ok(()),
        }
    }

    /// The numbers that were given for `n` vectors and [checked](Self::check), or the default numbers if none were;
    /// `None` if they follow from the codes.
    pub(super) fn given(self, n: usize, numbers: Option<&[f32]>) -> Option<Vec<f32>> {
        match (self, numbers) {
            (_, Some(numbers)) => Some(numbers.to_vec()),
            (Side::Scale, None) => Some(vec![1.0; n]),
            (_, None) => None,
        }
    }
}
