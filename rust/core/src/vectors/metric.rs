//! The similarity of a query and a vector.

use crate::error::{Error, Result, argument};

/// What scores measure. Higher is better for every metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// ⟨q, x⟩.
    InnerProduct,
    /// ⟨q, x⟩ / (‖q‖ ‖x‖); 0 if q or x is 0.
    Cosine,
    /// −‖q − x‖².
    Euclidean,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Metric; 3] = [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean];

    /// The name used in files and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
            Metric::Euclidean => "l2",
        }
    }

    /// The score of one pair, in f64: the same bits on every machine, since the order of additions is fixed.
    #[must_use]
    pub fn score(self, query: &[f32], vector: &[f32]) -> f64 {
        Scorer::new(self, query).score(vector)
    }
}

/// A query, prepared for comparing it with many vectors; see [`Metric::score`].
pub(crate) struct Scorer<'a> {
    metric: Metric,
    query: &'a [f32],
    square: f64,
}

impl<'a> Scorer<'a> {
    #[inline(always)]
    pub(crate) fn new(metric: Metric, query: &'a [f32]) -> Self {
        Self { metric, query, square: if metric == Metric::Cosine { square(query) } else { 0.0 } }
    }

    #[inline(always)]
    pub(crate) fn score(&self, vector: &[f32]) -> f64 {
        match self.metric {
            Metric::InnerProduct => product(self.query, vector),
            Metric::Cosine => match self.square * square(vector) {
                0.0 => 0.0,
                squares => product(self.query, vector) / squares.sqrt(),
            },
            Metric::Euclidean => -sum(self.query, vector, |q, x| (q - x) * (q - x)),
        }
    }
}

/// ⟨q, x⟩, in f64.
#[inline(always)]
fn product(query: &[f32], vector: &[f32]) -> f64 {
    sum(query, vector, |q, x| q * x)
}

/// The number of parallel sums, so that the processor can add many at once.
const LANES: usize = 16;

/// The sum of `term` over all pairs, in f64, in an order that does not depend on the instruction set.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = sums(a, b, &term);
    if !a_rest.is_empty() {
        // A term of zeros adds 0, which does not change the sum.
        let padded = |rest: &[f32]| {
            let mut all = [0.0; LANES];
            all[..rest.len()].copy_from_slice(rest);
            all
        };
        let (a, b) = (padded(a_rest), padded(b_rest));
        for i in 0..LANES {
            sums[i] += term(f64::from(a[i]), f64::from(b[i]));
        }
    }
    for i in 0..LANES / 2 {
        sums[i] += sums[i + LANES / 2];
    }
    for i in 0..LANES / 4 {
        sums[i] += sums[i + LANES / 4];
    }
    for i in 0..LANES / 8 {
        sums[i] += sums[i + LANES / 8];
    }
    sums[0] + sums[1]
}

/// The sums of `term` over whole chunks, lane by lane. The array is never borrowed, and only indexed by constants, so
/// the sums stay in registers and are added many at a time.
#[inline(always)]
fn sums(a: &[[f32; LANES]], b: &[[f32; LANES]], term: &impl Fn(f64, f64) -> f64) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        let mut terms = [0.0; LANES];
        for i in 0..LANES {
            terms[i] = term(f64::from(a[i]), f64::from(b[i]));
        }
        for i in 0..LANES {
            sums[i] += terms[i];
        }
    }
    sums
}

/// ‖x − c‖², in f64.
pub(crate) fn squared_distance(x: &[f32], center: &[f32]) -> f64 {
    sum(x, center, |x, c| (x - c) * (x - c))
}

impl std::str::FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| argument!("metric", "is {name:?}: want \"ip\", \"cosine\" or \"l2\""))
    }
}

/// ‖x‖², in f64, summed in the order of [`Metric::score`].
#[inline(always)]
pub(crate) fn square(vector: &[f32]) -> f64 {
    sum(vector, vector, |x, _| x * x)
}

/// ‖x‖², in f64.
pub(crate) fn squared_norm(vector: &[f32]) -> f64 {
    vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Scales a vector to length 1; a zero vector is left unchanged.
pub(crate) fn normalise(vector: &mut [f32]) {
    let norm = squared_norm(vector).sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}
