//! The interface of all encoders.

use super::target::Target;
use crate::error::Result;
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::{Array1, Array2};

/// A way of choosing codes for vectors, made for given codebooks: see [`encoder`](fn@super::encoder).
pub trait Encode: Send + Sync {
    /// Codes (n, M) of `x` (n, d).
    ///
    /// # Errors
    /// `x` has a different d, or a row that is not finite; or `monitor` cancels.
    fn encode(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        self.encode_target(&Target::from(x), monitor)
    }

    /// Like [`encode`](Self::encode), where part of the approximations is given.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode), for the base too; or base or rest has a number of rows other than n.
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>>;

    /// Chooses new codes, and takes the new code of a row only if its error is smaller than that of the present one.
    /// Encoders that can go on from a code do so.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode); or `codes` does not fit `x` and the codebooks. After an error `codes`
    /// holds a mixture of old and new ones.
    fn improve(&self, x: &dyn Vectors, codes: &mut Array2<u8>, monitor: &dyn Monitor) -> Result<Improved> {
        self.improve_target(&Target::from(x), codes, monitor)
    }

    /// Like [`improve`](Self::improve), where part of the approximations is given.
    ///
    /// # Errors
    /// The errors of [`improve`](Self::improve) and [`encode_target`](Self::encode_target).
    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved>;
}

/// What [`Encode::improve`] did to each row.
pub struct Improved {
    /// The loss of each row with its previous code.
    pub before: Array1<f64>,
    /// The loss of each row with its present code: never larger.
    pub after: Array1<f64>,
}
