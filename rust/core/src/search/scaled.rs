//! Rows in the form in which f32 products compare them: moved to a center and scaled, so that nothing is lost to an
//! offset or to the limits of f32. The notation is that of [`margin`](super::margin).

use crate::error::Result;
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::Panels;
use crate::vectors::metric::{Metric, normalise, square};
use crate::vectors::{Vectors, read_finite};
use rayon::prelude::*;

/// Rows that a task prepares at once.
const ROWS: usize = 64;
/// The number of rows whose medians are the center for distances.
const SAMPLE: usize = 255;

/// The inputs of a search.
pub(super) struct Inputs<'a> {
    pub(super) x: &'a dyn Vectors,
    pub(super) queries: &'a dyn Vectors,
    pub(super) metric: Metric,
    pub(super) isa: Isa,
    /// Subtracted from rows and queries, so that distances lose no digits to a common offset.
    pub(super) center: Vec<f32>,
}

impl Inputs<'_> {
    pub(super) fn dim(&self) -> usize {
        self.x.dim()
    }

    /// Subtracts the center from the rows in `buffer`, which start at row `first`. Returns exponents e: the rows are
    /// still to be scaled by 2 to minus the first; the second is the scale they then have in all.
    fn centered(&self, first: usize, buffer: &mut [f32]) -> (i32, i32) {
        let d = self.dim();
        let subtract = |buffer: &mut [f32], by: f32| {
            for row in buffer.chunks_exact_mut(d) {
                row.iter_mut().zip(&self.center).for_each(|(x, &c)| *x = by * *x - by * c);
            }
            largest(buffer)
        };
        let largest = subtract(buffer, 1.0);
        if largest.is_finite() {
            return (exponent(largest), exponent(largest));
        }
        self.x.read(first, buffer);
        let exponent = exponent(subtract(buffer, 0.25));
        (exponent, exponent + 2)
    }
}

/// The median of each dimension over some rows, for distances; 0 for other metrics. Any center gives the right result;
/// one near most rows lets f32 tell them apart, and a few outliers do not move a median.
pub(super) fn center(x: &dyn Vectors, metric: Metric) -> Vec<f32> {
    let d = x.dim();
    if metric != Metric::Euclidean || x.n() == 0 {
        return vec![0.0; d];
    }
    let count = SAMPLE.min((1 << 20) / d).clamp(1, x.n());
    let mut rows = vec![0.0; count * d];
    for (i, row) in rows.chunks_exact_mut(d).enumerate() {
        x.read(i * (x.n() / count), row);
    }
    let mut column = Vec::new();
    let median = |j| {
        column.clear();
        // A number that is not finite is reported when rows are read in order.
        column.extend(rows.iter().skip(j).step_by(d).copied().filter(|value: &f32| value.is_finite()));
        let middle = column.len() / 2;
        if column.is_empty() { 0.0 } else { *column.select_nth_unstable_by(middle, f32::total_cmp).1 }
    };
    (0..d).map(median).collect()
}

/// Rows x', ready to be multiplied: see [`margin`](super::margin).
pub(super) struct Chunk {
    pub(super) panels: Panels,
    /// −½‖x'‖² for distances, as the initial value of the sums; otherwise 0.
    pub(super) start: Vec<f32>,
    /// An upper bound on ‖x'‖ for each row.
    pub(super) lengths: Vec<f32>,
    pub(super) longest: f32,
    pub(super) exponent: i32,
    pub(super) first: usize,
}

impl Chunk {
    /// Reads rows `first ..` into `buffer`, and prepares them.
    pub(super) fn read(inputs: &Inputs<'_>, first: usize, buffer: &mut [f32]) -> Result<Self> {
        let d = inputs.dim();
        read_finite(inputs.x, "X", first, buffer)?;
        let n = buffer.len() / d;
        let (shift, exponent) = match inputs.metric {
            Metric::InnerProduct => {
                let exponent = exponent(largest(buffer));
                (exponent, exponent)
            }
            Metric::Cosine => (0, 0),
            Metric::Euclidean => inputs.centered(first, buffer),
        };
        let (mut squares, mut lengths) = (vec![0.0; n], vec![0.0; n]);
        let parts = buffer.par_chunks_mut(ROWS * d);
        let parts = parts.zip(squares.par_chunks_mut(ROWS)).zip(lengths.par_chunks_mut(ROWS));
        parts.for_each(|((rows, squares), lengths)| {
            let scale = (inputs.metric != Metric::Cosine).then(|| power(-shift) as f32);
            isa::run(inputs.isa, Prepare { rows, d, scale, squares, lengths });
        });
        let panels = Panels::new(n, d, |i| (i < n).then(|| &buffer[i * d..][..d]));
        let mut start = vec![0.0; panels.columns()];
        if inputs.metric == Metric::Euclidean {
            start.iter_mut().zip(&squares).for_each(|(start, &square)| *start = (-0.5 * square) as f32);
        }
        let longest = lengths.iter().copied().fold(0.0, f32::max);
        Ok(Self { panels, start, lengths, longest, exponent, first })
    }
}

/// Scales rows, or normalises them to length 1, and computes their lengths.
struct Prepare<'a> {
    rows: &'a mut [f32],
    d: usize,
    scale: Option<f32>,
    squares: &'a mut [f64],
    pub(super) lengths: &'a mut [f32],
}

impl Kernel for Prepare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let measures = self.squares.iter_mut().zip(self.lengths);
        for (row, (square_of, length)) in self.rows.chunks_exact_mut(self.d).zip(measures) {
            match self.scale {
                Some(scale) => row.iter_mut().for_each(|x| *x *= scale),
                None => normalise(row),
            }
            *square_of = square(row);
            *length = longer(square_of.sqrt()) as f32;
        }
    }
}

/// A length, increased by the rounding error of quantities computed from it.
pub(super) fn longer(length: f64) -> f64 {
    length * (1.0 + power(-20))
}

/// The largest |x|.
pub(super) fn largest(values: &[f32]) -> f32 {
    let mut largest = [0.0f32; 16];
    for values in values.chunks(16) {
        for (largest, value) in largest.iter_mut().zip(values) {
            *largest = if value.abs() > *largest { value.abs() } else { *largest };
        }
    }
    largest.into_iter().fold(0.0, f32::max)
}

/// The exponent e, a multiple of 8, for which `largest` · 2⁻ᵉ is in the middle of the range of f32, and usually at most
/// 1.
pub(super) fn exponent(largest: f32) -> i32 {
    let exponent = (largest.to_bits() >> 23) as i32 - 126; // largest < 2^exponent
    (exponent + 7).div_euclid(8) * 8
}

/// 2 to the power `exponent`.
pub(super) fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}
