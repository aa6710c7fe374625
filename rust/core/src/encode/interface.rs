//! What every way of choosing codes can do.

use super::target::Target;
use crate::error::Result;
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use ndarray::{Array1, Array2};

/// A way of choosing codes for vectors, made for given codebooks: see [`encoder`].
pub trait Encode: Send + Sync {
    /// Codes (n, M) of `x` (n, d).
    ///
    /// # Errors
    /// `x` has another d, or a row that is not finite; or `monitor` cancels.
    fn encode(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        self.encode_target(&Target::from(x), monitor)
    }

    /// The same where part of the approximations is given.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode), for the base too; or base or rest have other than n rows.
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>>;

    /// Chooses anew, and takes a row's new code only where its error is smaller than that of the one it has. Encoders
    /// that can go on from a code do so.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); or `codes` do not fit `x` and the codebooks. After an error `codes` hold a
    /// mixture of old and new ones.
    fn improve(&self, x: &dyn Vectors, codes: &mut Array2<u8>, monitor: &dyn Monitor) -> Result<Improved> {
        self.improve_target(&Target::from(x), codes, monitor)
    }

    /// The same where part of the approximations is given.
    ///
    /// # Errors
    /// Those of [`improve`](Self::improve) and [`encode_target`](Self::encode_target).
    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved>;
}

/// What [`Encode::improve`] did to each row.
pub struct Improved {
    /// Loss of each row with the codes it had.
    pub before: Array1<f64>,
    /// The same with the codes it has now: never more.
    pub after: Array1<f64>,
}
