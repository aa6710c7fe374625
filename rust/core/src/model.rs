//! A trained model: what encodes, decodes and searches.

use crate::codebooks::{Codebooks, Selection};
use crate::encode::{Encoder, Encoding, Loss, Start};
use crate::error::{Result, invalid};
use crate::vectors::basis::Directions;
use crate::vectors::metric::Metric;
use ndarray::Array2;
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

    /// Its encoder, with the loss and the way of choosing codes that the parameters name: "fitted_loss" with "eta",
    /// "directions" of [`Directions`], "fitted_metric", and "encoder". Without them it is greedy and makes the squared error
    /// small. One of the metric "cosine" scales vectors to length 1 before it encodes them.
    ///
    /// # Errors
    /// See [`Encoder::stretched`], [`Loss::inner_product`] and [`Directions::new`]; or the codes are bits of a hash, which
    /// the Python package makes.
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
        let encoder = match self.directions()? {
            None => Encoder::new(&self.codebooks, self.selection)?,
            Some(directions) => Encoder::stretched(&self.codebooks, self.selection, directions)?,
        };
        let encoder = encoder.with_loss(loss).with_encoding(encoding);
        Ok(if self.metric()? == Some(Metric::Cosine) { encoder.of_unit_vectors() } else { encoder })
    }

    /// The metric that it was trained for, "fitted_metric" of the parameters; `None` where that is not known.
    ///
    /// # Errors
    /// The parameters name one that this release does not know.
    pub fn metric(&self) -> Result<Option<Metric>> {
        match self.parameters.get("fitted_metric") {
            None | Some(Value::Null) => Ok(None),
            Some(name) => name.as_str().unwrap_or_default().parse().map(Some),
        }
    }

    fn directions(&self) -> Result<Option<Directions>> {
        let Some(rows) = self.parameters.get("directions").and_then(Value::as_array) else { return Ok(None) };
        if rows.is_empty() {
            return Ok(None);
        }
        let numbers =
            |row: &Value| row.as_array()?.iter().map(|value| Some(value.as_f64()? as f32)).collect();
        let rows: Option<Vec<Vec<f32>>> = rows.iter().map(numbers).collect();
        let shape = |rows: &[Vec<f32>]| (rows.len(), self.codebooks.dim());
        let rows = rows.and_then(|rows| Array2::from_shape_vec(shape(&rows), rows.concat()).ok());
        let rows = rows.ok_or_else(|| {
            invalid!("the model's directions are not rows of {} numbers", self.codebooks.dim())
        })?;
        Directions::new(rows).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array3, array};
    use serde_json::json;

    #[test]
    fn the_encoder_is_that_of_the_parameters() {
        let codebooks =
            Codebooks::new(Array3::from_shape_vec((1, 2, 2), vec![0.0, 1.0, 3.0, 0.0]).unwrap()).unwrap();
        let mut model = Model::new(codebooks, Selection::Group);
        let x = array![[1.0f32, 0.0]];
        let codes = |model: &Model| model.encoder().unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(codes(&model), array![[0]]);
        // The error of the first, (1, −1), counts more along the second axis; the other's, (−2, 0), does not.
        model.parameters.insert("directions".to_owned(), json!([[0.0, 2.0]]));
        assert_eq!(codes(&model), array![[1]]);
        model.parameters.remove("directions");
        // At length 1 the vector is nearer to (0, 1) than to (3, 0) still, but (9, 1) is not.
        let x = array![[9.0f32, 1.0], [9e9, 1e9], [0.0, 0.0]];
        let far = |model: &Model| model.encoder().unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(far(&model), array![[1], [1], [0]]);
        model.parameters.insert("fitted_metric".to_owned(), json!("cosine"));
        assert_eq!(far(&model), array![[0], [0], [0]]);
        model.parameters.insert("fitted_metric".to_owned(), json!("cosin"));
        assert!(model.encoder().is_err());
        model.parameters.remove("fitted_metric");
        for wrong in [json!([[1.0]]), json!([["a", "b"]]), json!([[1.0, 0.0], [1.0, 1.0]])] {
            model.parameters.insert("directions".to_owned(), wrong);
            assert!(model.encoder().is_err());
        }
    }
}
