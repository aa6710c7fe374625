//! Choosing codes for a chunk of vectors: computes the scores first, then runs the requested encoder.

use super::beam::Beam;
use super::encoder::{CHUNK, Encoder};
use super::greedy::Greedy;
use super::lanes::Lanes;
use super::local_search::Search;
use super::scores::Scores;
use super::target::{Rows, Target};
use super::{Encoding, Start};
use crate::codebooks::Selection;
use crate::error::Result;
use crate::isa::{self, Kernel, Level};

/// The workspace of one thread.
pub(super) struct Scratch {
    /// The vectors of a chunk.
    rows: Rows,
    scores: Scores,
    minima: Vec<Lanes>,
    search: Search,
    /// The codes that local search started from.
    begun: Vec<u8>,
    /// Codes that may replace the present ones.
    new: Vec<u8>,
    beam: Beam,
    approximation: Vec<f32>,
}

/// What happens to the codes that are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// They are ignored, and codes are chosen from scratch.
    Ignored,
    /// Local search starts from them. Codes may become worse: for a vector far shorter than the codewords, local search
    /// sees little but rounding.
    Improved,
}

impl Scratch {
    pub(super) fn new(encoder: &Encoder) -> Self {
        Self {
            rows: Rows::default(),
            scores: Scores::new(encoder, CHUNK),
            minima: Vec::new(),
            search: Search::default(),
            begun: Vec::new(),
            new: Vec::new(),
            beam: Beam::default(),
            approximation: vec![0.0; encoder.codebooks.dim()],
        }
    }

    /// Loads `rows` vectors of `target`, starting at `first`.
    pub(super) fn read(&mut self, target: &Target<'_>, first: usize, rows: usize) -> Result<()> {
        self.rows.read(target, first, rows)
    }

    /// Chooses codes for the vectors that were loaded.
    pub(super) fn choose(&mut self, encoder: &Encoder, given: Given, codes: &mut [u8]) {
        isa::run(encoder.isa, Choose { encoder, scratch: self, given, codes });
    }

    /// Chooses new codes for the vectors that were loaded and keeps those that are better. Returns the losses before
    /// and after.
    pub(super) fn improve(
        &mut self,
        encoder: &Encoder,
        codes: &mut [u8],
        (before, after): (&mut [f64], &mut [f64]),
    ) {
        let mut new = std::mem::take(&mut self.new);
        new.clear();
        new.extend_from_slice(codes);
        self.choose(encoder, Given::Improved, &mut new);
        isa::run(encoder.isa, Judge { encoder, scratch: self, codes, new: &new, before, after });
        self.new = new;
    }
}

/// Accepts new codes where they are better than the present ones.
struct Judge<'a> {
    encoder: &'a Encoder,
    scratch: &'a mut Scratch,
    codes: &'a mut [u8],
    new: &'a [u8],
    before: &'a mut [f64],
    after: &'a mut [f64],
}

impl Kernel for Judge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let Scratch { rows, approximation, .. } = self.scratch;
        let (loss, books, m) =
            (self.encoder.loss, &self.encoder.codebooks, self.encoder.codebooks.n_codebooks());
        let codes = self.codes.chunks_exact_mut(m).zip(self.new.chunks_exact(m));
        let losses = self.before.iter_mut().zip(self.after);
        for (r, ((code, new), (before, after))) in codes.zip(losses).enumerate() {
            *before = loss.of(books, rows.row(r), code, approximation);
            *after = *before;
            if code != new {
                let error = loss.of(books, rows.row(r), new, approximation);
                if error < *before {
                    *after = error;
                    code.copy_from_slice(new);
                }
            }
        }
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
    fn run<L: Level>(self) {
        let Self { encoder, scratch, given, codes } = self;
        let m = encoder.codebooks.n_codebooks();
        // With one codebook the greedy encoder is exact.
        let searched = match encoder.encoding {
            Encoding::LocalSearch { start, rounds, seed } if m > 1 => {
                let later = encoder.later.filter(|_| given == Given::Improved);
                Some((start, later.unwrap_or(rounds), seed))
            }
            _ => None,
        };
        if searched.is_some() {
            scratch.search.vectors.prepare(&encoder.space(), codes.len() / m);
        }
        for (i, codes) in codes.chunks_mut(CHUNK * m).enumerate() {
            let rows = codes.len() / m;
            let read = &scratch.rows;
            scratch.scores.set(encoder, (0..rows).map(|r| read.row(i * CHUNK + r)));
            scratch.scores.compute::<L>(encoder, rows);
            let begin = match (encoder.encoding, searched) {
                (_, Some((start, ..))) => {
                    for r in 0..rows {
                        let vector = scratch.scores.vector(r, encoder);
                        scratch.search.vectors.fill::<L>(&encoder.space(), i * CHUNK + r, vector);
                    }
                    (given == Given::Ignored).then_some(start)
                }
                (Encoding::Beam { width }, None) if m > 1 => Some(Start::Beam { width }),
                _ => Some(Start::Greedy),
            };
            match begin {
                None => {}
                Some(Start::Greedy) => greedy(encoder, scratch, codes),
                Some(Start::Beam { width }) => beam::<L>(encoder, scratch, width, codes),
            }
        }
        if let Some((_, rounds, seed)) = searched {
            scratch.begun.clear();
            scratch.begun.extend_from_slice(codes);
            scratch.search.run::<L>(&encoder.space(), rounds, seed, codes);
            if given == Given::Ignored {
                go_back(encoder, scratch, codes);
            }
        }
    }
}

#[inline(always)]
fn greedy(encoder: &Encoder, scratch: &mut Scratch, codes: &mut [u8]) {
    let columns = encoder.panels.columns();
    let rows = codes.len() / encoder.codebooks.n_codebooks();
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
        Selection::Group => greedy.group(&mut scratch.minima, codes),
        Selection::MSelection => greedy.shared(false, codes),
        Selection::MCombination => greedy.shared(true, codes),
    }
}

#[inline(always)]
fn beam<L: Level>(encoder: &Encoder, scratch: &mut Scratch, width: usize, codes: &mut [u8]) {
    let space = encoder.space();
    for (r, code) in codes.chunks_mut(space.n_codebooks).enumerate() {
        space.beam::<L>(scratch.scores.vector(r, encoder), &mut scratch.beam, width.max(1), code);
    }
}

/// Reverts codes for which local search ended with a larger loss than it started with.
#[inline(always)]
fn go_back(encoder: &Encoder, scratch: &mut Scratch, codes: &mut [u8]) {
    let m = encoder.codebooks.n_codebooks();
    let Scratch { rows, begun, approximation, .. } = scratch;
    for (r, (code, begun)) in codes.chunks_mut(m).zip(begun.chunks(m)).enumerate() {
        if code != begun {
            let (loss, books) = (encoder.loss, &encoder.codebooks);
            let before = loss.of(books, rows.row(r), begun, approximation);
            if before < loss.of(books, rows.row(r), code, approximation) {
                code.copy_from_slice(begun);
            }
        }
    }
}
