//! A metric of errors: an error r counts as ‖L r‖² with L = I + AᵀA, more along the few orthogonal rows of A.
//!
//! If sample queries q are known, E⟨q, r⟩² = rᵀ W r with W = E q qᵀ is the effect of an error on their scores. The rows
//! of A stretch the directions that queries use most, so that LᵀL resembles W there. If vectors and codebooks are both
//! stretched, the metric becomes the plain one: encoders and updates need no change.

use crate::error::{Result, argument};
use crate::vectors::{Vectors, check_dim};
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1};

/// The rows of A, (r, d), orthogonal to each other. Along a row a, vectors are stretched by a factor of 1 + ‖a‖².
#[derive(Clone, Debug, PartialEq)]
pub struct Directions {
    rows: Array2<f32>,
}

/// The upper limit of ‖a‖² for a row: beyond it few digits of f32 would remain across it.
const LARGEST: f64 = 1e4;

impl Directions {
    /// Takes the rows of A.
    ///
    /// # Errors
    /// A value is not finite, the rows are not orthogonal, or one stretches more than 10,000 times.
    pub fn new(rows: Array2<f32>) -> Result<Self> {
        if rows.iter().any(|value| !value.is_finite()) {
            return Err(argument!("directions", "hold NaN or an infinity"));
        }
        let wide = rows.mapv(f64::from);
        let products = wide.dot(&wide.t());
        let lengths = products.diag().mapv(f64::sqrt);
        if rows.nrows() > rows.ncols() || lengths.iter().any(|length| length * length > LARGEST) {
            return Err(argument!(
                "directions",
                "are more than dimensions, or stretch more than {LARGEST} times"
            ));
        }
        for ((i, j), product) in products.indexed_iter() {
            if i < j && product.abs() > 1e-3 * lengths[i] * lengths[j] {
                return Err(argument!("directions", "{i} and {j} are not orthogonal"));
            }
        }
        Ok(Self { rows })
    }

    /// The length of the vectors, d.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.rows.ncols()
    }

    /// The rows of A, (r, d).
    #[must_use]
    pub fn rows(&self) -> ArrayView2<'_, f32> {
        self.rows.view()
    }

    /// `x` (n, d) as L x, computed when it is read.
    ///
    /// # Errors
    /// `x` has a different d.
    pub fn stretched<'a>(&'a self, x: &'a dyn Vectors) -> Result<Stretched<'a>> {
        check_dim(x, "X", self.dim())?;
        Ok(Stretched { directions: self, vectors: x })
    }

    /// x += Σ f(‖a‖²) a⟨a, x⟩. Since the rows are orthogonal, adding one after the other is the same as all at once.
    pub(crate) fn add(&self, mut x: ArrayViewMut1<'_, f64>, factor: impl Fn(f64) -> f64) {
        for row in self.rows.outer_iter() {
            let row = row.mapv(f64::from);
            let share = factor(row.dot(&row)) * row.dot(&x);
            x.scaled_add(share, &row);
        }
    }

    pub(super) fn stretch_row(&self, x: &mut [f32], products: &mut Vec<f32>) {
        products.clear();
        products.extend(self.rows.outer_iter().map(|row| row.dot(&ArrayView1::from(&*x))));
        for (row, &product) in self.rows.outer_iter().zip(&*products) {
            x.iter_mut().zip(row).for_each(|(x, a)| *x += product * a);
        }
    }
}

/// Vectors stretched by [`Directions`].
pub struct Stretched<'a> {
    directions: &'a Directions,
    vectors: &'a dyn Vectors,
}

impl Vectors for Stretched<'_> {
    fn n(&self) -> usize {
        self.vectors.n()
    }

    fn dim(&self) -> usize {
        self.vectors.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        self.vectors.numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.vectors.read(first, out);
        let mut products = Vec::new();
        out.chunks_exact_mut(self.dim()).for_each(|row| self.directions.stretch_row(row, &mut products));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn errors_count_by_the_metric() {
        // Stretched along (3, 4)/5 by 1 + 25, along (4, −3)/5 by 1 + 1.
        let directions = Directions::new(array![[3.0, 4.0], [0.8, -0.6]]).unwrap();
        let mut row = [0.0; 2];
        directions.stretched(&array![[9.0f32, 9.0], [0.6, 0.8]].view()).unwrap().read(1, &mut row);
        assert!((row[0] - 15.6).abs() < 1e-5 && (row[1] - 20.8).abs() < 1e-5, "{row:?}");
    }

    #[test]
    fn refuses_what_is_no_metric() {
        let message = |rows| Directions::new(rows).unwrap_err().to_string();
        assert_eq!(message(array![[1.0, 0.0], [1.0, 1.0]]), "directions 0 and 1 are not orthogonal");
        assert_eq!(message(array![[1.0, f32::NAN]]), "directions hold NaN or an infinity");
        let directions = Directions::new(array![[1.0, 0.0]]).unwrap();
        assert!(directions.stretched(&array![[1.0f32]].view()).is_err());
    }
}
