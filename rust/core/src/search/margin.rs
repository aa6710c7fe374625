//! How far a score computed in f32 may be from the one in f64.
//!
//! Vectors are scaled close to 1 by a power of two and, for distances, moved by a center c that rows and queries share:
//!
//! ```text
//! x' = (x − c) 2⁻ᵉ   q' = (q − c) 2⁻ᶠ   s = ⟨q', x'⟩ − h ‖x'‖²
//! score = factor · s − offset
//!
//!             h    factor    offset       c        e, f
//! ip          0    2ᵉ⁺ᶠ      0            0        of the rows read together; of the query
//! cosine      0    1         0            0        0, and both have length 1
//! l2          ½    2 · 4ᵉ    ‖q − c‖²     median   e = f, of the rows read together
//! ```
//!
//! With u = 2⁻²⁴ and γ = n u / (1 − n u), n the number of roundings that a term passes through, the f32 sum is within γ
//! (‖q'‖ ‖x'‖ + h ‖x'‖²) of s: d products and additions, one rounding each of q', x' and h ‖x'‖², and some for the
//! lengths and the f64 numbers here. A product, or a coordinate at the lower end of f32, may lose another 2⁻¹⁴⁹:
//! coordinates of x' are at most 1, those of q' at most 2⁶⁰. The f64 score itself is within (d + 16) 2⁻⁵⁰ of (‖q − c‖ +
//! ‖x − c‖)², which is far below γ of the terms above except for ‖q − c‖².

/// With more roundings than this no bound is computed: every row is then scored in f64.
const MOST: usize = 1 << 20;

/// Larger than any number it replaces, and small enough that products of a few stay finite.
pub(super) const UNBOUNDED: f64 = 1e100;

/// The rounding error of f32 sums over a number of dimensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    relative: f64,
    absolute: f64,
    of_offset: f64,
}

impl Rounding {
    pub(super) fn new(dim: usize) -> Self {
        let n = (dim + 12) as f64;
        let share = n * 2f64.powi(-24);
        let relative =
            if dim > MOST { f64::MAX.sqrt() } else { share / (1.0 - share) * (1.0 + 2f64.powi(-12)) };
        Self { relative, absolute: n * 2f64.powi(-136), of_offset: (n + 4.0) * 2f64.powi(-50) }
    }
}

/// Converts the f32 sums of a query with the rows of a chunk into scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    pub(super) rounding: Rounding,
    pub(super) factor: f64,
    pub(super) offset: f64,
    /// h of the table above.
    pub(super) half: f64,
    /// An upper bound on ‖q'‖; [`UNBOUNDED`] if f32 cannot hold q'.
    pub(super) length: f64,
}

impl Margin {
    /// The score that corresponds to the sum `s`.
    #[inline(always)]
    pub(super) fn score(&self, s: f32) -> f64 {
        self.factor * f64::from(s) - self.offset
    }

    /// The largest error of the score for a row with ‖x'‖ at most `length`.
    #[inline(always)]
    pub(super) fn of(&self, length: f32) -> f64 {
        let (length, r) = (f64::from(length), &self.rounding);
        let relative = r.relative * length * (self.length + self.half * length);
        self.factor * (relative + r.absolute * (1.0 + self.length)) + r.of_offset * self.offset
    }

    /// A sum that every row with ‖x'‖ at most `length` reaches if its score may be at least `floor`.
    pub(super) fn threshold(&self, floor: f64, length: f32) -> f32 {
        let margin = self.of(length);
        let slack = 2f64.powi(-48) * (floor.abs() + self.offset + margin);
        let threshold = (floor + self.offset - margin - slack) / self.factor;
        (threshold as f32).next_down()
    }
}
