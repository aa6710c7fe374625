//! What the search for codes needs to know about the codebooks, prepared once for many vectors.

use super::encoding::{Encoding, Start};
use super::gram::Gram;
use super::gram_rows::GramRows;
use super::levels;
use super::loss::Loss;
use super::normalise::normalise;
use super::space::Space;
use crate::codebooks::{Codebooks, MAX_CODEWORDS, MAX_TOGETHER, Selection};
use crate::error::{Result, argument};
use crate::isa::{self, Isa};
use crate::linalg::gemm::{Panels, Product, Tiles};
use crate::vectors::basis::Directions;
use rayon::prelude::*;

/// Vectors encoded at once by a thread: their scores, 400 KB for M = 8 and K = 256, stay in the L2 cache.
pub(super) const CHUNK: usize = 48;

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
    pub(super) codebooks: Codebooks,
    pub(super) selection: Selection,
    pub(super) isa: Isa,
    /// Subtracted from every vector: 0, or the common offset of all sums if they lie far from the origin.
    pub(super) center: Vec<f32>,
    /// Brings the centered codewords to magnitude 1, so that nothing overflows or underflows. A power of two, hence
    /// exact.
    pub(super) scale: f32,
    pub(super) panels: Panels,
    /// ‖c‖² of each column, +∞ for padding.
    pub(super) norms: Vec<f32>,
    /// 2⟨c, c'⟩: one row of `panels.columns()` entries per codeword.
    pub(super) gram: Vec<f32>,
    /// Codewords per codebook, padded to whole registers of [`levels`].
    pub(super) stride: usize,
    /// ⟨center, c⟩ of each column.
    pub(super) center_products: Vec<f32>,
    pub(super) loss: Loss,
    /// η − 1 of the loss.
    pub(super) beta: f32,
    pub(super) encoding: Encoding,
    /// The Gram matrix for beam and local search; empty for the greedy encoder.
    pub(super) coarse_gram: Gram,
    /// The Gram matrix for local search with few codewords.
    pub(super) rows: Option<GramRows>,
    /// The directions along which vectors are stretched before encoding, as the codebooks are.
    pub(super) directions: Option<Directions>,
    /// Rounds of local search when starting from given codes, if different from the usual number.
    pub(super) later: Option<usize>,
}

impl Encoder {
    /// Prepares the tables that encoding needs.
    ///
    /// # Errors
    /// `selection` shares one codebook and `codebooks` are not M copies of one; or it needs M different codewords and
    /// there are fewer; or M is above 64.
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

    /// Like [`new`](Self::new), for errors that count more along `directions`: encodes L x with the codewords L c.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); or `directions` has a different d than `codebooks`.
    pub fn stretched(codebooks: &Codebooks, selection: Selection, directions: Directions) -> Result<Self> {
        let encoder = Self::new(&directions.stretch(codebooks)?, selection)?;
        Ok(Self { directions: Some(directions), ..encoder })
    }

    /// Measures codes by `loss` instead of the squared error.
    #[must_use]
    pub fn with_loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self.beta = loss.extra() as f32;
        self
    }

    /// Chooses codes by `encoding` instead of greedily.
    #[must_use]
    pub fn with_encoding(mut self, encoding: Encoding) -> Self {
        let (m, k, _) = self.codebooks.view().dim();
        if encoding != Encoding::Greedy && m > 1 {
            self.coarse_gram = Gram::new(&self.gram, self.panels.columns(), self.stride, k, m);
            let local = matches!(encoding, Encoding::LocalSearch { .. }) && !self.selection.is_shared();
            self.rows = if local { GramRows::new(&self.coarse_gram, m, k) } else { None };
        }
        self.encoding = encoding;
        self
    }

    /// Sets the number of rounds of local search for codes that are given, if the encoder uses local search.
    pub(super) fn with_later_rounds(mut self, rounds: usize) -> Self {
        self.later = Some(rounds);
        self
    }

    /// Frees what only a greedy start needs, if there is no greedy start.
    pub(super) fn without_fine_gram(mut self) -> Self {
        let starts = match self.encoding {
            Encoding::LocalSearch { start, .. } => start != Start::Greedy,
            other => other != Encoding::Greedy,
        };
        if starts {
            self.gram = Vec::new();
        }
        self
    }

    /// The codebooks it encodes with, stretched if vectors are.
    #[must_use]
    pub fn codebooks(&self) -> &Codebooks {
        &self.codebooks
    }

    /// The search space of beam and local search.
    pub(super) fn space(&self) -> Space<'_> {
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

const _: () = assert!(MAX_CODEWORDS <= 1 << u8::BITS);
