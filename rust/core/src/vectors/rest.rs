//! The residual of vectors after the first part of their approximations.

use super::Vectors;
use super::basis::Directions;

/// x − base for each row; or with a loss, W (x − base), where W = I + `extra` u uᵀ with u = x / ‖x‖ weighs errors. With
/// directions A both x and x − base are stretched.
pub struct Rest<'a> {
    /// The vectors (n, d).
    pub x: &'a dyn Vectors,
    /// Rows of length d, to which `places` (n) refers.
    pub base: &'a dyn Vectors,
    /// For each vector, the number of its row of `base`.
    pub places: &'a [usize],
    /// η − 1; 0 weighs all errors equally.
    pub extra: f64,
    /// The directions A.
    pub directions: Option<&'a Directions>,
}

impl Vectors for Rest<'_> {
    fn n(&self) -> usize {
        self.x.n()
    }

    fn dim(&self) -> usize {
        self.x.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        self.x.numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        let dim = self.dim();
        let (mut x, mut products) = (vec![0.0; dim], Vec::new());
        for (row, rest) in out.chunks_exact_mut(dim).enumerate() {
            self.x.read(first + row, &mut x);
            self.base.read(self.places[first + row], rest);
            rest.iter_mut().zip(&x).for_each(|(rest, x)| *rest = x - *rest);
            if let Some(directions) = self.directions {
                directions.stretch_row(rest, &mut products);
            }
            if self.extra > 0.0 {
                if let Some(directions) = self.directions {
                    directions.stretch_row(&mut x, &mut products);
                }
                let sum = |terms: &mut dyn Iterator<Item = (f32, f32)>| {
                    terms.map(|(a, b)| f64::from(a) * f64::from(b)).sum::<f64>()
                };
                let square = sum(&mut x.iter().map(|&x| (x, x)));
                let along = sum(&mut x.iter().copied().zip(rest.iter().copied()));
                let share = if square > 0.0 { self.extra * along / square } else { 0.0 };
                rest.iter_mut().zip(&x).for_each(|(rest, &x)| {
                    *rest = (f64::from(*rest) + share * f64::from(x)) as f32;
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn errors_are_weighed_along_the_vector() {
        let (x, base) = (array![[3.0f32, 4.0], [1.0, 0.0], [0.0, 0.0]], array![[1.0f32, 1.0], [0.0, 2.0]]);
        let (x, base) = (x.view(), base.view());
        let read = |extra, directions| {
            let mut out = [0.0; 6];
            Rest { x: &x, base: &base, places: &[0, 1, 1], extra, directions }.read(0, &mut out);
            out
        };
        assert_eq!(read(0.0, None), [2.0, 3.0, 1.0, -2.0, 0.0, -2.0]);
        // The part of (2, 3) along (0.6, 0.8): 3.6.
        let weighed = read(10.0, None);
        let want = [2.0 + 36.0 * 0.6, 3.0 + 36.0 * 0.8, 11.0, -2.0, 0.0, -2.0];
        assert!(
            weighed.iter().zip(want).all(|(have, want): (&f32, f32)| (have - want).abs() < 1e-4),
            "{weighed:?}"
        );
        let directions = Directions::new(array![[1.0, 0.0]]).unwrap();
        assert_eq!(read(0.0, Some(&directions)), [4.0, 3.0, 2.0, -2.0, 0.0, -2.0]);
        // The part of (2, −2) along (2, 0) / 2.
        assert_eq!(read(1.0, Some(&directions))[2..4], [4.0, -2.0]);
    }
}
