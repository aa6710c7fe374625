//! Encoding with codebooks in mutually orthogonal subspaces, as in product quantizers: the nearest codeword of each is
//! the best code, and depends only on the vector's part in that subspace.

use super::nearest::{Desk, Nearest};
use super::rotation::Rotation;
use super::target::{Rows, Target};
use super::{Encode, Improved, Loss, errors};
use crate::codebooks::{Codebooks, MAX_CODEWORDS};
use crate::error::{Result, argument};
use crate::isa::{self, Isa};
use crate::linalg::gemm::{Product, Tiles};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use ndarray::{Array2, Array3, ArrayView2, s};
use rayon::prelude::*;

/// Vectors encoded at once by a thread.
const CHUNK: usize = 96;

/// Finds the nearest codeword in each of several subspaces.
///
/// ```
/// use compcodes::encode::{Encode, SubspaceEncoder};
/// use ndarray::array;
/// // The first codebook is of the first dimension, the second of the other two.
/// let encoder = SubspaceEncoder::new(&[array![[0.0], [4.0]], array![[1.0, 1.0], [9.0, 9.0]]], None)?;
/// let codes = encoder.encode(&array![[3.5, 1.0, 2.0], [0.3, 8.0, 9.0]].view(), &())?;
/// assert_eq!(codes, array![[1, 0], [0, 1]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
pub struct SubspaceEncoder {
    /// The codebooks in the space of the vectors, by which errors are measured.
    codebooks: Codebooks,
    isa: Isa,
    dim: usize,
    /// Subtracted from every vector, so that the remainder lies around the origin.
    center: Vec<f32>,
    rotation: Option<Rotation>,
    books: Vec<Nearest>,
}

impl SubspaceEncoder {
    /// `words` holds the codewords (K, d_m) of each subspace, in the subspace's coordinates: the first d_1 dimensions
    /// are those of the first subspace, and so on. With `rotation` (d, Σ d_m), they are dimensions of x·rotation.
    ///
    /// # Errors
    /// Shapes that do not fit, or more than 256 codewords.
    pub fn new(words: &[Array2<f32>], rotation: Option<ArrayView2<'_, f32>>) -> Result<Self> {
        let isa = Isa::current()?;
        let width: usize = words.iter().map(Array2::ncols).sum();
        let dim = rotation.map_or(width, |rotation| rotation.nrows());
        if rotation.is_some_and(|rotation| rotation.ncols() != width) {
            return Err(argument!(
                "rotation",
                "has shape {:?}: want (d, {width})",
                rotation.map(|r| r.dim())
            ));
        }
        let sizes = |words: &Array2<f32>| words.ncols() > 0 && (1..=MAX_CODEWORDS).contains(&words.nrows());
        if dim == 0 || !words.iter().all(sizes) {
            return Err(argument!(
                "words",
                "have no codewords, no dimensions, or more than {MAX_CODEWORDS} codewords"
            ));
        }
        let codebooks = in_space(words, rotation)?;
        let mut means = Vec::new();
        let mut books = Vec::new();
        for words in words {
            let mean = words.mapv(f64::from).mean_axis(ndarray::Axis(0)).expect("at least one codeword");
            let centered: Vec<f32> = words
                .outer_iter()
                .flat_map(|word| (&word.mapv(f64::from) - &mean).mapv(|c| c as f32))
                .collect();
            books.push(Nearest::new(isa, &centered, words.ncols()));
            means.extend(mean);
        }
        let center = match rotation {
            None => means.iter().map(|&mean| mean as f32).collect(),
            Some(rotation) => rotation
                .outer_iter()
                .map(|row| row.iter().zip(&means).map(|(&r, mean)| f64::from(r) * mean).sum::<f64>() as f32)
                .collect(),
        };
        let rotation = rotation.map(Rotation::new).transpose()?;
        Ok(Self { codebooks, isa, dim, center, rotation, books })
    }

    /// Builds the encoder of codebooks that use separate dimensions, all in order; `None` if they do not.
    ///
    /// # Errors
    /// The requested instruction set is not available.
    pub fn of_groups(codebooks: &Codebooks) -> Result<Option<Self>> {
        let groups = codebooks.groups();
        if groups.len() != codebooks.n_codebooks() || groups.len() == 1 {
            return Ok(None);
        }
        // Dimensions that no codebook uses go to the codebook before them: they add the same to the distance of every
        // codeword.
        let first = |m: usize| groups.dimensions(m).start;
        if (1..groups.len()).any(|m| first(m) <= first(m - 1)) {
            return Ok(None);
        }
        let edge = |m: usize| match m {
            0 => 0,
            m if m == groups.len() => codebooks.dim(),
            m => first(m),
        };
        let words: Vec<Array2<f32>> = codebooks
            .view()
            .outer_iter()
            .enumerate()
            .map(|(m, book)| book.slice(s![.., edge(m)..edge(m + 1)]).to_owned())
            .collect();
        Self::new(&words, None).map(Some)
    }
}

impl Encode for SubspaceEncoder {
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        target.check(self.dim)?;
        let n = target.x.n();
        let (m, rows) = (self.books.len(), parallel::rows(CHUNK));
        let mut codes = Array2::zeros((n, m));
        let counter = Counter::new(monitor, n as u64);
        let chunks = codes.as_slice_mut().expect("fresh").par_chunks_mut(rows * m).enumerate();
        let failed = chunks
            .map_init(
                || SubspaceScratch::new(self, rows),
                |scratch, (i, codes)| {
                    scratch.read(self, target, i * rows, codes.len() / m)?;
                    scratch.choose(self, codes);
                    counter.add((codes.len() / m) as u64)
                },
            )
            .find_first(Result::is_err);
        failed.unwrap_or(Ok(()))?;
        Ok(codes)
    }

    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        let errors = |codes: &Array2<u8>| {
            errors::errors(&self.codebooks, Loss::RECONSTRUCTION, *target, codes.view(), &())
        };
        let before = errors(codes)?;
        let new = self.encode_target(target, monitor)?;
        let mut after = errors(&new)?;
        let rows = codes.outer_iter_mut().zip(new.outer_iter()).zip(before.iter().zip(&mut after));
        for ((mut code, new), (before, after)) in rows {
            if *after < *before {
                code.assign(&new);
            } else {
                *after = *before;
            }
        }
        Ok(Improved { before, after })
    }
}

/// Codewords of subspaces as codebooks of the whole space: zero in the dimensions of others, rotated back.
fn in_space(words: &[Array2<f32>], rotation: Option<ArrayView2<'_, f32>>) -> Result<Codebooks> {
    let width: usize = words.iter().map(Array2::ncols).sum();
    let size = words.iter().map(Array2::nrows).max().unwrap_or(0);
    let mut books = Array3::zeros((words.len(), size, rotation.map_or(width, |rotation| rotation.nrows())));
    let mut first = 0;
    for (mut book, words) in books.outer_iter_mut().zip(words) {
        let own = first..first + words.ncols();
        first = own.end;
        let mut book = book.slice_mut(s![..words.nrows(), ..]);
        match rotation {
            None => book.slice_mut(s![.., own]).assign(words),
            Some(rotation) => book.assign(&words.dot(&rotation.slice(s![.., own]).t())),
        }
    }
    Codebooks::new(books)
}

/// The workspace of one thread.
struct SubspaceScratch {
    rows: Rows,
    /// The vectors, centered.
    x: Vec<f32>,
    tiles: Tiles,
    rotated: Vec<f32>,
    desks: Vec<Desk>,
}

impl SubspaceScratch {
    fn new(encoder: &SubspaceEncoder, rows: usize) -> Self {
        let tiles = Tiles::new(rows, encoder.dim);
        let columns = encoder.rotation.as_ref().map_or(0, |rotation| rotation.panels.columns());
        Self {
            rows: Rows::default(),
            x: vec![0.0; rows * encoder.dim],
            rotated: vec![0.0; tiles.rows() * columns],
            tiles,
            desks: encoder.books.iter().map(Nearest::desk).collect(),
        }
    }

    /// Loads `rows` vectors of `target`, starting at `first`, and centers them.
    fn read(
        &mut self,
        encoder: &SubspaceEncoder,
        target: &Target<'_>,
        first: usize,
        rows: usize,
    ) -> Result<()> {
        self.rows.read(target, first, rows)?;
        self.x.resize(rows * encoder.dim, 0.0);
        for (r, x) in self.x.chunks_exact_mut(encoder.dim).enumerate() {
            let row = self.rows.row(r);
            x.copy_from_slice(row.x);
            if let Some(base) = row.base {
                x.iter_mut().zip(base).for_each(|(x, base)| *x -= base);
            }
            x.iter_mut().zip(&encoder.center).for_each(|(x, center)| *x -= center);
            if encoder.rotation.is_some() {
                self.tiles.set(r, x.iter().copied());
            }
        }
        Ok(())
    }

    fn choose(&mut self, encoder: &SubspaceEncoder, codes: &mut [u8]) {
        let m = encoder.books.len();
        let rows = codes.len() / m;
        let (x, width) = match &encoder.rotation {
            None => (&self.x, encoder.dim),
            Some(rotation) => {
                let Self { tiles, rotated, .. } = self;
                let (panels, start) = (&rotation.panels, &rotation.zeros[..]);
                isa::run(encoder.isa, Product { tiles, rows, panels, start, out: rotated });
                (&self.rotated, rotation.panels.columns())
            }
        };
        let mut column = 0;
        for (i, (book, desk)) in encoder.books.iter().zip(&mut self.desks).enumerate() {
            // The last row need not be complete: it ends with its subspace.
            let end = (rows - 1) * width + column + book.dim();
            book.find(&x[column..end], width, desk, |row, k| codes[row * m + i] = k);
            column += book.dim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Axis;

    fn pseudo(rows: usize, columns: usize, salt: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |(i, j)| {
            (((i * 131 + j * 37 + salt) * 2_654_435_761) % 1009) as f32
        })
    }

    #[test]
    fn finds_the_nearest_codeword_of_each_subspace() {
        let x = pseudo(333, 7, 1);
        let words = [pseudo(1, 1, 2), pseudo(70, 2, 3), pseudo(256, 4, 4)];
        let check = |x: &Array2<f32>, codes: &Array2<u8>| {
            let mut column = 0;
            for (m, words) in words.iter().enumerate() {
                let part = x.slice(s![.., column..column + words.ncols()]);
                for (part, codes) in part.outer_iter().zip(codes.outer_iter()) {
                    let distance = |word: usize| (&words.row(word) - &part).mapv(|r| f64::from(r * r)).sum();
                    let best = (0..words.nrows()).map(distance).fold(f64::INFINITY, f64::min);
                    assert!(distance(usize::from(codes[m])) <= best * 1.0001 + 1e-3);
                }
                column += words.ncols();
            }
        };
        check(&x, &SubspaceEncoder::new(&words, None).unwrap().encode(&x.view(), &()).unwrap());
        // Dimensions in another order: a rotation.
        let order = [3, 0, 6, 1, 5, 2, 4];
        let rotation = Array2::from_shape_fn((7, 7), |(i, j)| f32::from(u8::from(order[j] == i)));
        let encoder = SubspaceEncoder::new(&words, Some(rotation.view())).unwrap();
        check(&x.select(Axis(1), &order), &encoder.encode(&x.view(), &()).unwrap());
    }

    #[test]
    fn codebooks_with_dimensions_of_their_own_are_encoded_by_subspace() {
        let (x, words) = (pseudo(90, 6, 1), [pseudo(9, 2, 2), pseudo(9, 3, 3)]);
        // The last dimension belongs to no codebook.
        let mut books = Array3::zeros((2, 9, 6));
        books.slice_mut(s![0, .., ..2]).assign(&words[0]);
        books.slice_mut(s![1, .., 2..5]).assign(&words[1]);
        let codebooks = Codebooks::new(books.clone()).unwrap();
        let encoder = SubspaceEncoder::of_groups(&codebooks).unwrap().unwrap();
        let codes = encoder.encode(&x.view(), &()).unwrap();
        let alone = SubspaceEncoder::new(&words, None).unwrap();
        assert_eq!(codes, alone.encode(&x.slice(s![.., ..5]), &()).unwrap());
        books[[0, 3, 4]] = 1.0;
        assert!(SubspaceEncoder::of_groups(&Codebooks::new(books).unwrap()).unwrap().is_none());

        let mut given = codes.clone();
        given.row_mut(5).fill(0);
        let improved = Encode::improve(&encoder, &x.view(), &mut given, &()).unwrap();
        assert_eq!(given, codes);
        assert!(improved.before[5] > improved.after[5]);
        let errors = errors::errors(&codebooks, Loss::RECONSTRUCTION, &x.view(), codes.view(), &()).unwrap();
        assert_eq!(improved.after, errors);
    }
}
