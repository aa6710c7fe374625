//! Codebooks for vectors that are stretched: see [`vectors::basis`](crate::vectors::basis).

use super::Codebooks;
use crate::error::{Result, argument};
use crate::vectors::basis::Directions;

impl Directions {
    /// L c for each codeword.
    ///
    /// # Errors
    /// `codebooks` have a different d, or a codeword overflows.
    pub fn stretch(&self, codebooks: &Codebooks) -> Result<Codebooks> {
        self.map(codebooks, |_| 1.0)
    }

    /// L⁻¹ c for each codeword: the reverse of [`stretch`](Self::stretch).
    ///
    /// # Errors
    /// `codebooks` have a different d.
    pub fn relax(&self, codebooks: &Codebooks) -> Result<Codebooks> {
        self.map(codebooks, |square| -1.0 / (1.0 + square))
    }

    fn map(&self, codebooks: &Codebooks, factor: impl Fn(f64) -> f64 + Copy) -> Result<Codebooks> {
        if codebooks.dim() != self.dim() {
            return Err(argument!(
                "directions",
                "have {} dimensions, the codebooks have {}",
                self.dim(),
                codebooks.dim()
            ));
        }
        let mut words = codebooks.view().mapv(f64::from);
        for mut book in words.outer_iter_mut() {
            book.outer_iter_mut().for_each(|word| self.add(word, factor));
        }
        Codebooks::new(words.mapv(|value| value as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array3, array};

    #[test]
    fn codewords_are_stretched_as_vectors_are() {
        let directions = Directions::new(array![[3.0, 4.0], [0.8, -0.6]]).unwrap();
        let words = Codebooks::new(array![[[0.8, -0.6]]]).unwrap();
        let words = directions.stretch(&words).unwrap();
        let [a, b] = *words.as_slice() else { panic!("two numbers") };
        assert!((a - 1.6).abs() < 1e-6 && (b + 1.2).abs() < 1e-6, "{a} {b}");
        assert!(directions.stretch(&Codebooks::new(Array3::zeros((1, 2, 3))).unwrap()).is_err());
    }

    #[test]
    fn relaxed_codebooks_are_those_that_were_stretched() {
        let directions = Directions::new(array![[3.0, 4.0, 0.0], [0.0, 0.0, 0.5]]).unwrap();
        let codebooks =
            Codebooks::new(Array3::from_shape_fn((2, 3, 3), |(m, k, j)| (m + 2 * k) as f32 - j as f32))
                .unwrap();
        let back = directions.relax(&directions.stretch(&codebooks).unwrap()).unwrap();
        for (back, was) in back.as_slice().iter().zip(codebooks.as_slice()) {
            assert!((back - was).abs() < 1e-5);
        }
    }
}
