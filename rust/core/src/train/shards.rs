//! The training vectors as the training loop sees them: sums, and small samples. So they may lie anywhere.

use crate::codebooks::Codebooks;
use crate::encode::{Centroids, Encode, Loss, Objective, Target};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::applied;
use crate::train::equations::NormalEquations;
use crate::train::moments::Moments;
use crate::train::parts::drawn;
use crate::train::reseed::{self, Worst};
use crate::train::weights::{by_norm, check_weights, norms};
use crate::vectors::basis::Directions;
use crate::vectors::rest::Rest;
use crate::vectors::{Subset, Vectors, check_dim, read_finite};
use ndarray::{Array1, Array2, ArrayView1, Axis};
use std::sync::Arc;

/// Weighted vectors and their codes. The sums over parts add up to those over the whole.
pub trait Shards {
    /// The codes of all vectors, wherever they are kept.
    type Codes;
    /// Some of the vectors.
    type Part: Shards<Codes = Self::Codes>;

    /// The shape (n, d).
    fn shape(&self) -> (usize, usize);

    /// Mean and spread of the vectors, stretched by `directions`.
    ///
    /// # Errors
    /// A row that is not finite, or the monitor cancels; the same holds for all methods.
    fn moments(&self, directions: Option<&Directions>, monitor: &dyn Monitor) -> Result<Moments>;

    /// Rows by position, in order.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn sample(&self, rows: &[usize]) -> Result<Array2<f32>>;

    /// The weight of each vector, if they are not all 1.
    fn weights(&self) -> Option<&[f64]>;

    /// The number of vectors that have any weight.
    fn weighing(&self) -> usize {
        let count = |weights: &[f64]| weights.iter().filter(|&&weight| weight > 0.0).count();
        self.weights().map_or(self.shape().0, count)
    }

    /// Encodes every vector.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn encode(&self, encoder: &dyn Encode, monitor: &dyn Monitor) -> Result<Self::Codes>;

    /// For each row, the better of its present code and a new one.
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

    /// The part of the vectors that an iteration with noise trains on, and its codes; `None` if it consists of all
    /// vectors: see [`drawn`](super::parts::drawn).
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

    /// Puts the codes of a part into their places.
    fn put(&self, codes: &mut Self::Codes, part: &Self::Part, own: &Self::Codes);

    /// Improved codes where possible, and Σ w·loss over all vectors.
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

    /// The two sides of the linear system for the plain loss.
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn equations(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        monitor: &dyn Monitor,
    ) -> Result<NormalEquations>;

    /// Whether the right side of [`sides`](Self::sides) already weighs errors along x, as the loss does.
    fn are_weighed(&self) -> bool {
        false
    }

    /// The diagonal and the right side of that system, for vectors stretched by `directions`: see [`applied::sides`].
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

    /// The left side for the inner-product loss, where `extra` is η − 1: see [`applied::apply`].
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

    /// How many rows that have any weight use each codeword: see [`reseed::uses`].
    ///
    /// # Errors
    /// See [`moments`](Self::moments).
    fn uses(&self, codes: &Self::Codes, n_codewords: usize, shared: bool) -> Result<Vec<u64>>;

    /// The `count` rows with the largest loss, among those that have any weight.
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

/// Vectors in the memory of this process.
pub struct Local<'a> {
    x: Source<'a>,
    weights: Option<Vec<f64>>,
    /// What approximations start from, if not from zeros: codewords approximate the remainder.
    base: Option<Base>,
    /// For a part, the numbers of its rows in the whole.
    rows: Vec<usize>,
}

/// Rows that approximations start from.
#[derive(Clone)]
struct Base {
    rows: Arc<Array2<f32>>,
    /// For each vector, the number of its row.
    places: Vec<usize>,
    /// η − 1.
    extra: f64,
}

/// Vectors owned by the caller, or a copy of some of them.
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

    fn numbered(&self, row: usize) -> usize {
        match self {
            Source::Given(x) => x.numbered(row),
            Source::Copied(_) => row,
        }
    }
}

impl<'a> Local<'a> {
    /// Vectors `x` (n, d) with `weights` (n), which are 1 if not given.
    ///
    /// # Errors
    /// There is not one weight per row, or one is negative or not finite.
    pub fn new(x: &'a dyn Vectors, weights: Option<Vec<f64>>) -> Result<Self> {
        check_weights(x, weights.as_deref())?;
        Ok(Self { x: Source::Given(x), weights, base: None, rows: Vec::new() })
    }

    /// Makes approximations start from the centroids of the vectors' lists; errors count by `loss`.
    ///
    /// # Errors
    /// Centroids with a different d, or not one list number per vector.
    pub fn in_lists(self, centroids: &Centroids, lists: &[u32], loss: Loss) -> Result<Self> {
        check_dim(&self.x, "X", centroids.dim())?;
        centroids.check_lists(lists, self.x.n())?;
        let places = lists.iter().map(|&list| list as usize).collect();
        let base = Base { rows: Arc::new(centroids.view().to_owned()), places, extra: loss.extra() };
        Ok(Self { base: Some(base), ..self })
    }

    /// Calls `f` with the target that codes are chosen for.
    fn with_target<R>(&self, f: impl FnOnce(&Target<'_>) -> R) -> R {
        match &self.base {
            None => f(&Target::from(&self.x)),
            Some(Base { rows, places, .. }) => {
                let rows = rows.view();
                let base = Subset::new(&rows, places);
                f(&Target { base: Some(&base), ..Target::from(&self.x) })
            }
        }
    }

    /// Calls `f` with what codewords should add up to. If `along` is given, it is weighed by the loss, and stretched
    /// along the directions in it.
    fn with_rest<R>(&self, along: Option<Option<&Directions>>, f: impl FnOnce(&dyn Vectors) -> R) -> R {
        match &self.base {
            None => f(&self.x),
            Some(Base { rows, places, extra }) => {
                let base = &rows.view();
                let (extra, directions) = along.map_or((0.0, None), |directions| (*extra, directions));
                f(&Rest { x: &self.x, base, places, extra, directions })
            }
        }
    }

    /// The loss of each vector.
    fn errors(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Array1<f64>> {
        self.with_target(|target| objective.errors(codebooks, *target, codes.view(), monitor))
    }

    /// Copies rows of x itself.
    fn taken(&self, rows: &[usize]) -> Result<Array2<f32>> {
        read_rows(&self.x, rows)
    }

    /// The same vectors with weights proportional to ‖x‖ to `power`, where x is stretched along `directions`, in
    /// addition to their own weights.
    ///
    /// # Errors
    /// See [`norms`].
    pub fn weighted_by_norm(
        mut self,
        power: f64,
        directions: Option<&Directions>,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let mut found = if power == 0.0 { Vec::new() } else { norms(&self.x, directions, monitor)? };
        if let Some(own) = &self.weights {
            // The length of a vector without weight says nothing.
            found.iter_mut().zip(own).filter(|(_, own)| **own <= 0.0).for_each(|(norm, _)| *norm = 0.0);
        }
        let weights = match (by_norm(&found, power), self.weights.take()) {
            (Some(mut weights), Some(own)) => {
                weights.iter_mut().zip(&own).for_each(|(weight, own)| *weight *= own);
                // If all weights vanish, the vectors that had weight are of zero length, or nearly so.
                if weights.iter().any(|&weight| weight > 0.0) { Some(weights) } else { Some(own) }
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
        self.with_rest(None, |x| Moments::of(x, self.weights.as_deref(), directions, monitor))
    }

    fn sample(&self, rows: &[usize]) -> Result<Array2<f32>> {
        self.with_rest(None, |x| read_rows(x, rows))
    }

    fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    fn encode(&self, encoder: &dyn Encode, monitor: &dyn Monitor) -> Result<Self::Codes> {
        self.with_target(|target| encoder.encode_target(target, monitor))
    }

    fn renewed(
        &self,
        encoder: &dyn Encode,
        objective: &Objective,
        codebooks: &Codebooks,
        mut codes: Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<Self::Codes> {
        let new = self.encode(encoder, monitor)?;
        let errors = |codes: &Array2<u8>| self.errors(objective, codebooks, codes, &());
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
        let x = Source::Copied(self.taken(&rows)?);
        let base = self.base.as_ref().map(|base| {
            let places = rows.iter().map(|&row| base.places[row]).collect();
            Base { places, ..base.clone() }
        });
        Ok(Some((Local { x, weights, base, rows }, own)))
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
        let improved = self.with_target(|target| encoder.improve_target(target, &mut codes, monitor))?;
        Ok((codes, self.total(improved.after.as_slice().expect("contiguous"))))
    }

    fn loss(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        monitor: &dyn Monitor,
    ) -> Result<f64> {
        let errors = self.errors(objective, codebooks, codes, monitor)?;
        Ok(self.total(errors.as_slice().expect("contiguous")))
    }

    fn equations(
        &self,
        codes: &Self::Codes,
        n_codewords: usize,
        monitor: &dyn Monitor,
    ) -> Result<NormalEquations> {
        let weights = self.weights.as_deref();
        self.with_rest(None, |x| NormalEquations::assemble(x, codes.view(), n_codewords, weights, monitor))
    }

    fn are_weighed(&self) -> bool {
        self.base.is_some()
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
        let sides = |x: &dyn Vectors| applied::sides(x, codes.view(), n_codewords, weights, shared, monitor);
        match directions {
            _ if self.base.as_ref().is_some_and(|base| base.extra > 0.0) => {
                self.with_rest(Some(directions), sides)
            }
            None => self.with_rest(None, sides),
            Some(directions) => self.with_rest(None, |x| sides(&directions.stretched(x)?)),
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
        let apply =
            |x: &dyn Vectors| applied::apply(x, codes.view(), n_codewords, weights, extra, p.view(), monitor);
        match directions {
            None => apply(&self.x),
            Some(directions) => apply(&directions.stretched(&self.x)?),
        }
    }

    fn uses(&self, codes: &Self::Codes, n_codewords: usize, shared: bool) -> Result<Vec<u64>> {
        reseed::uses(codes.view(), self.weights.as_deref(), n_codewords, shared)
    }

    fn worst(
        &self,
        objective: &Objective,
        codebooks: &Codebooks,
        codes: &Self::Codes,
        count: usize,
        monitor: &dyn Monitor,
    ) -> Result<Worst> {
        let mut errors = self.errors(objective, codebooks, codes, monitor)?;
        if let Some(weights) = &self.weights {
            errors.zip_mut_with(&ArrayView1::from(weights), |error, &weight| {
                if weight <= 0.0 {
                    *error = 0.0
                }
            });
        }
        let errors = errors.as_slice().expect("contiguous");
        self.with_rest(None, |x| reseed::worst(x, codes.view(), errors, count))
    }
}

fn read_rows(x: &dyn Vectors, rows: &[usize]) -> Result<Array2<f32>> {
    let mut taken = Array2::zeros((rows.len(), x.dim()));
    for (i, mut to) in taken.outer_iter_mut().enumerate() {
        read_finite(&Subset::new(x, rows), "X", i, to.as_slice_mut().expect("fresh"))?;
    }
    Ok(taken)
}
