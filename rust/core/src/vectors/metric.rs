//! How alike a query and a vector are.

use crate::error::{Error, Result, argument};

/// What scores measure. Higher is better for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// ⟨q, x⟩.
    InnerProduct,
    /// ⟨q, x⟩ / (‖q‖ ‖x‖); 0 where q or x is 0.
    Cosine,
    /// −‖q − x‖².
    Euclidean,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Metric; 3] = [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean];

    /// Its name, as files and Python have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
            Metric::Euclidean => "l2",
        }
    }

    /// The score of one pair, in f64.
    #[must_use]
    pub fn score(self, query: &[f32], vector: &[f32]) -> f64 {
        let pairs = || query.iter().zip(vector).map(|(&q, &x)| (f64::from(q), f64::from(x)));
        let product = || pairs().map(|(q, x)| q * x).sum::<f64>();
        match self {
            Metric::InnerProduct => product(),
            Metric::Cosine => match squared_norm(query) * squared_norm(vector) {
                0.0 => 0.0,
                squares => product() / squares.sqrt(),
            },
            Metric::Euclidean => -pairs().map(|(q, x)| (q - x) * (q - x)).sum::<f64>(),
        }
    }
}

impl std::str::FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| argument!("metric", "is {name:?}: want \"ip\", \"cosine\" or \"l2\""))
    }
}

/// ‖x‖², in f64.
pub(crate) fn squared_norm(vector: &[f32]) -> f64 {
    vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Scales a vector to length 1; one of zeros stays.
pub(crate) fn normalise(vector: &mut [f32]) {
    let norm = squared_norm(vector).sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}
