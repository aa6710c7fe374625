//! The vectors that are trained on, as the training loop sees them: sums, and small samples. So they may lie anywhere.

use crate::codebooks::Codebooks;
use crate::encode::{Encode, Objective};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::equations::{NormalEquations, apply_along};
use crate::train::moments::Moments;
use crate::train::reseed::{self, Worst};
use crate::train::weights::{by_norm, check_weights, norms};
use crate::vectors::basis::Directions;
use crate::vectors::{Subset, Vectors, read_finite};
use ndarray::Array2;

/// Weighted vectors and their codes. The sums of parts of them add up to those of the whole.
pub trait Shards {
    /// The codes of all vectors, wherever they are kept.
    type Codes;

    /// n and d.
    fn shape(&self) -> (usize, usize);

    /// Mean and spread, as `directions` stretch them.
    ///
    /// # Errors
    /// A row that is not finite, or a cancelling monitor; as all methods.
    fn moments(&self, directions: Option<&Directions>, monitor: &dyn Monitor) -> Result<Moments>;

    /// Rows by position, in order.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn sample(&self, rows: &[usize]) -> Result<Array2<f32>>;

    /// Codes of every vector.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn encode(&self, encoder: &dyn Encode, monitor: &dyn Monitor) -> Result<Self::Codes>;

    /// Better codes where there are any, and the Σ w·loss of all.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn improve(
        &self,
        encoder: &dyn Encode,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<(Self::Codes, f64)>;

    /// Σ w·loss.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn loss(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<f64>;

    /// The sides of the plain loss's linear system, for vectors as `directions` stretch them.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn equations(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<NormalEquations>;

    /// What the term along x adds to the plain system: see [`apply_along`].
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn apply(
        &self,
        codes: &Self::Codes,
        p: &Array2<f64>,
        n_codewords: usize,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f64>>;

    /// How many rows use each codeword: see [`reseed::uses`].
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn uses(&self, codes: &Self::Codes, n_codewords: usize, shared: bool) -> Result<Vec<u64>>;

    /// The `count` rows with the largest loss.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn worst(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        count: usize,
        monitor: &dyn Monitor,
    ) -> Result<Worst>;
}

/// Vectors of this process.
pub struct Local<'a> {
    x: &'a dyn Vectors,
    weights: Option<Vec<f64>>,
}

impl<'a> Local<'a> {
    /// Vectors `x` (n, d) with `weights` (n), 1 if not given.
    ///
    /// # Errors
    /// Not one weight for each row, or one that is negative or not finite.
    pub fn new(x: &'a dyn Vectors, weights: Option<Vec<f64>>) -> Result<Self> {
        check_weights(x, weights.as_deref())?;
        Ok(Self { x, weights })
    }

    /// The same with weights that follow ‖x‖ to `power`, stretched along `directions`, too.
    ///
    /// # Errors
    /// See [`norms`].
    pub fn weighted_by_norm(
        self,
        power: f64,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let weights = if power == 0.0 { None } else { by_norm(&norms(self.x, directions, monitor)?, power) };
        let weights = match (weights, self.weights) {
            (Some(mut weights), Some(own)) => {
                weights.iter_mut().zip(own).for_each(|(weight, own)| *weight *= own);
                Some(weights)
            }
            (weights, own) => weights.or(own),
        };
        Ok(Self { x: self.x, weights })
    }

    fn total(&self, errors: &[f64]) -> f64 {
        match &self.weights {
            None => errors.iter().sum(),
            Some(weights) => errors.iter().zip(weights).map(|(error, weight)| error * weight).sum(),
        }
    }
}

impl Shards for Local<'_> {
    type Codes = Array2<u8>;

    fn shape(&self) -> (usize, usize) {
        (self.x.n(), self.x.dim())
    }

    fn moments(&self, directions: Option<&Directions>, monitor: &dyn Monitor) -> Result<Moments> {
        Moments::of(self.x, self.weights.as_deref(), directions, monitor)
    }

    fn sample(&self, rows: &[usize]) -> Result<Array2<f32>> {
        let mut sample = Array2::zeros((rows.len(), self.x.dim()));
        for (i, mut to) in sample.outer_iter_mut().enumerate() {
            read_finite(&Subset::new(self.x, rows), "X", i, to.as_slice_mut().expect("fresh"))?;
        }
        Ok(sample)
    }

    fn encode(&self, encoder: &dyn Encode, monitor: &dyn Monitor) -> Result<Self::Codes> {
        encoder.encode(self.x, monitor)
    }

    fn improve(
        &self,
        encoder: &dyn Encode,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<(Self::Codes, f64)> {
        let mut codes = codes.clone();
        let improved = encoder.improve(self.x, &mut codes, monitor)?;
        Ok((codes, self.total(improved.after.as_slice().expect("contiguous"))))
    }

    fn loss(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<f64> {
        let errors = objective.errors(codebooks, self.x, codes.view(), monitor)?;
        Ok(self.total(errors.as_slice().expect("contiguous")))
    }

    fn equations(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<NormalEquations> {
        let assemble = |x: &dyn Vectors| {
            NormalEquations::assemble(x, codes.view(), n_codewords, self.weights.as_deref(), monitor)
        };
        match directions {
            None => assemble(self.x),
            Some(directions) => assemble(&directions.stretched(self.x)?),
        }
    }

    fn apply(
        &self,
        codes: &Self::Codes,
        p: &Array2<f64>,
        n_codewords: usize,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f64>> {
        let apply =
            |x: &dyn Vectors| apply_along(x, codes.view(), n_codewords, self.weights.as_deref(), p, monitor);
        match directions {
            None => apply(self.x),
            Some(directions) => apply(&directions.stretched(self.x)?),
        }
    }

    fn uses(&self, codes: &Self::Codes, n_codewords: usize, shared: bool) -> Result<Vec<u64>> {
        reseed::uses(codes.view(), n_codewords, shared)
    }

    fn worst(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        count: usize,
        monitor: &dyn Monitor,
    ) -> Result<Worst> {
        let errors = objective.errors(codebooks, self.x, codes.view(), monitor)?;
        reseed::worst(self.x, codes.view(), errors.as_slice().expect("contiguous"), count)
    }
}
