//! Codebooks for vectors that are stretched: see [`vectors::basis`](crate::vectors::basis).

use super::Codebooks;
use crate::error::{Result, invalid};
use crate::vectors::basis::Directions;

impl Directions {
    /// L c for each codeword.
    ///
    /// # Errors
    /// `codebooks` have another d, or a codeword overflows.
    pub fn stretch(&self, codebooks: &Codebooks) -> Result<Codebooks> {
        self.map(codebooks, |_| 1.0)
    }

    /// L⁻¹ c for each codeword: the reverse of [`stretch`](Self::stretch).
    ///
    /// # Errors
    /// `codebooks` have another d.
    pub fn relax(&self, codebooks: &Codebooks) -> Result<Codebooks> {
        self.map(codebooks, |square| -1.0 / (1.0 + square))
    }

    fn map(&self, codebooks: &Codebooks, factor: impl Fn(f64) -> f64 + Copy) -> Result<Codebooks> {
        if codebooks.dim() != self.dim() {
            return Err(invalid!(
                "directions have {} dimensions, the codebooks have {}",
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
