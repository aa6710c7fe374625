//! Rotations: products of vectors with the columns of a matrix, for codebooks that lie in subspaces.

use crate::error::{Result, argument};
use crate::isa::{self, Isa};
use crate::linalg::gemm::{Panels, Product, Tiles};
use crate::monitor::Monitor;
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// Vectors rotated at once by a thread.
const CHUNK: usize = 48;

/// Products of vectors with the columns of a matrix.
pub(super) struct Rotation {
    isa: Isa,
    pub(super) panels: Panels,
    /// The initial value of the products.
    pub(super) zeros: Vec<f32>,
    width: usize,
}

/// x · `basis` (d, w) for each row x of `x` (n, d); returns (n, w). The result for a row depends on nothing but the
/// row.
///
/// # Errors
/// `x` has a different d, a row that is not finite, or one whose rotation is beyond f32; or `monitor` cancels.
pub fn rotated(x: &dyn Vectors, basis: ArrayView2<'_, f32>, monitor: &dyn Monitor) -> Result<Array2<f32>> {
    check_dim(x, "X", basis.nrows())?;
    let rotation = Rotation::new(basis)?;
    monitor.report(0, x.n() as u64)?;
    rotation.rows(x, "X", 0, x.n())
}

impl Rotation {
    pub(super) fn new(basis: ArrayView2<'_, f32>) -> Result<Self> {
        let (dim, width) = basis.dim();
        let columns = basis.t().as_standard_layout().into_owned();
        let columns = columns.as_slice().expect("standard layout");
        let panels = Panels::new(width, dim, |i| columns.get(i * dim..(i + 1) * dim));
        let zeros = vec![0.0; panels.columns()];
        Ok(Self { isa: Isa::current()?, panels, zeros, width })
    }

    /// The products of `rows` rows of `x`, starting at `first`.
    pub(super) fn rows(
        &self,
        x: &dyn Vectors,
        what: &'static str,
        first: usize,
        rows: usize,
    ) -> Result<Array2<f32>> {
        let (dim, width, columns) = (x.dim(), self.width, self.panels.columns());
        let mut rotated = Array2::zeros((rows, width));
        let chunks = rotated.as_slice_mut().expect("fresh").par_chunks_mut(CHUNK * width).enumerate();
        let failed = chunks
            .map_init(
                || (vec![0.0; CHUNK * dim], Tiles::new(CHUNK, dim), Vec::new()),
                |(x_rows, tiles, out), (i, rotated)| {
                    let rows = rotated.len() / width;
                    let x_rows = &mut x_rows[..rows * dim];
                    read_finite(x, what, first + i * CHUNK, x_rows)?;
                    for (r, x) in x_rows.chunks_exact(dim).enumerate() {
                        tiles.set(r, x.iter().copied());
                    }
                    out.resize(tiles.rows() * columns, 0.0);
                    let (panels, start) = (&self.panels, &self.zeros[..]);
                    isa::run(self.isa, Product { tiles, rows, panels, start, out });
                    for (r, (to, from)) in rotated.chunks_exact_mut(width).zip(out.chunks_exact(columns)).enumerate() {
                        to.copy_from_slice(&from[..width]);
                        if !to.iter().all(|value| value.is_finite()) {
                            let row = first + i * CHUNK + r;
                            return Err(argument!(
                                what,
                                "row {row} holds values too large for groups of codebooks in float32: scale it down"
                            ));
                        }
                    }
                    Ok(())
                },
            )
            .find_first(Result::is_err);
        failed.unwrap_or(Ok(()))?;
        Ok(rotated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::s;

    #[test]
    fn rotations_depend_on_nothing_but_the_row() {
        let number =
            |(i, j): (usize, usize)| ((i * 131 + j * 37) * 2_654_435_761 % 1009) as f32 / 100.0 - 5.0;
        let (x, basis) =
            (Array2::from_shape_fn((101, 5), number), Array2::from_shape_fn((5, 5), |(i, j)| number((j, i))));
        let whole = rotated(&x.view(), basis.view(), &()).unwrap();
        let part = rotated(&x.slice(s![50.., ..]), basis.view(), &()).unwrap();
        assert_eq!(whole.slice(s![50.., ..]), part);
        let want = x.dot(&basis);
        assert!((&whole - &want).iter().all(|off| off.abs() < 1e-4));
        assert!(rotated(&x.slice(s![.., ..4]), basis.view(), &()).is_err());
    }
}
