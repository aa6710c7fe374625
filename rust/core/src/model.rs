//! A trained model: what encodes, decodes and searches.

use crate::codebooks::{Codebooks, Selection};
use crate::encode::Encoder;
use crate::error::Result;
use serde_json::{Map, Value};

/// Codebooks, how codewords are chosen from them, and the parameters they were trained with.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The codebooks, (M, K, d).
    pub codebooks: Codebooks,
    /// The scheme.
    pub selection: Selection,
    /// What the trainer wants to remember; kept in files as it is, and not needed for anything here.
    pub parameters: Map<String, Value>,
}

impl Model {
    /// A model without remembered parameters.
    #[must_use]
    pub fn new(codebooks: Codebooks, selection: Selection) -> Self {
        Self { codebooks, selection, parameters: Map::new() }
    }

    /// Its encoder.
    ///
    /// # Errors
    /// See [`Encoder::new`].
    pub fn encoder(&self) -> Result<Encoder> {
        Encoder::new(&self.codebooks, self.selection)
    }
}
