//! Encoding of which only the direction of a vector counts.

use super::{Encode, Improved};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use crate::vectors::unit::Unit;
use ndarray::Array2;

/// An encoder that scales vectors to length 1 before it encodes them, those of zeros aside: for models of the metric
/// "cosine".
pub struct OfUnit(pub Box<dyn Encode>);

impl Encode for OfUnit {
    fn encode(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        self.0.encode(&Unit(x), monitor)
    }

    fn improve(&self, x: &dyn Vectors, codes: &mut Array2<u8>, monitor: &dyn Monitor) -> Result<Improved> {
        self.0.improve(&Unit(x), codes, monitor)
    }
}
