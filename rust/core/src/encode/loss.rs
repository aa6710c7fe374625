//! The loss by which approximations are judged.

use super::target::Row;
use crate::codebooks::Codebooks;
use crate::error::{Result, argument};

/// The loss of one vector x with residual r = x − x̄: ‖r‖² + (η − 1)⟨r, x/‖x‖⟩².
///
/// An error along x changes exactly the inner products that decide a search: those with queries that point in the
/// direction of x. η is how much more it counts than an error across x. (Guo et al., *Accelerating Large-Scale
/// Inference with Anisotropic Vector Quantization*, 2020.) With η = 1 this is the squared error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    eta: f64,
}

impl Loss {
    /// The squared error ‖x − x̄‖².
    pub const RECONSTRUCTION: Self = Self { eta: 1.0 };

    /// The loss that counts an error along x `eta` times.
    ///
    /// # Errors
    /// `eta` is below 1 or not finite.
    pub fn inner_product(eta: f64) -> Result<Self> {
        if !(eta >= 1.0 && eta.is_finite()) {
            return Err(argument!("eta", "is {eta}: want a finite number of at least 1"));
        }
        Ok(Self { eta })
    }

    /// η: how much more an error along x counts than one across.
    #[must_use]
    pub fn eta(self) -> f64 {
        self.eta
    }

    /// η − 1: the weight of the extra term.
    #[must_use]
    pub fn extra(self) -> f64 {
        self.eta - 1.0
    }

    /// The loss of a vector with `code`. The codewords are summed in f32 and in order, as `decode` does it; everything
    /// else is in f64, so it cannot overflow.
    #[inline(always)]
    pub(super) fn of(
        self,
        codebooks: &Codebooks,
        row: Row<'_>,
        code: &[u8],
        approximation: &mut [f32],
    ) -> f64 {
        let x = row.x;
        row.begin(approximation);
        for (m, &k) in code.iter().enumerate() {
            approximation.iter_mut().zip(codebooks.codeword(m, usize::from(k))).for_each(|(a, c)| *a += c);
        }
        if self == Self::RECONSTRUCTION {
            return squared_error(x, approximation);
        }
        let [squared_error, along, square] = products(x, approximation);
        let (norm, along) = match row.rest {
            None => (square.sqrt(), along),
            Some(rest) => (rest.norm, along + rest.along),
        };
        let share = if norm > 0.0 { along / norm } else { 0.0 };
        squared_error + self.extra() * share * share
    }
}

impl Default for Loss {
    fn default() -> Self {
        Self::RECONSTRUCTION
    }
}

/// Parallel sums, to avoid one long chain of dependent additions.
const SUMS: usize = 8;

/// ‖x − a‖².
#[inline(always)]
fn squared_error(x: &[f32], a: &[f32]) -> f64 {
    let mut sums = [0.0f64; SUMS];
    for (x, a) in x.chunks(SUMS).zip(a.chunks(SUMS)) {
        for ((sum, &x), &a) in sums.iter_mut().zip(x).zip(a) {
            let error = f64::from(x) - f64::from(a);
            *sum += error * error;
        }
    }
    sums.iter().sum()
}

/// ‖x − a‖², ⟨x − a, x⟩ and ‖x‖².
#[inline(always)]
fn products(x: &[f32], a: &[f32]) -> [f64; 3] {
    let mut sums = [[0.0f64; SUMS]; 3];
    for (x, a) in x.chunks(SUMS).zip(a.chunks(SUMS)) {
        for (l, (&x, &a)) in x.iter().zip(a).enumerate() {
            let (x, error) = (f64::from(x), f64::from(x) - f64::from(a));
            sums[0][l] += error * error;
            sums[1][l] += error * x;
            sums[2][l] += x * x;
        }
    }
    sums.map(|sums| sums.iter().sum())
}
