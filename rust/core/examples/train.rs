//! Trains a model, encodes, saves, loads and searches, all in Rust.
//!
//!     cargo run --release -p compcodes --example train

use compcodes::search::exact;
use compcodes::train::{Training, train};
use compcodes::{Index, Metric, Model};
use ndarray::Array2;

fn main() -> compcodes::Result<()> {
    // 5,000 vectors of 32 dimensions that lie near a smooth curve, and every hundredth of them as a query.
    let vectors = Array2::from_shape_fn((5000, 32), |(i, j)| {
        let t = i as f32 / 50.0;
        (t * (j as f32 + 1.0).sqrt()).sin() + 0.1 * ((i * 7919 + j * 104_729) % 1000) as f32 / 1000.0
    });
    let queries = vectors.slice(ndarray::s![..;100, ..]);

    let training = Training { n_codebooks: 4, n_codewords: 64, ..Training::default() };
    let trained = train(&vectors.view(), &training, &())?;
    let (first, last) = (trained.history[0], trained.history[trained.history.len() - 1]);
    println!("mean loss: {first:.3} at the start, {last:.3} after {} iterations", trained.history.len() - 1);

    let mut index = Index::new(Model::trained(trained.codebooks, &training));
    index.add(&vectors.view(), None, &())?;
    let path = std::env::temp_dir().join("compcodes-example.cc");
    index.save(&path)?;
    let index = Index::load(&path)?;
    std::fs::remove_file(&path).ok();

    let found = index.search(queries, 10, None, &())?;
    let exact = exact::search(&vectors.view(), &queries, 1, Metric::InnerProduct, &())?;
    let hits = found
        .positions
        .outer_iter()
        .zip(&exact.positions)
        .filter(|(found, best)| found.iter().any(|id| id == *best));
    println!(
        "the best of {} is among the first 10 found for {} of {} queries",
        index.len(),
        hits.count(),
        queries.nrows()
    );
    Ok(())
}
