//! Trains on vectors, adds them with ids, searches, and finds the same again in the file.
//!
//!     cargo run

use compcodes::train::{Training, train};
use compcodes::{Index, Model};
use ndarray::{Array2, s};

fn main() -> compcodes::Result<()> {
    // Yours: one row per vector. Here 2,000 points near a curve in 16 dimensions.
    let vectors = Array2::from_shape_fn((2000, 16), |(i, j)| ((i as f32 / 40.0) * (j as f32 + 1.0).sqrt()).sin());
    let ids: Vec<i64> = (0..2000).map(|i| 10_000 + i).collect();

    let training = Training { n_codebooks: 4, n_codewords: 32, anneal: 4, max_iter: Some(4), ..Training::default() };
    let progress = |done: u64, total: u64| {
        if done == total {
            eprintln!("a pass over {total} vectors");
        }
        true // go on
    };
    let trained = train(&vectors.view(), &training, &progress)?;

    let mut index = Index::new(Model::trained(trained.codebooks, &training));
    index.add(&vectors.view(), Some(&ids), &())?;
    let queries = vectors.slice(s![..3, ..]);
    let hits = index.search(queries, 5, None, &())?;
    for (row, found) in hits.positions.outer_iter().enumerate() {
        println!("query {row}: {found}");
    }

    let path = std::env::temp_dir().join(format!("words-{}.cc", std::process::id()));
    index.save(&path)?;
    let again = Index::load(&path)?.search(queries, 5, None, &())?;
    std::fs::remove_file(&path).ok();
    assert_eq!(again.positions, hits.positions);
    Ok(())
}
