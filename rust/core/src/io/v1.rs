//! The first version of the format: all metadata is in one JSON object, and the encoding of a model is among the
//! parameters of the Python package.

use super::entries::Entries;
use crate::codebooks::Codebooks;
use crate::encode::{Encoding, Loss, Start};
use crate::error::{Result, invalid};
use crate::model::{Recipe, Structure, Subspaces};
use crate::vectors::basis::Directions;
use ndarray::Array2;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};

/// The checksum of a header.
pub(super) fn checksum<'a>(
    object: &Value,
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>,
) -> u32 {
    let entries = object.as_object().into_iter().flatten();
    let entries: Vec<_> = entries.filter(|(name, _)| *name != "checksum").collect();
    let mut tensors: Vec<_> =
        tensors.map(|(name, dtype, shape)| format!("{name} {dtype:?} {shape:?}")).collect();
    tensors.sort_unstable();
    crc32fast::hash(json!([entries, tensors]).to_string().as_bytes())
}

/// The metadata in the form of later versions.
pub(super) fn entries(object: &Value) -> Result<Entries> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut entries = Entries::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match (&name[..], value) {
            ("crc32", Value::Object(sums)) => {
                entries.extend(sums.iter().map(|(name, sum)| (format!("crc32.{name}"), text(sum))));
            }
            ("crc32", _) => return Err(invalid!("the checksums are not an object")),
            _ => drop(entries.insert(name.clone(), text(value))),
        }
    }
    Ok(entries)
}

/// The recipe, from the parameters of the Python package: "fitted_loss" with "eta", "encoder", "directions", "method",
/// "fitted_metric". Rotated subspaces were not stored: their codebooks are searched like any others, greedily, which
/// finds the same codes except for ties.
pub(super) fn recipe(parameters: &mut Map<String, Value>, codebooks: &Codebooks) -> Result<Recipe> {
    let eta = parameters.get("fitted_loss").and_then(|loss| loss.get("eta")).and_then(Value::as_f64);
    let encoder = parameters.get("encoder").unwrap_or(&Value::Null);
    let name = encoder.as_str().or_else(|| encoder.get("name")?.as_str());
    let count =
        |name, default| encoder.get(name).and_then(Value::as_u64).map_or(default, |count| count as usize);
    let method = parameters.get("method").and_then(Value::as_str);
    let encoding = match (name, method) {
        (Some("beam"), _) => Encoding::Beam { width: count("width", Encoding::WIDTH) },
        (Some("greedy"), _) | (None, Some("optimized-product" | "cartesian-kmeans")) => Encoding::Greedy,
        _ => {
            Encoding::LocalSearch { start: Start::Greedy, rounds: count("rounds", Encoding::ROUNDS), seed: 0 }
        }
    };
    let structure = match method {
        Some("product") => {
            let (m, d) = (codebooks.n_codebooks(), codebooks.dim());
            // The remainder of d divided by M goes to the first subspaces.
            let sizes = (0..m).map(|i| d / m + usize::from(i < d % m)).collect();
            Structure::Subspaces(Subspaces::new(sizes, None)?)
        }
        Some("random-hyperplanes") => Structure::Signs,
        _ => Structure::Free,
    };
    let directions = directions(parameters.remove("directions"), codebooks.dim())?;
    let metric = parameters.remove("fitted_metric");
    let metric = metric.and_then(|metric| Some(metric.as_str()?.parse())).transpose()?;
    Ok(Recipe { loss: Loss::inner_product(eta.unwrap_or(1.0))?, encoding, directions, structure, metric })
}

fn directions(rows: Option<Value>, dim: usize) -> Result<Option<Directions>> {
    let Some(Value::Array(rows)) = rows else { return Ok(None) };
    if rows.is_empty() {
        return Ok(None);
    }
    let numbers = |row: &Value| row.as_array()?.iter().map(|value| Some(value.as_f64()? as f32)).collect();
    let numbers: Option<Vec<Vec<f32>>> = rows.iter().map(numbers).collect();
    let rows = numbers.and_then(|numbers| Array2::from_shape_vec((rows.len(), dim), numbers.concat()).ok());
    let rows = rows.ok_or_else(|| invalid!("the model's directions are not rows of {dim} numbers"))?;
    Directions::new(rows).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::metric::Metric;
    use ndarray::Array3;

    fn read(parameters: Value) -> Result<Recipe> {
        let Value::Object(mut parameters) = parameters else { panic!("an object") };
        recipe(&mut parameters, &Codebooks::new(Array3::zeros((2, 4, 3))).unwrap())
    }

    #[test]
    fn parameters_say_how_to_encode() {
        assert_eq!(read(json!({})).unwrap(), Recipe::default());
        let full = read(json!({
            "fitted_loss": { "name": "inner-product", "eta": 3.5 },
            "encoder": { "name": "beam", "width": 5 },
            "directions": [[0.0, 2.0, 0.0]],
            "fitted_metric": "cosine",
        }));
        let full = full.unwrap();
        assert_eq!((full.loss.eta(), full.encoding), (3.5, Encoding::Beam { width: 5 }));
        assert_eq!(full.metric, Some(Metric::Cosine));
        assert!(read(json!({ "fitted_metric": "cosin" })).is_err());
        assert_eq!(full.directions.unwrap().rows(), ndarray::array![[0.0, 2.0, 0.0]]);
        assert_eq!(read(json!({ "encoder": "greedy" })).unwrap().encoding, Encoding::Greedy);
        let product = read(json!({ "method": "product" })).unwrap().structure;
        assert_eq!(product, Structure::Subspaces(Subspaces::new(vec![2, 1], None).unwrap()));
        assert_eq!(read(json!({ "method": "random-hyperplanes" })).unwrap().structure, Structure::Signs);
    }

    #[test]
    fn wrong_directions_are_errors() {
        for wrong in [json!([[1.0]]), json!([["a", "b", "c"]]), json!([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])] {
            assert!(read(json!({ "directions": wrong })).is_err());
        }
    }
}
