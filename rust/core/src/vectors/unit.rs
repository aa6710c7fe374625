//! Vectors of which only the direction counts.

use super::Vectors;
use super::metric::normalise;

/// Vectors scaled to length 1 when they are read; zero vectors are left unchanged.
///
/// To train for cosine, train on `Unit(&x)` and put [`Metric::Cosine`](super::metric::Metric::Cosine) into the
/// [`Recipe`](crate::model::Recipe) of the model: its encoder then scales what it encodes.
///
/// Multiplying a row by a power of two does not change the result, to the bit, as far as f32 can hold both.
pub struct Unit<V>(pub V);

impl<V: Vectors> Vectors for Unit<V> {
    fn n(&self) -> usize {
        self.0.n()
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn numbered(&self, row: usize) -> usize {
        self.0.numbered(row)
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        self.0.read(first, out);
        // A number that is not finite makes its row NaN, and is still detected.
        out.chunks_exact_mut(self.dim()).for_each(normalise);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::read_finite;
    use ndarray::array;

    #[test]
    fn rows_have_length_one_whatever_they_had() {
        let x = array![[3.0f32, 4.0], [0.0, 0.0], [-3e38, 0.0], [1e-45, 0.0]];
        let mut out = [0.0; 8];
        Unit(&x.view()).read(0, &mut out);
        assert_eq!(out, [0.6, 0.8, 0.0, 0.0, -1.0, 0.0, 1.0, 0.0]);
        let mut doubled = [0.0; 2];
        Unit(&(x * 1024.0).view()).read(0, &mut doubled);
        assert_eq!(doubled, out[..2]);
    }

    #[test]
    fn what_is_not_finite_is_still_found() {
        for wrong in [f32::NAN, f32::INFINITY] {
            let x = array![[1.0, 2.0], [wrong, 1.0]];
            assert!(read_finite(&Unit(&x.view()), "X", 0, &mut [0.0; 4]).is_err());
        }
    }
}
