//! Loads an index that was made in Python (`index.save("index.cc")`) or by `compcodes build`, and searches it.
//!
//!     cargo run --release -p compcodes --example search -- index.cc

use compcodes::Index;

fn main() -> compcodes::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| {
        eprintln!("usage: search INDEX");
        std::process::exit(2);
    });
    let index = Index::load(path)?;
    let (m, k, d) = index.model().codebooks.view().dim();
    println!("{} vectors of {d} dimensions in {m} bytes each, {k} codewords a codebook", index.len());

    // The approximation of the first vector is the query.
    let codes = index.codes();
    let query = index.model().codebooks.decode(codes.slice(ndarray::s![..codes.nrows().min(1), ..]))?;
    let hits = index.search(query.view(), 5, None, &())?;
    for (score, id) in hits.scores.iter().zip(&hits.positions) {
        println!("{score:10.4}  {id}");
    }
    Ok(())
}
