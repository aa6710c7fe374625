//! A trained model: what encodes, decodes and searches.

use crate::codebooks::{Codebooks, Selection};
use crate::encode::{Encoder, Encoding, Loss, Start};
use crate::error::{Result, invalid};
use serde_json::{Map, Value};

/// Codebooks, how codewords are chosen from them, and the parameters they were trained with.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The codebooks, (M, K, d).
    pub codebooks: Codebooks,
    /// The scheme.
    pub selection: Selection,
    /// What the trainer wants to remember; kept in files as it is. See [`encoder`](Self::encoder) for what is read of it.
    pub parameters: Map<String, Value>,
}

impl Model {
    /// A model without remembered parameters.
    #[must_use]
    pub fn new(codebooks: Codebooks, selection: Selection) -> Self {
        Self { codebooks, selection, parameters: Map::new() }
    }

    /// Its encoder, with the loss and the way of choosing codes that the parameters name: "fitted_loss" with "eta", and
    /// "encoder". Without them it is greedy and makes the squared error small.
    ///
    /// # Errors
    /// See [`Encoder::new`] and [`Loss::inner_product`]; or the codes are bits of a hash, which the Python package makes.
    pub fn encoder(&self) -> Result<Encoder> {
        if self.parameters.get("method").and_then(Value::as_str) == Some("random-hyperplanes") {
            return Err(invalid!("codes of random hyperplanes are made by the Python package alone"));
        }
        let eta = self.parameters.get("fitted_loss").and_then(|loss| loss.get("eta")).and_then(Value::as_f64);
        let encoder = self.parameters.get("encoder").unwrap_or(&Value::Null);
        let name = encoder.as_str().or_else(|| encoder.get("name")?.as_str());
        let count =
            |name, default| encoder.get(name).and_then(Value::as_u64).map_or(default, |count| count as usize);
        let encoding = match name {
            Some("beam") => Encoding::Beam { width: count("width", Encoding::WIDTH) },
            Some("local-search") => {
                let rounds = count("rounds", Encoding::ROUNDS);
                Encoding::LocalSearch { start: Start::Greedy, rounds, seed: 0 }
            }
            _ => Encoding::Greedy,
        };
        let loss = Loss::inner_product(eta.unwrap_or(1.0))?;
        Ok(Encoder::new(&self.codebooks, self.selection)?.with_loss(loss).with_encoding(encoding))
    }
}
