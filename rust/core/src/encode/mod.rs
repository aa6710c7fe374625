//! Encoding: finding the codewords that approximate a vector best. The exact answer is NP-hard; the encoders here
//! differ in how close they come to it, and share scores, chunking and threads.

mod beam;
mod centroids;
mod choose;
mod encoder;
mod encoding;
mod errors;
mod gram;
mod gram_rows;
mod greedy;
mod grouped;
mod interface;
mod lanes;
mod levels;
mod lists;
mod local_search;
mod local_search_tables;
mod loss;
mod nearest;
mod normalise;
mod objective;
mod passes;
mod perturbation;
mod rotation;
mod rounded;
mod scores;
mod space;
mod state;
mod subspaces;
mod target;
mod unit;

pub(crate) use centroids::checked as checked_lists;
pub use centroids::{Centroids, Gap, MAX_LISTS, Reached};
pub use encoder::Encoder;
pub use encoding::{Encoding, Start};
pub use errors::{error_bounds, errors};
pub use grouped::{GroupedEncoder, trunk_encoder};
pub use interface::{Encode, Improved};
pub use loss::Loss;
pub(crate) use nearest::Nearest;
pub use objective::Objective;
pub use rotation::rotated;
pub use subspaces::SubspaceEncoder;
pub use target::{Rest, Target};
pub use unit::OfUnit;

use crate::codebooks::{Codebooks, Selection};
use crate::error::Result;

/// The encoder for `codebooks`. If the codebooks use separate dimensions (see [`Codebooks::groups`]) and the loss is
/// the squared error, the nearest codeword of each is the best code, whichever encoding is chosen.
///
/// # Errors
/// The errors of [`Encoder::new`] and [`Encoder::stretched`].
pub fn encoder(
    codebooks: &Codebooks,
    selection: Selection,
    objective: &Objective,
    encoding: Encoding,
) -> Result<Box<dyn Encode>> {
    if *objective == Objective::default()
        && !selection.is_shared()
        && let Some(encoder) = SubspaceEncoder::of_groups(codebooks)?
    {
        return Ok(Box::new(encoder));
    }
    let encoder = match &objective.directions {
        None => Encoder::new(codebooks, selection)?,
        Some(directions) => Encoder::stretched(codebooks, selection, directions.clone())?,
    };
    Ok(Box::new(encoder.with_loss(objective.loss).with_encoding(encoding)))
}
