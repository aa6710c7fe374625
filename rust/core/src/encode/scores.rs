//! The scores of a chunk of vectors: what each codeword would add to the loss if it were the first one chosen.
//!
//! With r = x − c the loss ‖r‖² + β⟨r, u⟩², where u = x/‖x‖ and β = η − 1, is the loss with no codeword plus
//!
//! ```text
//! S = ‖c‖² − 2⟨x, c⟩ + β(p² − 2‖x‖p),   p = ⟨u, c⟩
//! ```
//!
//! If part of the approximation is given, x − base replaces x in −2⟨x, c⟩, and the length that is left along u replaces
//! ‖x‖ in −2‖x‖p. The p then need products of their own.
//!
//! Choosing c adds 2⟨c, c'⟩ + 2βpp' to the score of every other codeword c'. Without a base the p follow from the
//! products that the score already contains.

use super::encoder::Encoder;
use super::space::Vector;
use super::target::Row;
use crate::isa::Level;
use crate::linalg::gemm::{Tiles, multiply};

/// The workspace of one thread: some vectors, and their scores.
pub(super) struct Scores {
    tiles: Tiles,
    /// The directions of vectors with a base, and the zeros that their products start from.
    directions: Option<(Tiles, Vec<f32>)>,
    /// `columns` scores per vector, of which the first `books · stride` count; padding is +∞.
    pub(super) scores: Vec<f32>,
    /// p, laid out like the scores; empty if β is 0. Padding is 0.
    pub(super) projections: Vec<f32>,
    along: Vec<Along>,
}

/// Norm, relative to that of the codewords, below which a vector counts as the zero vector: float32 scores then contain
/// nothing of its direction.
const SHORT: f64 = 1e-6;

/// How the projections of one vector follow from its scores.
#[derive(Clone, Copy, Default)]
struct Along {
    /// 1 / ‖x‖; 0 for the zero vector, which has no direction.
    inverse_norm: f32,
    /// What the codewords' projections on u should add up to, scaled like the codewords: ⟨x − center, u⟩ if no part of
    /// the approximation is given.
    target: f32,
}

impl Scores {
    pub(super) fn new(encoder: &Encoder, rows: usize) -> Self {
        let d = encoder.codebooks.dim();
        let tiles = Tiles::new(rows, d);
        let size = tiles.rows() * encoder.panels.columns();
        Self {
            scores: vec![0.0; size],
            projections: vec![0.0; if encoder.beta > 0.0 { size } else { 0 }],
            along: vec![Along::default(); rows],
            tiles,
            directions: None,
        }
    }

    /// Loads vectors.
    pub(super) fn set<'a>(&mut self, encoder: &Encoder, rows: impl Iterator<Item = Row<'a>>) {
        // The factor −2 of the score is exact, so it may as well be applied here.
        let factor = -2.0 * encoder.scale;
        for (r, row) in rows.enumerate() {
            let centered = row.x.iter().zip(&encoder.center);
            match row.base {
                None => self.tiles.set(r, centered.map(|(x, center)| (x - center) * factor)),
                Some(base) => {
                    let left = centered.zip(base);
                    self.tiles.set(r, left.map(|((x, center), base)| (x - base - center) * factor));
                }
            }
            if encoder.beta == 0.0 {
                continue;
            }
            self.along[r] = Along::new(row, &encoder.center, encoder.scale);
            if row.base.is_some() {
                let (tiles, _) = self.directions.get_or_insert_with(|| {
                    let tiles = Tiles::new(self.along.len(), encoder.codebooks.dim());
                    (tiles, vec![0.0; encoder.panels.columns()])
                });
                tiles.set(r, row.x.iter().map(|x| x * self.along[r].inverse_norm));
            } else {
                self.directions = None;
            }
        }
    }

    /// Computes the scores of the `rows` vectors that were loaded.
    #[inline(always)]
    pub(super) fn compute<L: Level>(&mut self, encoder: &Encoder, rows: usize) {
        multiply::<L>(&self.tiles, rows, &encoder.panels, &encoder.norms, &mut self.scores);
        if encoder.beta == 0.0 {
            return;
        }
        if let Some((tiles, zeros)) = &self.directions {
            multiply::<L>(tiles, rows, &encoder.panels, zeros, &mut self.projections);
        }
        let has_projections = self.directions.is_some();
        let columns = encoder.panels.columns();
        let vectors = self.scores.chunks_exact_mut(columns).zip(self.projections.chunks_exact_mut(columns));
        for ((scores, projections), along) in vectors.zip(&self.along[..rows]) {
            if has_projections {
                along.charge::<L>(encoder, scores, projections);
            } else {
                along.project::<L>(encoder, scores, projections);
            }
        }
    }

    /// Vector `r` with its scores.
    #[inline(always)]
    pub(super) fn vector(&self, r: usize, encoder: &Encoder) -> Vector<'_> {
        let columns = encoder.panels.columns();
        let here = r * columns..(r + 1) * columns;
        let projections = self.projections.get(here.clone()).unwrap_or_default();
        Vector { scores: &self.scores[here], projections, target: self.along[r].target }
    }
}

impl Along {
    fn new(row: Row<'_>, center: &[f32], scale: f32) -> Self {
        let x = row.x;
        let product = |y: &[f32]| x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
        let square = product(x);
        let (norm, rest) = row.rest.map_or((square.sqrt(), 0.0), |rest| (rest.norm, rest.along));
        if norm * f64::from(scale) < SHORT {
            return Self::default();
        }
        Self {
            inverse_norm: (1.0 / norm) as f32,
            target: match (row.base, row.rest) {
                (None, None) => (f64::from(scale) * (norm - product(center) / norm)) as f32,
                (base, _) => {
                    let given = product(center) + base.map_or(0.0, product);
                    (f64::from(scale) * ((square + rest - given) / norm)) as f32
                }
            },
        }
    }

    /// Computes p, and adds the part of the loss along x to the scores.
    #[inline(always)]
    fn project<L: Level>(self, encoder: &Encoder, scores: &mut [f32], projections: &mut [f32]) {
        // ‖c‖² − S is twice the product of the codeword with x − center; its product with the center is missing.
        let half = L::splat_float(0.5 * self.inverse_norm / encoder.scale);
        let (inverse_norm, infinity) = (L::splat_float(self.inverse_norm), L::splat_float(f32::INFINITY));
        for first in (0..encoder.norms.len()).step_by(L::LANES) {
            let (scores, projections) = (&mut scores[first..], &mut projections[first..]);
            let (own, norms) = (L::load_floats(scores), L::load_floats(&encoder.norms[first..]));
            let products = L::load_floats(&encoder.center_products[first..]);
            let p = L::multiply_floats(L::subtract_floats(norms, own), half);
            let p = L::add_floats(p, L::multiply_floats(products, inverse_norm));
            let p = L::where_less(norms, infinity, p);
            L::store_floats(self.charged::<L>(encoder, own, p), scores);
            L::store_floats(p, projections);
        }
    }

    /// Adds the part of the loss along x to the scores.
    #[inline(always)]
    fn charge<L: Level>(self, encoder: &Encoder, scores: &mut [f32], projections: &[f32]) {
        for first in (0..scores.len()).step_by(L::LANES) {
            let (scores, p) = (&mut scores[first..], L::load_floats(&projections[first..]));
            L::store_floats(self.charged::<L>(encoder, L::load_floats(scores), p), scores);
        }
    }

    #[inline(always)]
    fn charged<L: Level>(self, encoder: &Encoder, scores: L::F, p: L::F) -> L::F {
        let along = L::multiply_floats(p, L::subtract_floats(p, L::splat_float(2.0 * self.target)));
        L::add_floats(scores, L::multiply_floats(L::splat_float(encoder.beta), along))
    }
}
