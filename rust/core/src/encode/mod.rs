//! Encoding: which codewords approximate a vector best. The exact answer is NP-hard; the encoders here differ in how
//! near they come to it, and share the scores, the chunks and the threads.

mod beam;
mod choose;
mod encoding;
mod errors;
mod gram;
mod greedy;
mod grouped;
mod lanes;
mod levels;
mod lists;
mod local_search;
mod local_search_tables;
mod loss;
mod nearest;
mod normalise;
mod objective;
mod perturbation;
mod rotation;
mod rounded;
mod scores;
mod space;
mod state;
mod subspaces;
mod target;
mod unit;

pub use encoding::{Encoding, Start};
pub use errors::{error_bounds, errors};
pub use grouped::GroupedEncoder;
pub(crate) use lists::ListFinder;
pub use loss::Loss;
pub(crate) use nearest::Nearest;
pub use objective::Objective;
pub use rotation::rotated;
pub use subspaces::SubspaceEncoder;
pub use target::{Rest, Target};
pub use unit::OfUnit;

use crate::codebooks::{Codebooks, MAX_CODEWORDS, MAX_TOGETHER, Selection};
use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Panels, Tiles, multiply};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::vectors::Vectors;
use crate::vectors::basis::Directions;
use choose::{Given, Scratch};
use errors::check_rows;
use gram::Gram;
use local_search_tables::Rows;
use ndarray::{Array1, Array2};
use normalise::normalise;
use rayon::prelude::*;
use space::Space;
use target::StretchedTarget;

/// Vectors encoded at once by a thread: their scores, 400 KB for M = 8 and K = 256, stay in the L2 cache.
const CHUNK: usize = 48;

/// Vectors that take the steps of local search together, at most.
const SEARCHED: usize = 1008;
/// Numbers that local search holds for them, at most.
const LARGEST: usize = 1 << 22;
/// Look-ups of Gram entries, M²·K for each vector and round, that do not keep a monitor waiting.
const PATIENCE: usize = 1 << 32;

/// A way of choosing codes for vectors, made for given codebooks: see [`encoder`].
pub trait Encode: Send + Sync {
    /// Codes (n, M) of `x` (n, d).
    ///
    /// # Errors
    /// `x` has another d, or a row that is not finite; or `monitor` cancels.
    fn encode(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        self.encode_target(&Target::from(x), monitor)
    }

    /// The same where part of the approximations is given.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode), for the base too; or base or rest have other than n rows.
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>>;

    /// Chooses anew, and takes a row's new code only where its error is smaller than that of the one it has. Encoders
    /// that can go on from a code do so.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); or `codes` do not fit `x` and the codebooks. After an error `codes` hold a
    /// mixture of old and new ones.
    fn improve(&self, x: &dyn Vectors, codes: &mut Array2<u8>, monitor: &dyn Monitor) -> Result<Improved> {
        self.improve_target(&Target::from(x), codes, monitor)
    }

    /// The same where part of the approximations is given.
    ///
    /// # Errors
    /// Those of [`improve`](Self::improve) and [`encode_target`](Self::encode_target).
    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved>;
}

/// What [`Encode::improve`] did to each row.
pub struct Improved {
    /// Loss of each row with the codes it had.
    pub before: Array1<f64>,
    /// The same with the codes it has now: never more.
    pub after: Array1<f64>,
}

/// The encoder for `codebooks`. Where these have dimensions of their own (see [`Codebooks::groups`]), and the loss is the
/// squared error, the nearest codeword of each is the best code, however codes were to be chosen.
///
/// # Errors
/// Those of [`Encoder::new`] and [`Encoder::stretched`].
pub fn encoder(
    codebooks: &Codebooks,
    selection: Selection,
    objective: &Objective,
    encoding: Encoding,
) -> Result<Box<dyn Encode>> {
    if *objective == Objective::default()
        && !selection.is_shared()
        && let Some(encoder) = SubspaceEncoder::of_groups(codebooks)?
    {
        return Ok(Box::new(encoder));
    }
    let encoder = match &objective.directions {
        None => Encoder::new(codebooks, selection)?,
        Some(directions) => Encoder::stretched(codebooks, selection, directions.clone())?,
    };
    Ok(Box::new(encoder.with_loss(objective.loss).with_encoding(encoding)))
}

/// Encodes vectors with given codebooks.
///
/// Holds the Gram matrix of the codewords: 4·(M·K)² bytes, 16 MB for M = 8 and K = 256; 4·K² with a shared codebook.
///
/// ```
/// use compcodes::encode::{Encode, Encoder};
/// use compcodes::{Codebooks, Selection};
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
    /// That of local search among few codewords.
    rows: Option<Rows>,
    /// Along which vectors are stretched before they are encoded, as the codebooks are.
    directions: Option<Directions>,
    /// Rounds of local search where codes are given, if not as many as otherwise.
    later: Option<usize>,
}

impl Encode for Encoder {
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        let mut codes = Array2::zeros((target.x.n(), self.codebooks.n_codebooks()));
        self.run(target, &mut codes, None, monitor)?;
        Ok(codes)
    }

    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        let n = target.x.n();
        check_rows(codes.view(), target.x)?;
        self.codebooks.check_codes(codes.view())?;
        let mut improved = Improved { before: Array1::zeros(n), after: Array1::zeros(n) };
        self.run(target, codes, Some(&mut improved), monitor)?;
        Ok(improved)
    }
}

impl Encoder {
    /// Prepares the tables that encoding needs.
    ///
    /// # Errors
    /// `selection` shares one codebook and `codebooks` are not M times the same; or it wants M different codewords of
    /// fewer than M; or M is above 64.
    pub fn new(codebooks: &Codebooks, selection: Selection) -> Result<Self> {
        let (m, k, d) = codebooks.view().dim();
        if m > MAX_TOGETHER {
            return Err(argument!(
                "codebooks",
                "are too many, {m} codebooks without groups: more than {MAX_TOGETHER} are encoded in groups or in subspaces"
            ));
        }
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
            rows: None,
            directions: None,
            later: None,
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
            let local = matches!(encoding, Encoding::LocalSearch { .. }) && !self.selection.is_shared();
            self.rows = if local { Rows::new(&self.coarse_gram, m, k) } else { None };
        }
        self.encoding = encoding;
        self
    }

    /// Searches in so many rounds where codes are given, if it searches.
    fn with_later_rounds(mut self, rounds: usize) -> Self {
        self.later = Some(rounds);
        self
    }

    /// Frees what only a greedy start needs, where there is none.
    fn without_fine_gram(mut self) -> Self {
        let starts = match self.encoding {
            Encoding::LocalSearch { start, .. } => start != Start::Greedy,
            other => other != Encoding::Greedy,
        };
        if starts {
            self.gram = Vec::new();
        }
        self
    }

    /// The codebooks it encodes with, stretched if it stretches vectors.
    #[must_use]
    pub fn codebooks(&self) -> &Codebooks {
        &self.codebooks
    }

    fn run(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        improved: Option<&mut Improved>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        target.check(self.codebooks.dim())?;
        let stretched: StretchedTarget<'_>;
        let target = match &self.directions {
            None => *target,
            Some(directions) => {
                stretched = StretchedTarget::new(directions, target)?;
                stretched.target()
            }
        };
        let n = target.x.n();
        let (m, rows) = (self.codebooks.n_codebooks(), parallel::rows(self.together(n)));
        let counter = Counter::new(monitor, n as u64);
        let codes =
            codes.as_slice_mut().expect("codes are made contiguous").par_chunks_mut(rows * m).enumerate();
        let finish = |codes: &[u8]| counter.add((codes.len() / m) as u64);
        // `find_first` and not `try_for_each`: of several bad rows the lowest is reported, for any number of threads.
        let failed = match improved {
            None => codes
                .map_init(
                    || Scratch::new(self),
                    |scratch, (i, codes)| {
                        scratch.read(&target, i * rows, codes.len() / m)?;
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
                        || Scratch::new(self),
                        |scratch, ((i, codes), (before, after))| {
                            scratch.read(&target, i * rows, before.len())?;
                            scratch.improve(self, codes, (before, after));
                            finish(codes)
                        },
                    )
                    .find_first(Result::is_err)
            }
        };
        failed.unwrap_or(Ok(()))
    }

    /// Vectors encoded at once by a thread, of `n`.
    fn together(&self, n: usize) -> usize {
        let Encoding::LocalSearch { rounds, .. } = self.encoding else { return CHUNK };
        let (m, k, d) = self.codebooks.view().dim();
        // Enough for the threads to share out, and few of those that take long, so that the monitor is asked often.
        let shared = n.div_ceil(4 * rayon::current_num_threads());
        let patient = PATIENCE / (rounds.max(1) * m * m * k).max(1);
        SEARCHED
            .min(LARGEST / (m * k + d))
            .min(shared)
            .min(patient)
            .max(2)
            .next_multiple_of(if patient > CHUNK { CHUNK } else { 2 })
    }

    /// Where beam and local search take place.
    fn space(&self) -> Space<'_> {
        Space {
            gram: &self.coarse_gram,
            rows: self.rows.as_ref(),
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
