//! What the codewords of a vector should add up to, if part of its approximation is given.

use crate::error::{Result, argument};
use crate::vectors::basis::{Directions, Stretched};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::ArrayView2;

/// Vectors to approximate, and what their approximations contain before any codeword is chosen.
///
/// ```
/// use compcodes::encode::{Encode, Encoder, Target};
/// use compcodes::{Codebooks, Selection};
/// use ndarray::array;
/// let encoder = Encoder::new(&Codebooks::new(array![[[0.0, 0.0], [1.0, 0.0]]])?, Selection::Group)?;
/// let (x, centroids) = (array![[9.0f32, 5.0], [3.9, 1.0]], array![[8.0f32, 5.0], [4.0, 1.0]]);
/// let (x, centroids) = (x.view(), centroids.view());
/// let target = Target { base: Some(&centroids), ..Target::from(&x) };
/// assert_eq!(encoder.encode_target(&target, &())?, array![[1], [0]]);
/// # Ok::<(), compcodes::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The vectors (n, d). An error counts along these, whatever `base` is.
    pub x: &'a dyn Vectors,
    /// Rows (n, d) that the approximations start from: codewords are added to them. `None` means zeros.
    pub base: Option<&'a dyn Vectors>,
    /// For vectors that hold only some dimensions of longer vectors: what the loss along the whole vector needs to know
    /// about the other dimensions, one entry per vector.
    pub rest: Option<&'a [Rest]>,
}

/// The other dimensions of a vector, if an encoder sees only some of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// The length of the whole vector.
    pub norm: f64,
    /// ⟨x − x̄, x⟩ over the other dimensions.
    pub along: f64,
}

impl<'a> From<&'a dyn Vectors> for Target<'a> {
    fn from(x: &'a dyn Vectors) -> Self {
        Self { x, base: None, rest: None }
    }
}

impl<'a, V: Vectors> From<&'a V> for Target<'a> {
    fn from(x: &'a V) -> Self {
        Self::from(x as &dyn Vectors)
    }
}

impl Target<'_> {
    /// Rejects a target that does not fit vectors of `dim` numbers, or whose parts do not fit each other.
    pub(super) fn check(&self, dim: usize) -> Result<()> {
        check_dim(self.x, "X", dim)?;
        if let Some(base) = self.base {
            check_dim(base, "base", dim)?;
            check_rows_of("base", base.n(), self.x)?;
        }
        let Some(rest) = self.rest else { return Ok(()) };
        check_rows_of("rest", rest.len(), self.x)?;
        let is_valid = |rest: &Rest| rest.along.is_finite() && rest.norm >= 0.0 && rest.norm.is_finite();
        match rest.iter().position(|rest| !is_valid(rest)) {
            Some(row) => {
                Err(argument!("rest", "row {row} is {:?}: want finite numbers, no norm below 0", rest[row]))
            }
            None => Ok(()),
        }
    }
}

/// Rejects `codes` that are not one per row of `x`.
pub(super) fn check_rows(codes: ArrayView2<'_, u8>, x: &dyn Vectors) -> Result<()> {
    check_rows_of("codes", codes.nrows(), x)
}

/// Rejects `what` unless it has one row per row of `x`.
fn check_rows_of(what: &'static str, rows: usize, x: &dyn Vectors) -> Result<()> {
    if rows == x.n() {
        return Ok(());
    }
    Err(argument!(what, "have {rows} rows, X has {}", x.n()))
}

/// A target as [`Directions`] stretch it.
pub(super) struct StretchedTarget<'a> {
    x: Stretched<'a>,
    base: Option<Stretched<'a>>,
}

impl<'a> StretchedTarget<'a> {
    /// # Errors
    /// A different d, or a target that is part of longer vectors.
    pub(super) fn new(directions: &'a Directions, target: &Target<'a>) -> Result<Self> {
        if target.rest.is_some() {
            return Err(argument!("directions", "stretch whole vectors: these are part of longer ones"));
        }
        let base = target.base.map(|base| directions.stretched(base)).transpose()?;
        Ok(Self { x: directions.stretched(target.x)?, base })
    }

    pub(super) fn target(&self) -> Target<'_> {
        let base = self.base.as_ref().map(|base| base as &dyn Vectors);
        Target { base, ..Target::from(&self.x) }
    }
}

/// Rows of a [`Target`] that were read.
#[derive(Default)]
pub(super) struct Rows {
    dim: usize,
    x: Vec<f32>,
    base: Option<Vec<f32>>,
    rest: Option<Vec<Rest>>,
}

/// One row of a [`Target`].
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) x: &'a [f32],
    pub(super) base: Option<&'a [f32]>,
    pub(super) rest: Option<Rest>,
}

impl Rows {
    /// Reads `rows` rows, starting at `first`.
    pub(super) fn read(&mut self, target: &Target<'_>, first: usize, rows: usize) -> Result<()> {
        self.dim = target.x.dim();
        self.x.resize(rows * self.dim, 0.0);
        read_finite(target.x, "X", first, &mut self.x)?;
        self.base = match target.base {
            None => None,
            Some(base) => {
                let mut values = self.base.take().unwrap_or_default();
                values.resize(rows * self.dim, 0.0);
                read_finite(base, "base", first, &mut values)?;
                Some(values)
            }
        };
        self.rest = target.rest.map(|rest| rest[first..first + rows].to_vec());
        Ok(())
    }

    pub(super) fn row(&self, r: usize) -> Row<'_> {
        let here = r * self.dim..(r + 1) * self.dim;
        Row {
            x: &self.x[here.clone()],
            base: self.base.as_ref().map(|base| &base[here]),
            rest: self.rest.as_ref().map(|rest| rest[r]),
        }
    }
}

impl Row<'_> {
    /// Writes what the approximation starts from.
    pub(super) fn begin(self, approximation: &mut [f32]) {
        match self.base {
            None => approximation.fill(0.0),
            Some(base) => approximation.copy_from_slice(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::{Codebooks, Selection};
    use crate::encode::{Encoding, Loss, Objective, Start, encoder, errors};
    use ndarray::{Array2, Array3, s};

    fn pseudo(rows: usize, columns: usize, salt: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |(i, j)| {
            (((i * 131 + j * 37 + salt) * 2_654_435_761) % 1009) as f32 / 100.0 - 5.0
        })
    }

    fn codebooks(m: usize, k: usize, d: usize) -> Codebooks {
        let words = pseudo(m * k, d, 7).into_shape_with_order((m, k, d)).unwrap();
        Codebooks::new(words).unwrap()
    }

    /// Every code of two codebooks.
    fn pairs(k: usize) -> Vec<[u8; 2]> {
        (0..k as u8).flat_map(|i| (0..k as u8).map(move |j| [i, j])).collect()
    }

    fn losses(books: &Codebooks, loss: Loss, target: Target<'_>, codes: &Array2<u8>) -> Vec<f64> {
        errors(books, loss, target, codes.view(), &()).unwrap().to_vec()
    }

    /// The least loss of each row over all codes.
    fn least(books: &Codebooks, loss: Loss, target: Target<'_>) -> Vec<f64> {
        let mut least = vec![f64::INFINITY; target.x.n()];
        for code in pairs(books.n_codewords()) {
            let codes = Array2::from_shape_fn((target.x.n(), 2), |(_, m)| code[m]);
            let found = losses(books, loss, target, &codes);
            least.iter_mut().zip(found).for_each(|(least, found)| *least = least.min(found));
        }
        least
    }

    #[test]
    fn codes_are_those_of_the_least_loss_given_the_base() {
        let (x, base) = (pseudo(60, 6, 1), 3.0 * &pseudo(60, 6, 2));
        let (books, x, base) = (codebooks(2, 6, 6), x.view(), base.view());
        let target = Target { base: Some(&base), ..Target::from(&x) };
        for eta in [1.0, 5.0] {
            let objective = Objective::from(Loss::inner_product(eta).unwrap());
            let search = Encoding::LocalSearch { start: Start::Greedy, rounds: 32, seed: 1 };
            for encoding in [Encoding::Beam { width: 36 }, search] {
                let encoder = encoder(&books, Selection::Group, &objective, encoding).unwrap();
                let mut codes = encoder.encode_target(&target, &()).unwrap();
                let want = least(&books, objective.loss, target);
                for (found, want) in losses(&books, objective.loss, target, &codes).iter().zip(&want) {
                    assert!(*found <= want * 1.000_01, "{found} for {want}, eta {eta}");
                }
                codes.fill(0);
                let improved = encoder.improve_target(&target, &mut codes, &()).unwrap();
                assert_eq!(improved.after.to_vec(), losses(&books, objective.loss, target, &codes));
                assert!(improved.after.iter().zip(&want).all(|(after, want)| *after <= want * 1.000_01));
            }
        }
    }

    #[test]
    fn a_base_of_zeros_is_none_and_one_is_subtracted_by_the_squared_error() {
        let (x, base) = (pseudo(60, 6, 1), pseudo(60, 6, 2));
        let (books, zeros) = (codebooks(3, 6, 6), Array2::<f32>::zeros((60, 6)));
        let greedy = |eta: f64| {
            let objective = Objective::from(Loss::inner_product(eta).unwrap());
            encoder(&books, Selection::Group, &objective, Encoding::Greedy).unwrap()
        };
        let left = &x - &base;
        let (x, base, left, zeros) = (x.view(), base.view(), left.view(), zeros.view());
        let given = Target { base: Some(&base), ..Target::from(&x) };
        assert_eq!(greedy(1.0).encode_target(&given, &()).unwrap(), greedy(1.0).encode(&left, &()).unwrap());
        let none = Target { base: Some(&zeros), ..Target::from(&x) };
        assert_eq!(greedy(4.0).encode_target(&none, &()).unwrap(), greedy(4.0).encode(&x, &()).unwrap());
    }

    #[test]
    fn parts_of_vectors_are_judged_by_the_loss_of_the_whole() {
        let (x, d) = (pseudo(50, 10, 3), 6);
        let loss = Loss::inner_product(7.0).unwrap();
        // The whole vector has codewords (c, 0) and the base (0, b), the part has the codewords c.
        let (part, b) = (codebooks(2, 6, d), pseudo(50, 4, 5));
        let mut words = Array3::zeros((2, 6, 10));
        words.slice_mut(s![.., .., ..d]).assign(&part.view());
        let whole = Codebooks::new(words).unwrap();
        let mut base = Array2::zeros((50, 10));
        base.slice_mut(s![.., d..]).assign(&b);
        let other = x.slice(s![.., d..]).mapv(f64::from);
        let left = &other - &b.mapv(f64::from);
        let rest: Vec<Rest> = (0..50)
            .map(|i| {
                let square: f64 = x.row(i).iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                Rest { norm: square.sqrt(), along: left.row(i).dot(&other.row(i)) }
            })
            .collect();
        let (x, base) = (x.view(), base.view());
        let own = x.slice(s![.., ..d]);
        let given = Target { rest: Some(&rest), ..Target::from(&own) };
        let entire = Target { base: Some(&base), ..Target::from(&x) };
        let search = Encoding::LocalSearch { start: Start::Greedy, rounds: 32, seed: 1 };
        let codes = encoder(&part, Selection::Group, &loss.into(), search).unwrap();
        let codes = codes.encode_target(&given, &()).unwrap();
        let (found, want) = (losses(&whole, loss, entire, &codes), least(&whole, loss, entire));
        let of_part = losses(&part, loss, given, &codes);
        for (i, (found, want)) in found.iter().zip(want).enumerate() {
            assert!(*found <= want * 1.000_01, "{found} for {want}");
            let across: f64 = left.row(i).iter().map(|e| e * e).sum();
            assert!((of_part[i] + across - found).abs() < 1e-6 * found);
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let books = codebooks(2, 6, 6);
        let encoder = encoder(&books, Selection::Group, &Objective::default(), Encoding::Greedy).unwrap();
        let (x, short, narrow) = (pseudo(5, 6, 1), pseudo(4, 6, 1), pseudo(5, 4, 1));
        let (x, short, narrow) = (x.view(), short.view(), narrow.view());
        let message = |target: Target<'_>| encoder.encode_target(&target, &()).unwrap_err().to_string();
        let target = Target::from(&x);
        assert_eq!(message(Target { base: Some(&short), ..target }), "base have 4 rows, X has 5");
        assert!(message(Target { base: Some(&narrow), ..target }).contains("base"));
        let rest = [Rest { norm: f64::NAN, along: 0.0 }; 5];
        assert!(message(Target { rest: Some(&rest), ..target }).contains("rest row 0"));
        assert!(message(Target { rest: Some(&rest[..3]), ..target }).contains("rest have 3 rows"));
    }
}
