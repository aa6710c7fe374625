//! Encodes and searches with a file, and prints what it finds: the tests hold it to what Python finds with the same
//! file.
//!
//!     cargo run --release -p compcodes --example files -- read FILE VECTORS
//!     cargo run --release -p compcodes --example files -- write FILE VECTORS DIMENSION ENCODER ETA
//!
//! VECTORS are numbers of 32 bits, row by row; `write` trains a model with them first, and writes it to FILE. Printed
//! are the codes of all vectors (unless the model has lists, where codes are of what centroids leave), and the ids and
//! bits of the scores that an index of the file, or a new one of the model, finds for the first three vectors after it
//! was given all of them.

use compcodes::encode::{Encoding, Loss, Start};
use compcodes::index::Settings;
use compcodes::train::{Training, train};
use compcodes::{Index, Metric, Model};
use ndarray::{Array2, s};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, vectors) = match arguments[..] {
        ["read", path, vectors] => (path, read(vectors, Model::load(path)?.codebooks.dim())?),
        ["write", path, vectors, dim, encoder, eta] => {
            let vectors = read(vectors, dim.parse()?)?;
            let encoding = match encoder {
                "greedy" => Encoding::Greedy,
                "beam" => Encoding::Beam { width: 3 },
                _ => Encoding::LocalSearch { start: Start::Beam { width: 2 }, rounds: 6, seed: 5 },
            };
            let loss = Loss::inner_product(eta.parse()?)?;
            let training = Training {
                n_codebooks: 3,
                n_codewords: 8,
                encoding,
                objective: loss.into(),
                ..Training::default()
            };
            let trained = train(&vectors.view(), &training, &())?;
            Model::trained(trained.codebooks, &training).save(path)?;
            (path, vectors)
        }
        _ => {
            return Err(
                "usage: files read FILE VECTORS, or files write FILE VECTORS DIMENSION ENCODER ETA".into()
            );
        }
    };
    let model = Model::load(path)?;
    if model.centroids.is_none() {
        println!("codes {}", words(&model.encoder()?.encode(&vectors.view(), &())?));
    }
    let settings =
        Settings { metric: model.recipe.metric.unwrap_or(Metric::InnerProduct), ..Settings::default() };
    let mut index = Index::load(path).or_else(|_| Index::with(model, settings))?;
    index.add(&vectors.view(), None, &())?;
    let hits = index.search(vectors.slice(s![..3, ..]), 10, None, &())?;
    println!("ids {}", words(&hits.positions));
    println!("scores {}", words(&hits.scores.mapv(f32::to_bits)));
    Ok(())
}

fn read(path: &str, dim: usize) -> Result<Array2<f32>, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(path)?;
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect();
    Ok(Array2::from_shape_vec((numbers.len() / dim, dim), numbers)?)
}

fn words<T: ToString>(numbers: &Array2<T>) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
