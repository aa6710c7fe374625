//! Initial codebooks for training.

use crate::codebooks::{Codebooks, MAX_CODEWORDS, MAX_TOGETHER, Selection};
use crate::encode::{Encode, Encoder};
use crate::error::{Error, Result, argument};
use crate::monitor::Monitor;
use crate::train::equations::{NormalEquations, too_large};
use crate::train::reseed::{reseed, uses, worst};
use crate::train::weights::weighing;
use crate::vectors::basis::Directions;
use crate::vectors::{Vectors, read_finite};
use ndarray::{Array2, Array3, Axis, s};
use rand::{RngExt, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;

/// Vectors per codeword from which initial codebooks are computed; more vectors do not make them better.
const SAMPLE: usize = 64;
/// Rounds of k-means per codebook.
const ROUNDS: usize = 10;
/// At most this many numbers are sampled (256 MB), but at least one vector per codeword.
const SAMPLE_NUMBERS: usize = 1 << 26;

/// The rows, in order, that initial codebooks are computed from, out of n vectors of `dim` numbers: those that have any
/// weight, or a random sample of them if there are more than 64 per codeword.
#[must_use]
pub fn sample_rows(
    n: usize,
    dim: usize,
    weights: Option<&[f64]>,
    n_codewords: usize,
    seed: u64,
) -> Vec<usize> {
    let weighing = weighing(n, weights);
    let limit = (SAMPLE_NUMBERS / dim.max(1)).clamp(n_codewords, SAMPLE * n_codewords);
    if weighing.len() <= limit {
        return weighing;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1); // of its own: what follows does not depend on whether a sample was drawn
    let mut places = index::sample(&mut rng, weighing.len(), limit).into_vec();
    places.sort_unstable();
    places.into_iter().map(|place| weighing[place]).collect()
}

/// Codebooks by *residual k-means*: the first by k-means of the vectors, each further one by k-means of the residuals
/// of those before. For a shared codebook each level provides its share of the K codewords.
///
/// If there are fewer vectors than codewords, the remaining codewords repeat others, and no code uses them. `x` is
/// copied: if there are many vectors, pass those of [`sample_rows`].
///
/// # Errors
/// No vectors, sizes out of range, a row that is not finite, values whose differences are beyond f32, or a cancelling
/// monitor.
pub fn residual_kmeans(
    x: &dyn Vectors,
    n_codebooks: usize,
    n_codewords: usize,
    selection: Selection,
    seed: u64,
    monitor: &dyn Monitor,
) -> Result<Codebooks> {
    check(x, n_codebooks, n_codewords)?;
    by_levels(x, n_codebooks, n_codewords, selection, seed, monitor).map_err(of_vectors)
}

/// Codebooks that `start` computes from vectors, where errors count more along `directions`, if there are any.
///
/// # Errors
/// The errors of `start`; directions with a different d, or values that are beyond f32 when stretched.
pub fn along(
    x: &dyn Vectors,
    directions: Option<&Directions>,
    start: impl FnOnce(&dyn Vectors) -> Result<Codebooks>,
) -> Result<Codebooks> {
    match directions {
        None => start(x),
        Some(directions) => directions.relax(&start(&directions.stretched(x)?)?).map_err(of_vectors),
    }
}

/// An error about codebooks that nobody passed: they were computed from the vectors, whose differences are beyond f32.
fn of_vectors(error: Error) -> Error {
    match error {
        Error::Argument { name: "codebooks", .. } => too_large(),
        error => error,
    }
}

fn by_levels(
    x: &dyn Vectors,
    n_codebooks: usize,
    n_codewords: usize,
    selection: Selection,
    seed: u64,
    monitor: &dyn Monitor,
) -> Result<Codebooks> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut residuals = read_all(x)?;
    let levels = if selection.is_shared() { n_codebooks.min(n_codewords) } else { n_codebooks };
    let mut books = Vec::new();
    for level in 0..levels {
        let size = if selection.is_shared() {
            n_codewords * (level + 1) / levels - n_codewords * level / levels
        } else {
            n_codewords
        };
        // Progress is counted in levels, but a level may take long: check more often whether to go on.
        let go_on = |_, _| monitor.report(level as u64, levels as u64).is_ok();
        let (book, codes) = kmeans(&residuals, size, &mut rng, &go_on)?;
        for (mut residual, &code) in residuals.outer_iter_mut().zip(&codes) {
            residual -= &book.slice(s![0, usize::from(code), ..]);
        }
        books.push(book);
        monitor.report(level as u64 + 1, levels as u64)?;
    }
    let views: Vec<_> = books.iter().map(|book| book.view()).collect();
    if !selection.is_shared() {
        return Codebooks::new(ndarray::concatenate(Axis(0), &views).expect("equal shapes"));
    }
    let shared = ndarray::concatenate(Axis(1), &views).expect("equal dimensions");
    let shape = (n_codebooks, n_codewords, x.dim());
    Codebooks::new(shared.broadcast(shape).expect("one codebook").to_owned())
}

/// Codebooks of random vectors: each codeword is x / M for a random x, so that a sum of M of them has the mean of the
/// data.
///
/// Random *codes*, from which the update computes codebooks, are the alternative random start. With the greedy encoder
/// they ended at larger errors on SIFT, Gowalla and GloVe, and they interpolate data with fewer than M·K vectors.
///
/// # Errors
/// No vectors, sizes out of range, a row that is not finite, or the monitor cancels.
pub fn random_vectors(
    x: &dyn Vectors,
    n_codebooks: usize,
    n_codewords: usize,
    selection: Selection,
    seed: u64,
) -> Result<Codebooks> {
    check(x, n_codebooks, n_codewords)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let books = if selection.is_shared() { 1 } else { n_codebooks };
    let mut vector = vec![0.0f32; x.dim()];
    let mut data = Array3::zeros((books, n_codewords, x.dim()));
    for mut codeword in data.rows_mut() {
        read_finite(x, "X", rng.random_range(0..x.n()), &mut vector)?;
        codeword.iter_mut().zip(&vector).for_each(|(c, &x)| *c = x / n_codebooks as f32);
    }
    Codebooks::new(data.broadcast((n_codebooks, n_codewords, x.dim())).expect("one codebook or M").to_owned())
}

fn check(x: &dyn Vectors, n_codebooks: usize, n_codewords: usize) -> Result<()> {
    if x.n() == 0 || x.dim() == 0 {
        return Err(argument!("X", "has shape ({}, {}): training needs at least one vector", x.n(), x.dim()));
    }
    if !(1..=MAX_TOGETHER).contains(&n_codebooks) {
        return Err(argument!("n_codebooks", "is {n_codebooks}: want 1 to {MAX_TOGETHER}"));
    }
    if !(1..=MAX_CODEWORDS).contains(&n_codewords) {
        return Err(argument!("n_codewords", "is {n_codewords}: want 1 to {MAX_CODEWORDS}"));
    }
    Ok(())
}

fn read_all(x: &dyn Vectors) -> Result<Array2<f32>> {
    let mut all = Array2::zeros((x.n(), x.dim()));
    for (row, mut to) in all.outer_iter_mut().enumerate() {
        read_finite(x, "X", row, to.as_slice_mut().expect("fresh"))?;
    }
    Ok(all)
}

/// One codebook (1, `size`, d) by Lloyd's algorithm from random vectors, and the codes of `x` for it.
fn kmeans(
    x: &Array2<f32>,
    size: usize,
    rng: &mut ChaCha8Rng,
    monitor: &dyn Monitor,
) -> Result<(Array3<f32>, Array2<u8>)> {
    let n = x.nrows();
    let first: Vec<usize> =
        if n >= size { index::sample(rng, n, size).into_vec() } else { (0..size).map(|i| i % n).collect() };
    let mut book = Codebooks::new(x.select(Axis(0), &first).insert_axis(Axis(0)))?;
    let mut codes = Encoder::new(&book, Selection::Group)?.encode(&x.view(), monitor)?;
    for _ in 0..ROUNDS {
        let sums = NormalEquations::assemble(&x.view(), codes.view(), size, None, monitor)?;
        let mut means = book.clone().into_inner();
        for (k, mut mean) in means.index_axis_mut(Axis(0), 0).outer_iter_mut().enumerate() {
            let count = sums.a[[k, k]];
            if count > 0.0 {
                mean.assign(&sums.b.row(k).mapv(|sum| (sum / count) as f32));
            }
        }
        let means = Codebooks::new(means)?;
        let errors = crate::encode::errors(
            &means,
            crate::encode::Loss::RECONSTRUCTION,
            &x.view(),
            codes.view(),
            monitor,
        )?;
        let errors = errors.as_slice().expect("contiguous");
        let uses = uses(codes.view(), None, size, false)?;
        let unused = uses.iter().filter(|&&count| count == 0).count();
        book = reseed(&means, &uses, &worst(&x.view(), codes.view(), errors, unused)?, false)?;
        codes = Encoder::new(&book, Selection::Group)?.encode(&x.view(), monitor)?;
    }
    Ok((book.into_inner(), codes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn fewer_vectors_than_codewords_are_reproduced() {
        let x = array![[1.0f32, 2.0], [-3.0, 4.0], [5.0, -6.0]];
        for selection in Selection::ALL {
            let books = residual_kmeans(&x.view(), 2, 8, selection, 1, &()).unwrap();
            assert_eq!(books.view().dim(), (2, 8, 2));
        }
        let books = residual_kmeans(&x.view(), 1, 8, Selection::Group, 1, &()).unwrap();
        let codes = Encoder::new(&books, Selection::Group).unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(books.decode(codes.view(), &()).unwrap(), x);
    }

    #[test]
    fn random_sums_have_the_mean_of_the_data() {
        let x = Array2::from_shape_fn((900, 3), |(i, j)| 100.0 + ((i * 7 + j * 11) % 31) as f32);
        for selection in Selection::ALL {
            let books = random_vectors(&x.view(), 4, 64, selection, 3).unwrap();
            let mean = books.view().sum_axis(Axis(0)).mean_axis(Axis(0)).unwrap();
            assert!(mean.iter().all(|&mean| (mean - 115.0).abs() < 6.0), "{mean}");
        }
    }
}
