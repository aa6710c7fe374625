//! Choosing codes for a chunk of vectors: scores first, then the encoder that was asked for.

use super::beam::Beam;
use super::greedy::Greedy;
use super::lanes::Lanes;
use super::local_search::{Search, Workspace, search};
use super::scores::Scores;
use super::{Encoder, Encoding, Start};
use crate::codebooks::Selection;
use crate::isa::{self, Kernel, Level};

/// What one thread works in.
pub(super) struct Scratch {
    pub(super) scores: Scores,
    minima: Vec<Lanes>,
    /// The scores once more, for the encoder that goes on from a greedy code: greedy changes them.
    copy: Vec<f32>,
    work: [Workspace; 2],
    /// The codes that local search began with.
    begun: Vec<u8>,
    beam: Beam,
    approximation: Vec<f32>,
}

/// What becomes of the codes that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// Nothing: they are chosen anew.
    Ignored,
    /// Local search goes on from them.
    Improved,
}

impl Scratch {
    pub(super) fn new(encoder: &Encoder, rows: usize) -> Self {
        Self {
            scores: Scores::new(encoder, rows),
            minima: Vec::new(),
            copy: Vec::new(),
            work: Default::default(),
            begun: Vec::new(),
            beam: Beam::default(),
            approximation: vec![0.0; encoder.codebooks.dim()],
        }
    }

    /// Chooses codes for the vectors that were read.
    pub(super) fn choose(&mut self, encoder: &Encoder, given: Given, codes: &mut [u8]) {
        isa::run(encoder.isa, Choose { encoder, scratch: self, given, codes });
    }

    /// The loss of vector `r` of those that were read.
    pub(super) fn error(&mut self, encoder: &Encoder, r: usize, code: &[u8]) -> f64 {
        let d = encoder.codebooks.dim();
        encoder.loss.of(&encoder.codebooks, &self.scores.x[r * d..][..d], code, &mut self.approximation)
    }
}

struct Choose<'a> {
    encoder: &'a Encoder,
    scratch: &'a mut Scratch,
    given: Given,
    codes: &'a mut [u8],
}

impl Kernel for Choose<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(mut self) {
        let rows = self.codes.len() / self.encoder.codebooks.n_codebooks();
        self.scratch.scores.compute::<L>(self.encoder, rows);
        match self.encoder.encoding {
            // One codebook: greedy is exact.
            _ if self.encoder.codebooks.n_codebooks() == 1 => self.greedy(rows),
            Encoding::Greedy => self.greedy(rows),
            Encoding::Beam { width } => self.beam(width),
            Encoding::LocalSearch { start, rounds, seed } => self.search(rows, start, rounds, seed),
        }
    }
}

impl Choose<'_> {
    #[inline(always)]
    fn greedy(&mut self, rows: usize) {
        let Self { encoder, scratch, .. } = self;
        let columns = encoder.panels.columns();
        let mut greedy = Greedy {
            scores: &mut scratch.scores.scores[..rows * columns],
            projections: &scratch.scores.projections,
            beta: encoder.beta,
            gram: &encoder.gram,
            columns,
            stride: encoder.stride,
            n_codebooks: encoder.codebooks.n_codebooks(),
        };
        match encoder.selection {
            Selection::Group => greedy.group(&mut scratch.minima, self.codes),
            Selection::MSelection => greedy.shared(false, self.codes),
            Selection::MCombination => greedy.shared(true, self.codes),
        }
    }

    #[inline(always)]
    fn beam(&mut self, width: usize) {
        let Self { encoder, scratch, codes, .. } = self;
        let Scratch { scores, beam, .. } = &mut **scratch;
        let space = encoder.space();
        for (r, code) in codes.chunks_mut(space.n_codebooks).enumerate() {
            space.beam(scores.vector(r, encoder, &scores.scores), beam, width.max(1), code);
        }
    }

    #[inline(always)]
    fn search(&mut self, rows: usize, start: Start, rounds: usize, seed: u64) {
        let columns = self.encoder.panels.columns();
        self.scratch.copy.clear();
        self.scratch.copy.extend_from_slice(&self.scratch.scores.scores[..rows * columns]);
        match (self.given, start) {
            (Given::Improved, _) => {}
            (Given::Ignored, Start::Greedy) => self.greedy(rows),
            (Given::Ignored, Start::Beam { width }) => self.beam(width),
        }
        let Self { encoder, scratch, codes, .. } = self;
        let Scratch { scores, copy, work: [first, second], begun, approximation, .. } = &mut **scratch;
        begun.clear();
        begun.extend_from_slice(codes);
        let (space, m, d) = (encoder.space(), encoder.codebooks.n_codebooks(), encoder.codebooks.dim());
        let x = |r: usize| &scores.x[r * d..][..d];
        for (i, codes) in codes.chunks_mut(2 * m).enumerate() {
            let (r, (one, other)) = (2 * i, codes.split_at_mut(m));
            let vector = |r| scores.vector(r, encoder, copy);
            let one = Search::new(&space, vector(r), first, own_seed(seed, x(r)), one);
            if other.is_empty() {
                search(&mut [one], rounds);
            } else {
                let other = Search::new(&space, vector(r + 1), second, own_seed(seed, x(r + 1)), other);
                search(&mut [one, other], rounds);
            }
        }
        // Of a vector far shorter than the codewords the search sees little but rounding.
        for (r, (code, begun)) in codes.chunks_mut(m).zip(begun.chunks(m)).enumerate() {
            let mut loss = |code: &[u8]| encoder.loss.of(&encoder.codebooks, x(r), code, approximation);
            if loss(begun) < loss(code) {
                code.copy_from_slice(begun);
            }
        }
    }
}

/// A vector's own seed, from its numbers: its code then does not depend on where or with which others it is encoded.
#[inline(always)]
fn own_seed(seed: u64, x: &[f32]) -> u64 {
    x.iter().fold(seed, |hash, x| {
        (hash ^ u64::from(x.to_bits())).wrapping_mul(0xD134_2543_DE82_EF95).rotate_left(29)
    })
}
