//! Distances and cosines: the exact scores of approximations, and bounds on how far table sums may be from them.
//!
//! A score is computed in f64 from the query and x̄ as [`decode`](crate::Codebooks::decode) gives it; it is rounded to f32
//! when the order has been determined:
//!
//! > −‖q − x̄‖², and ⟨q, x̄⟩ / (‖q‖ ‖x̄‖), or 0 where q or x̄ is 0
//!
//! The sums use eight lanes, dimension j in lane j mod 8, which are then added in pairs: the same bits everywhere.
//!
//! **Bounds.** Let p be the vector that tables are computed from: q − c for distances, q / ‖q‖ for cosines; S the sum
//! of its table entries, c'_m[k] the codewords minus their medians, C' and C the sums over m of the largest ‖c'_m[k]‖
//! and ‖c_m[k]‖. Then
//!
//! > |⟨p, x̄ − c⟩ − S| ≤ E = ‖p‖ · u · ((66 + d / 64) C' + M C), u = 2⁻²⁴, to first order,
//!
//! (where the centroids, if the model has them, count as one more codebook) since a table entry is off by (64 + d / 64)
//! u of ‖p‖ ‖c'_m[k]‖, p and c' are rounded to u of themselves, and x̄ is the sum of M codewords in f32. A quarter more
//! than that, plus 2⁻¹⁴⁹ for each product that may underflow, covers all other terms. So, with v = −½‖x̄ − c‖² in its
//! interval,
//!
//! > −‖q − x̄‖² = 2 (⟨q − c, x̄ − c⟩ + v) − ‖q − c‖² ∈ 2 (S ± E + v) − ‖q − c‖²
//! > ⟨q, x̄⟩ / ‖q‖ ∈ ⟨p, c⟩ + S ± E
//!
//! The interval contains v rounded to f32, and a floor is rounded too: 2⁻²² of each is allowed for. For 1 / ‖x̄‖, which
//! may be denormal, or an edge that represents an earlier version's levels, it is 2⁻¹⁸.

use super::frame::{Frame, decode};
use crate::error::{Error, Result, argument};
use crate::isa::{self, Isa};
use crate::model::Model;
use crate::scan::Measure;
use crate::vectors::metric::{Metric, squared_norm};
use ndarray::{Array2, ArrayView2};

const LANES: usize = 8;
/// Allowance for numbers that were rounded to f32.
const ROUNDED: f64 = 1.0 / (1u64 << 22) as f64;
/// Allowance for inverse norms.
const INVERSE: f64 = 1.0 / (1u64 << 18) as f64;
/// Allowance for f64 sums of up to 2¹³ · 2²⁰ terms.
const EXACT: f64 = 1.0 / (1u64 << 40) as f64;
/// The error of a product that underflows.
const TINY: f64 = 1e-44;

/// The scores of some queries.
pub(super) struct Exact<'a> {
    is_cosine: bool,
    isa: Isa,
    model: &'a Model,
    queries: ArrayView2<'a, f32>,
    about: Vec<About>,
}

/// What the bounds need to know about a query.
struct About {
    /// ‖q − c‖², or ‖q‖².
    square: f64,
    /// E.
    error: f64,
    /// ⟨p, c⟩, for cosines.
    base: f64,
}

impl<'a> Exact<'a> {
    /// Prepares `queries` (nq, d), finite, the first of which is row `first` of all; also returns p for each, (nq, d).
    ///
    /// # Errors
    /// A query minus the center is beyond f32.
    pub(super) fn new(
        frame: &Frame,
        model: &'a Model,
        metric: Metric,
        queries: ArrayView2<'a, f32>,
        first: usize,
    ) -> Result<(Self, Array2<f32>)> {
        let is_cosine = metric == Metric::Cosine;
        let mut inputs = Array2::zeros(queries.raw_dim());
        let mut about = Vec::with_capacity(queries.nrows());
        let n_books = model.codebooks.n_codebooks() + usize::from(model.centroids.is_some());
        let (n_codebooks, dim) = (n_books as f64, model.codebooks.dim() as f64);
        for (row, (query, mut input)) in queries.outer_iter().zip(inputs.outer_iter_mut()).enumerate() {
            let pairs = || query.iter().zip(&frame.center).map(|(&q, &c)| (f64::from(q), c));
            let (square, base);
            if is_cosine {
                square = pairs().map(|(q, _)| q * q).sum::<f64>();
                let inverse = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
                input.iter_mut().zip(query).for_each(|(p, &q)| *p = (f64::from(q) * inverse) as f32);
                base = pairs().map(|(q, c)| q * inverse * c).sum::<f64>();
            } else {
                input.iter_mut().zip(pairs()).for_each(|(p, (q, c))| *p = (q - c) as f32);
                square = pairs().map(|(q, c)| (q - c) * (q - c)).sum::<f64>();
                base = 0.0;
                if !input.iter().all(|p| p.is_finite()) {
                    return Err(beyond(first + row));
                }
            }
            let norm = squared_norm(input.as_slice().expect("standard layout")).sqrt();
            let unit = f64::from(f32::EPSILON / 2.0);
            let relative = 1.25 * unit * ((66.0 + dim / 64.0) * frame.spread + n_codebooks * frame.size);
            let center = frame.center.iter().map(|c| c * c).sum::<f64>().sqrt();
            let tiny = TINY * dim * (n_codebooks + 1.0) * (1.0 + norm + frame.spread);
            let error = norm * (relative + EXACT * (center + frame.size)) + tiny;
            about.push(About { square, error, base });
        }
        Ok((Self { is_cosine, isa: Isa::current()?, model, queries, about }, inputs))
    }
}

/// The error of a query whose distances f32 cannot hold.
pub(super) fn beyond(row: usize) -> Error {
    argument!("Q", "row {row} is too far away: the square of its distance is beyond float32")
}

impl Measure for Exact<'_> {
    fn need(&self, query: usize, floor: f64, (least, most): (f64, f64)) -> f64 {
        let &About { square, error, base } = &self.about[query];
        let floor = floor - ROUNDED * floor.abs() - TINY;
        if self.is_cosine {
            let (shortest, longest) = lengths(least, most);
            (if floor > 0.0 { floor * shortest } else { floor * longest }) - base - error
        } else {
            0.5 * (floor + square * (1.0 - EXACT)) - most - ROUNDED * most.abs() - error - TINY
        }
    }

    fn bracket(&self, query: usize, (low, high): (f64, f64), (least, most): (f64, f64)) -> (f64, f64) {
        let &About { square, error, base } = &self.about[query];
        if self.is_cosine {
            let (shortest, longest) = lengths(least, most);
            let (low, high) = (low + base - error, high + base + error);
            let low = if low > 0.0 { low / longest } else { low / shortest };
            let high = if high > 0.0 { high / shortest } else { high / longest };
            // 0 / 0 is NaN and is kept: the scan interprets it as "nothing is known".
            (low.clamp(-1.0, 1.0), high.clamp(-1.0, 1.0))
        } else {
            let low = low - error + least - ROUNDED * least.abs() - TINY;
            let high = high + error + most + ROUNDED * most.abs() + TINY;
            (2.0 * low - square * (1.0 + EXACT), (2.0 * high - square * (1.0 - EXACT)).min(0.0))
        }
    }

    fn scores(&self, query: usize, codes: &[u8], lists: &[u32], scores: &mut [f64]) {
        let row = self.queries.row(query);
        let (square, is_cosine) = (self.about[query].square, self.is_cosine);
        let query = row.as_slice().expect("standard layout");
        isa::run(self.isa, Scores { model: self.model, is_cosine, square, query, codes, lists, scores });
    }
}

/// The scores of some codes for a query.
struct Scores<'a> {
    model: &'a Model,
    is_cosine: bool,
    /// ‖q‖², for cosines.
    square: f64,
    query: &'a [f32],
    codes: &'a [u8],
    lists: &'a [u32],
    scores: &'a mut [f64],
}

impl isa::Kernel for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: isa::Level>(self) {
        let mut decoded = vec![0.0; self.query.len()];
        let codes = self.codes.chunks_exact(self.model.codebooks.n_codebooks());
        for ((code, &list), score) in codes.zip(self.lists).zip(self.scores) {
            decode(self.model, code.iter().copied(), list, &mut decoded);
            if !self.is_cosine {
                *score = -sum(self.query, &decoded, |q, x| (q - x) * (q - x));
                continue;
            }
            let squares = self.square * sum(&decoded, &decoded, |x, y| x * y);
            let cosine = sum(self.query, &decoded, |q, x| q * x) / squares.sqrt();
            *score = if squares == 0.0 { 0.0 } else { cosine.clamp(-1.0, 1.0) };
        }
    }
}

/// The smallest and largest ‖x̄‖ if 1 / ‖x̄‖ is in an interval. A value at the end of the range of f32 may be beyond
/// it.
fn lengths(least: f64, most: f64) -> (f64, f64) {
    let shortest = if most < f32::MAX.into() { (1.0 - INVERSE) / (most + TINY) } else { 0.0 };
    let longest = if least > f32::MIN_POSITIVE.into() { (1.0 + INVERSE) / least } else { 1e45 };
    (shortest, longest)
}

/// Σ_j term(a_j, b_j), in lanes.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(a[i].into(), b[i].into());
        }
    }
    for (i, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[i] += term(a.into(), b.into());
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
