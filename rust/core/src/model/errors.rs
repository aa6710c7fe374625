//! How far a model's approximations are from vectors, which an index keeps alongside its codes.

use super::{Model, checked_lists};
use crate::encode::{Target, error_bounds};
use crate::error::{Result, argument};
use crate::monitor::{Counter, Monitor};
use crate::vectors::metric::{Metric, squared_norm};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::{Array1, ArrayView2, s};
use rayon::prelude::*;

impl Model {
    /// ‖x‖² / ⟨x, x̄⟩ for each row of `x`: the factor that gives an approximation the same length along x as x. 1 if
    /// that is not a positive number.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, or the monitor cancels.
    pub fn scales(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        self.scales_in(x, codes, None, monitor)
    }

    /// Like [`scales`](Self::scales), for vectors in these lists of a model with centroids.
    ///
    /// # Errors
    /// The errors of [`scales`](Self::scales) and of [`decode`](Self::decode).
    pub fn scales_in(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        let lists = checked_lists(self.centroids.as_ref(), lists, x.n())?;
        check_dim(x, "X", self.codebooks.dim())?;
        let counter = Counter::new(monitor, x.n() as u64);
        let scale = |row: usize| {
            let mut vector = vec![0.0; x.dim()];
            read_finite(x, "X", row, &mut vector)?;
            let code = codes.slice(s![row..=row, ..]);
            let list = lists.map(|lists| &lists[row..=row]);
            let approximation = self.decode(code, list, &())?;
            let along = Metric::InnerProduct.score(approximation.as_slice().expect("fresh"), &vector);
            let scale = squared_norm(&vector) / along;
            if row % 1024 == 1023 {
                counter.add(1024)?;
            }
            Ok(if scale.is_finite() && scale > 0.0 { scale as f32 } else { 1.0 })
        };
        (0..x.n()).into_par_iter().map(scale).collect::<Vec<_>>().into_iter().collect()
    }

    /// ‖x − x̄‖ for each row of `x`, rounded up.
    ///
    /// # Errors
    /// Shapes that do not fit, a row that is not finite, a residual beyond the range of f32, or the monitor cancels.
    pub fn residuals(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        self.residuals_in(x, codes, None, monitor)
    }

    /// An upper bound on ‖x − x̄‖ for each row.
    ///
    /// # Errors
    /// The errors of [`residuals`](Self::residuals) and of [`decode`](Self::decode).
    pub fn error_bounds(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Array1<f64>> {
        let lists = checked_lists(self.centroids.as_ref(), lists, x.n())?;
        match (self.bases(), lists) {
            (Some(centroids), Some(lists)) => centroids.with_bases(lists, |base| {
                let target = Target { base: Some(base), ..Target::from(x) };
                error_bounds(&self.codebooks, target, codes, monitor)
            }),
            _ => error_bounds(&self.codebooks, x, codes, monitor),
        }
    }

    /// Like [`residuals`](Self::residuals), for vectors in these lists of a model with centroids.
    ///
    /// # Errors
    /// The errors of [`residuals`](Self::residuals) and of [`decode`](Self::decode).
    pub fn residuals_in(
        &self,
        x: &dyn Vectors,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        let bounds = self.error_bounds(x, codes, lists, monitor)?;
        let up = |(row, &bound): (usize, &f64)| {
            let nearest = bound as f32;
            let up = if f64::from(nearest) < bound { nearest.next_up() } else { nearest };
            if up.is_finite() {
                Ok(up)
            } else {
                Err(argument!("X", "[{row}] is too far from its approximation"))
            }
        };
        bounds.iter().enumerate().map(up).collect()
    }
}
