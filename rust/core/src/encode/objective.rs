//! What training and encoding minimise: a loss, of vectors that may be stretched along some directions.

use super::target::StretchedTarget;
use super::{Loss, Target, errors};
use crate::codebooks::Codebooks;
use crate::error::Result;
use crate::monitor::Monitor;
use crate::vectors::basis::Directions;
use ndarray::{Array1, ArrayView2};

/// The loss L(x, x̄) of the stretched x and x̄. Without directions nothing is stretched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objective {
    /// How an error counts.
    pub loss: Loss,
    /// The directions along which an error counts more.
    pub directions: Option<Directions>,
}

impl Objective {
    /// The loss of each row of a target, usually vectors (n, d), with `codes` (n, M), in f64.
    ///
    /// # Errors
    /// The errors of [`errors`], or directions with a different d.
    pub fn errors<'a>(
        &self,
        codebooks: &Codebooks,
        target: impl Into<Target<'a>>,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Array1<f64>> {
        let target = target.into();
        match &self.directions {
            None => errors(codebooks, self.loss, target, codes, monitor),
            Some(directions) => {
                let codebooks = directions.stretch(codebooks)?;
                let stretched = StretchedTarget::new(directions, &target)?;
                errors(&codebooks, self.loss, stretched.target(), codes, monitor)
            }
        }
    }
}

impl From<Loss> for Objective {
    fn from(loss: Loss) -> Self {
        Self { loss, directions: None }
    }
}
