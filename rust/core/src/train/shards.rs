//! The vectors that are trained on, as the training loop sees them: sums, and small samples. So they may lie anywhere.

use crate::codebooks::Codebooks;
use crate::encode::{Encode, Objective};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::equations::{self, NormalEquations};
use crate::train::moments::Moments;
use crate::train::parts::drawn;
use crate::train::reseed::{self, Worst};
use crate::train::weights::{by_norm, check_weights, norms};
use crate::vectors::basis::Directions;
use crate::vectors::{Subset, Vectors, read_finite};
use ndarray::{Array1, Array2, Axis};

/// Weighted vectors and their codes. The sums of parts of them add up to those of the whole.
pub trait Shards {
    /// The codes of all vectors, wherever they are kept.
    type Codes;
    /// Some of the vectors.
    type Part: Shards<Codes = Self::Codes>;

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

    /// The better of the codes there are and new ones, row by row.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn renewed(
        &self,
        encoder: &dyn Encode,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<Self::Codes>;

    /// The part of the vectors that an iteration with noise trains on, and their codes; `None` if that is all: see
    /// [`drawn`](super::parts::drawn).
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn part(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        seed: u64,
        iteration: usize,
    ) -> Result<Option<(Self::Part, Self::Codes)>>;

    /// Puts the codes of a part in their places.
    fn put(&self, codes: &mut Self::Codes, part: &Self::Part, own: &Self::Codes);

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

    /// The diagonal and the right side of that system: see [`equations::sides`].
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn sides(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        shared: bool,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<(Array1<f64>, Array2<f64>)>;

    /// The left side for the inner-product loss, where η − 1 is `extra`: see [`equations::apply`].
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn apply(
        &self,
        codes: &Self::Codes,
        p: &Array2<f64>,
        n_codewords: usize,
        extra: f64,
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
    x: Source<'a>,
    weights: Option<Vec<f64>>,
    /// Of a part, the rows of the whole that it has.
    rows: Vec<usize>,
}

/// Vectors of the caller, or a copy of some of them.
enum Source<'a> {
    Given(&'a dyn Vectors),
    Copied(Array2<f32>),
}

impl Vectors for Source<'_> {
    fn n(&self) -> usize {
        match self {
            Source::Given(x) => x.n(),
            Source::Copied(x) => x.nrows(),
        }
    }

    fn dim(&self) -> usize {
        match self {
            Source::Given(x) => x.dim(),
            Source::Copied(x) => x.ncols(),
        }
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        match self {
            Source::Given(x) => x.read(first, out),
            Source::Copied(x) => x.view().read(first, out),
        }
    }
}

impl<'a> Local<'a> {
    /// Vectors `x` (n, d) with `weights` (n), 1 if not given.
    ///
    /// # Errors
    /// Not one weight for each row, or one that is negative or not finite.
    pub fn new(x: &'a dyn Vectors, weights: Option<Vec<f64>>) -> Result<Self> {
        check_weights(x, weights.as_deref())?;
        Ok(Self { x: Source::Given(x), weights, rows: Vec::new() })
    }

    /// The same with weights that follow ‖x‖ to `power`, stretched along `directions`, too.
    ///
    /// # Errors
    /// See [`norms`].
    pub fn weighted_by_norm(
        mut self,
        power: f64,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let weights = if power == 0.0 { None } else { by_norm(&norms(&self.x, directions, monitor)?, power) };
        let weights = match (weights, self.weights.take()) {
            (Some(mut weights), Some(own)) => {
                weights.iter_mut().zip(own).for_each(|(weight, own)| *weight *= own);
                Some(weights)
            }
            (weights, own) => weights.or(own),
        };
        Ok(Self { weights, ..self })
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
    type Part = Local<'static>;

    fn shape(&self) -> (usize, usize) {
        (self.x.n(), self.x.dim())
    }

    fn moments(&self, directions: Option<&Directions>, monitor: &dyn Monitor) -> Result<Moments> {
        Moments::of(&self.x, self.weights.as_deref(), directions, monitor)
    }

    fn sample(&self, rows: &[usize]) -> Result<Array2<f32>> {
        let mut sample = Array2::zeros((rows.len(), self.x.dim()));
        for (i, mut to) in sample.outer_iter_mut().enumerate() {
            read_finite(&Subset::new(&self.x, rows), "X", i, to.as_slice_mut().expect("fresh"))?;
        }
        Ok(sample)
    }

    fn encode(&self, encoder: &dyn Encode, monitor: &dyn Monitor) -> Result<Self::Codes> {
        encoder.encode(&self.x, monitor)
    }

    fn renewed(
        &self,
        encoder: &dyn Encode,
        objective: &Objective,
        codebooks: &Codebooks,
        mut codes: Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<Self::Codes> {
        let new = encoder.encode(&self.x, monitor)?;
        let errors = |codes: &Array2<u8>| objective.errors(codebooks, &self.x, codes.view(), &());
        let (before, after) = (errors(&codes)?, errors(&new)?);
        for ((mut code, new), (before, after)) in
            codes.outer_iter_mut().zip(new.outer_iter()).zip(before.iter().zip(&after))
        {
            if after < before {
                code.assign(&new);
            }
        }
        Ok(codes)
    }

    fn part(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        seed: u64,
        iteration: usize,
    ) -> Result<Option<(Self::Part, Self::Codes)>> {
        let Some((rows, weights)) = drawn(self.x.n(), self.weights.as_deref(), n_codewords, seed, iteration)?
        else {
            return Ok(None);
        };
        let own = codes.select(Axis(0), &rows);
        let x = Source::Copied(self.sample(&rows)?);
        Ok(Some((Local { x, weights, rows }, own)))
    }

    fn put(&self, codes: &mut Self::Codes, part: &Self::Part, own: &Self::Codes) {
        for (&row, own) in part.rows.iter().zip(own.outer_iter()) {
            codes.row_mut(row).assign(&own);
        }
    }

    fn improve(
        &self,
        encoder: &dyn Encode,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<(Self::Codes, f64)> {
        let mut codes = codes.clone();
        let improved = encoder.improve(&self.x, &mut codes, monitor)?;
        Ok((codes, self.total(improved.after.as_slice().expect("contiguous"))))
    }

    fn loss(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<f64> {
        let errors = objective.errors(codebooks, &self.x, codes.view(), monitor)?;
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
            None => assemble(&self.x),
            Some(directions) => assemble(&directions.stretched(&self.x)?),
        }
    }

    fn sides(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        shared: bool,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<(Array1<f64>, Array2<f64>)> {
        let weights = self.weights.as_deref();
        let sides =
            |x: &dyn Vectors| equations::sides(x, codes.view(), n_codewords, weights, shared, monitor);
        match directions {
            None => sides(&self.x),
            Some(directions) => sides(&directions.stretched(&self.x)?),
        }
    }

    fn apply(
        &self,
        codes: &Self::Codes,
        p: &Array2<f64>,
        n_codewords: usize,
        extra: f64,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f64>> {
        let weights = self.weights.as_deref();
        let apply = |x: &dyn Vectors| {
            equations::apply(x, codes.view(), n_codewords, weights, extra, p.view(), monitor)
        };
        match directions {
            None => apply(&self.x),
            Some(directions) => apply(&directions.stretched(&self.x)?),
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
        let errors = objective.errors(codebooks, &self.x, codes.view(), monitor)?;
        reseed::worst(&self.x, codes.view(), errors.as_slice().expect("contiguous"), count)
    }
}
