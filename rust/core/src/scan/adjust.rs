//! What affects a vector's score besides the tables: a number that its last column refers to.
//!
//! The number is stored as one byte, in a column of the packed codes after the M codes. The byte is the index of a
//! level, or of an interval that the number lies in. So the scan can bound scores with these bytes at full speed, as if
//! they were codes.

use crate::codes::packed::PackedView;
use crate::error::{Result, invalid};
use std::fmt;

/// The 256 numbers that the bytes of a column stand for.
pub type Levels = [f32; 256];

/// The ends of 256 intervals, ascending: byte b says that a number lies in `edges[b] ..= edges[b + 1]`.
pub type Edges = [f32; 257];

/// How the table sums become scores.
#[derive(Clone, Copy, Default)]
pub enum Adjust<'a> {
    /// Not at all: the score is base + Σ.
    #[default]
    None,
    /// Multiplied by a level from 2⁻⁶⁰ to 2⁶⁰: the score is (base + Σ) · level, each step rounded to f32.
    Scale(&'a Levels),
    /// Plus one number per vector: the score is (base + Σ) + number, each step rounded to f32.
    Bias {
        /// The intervals that the numbers lie in.
        edges: &'a Edges,
        /// The numbers; all are finite.
        exact: &'a [f32],
    },
    /// The score is not computed from the table sum at all; that only determines which vectors are worth scoring.
    Exact {
        /// The intervals of one number per vector, which `measure` interprets.
        edges: &'a Edges,
        /// The numbers themselves, if they are kept.
        exact: Option<&'a [f32]>,
        /// Computes the scores.
        measure: &'a dyn Measure,
    },
}

/// Scores that table sums bound, but do not define.
///
/// With S the sum of base and table entries in real numbers, and v the vector's number in `within`:
/// - `need`: if the vector scores `floor` or more, then S ≥ need;
/// - `bracket`: if S is in `sums`, then the score is in the returned bracket.
pub trait Measure: Sync {
    /// The least S of a vector that scores at least `floor`.
    fn need(&self, query: usize, floor: f64, within: (f64, f64)) -> f64;

    /// Bounds of the score.
    fn bracket(&self, query: usize, sums: (f64, f64), within: (f64, f64)) -> (f64, f64);

    /// The scores of vectors with codes `codes` (n, M), row after row, in segments of lists `lists` (n); NaN
    /// counts as −∞.
    fn scores(&self, query: usize, codes: &[u8], lists: &[u32], scores: &mut [f64]);
}

impl fmt::Debug for Adjust<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Adjust::None => "None",
            Adjust::Scale(_) => "Scale",
            Adjust::Bias { .. } => "Bias",
            Adjust::Exact { .. } => "Exact",
        })
    }
}

impl<'a> Adjust<'a> {
    /// Columns in addition to the codes.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        usize::from(!matches!(self, Adjust::None))
    }

    /// Whether both are of the same kind, though with different numbers.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The measure that scores, if scores are not computed from the table sums.
    pub(super) fn measure(&self) -> Option<&'a dyn Measure> {
        match *self {
            Adjust::Exact { measure, .. } => Some(measure),
            _ => None,
        }
    }

    /// Bounds on the number of the vector at `position` of a segment, whose byte is `byte`.
    pub(super) fn within(&self, byte: u8, position: usize) -> (f64, f64) {
        match *self {
            Adjust::Exact { exact: Some(exact), .. } => {
                let number = exact.get(position).copied().unwrap_or(0.0).into();
                (number, number)
            }
            Adjust::Exact { edges, .. } | Adjust::Bias { edges, .. } => interval(edges, byte),
            _ => (0.0, 0.0),
        }
    }

    pub(super) fn check(&self, codes: PackedView<'_>) -> Result<()> {
        let allowed = 2f32.powi(-60)..=2f32.powi(60);
        if let Adjust::Scale(levels) = self
            && let Some(&level) = levels.iter().find(|level| !allowed.contains(level))
        {
            return Err(invalid!("a scale is {level}: want 2^-60 to 2^60"));
        }
        let (Adjust::Bias { edges, .. } | Adjust::Exact { edges, .. }) = self else { return Ok(()) };
        if !edges.is_sorted() || !edges.iter().all(|edge| edge.is_finite()) {
            return Err(invalid!("edges do not ascend: want 257 finite ones"));
        }
        let exact = match *self {
            Adjust::Bias { exact, .. } => exact,
            Adjust::Exact { exact: Some(exact), .. } => exact,
            _ => return Ok(()),
        };
        if exact.len() != codes.len() {
            return Err(invalid!("there are {} numbers for {} vectors", exact.len(), codes.len()));
        }
        debug_assert!(is_bounded(edges, exact, codes), "a number is outside its interval");
        Ok(())
    }
}

/// The interval that a byte refers to.
pub(super) fn interval(edges: &Edges, byte: u8) -> (f64, f64) {
    (edges[usize::from(byte)].into(), edges[usize::from(byte) + 1].into())
}

/// Whether all numbers are in their intervals.
fn is_bounded(edges: &Edges, exact: &[f32], codes: PackedView<'_>) -> bool {
    let interval = |position| {
        let byte = usize::from(codes.codes(position).last().expect("at least one column"));
        edges[byte]..=edges[byte + 1]
    };
    exact.iter().enumerate().all(|(position, number)| interval(position).contains(number))
}
