//! Encoding: which codewords approximate a vector best. The exact answer is NP-hard; the encoders here differ in how
//! near they come to it, and share the scores, the chunks and the threads.

mod beam;
mod choose;
mod gram;
mod greedy;
mod lanes;
mod levels;
mod local_search;
mod loss;
mod nearest;
mod scores;
mod space;
mod subspaces;

pub use loss::Loss;
pub(crate) use nearest::Nearest;
pub use subspaces::SubspaceEncoder;

use crate::chunk;
use crate::codebooks::{Codebooks, MAX_CODEWORDS, Selection};
use crate::directions::{Directions, Stretched};
use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::product::{Panels, Tiles, multiply};
use crate::vectors::{Vectors, check_dim, read_finite};
use choose::{Given, Scratch};
use gram::Gram;
use ndarray::{Array1, Array2, ArrayView2};
use rayon::prelude::*;
use space::Space;

/// Vectors encoded at once by a thread: their scores, 400 KB for M = 8 and K = 256, stay in the L2 cache.
const CHUNK: usize = 48;

/// Rounds of local search up to which [`CHUNK`] vectors do not keep a monitor waiting.
const PATIENCE: usize = 512;

/// Encodes vectors with given codebooks.
///
/// Holds the Gram matrix of the codewords: 4·(M·K)² bytes, 16 MB for M = 8 and K = 256; 4·K² with a shared codebook.
///
/// ```
/// use compcodes::{Codebooks, Selection, encode::Encoder};
/// use ndarray::array;
/// // Two codebooks of two codewords in the plane: four sums, the corners of a rectangle.
/// let codebooks = Codebooks::new(array![[[0.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])?;
/// let encoder = Encoder::new(&codebooks, Selection::Group)?;
/// let codes = encoder.encode(&array![[3.5, 1.2], [0.3, 2.9]].view(), &())?;
/// assert_eq!(codes, array![[1, 0], [0, 1]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
pub struct Encoder {
    codebooks: Codebooks,
    selection: Selection,
    isa: Isa,
    /// Subtracted from every vector: 0, or the common offset of all sums where they lie far from the origin.
    center: Vec<f32>,
    /// Brings the centred codewords to magnitude 1: no overflow, no underflow. A power of two: exact.
    scale: f32,
    panels: Panels,
    /// ‖c‖² of each column, +∞ where it is padding.
    norms: Vec<f32>,
    /// 2⟨c, c'⟩, a row of `panels.columns()` for each codeword.
    gram: Vec<f32>,
    /// Codewords of a codebook, padded to whole registers of [`levels`].
    stride: usize,
    /// ⟨center, c⟩ of each column.
    center_products: Vec<f32>,
    loss: Loss,
    /// η − 1 of the loss.
    beta: f32,
    encoding: Encoding,
    /// The Gram matrix of beam and local search; empty for the greedy encoder.
    coarse_gram: Gram,
    /// Along which vectors are stretched before they are encoded, as the codebooks are.
    directions: Option<Directions>,
}

/// How codes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The paper's: at each step the codebook and codeword that leave the smallest loss.
    #[default]
    Greedy,
    /// The codebooks in turn, keeping the best beginnings of a code.
    Beam {
        /// How many, at least 1.
        width: usize,
    },
    /// Changes a few codewords at random and lets the others settle, `rounds` times, keeping what is better.
    LocalSearch {
        /// The code that it begins with.
        start: Start,
        /// How often.
        rounds: usize,
        /// Of the random changes: each vector has its own sequence, from this and its numbers.
        seed: u64,
    },
}

/// Where local search begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With a greedy code.
    #[default]
    Greedy,
    /// With that of a beam search.
    Beam {
        /// How many beginnings of a code the beam keeps, at least 1.
        width: usize,
    },
}

impl Encoding {
    /// Beginnings of a code that a beam keeps: twice as many take twice the time.
    pub const WIDTH: usize = 8;

    /// Rounds of local search that pay: twice as many take twice the time for a few percent less error.
    pub const ROUNDS: usize = 128;
}

/// What [`Encoder::improve`] did to each row.
pub struct Improved {
    /// Loss of each row with the codes it had.
    pub before: Array1<f64>,
    /// The same with the codes it has now: never more.
    pub after: Array1<f64>,
}

impl Encoder {
    /// Prepares the tables that encoding needs.
    ///
    /// # Errors
    /// `selection` shares one codebook and `codebooks` are not M times the same; or it wants M different codewords of
    /// fewer than M.
    pub fn new(codebooks: &Codebooks, selection: Selection) -> Result<Self> {
        let (m, k, d) = codebooks.view().dim();
        codebooks.check_selection(selection)?;
        let books = if selection.is_shared() { 1 } else { m };
        let (center, scale, words) = normalise(codebooks, books);
        let stride = k.next_multiple_of(levels::LEVELS);
        let word = |i: usize| {
            (i < books * stride && i % stride < k).then(|| &words[(i / stride * k + i % stride) * d..][..d])
        };
        let panels = Panels::new(books * stride, d, word);
        let norms = (0..panels.columns()).map(|i| {
            word(i).map_or(f32::INFINITY, |word| {
                word.iter().map(|&c| f64::from(c) * f64::from(c)).sum::<f64>() as f32
            })
        });
        let mut encoder = Self {
            codebooks: codebooks.clone(),
            selection,
            isa: Isa::current()?,
            center,
            scale,
            norms: norms.collect(),
            gram: Vec::new(),
            center_products: Vec::new(),
            panels,
            stride,
            loss: Loss::RECONSTRUCTION,
            beta: 0.0,
            encoding: Encoding::Greedy,
            coarse_gram: Gram::default(),
            directions: None,
        };
        encoder.center_products = encoder.center_products(word);
        if m > 1 {
            encoder.gram = encoder.gram(books * stride, word);
        }
        Ok(encoder)
    }

    /// The same for errors that count more along `directions`: it encodes L x with the codewords L c.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); or `directions` have another d than `codebooks`.
    pub fn stretched(codebooks: &Codebooks, selection: Selection, directions: Directions) -> Result<Self> {
        let encoder = Self::new(&directions.stretch(codebooks)?, selection)?;
        Ok(Self { directions: Some(directions), ..encoder })
    }

    /// Judges codes by `loss` instead of the squared error.
    #[must_use]
    pub fn with_loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self.beta = loss.extra() as f32;
        self
    }

    /// Chooses codes as `encoding` says instead of greedily.
    #[must_use]
    pub fn with_encoding(mut self, encoding: Encoding) -> Self {
        let (m, k, _) = self.codebooks.view().dim();
        if encoding != Encoding::Greedy && m > 1 {
            self.coarse_gram = Gram::new(&self.gram, self.panels.columns(), self.stride, k, m);
        }
        self.encoding = encoding;
        self
    }

    /// The codebooks it encodes with, stretched if it stretches vectors.
    #[must_use]
    pub fn codebooks(&self) -> &Codebooks {
        &self.codebooks
    }

    /// Codes (n, M) of `x` (n, d).
    ///
    /// # Errors
    /// `x` has another d, or a row that is not finite; or `monitor` cancels.
    pub fn encode(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        let mut codes = Array2::zeros((x.n(), self.codebooks.n_codebooks()));
        self.run(x, &mut codes, None, monitor)?;
        Ok(codes)
    }

    /// Encodes `x` anew, and takes a row's new code only where its error is smaller than that of the one it has.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); or `codes` do not fit `x` and the codebooks. After an error `codes` hold a
    /// mixture of old and new ones.
    pub fn improve(
        &self,
        x: &dyn Vectors,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        check_rows(codes.view(), x)?;
        self.codebooks.check_codes(codes.view())?;
        let mut improved = Improved { before: Array1::zeros(x.n()), after: Array1::zeros(x.n()) };
        self.run(x, codes, Some(&mut improved), monitor)?;
        Ok(improved)
    }

    fn run(
        &self,
        x: &dyn Vectors,
        codes: &mut Array2<u8>,
        improved: Option<&mut Improved>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        check_dim(x, "X", self.codebooks.dim())?;
        let stretched: Stretched<'_>;
        let x = match &self.directions {
            None => x,
            Some(directions) => {
                stretched = directions.stretched(x)?;
                &stretched
            }
        };
        let (m, rows) = (self.codebooks.n_codebooks(), chunk::rows(self.together()));
        let counter = Counter::new(monitor, x.n() as u64);
        let codes =
            codes.as_slice_mut().expect("codes are made contiguous").par_chunks_mut(rows * m).enumerate();
        let finish = |codes: &[u8]| counter.add((codes.len() / m) as u64);
        // `find_first` and not `try_for_each`: of several bad rows the lowest is reported, for any number of threads.
        let failed = match improved {
            None => codes
                .map_init(
                    || Scratch::new(self, rows),
                    |scratch, (i, codes)| {
                        scratch.scores.read(self, x, i * rows, codes.len() / m)?;
                        scratch.choose(self, Given::Ignored, codes);
                        finish(codes)
                    },
                )
                .find_first(Result::is_err),
            Some(Improved { before, after }) => {
                let before = before.as_slice_mut().expect("fresh").par_chunks_mut(rows);
                let after = after.as_slice_mut().expect("fresh").par_chunks_mut(rows);
                codes
                    .zip(before.zip(after))
                    .map_init(
                        || (Scratch::new(self, rows), vec![0u8; rows * m]),
                        |(scratch, new), ((i, codes), (before, after))| {
                            scratch.scores.read(self, x, i * rows, before.len())?;
                            let new = &mut new[..codes.len()];
                            new.copy_from_slice(codes);
                            scratch.choose(self, Given::Improved, new);
                            let rows =
                                codes.chunks_mut(m).zip(new.chunks(m)).zip(before.iter_mut().zip(after));
                            for (r, ((code, new), (before, after))) in rows.enumerate() {
                                *before = scratch.error(self, r, code);
                                *after = *before;
                                let error = scratch.error(self, r, new);
                                if error < *before {
                                    *after = error;
                                    code.copy_from_slice(new);
                                }
                            }
                            finish(codes)
                        },
                    )
                    .find_first(Result::is_err)
            }
        };
        failed.unwrap_or(Ok(()))
    }

    /// Vectors encoded at once by a thread: few of those that take long, so that the monitor is asked often.
    fn together(&self) -> usize {
        match self.encoding {
            Encoding::LocalSearch { rounds, .. } => (CHUNK * PATIENCE / rounds.max(PATIENCE)).max(2),
            _ => CHUNK,
        }
    }

    /// Where beam and local search take place.
    fn space(&self) -> Space<'_> {
        Space {
            gram: &self.coarse_gram,
            n_codewords: self.codebooks.view().dim().1,
            stride: self.stride,
            n_codebooks: self.codebooks.n_codebooks(),
            shared: self.selection.is_shared(),
            distinct: self.selection == Selection::MCombination,
            beta: self.beta,
        }
    }

    fn center_products<'a>(&self, word: impl Fn(usize) -> Option<&'a [f32]>) -> Vec<f32> {
        let product = |word: &[f32]| {
            word.iter().zip(&self.center).map(|(&c, &center)| f64::from(c) * f64::from(center)).sum::<f64>()
        };
        (0..self.panels.columns()).map(|i| word(i).map_or(0.0, product) as f32).collect()
    }

    fn gram<'a>(&self, codewords: usize, word: impl Fn(usize) -> Option<&'a [f32]> + Sync) -> Vec<f32> {
        let columns = self.panels.columns();
        let mut gram = vec![0.0; codewords * columns];
        gram.par_chunks_mut(CHUNK * columns).enumerate().for_each(|(i, gram)| {
            let rows = gram.len() / columns;
            let mut tiles = Tiles::new(CHUNK, self.codebooks.dim());
            for r in 0..rows {
                tiles.set(r, word(i * CHUNK + r).into_iter().flatten().map(|c| 2.0 * c));
            }
            let mut out = vec![0.0; tiles.rows() * columns];
            let start = &vec![0.0; columns];
            isa::run(self.isa, Product { tiles: &tiles, rows, panels: &self.panels, start, out: &mut out });
            gram.copy_from_slice(&out[..gram.len()]);
        });
        gram
    }
}

/// The loss of each row of `x` (n, d) with `codes` (n, M), in f64.
///
/// # Errors
/// Shapes that do not fit, a row that is not finite, or a cancelling monitor.
pub fn errors(
    codebooks: &Codebooks,
    loss: Loss,
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    monitor: &dyn Monitor,
) -> Result<Array1<f64>> {
    check_dim(x, "X", codebooks.dim())?;
    check_rows(codes, x)?;
    codebooks.check_codes(codes)?;
    let mut errors = Array1::zeros(x.n());
    let (rows, d) = (chunk::rows(CHUNK), codebooks.dim());
    let counter = Counter::new(monitor, x.n() as u64);
    let chunks = errors.as_slice_mut().expect("fresh").par_chunks_mut(rows).enumerate();
    let failed = chunks
        .map_init(
            || (vec![0.0; rows * d], vec![0.0; d], Vec::new()),
            |(x_rows, approximation, code), (i, errors)| {
                let x_rows = &mut x_rows[..errors.len() * d];
                read_finite(x, "X", i * rows, x_rows)?;
                for (r, (x, error)) in x_rows.chunks(d).zip(errors.iter_mut()).enumerate() {
                    code.clear();
                    code.extend(codes.row(i * rows + r));
                    *error = loss.of(codebooks, x, code, approximation);
                }
                counter.add(errors.len() as u64)
            },
        )
        .find_first(Result::is_err);
    failed.unwrap_or(Ok(()))?;
    Ok(errors)
}

/// ‖x − x̄‖ of each row, rounded up: |⟨q, x⟩ − ⟨q, x̄⟩| is at most this times ‖q‖, for every q (Cauchy and Schwarz).
///
/// # Errors
/// Those of [`errors`].
pub fn error_bounds(
    codebooks: &Codebooks,
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    monitor: &dyn Monitor,
) -> Result<Array1<f64>> {
    let squares = errors(codebooks, Loss::RECONSTRUCTION, x, codes, monitor)?;
    // A term of the sum is off by three roundings, the sum by fewer than d more, its root by half of all and one more.
    // No square of a difference of two f32 underflows.
    let up = 1.0 + (codebooks.dim() + 8) as f64 * f64::EPSILON / 2.0;
    Ok(squares.mapv_into(|square| square.sqrt() * up))
}

fn check_rows(codes: ArrayView2<'_, u8>, x: &dyn Vectors) -> Result<()> {
    if codes.nrows() == x.n() {
        return Ok(());
    }
    Err(invalid!("codes have {} rows, X has {}", codes.nrows(), x.n()))
}

/// ‖mean‖² of the sums over the mean ‖c − mean‖² of the codewords from which on codebooks are centred. Float32 then
/// keeps no more than four digits of the scores, and ever fewer beyond.
const FAR: f64 = 1000.0;

/// The offset to subtract from vectors, the scale, and the codewords so moved and scaled.
///
/// Moving each codebook's mean into a common offset changes no sum, but it does change which codeword a *greedy* choice
/// takes first. So it is done only where the vectors lie so far from the origin that float32 scores would be noise.
fn normalise(codebooks: &Codebooks, books: usize) -> (Vec<f32>, f32, Vec<f32>) {
    let (m, k, d) = codebooks.view().dim();
    let mut words = codebooks.as_slice()[..books * k * d].to_vec();
    let means: Vec<Vec<f32>> = words
        .chunks_exact(k * d)
        .map(|book| {
            let sum = |j| book.iter().skip(j).step_by(d).map(|&c| f64::from(c)).sum::<f64>();
            (0..d).map(|j| (sum(j) / k as f64) as f32).collect()
        })
        .collect();
    // A shared codebook is summed M times.
    let times = (m / books) as f64;
    let center = |j: usize| times * means.iter().map(|mean| f64::from(mean[j])).sum::<f64>();
    let mut center: Vec<f32> = (0..d).map(|j| center(j) as f32).collect();
    let mut centred = words.clone();
    for (book, mean) in centred.chunks_exact_mut(k * d).zip(&means) {
        book.chunks_exact_mut(d).for_each(|word| word.iter_mut().zip(mean).for_each(|(c, mean)| *c -= mean));
    }
    let square = |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
    if square(&center) > FAR * square(&centred) / (books * k) as f64 {
        words = centred;
    } else {
        center.fill(0.0);
    }
    let scale = nearest::power_of_two(&words);
    words.iter_mut().for_each(|c| *c *= scale);
    (center, scale, words)
}

struct Product<'a> {
    tiles: &'a Tiles,
    rows: usize,
    panels: &'a Panels,
    start: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        multiply::<L>(self.tiles, self.rows, self.panels, self.start, self.out);
    }
}

const _: () = assert!(MAX_CODEWORDS <= 1 << u8::BITS);
