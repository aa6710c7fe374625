//! Encoding where only the direction of a vector counts.

use super::{Encode, Improved, Target};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::vectors::unit::Unit;
use ndarray::Array2;

/// An encoder that scales vectors to length 1 before encoding them, except zero vectors: for models of the metric
/// "cosine". What a target gives refers to the scaled vectors.
pub struct OfUnit(pub Box<dyn Encode>);

impl Encode for OfUnit {
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        self.0.encode_target(&Target { x: &Unit(target.x), ..*target }, monitor)
    }

    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        self.0.improve_target(&Target { x: &Unit(target.x), ..*target }, codes, monitor)
    }
}
