//! How good given codes are.

use super::encoder::CHUNK;
use super::target::{Rows, check_rows};
use super::{Loss, Target};
use crate::codebooks::Codebooks;
use crate::error::Result;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use ndarray::{Array1, ArrayView2};
use rayon::prelude::*;

/// The loss of each row of a target, usually vectors (n, d), with `codes` (n, M), in f64.
///
/// # Errors
/// Shapes that do not fit, a row that is not finite, or the monitor cancels.
pub fn errors<'a>(
    codebooks: &Codebooks,
    loss: Loss,
    target: impl Into<Target<'a>>,
    codes: ArrayView2<'_, u8>,
    monitor: &dyn Monitor,
) -> Result<Array1<f64>> {
    let target = target.into();
    let x = target.x;
    target.check(codebooks.dim())?;
    check_rows(codes, x)?;
    codebooks.check_codes(codes)?;
    let mut errors = Array1::zeros(x.n());
    let (rows, d) = (parallel::rows(CHUNK), codebooks.dim());
    let counter = Counter::new(monitor, x.n() as u64);
    let chunks = errors.as_slice_mut().expect("fresh").par_chunks_mut(rows).enumerate();
    let failed = chunks
        .map_init(
            || (Rows::default(), vec![0.0; d], Vec::new()),
            |(read, approximation, code), (i, errors)| {
                read.read(&target, i * rows, errors.len())?;
                for (r, error) in errors.iter_mut().enumerate() {
                    code.clear();
                    code.extend(codes.row(i * rows + r));
                    *error = loss.of(codebooks, read.row(r), code, approximation);
                }
                counter.add(errors.len() as u64)
            },
        )
        .find_first(Result::is_err);
    failed.unwrap_or(Ok(()))?;
    Ok(errors)
}

/// ‖x − x̄‖ of each row, rounded up: |⟨q, x⟩ − ⟨q, x̄⟩| is at most this times ‖q‖, for every q (Cauchy and Schwarz).
///
/// # Errors
/// The errors of [`errors`].
pub fn error_bounds<'a>(
    codebooks: &Codebooks,
    target: impl Into<Target<'a>>,
    codes: ArrayView2<'_, u8>,
    monitor: &dyn Monitor,
) -> Result<Array1<f64>> {
    let squares = errors(codebooks, Loss::RECONSTRUCTION, target, codes, monitor)?;
    // Each term of the sum is off by three roundings, the sum by fewer than d more, its root by half of them and one
    // more. No square of a difference of two f32 underflows.
    let up = 1.0 + (codebooks.dim() + 8) as f64 * f64::EPSILON / 2.0;
    Ok(squares.mapv_into(|square| square.sqrt() * up))
}
