//! The choice of origin for computing tables.
//!
//! In f32, products of vectors that lie far from the origin and close together say little about their distances. So c =
//! Σ_m median_k c_m[k], computed per dimension, is subtracted from all vectors, one median from each codebook, and the
//! remainders are small. c follows from the codebooks. (Means would do as well, except when a few codewords are far
//! larger than the others.)

use crate::codebooks::Codebooks;
use crate::error::{Result, argument};
use crate::model::{Centroids, Model};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::tables::TableBuilder;
use crate::vectors::metric::{Metric, squared_norm};
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::{Array2, Array3, ArrayView1, ArrayView2};
use rayon::prelude::*;

/// Vectors whose numbers are computed between two checks of the monitor.
const CHUNK: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// c, (d); zeros if nothing is subtracted.
    pub(super) center: Vec<f64>,
    /// The tables of the codewords minus their medians.
    pub(super) tables: TableBuilder,
    /// The tables of the centroids minus their median, if there are any: they select lists, and also enter the scores
    /// if approximations start from centroids.
    pub(super) bases: Option<TableBuilder>,
    /// For each centroid, the number that turns its product with a query into −½ of a squared distance, up to a
    /// constant: with c' the row of `bases`, m the centroids' median and c the center, −½‖c'‖² − ⟨c', m − c⟩.
    pub(super) offsets: Vec<f32>,
    /// Σ_m of the largest ‖codeword‖ in the tables.
    pub(super) spread: f64,
    /// Σ_m of the largest original ‖codeword‖.
    pub(super) size: f64,
}

impl Frame {
    /// Uses the codebooks and centroids unchanged.
    pub(super) fn plain(model: &Model) -> Self {
        let codebooks = &model.codebooks;
        let centroids = model.centroids.as_ref().map(Centroids::view);
        let added = model.bases().map(Centroids::view);
        let size = largest(codebooks).iter().sum::<f64>() + added.map_or(0.0, longest);
        let (center, tables) = (vec![0.0; codebooks.dim()], TableBuilder::new(codebooks));
        let bases = centroids.map(TableBuilder::of_rows);
        let offsets = centroids.map_or_else(Vec::new, |rows| offsets(rows, &vec![0.0; rows.ncols()]));
        Self { center, tables, bases, offsets, spread: size, size }
    }

    /// Subtracts the medians from the codebooks, and the centroids' median from the centroids.
    pub(super) fn centered(model: &Model) -> Self {
        let codebooks = &model.codebooks;
        let (n_codebooks, n_codewords, dim) = codebooks.view().dim();
        let mut moved = Array3::<f32>::zeros((n_codebooks, n_codewords, dim));
        let mut center = vec![0.0; dim];
        for (m, mut book) in moved.outer_iter_mut().enumerate() {
            let mut column = vec![0.0; n_codewords];
            for (j, (mut values, center)) in book.columns_mut().into_iter().zip(&mut center).enumerate() {
                for (k, value) in column.iter_mut().enumerate() {
                    *value = codebooks.codeword(m, k)[j];
                }
                let (_, &mut median, _) = column.select_nth_unstable_by(n_codewords / 2, f32::total_cmp);
                for (k, value) in values.iter_mut().enumerate() {
                    *value = codebooks.codeword(m, k)[j] - median;
                }
                *center += f64::from(median);
            }
        }
        // m − c.
        let mut ahead: Vec<f64> = center.iter().map(|center| -center).collect();
        let centroids = model.centroids.as_ref().map(|centroids| {
            let mut moved = centroids.view().to_owned();
            for (j, mut values) in moved.columns_mut().into_iter().enumerate() {
                let mut sorted = values.to_vec();
                let (_, &mut median, _) = sorted.select_nth_unstable_by(values.len() / 2, f32::total_cmp);
                values.iter_mut().for_each(|value| *value -= median);
                // If approximations start from centroids, c includes m, and m − c remains the negated sum of the other
                // medians.
                *if centroids.by_residual() { &mut center[j] } else { &mut ahead[j] } += f64::from(median);
            }
            moved
        });
        let added = centroids.as_ref().filter(|_| model.bases().is_some());
        match Codebooks::new(moved) {
            Ok(moved) if centroids.iter().flatten().all(|value| value.is_finite()) => {
                let longest = |rows: &Array2<f32>| longest(rows.view());
                let spread = largest(&moved).iter().sum::<f64>() + added.map_or(0.0, longest);
                let bases = centroids.as_ref().map(|rows| TableBuilder::of_rows(rows.view()));
                let Self { size, .. } = Self::plain(model);
                let offsets = centroids.as_ref().map_or_else(Vec::new, |rows| offsets(rows.view(), &ahead));
                Self { center, tables: TableBuilder::new(&moved), bases, offsets, spread, size }
            }
            // The differences are beyond f32.
            _ => Self::plain(model),
        }
    }

    /// −½‖x̄ − c‖² or 1 / ‖x̄‖ for codes (n, M), rounded to f32. Codes beyond K count as 0.
    ///
    /// # Errors
    /// An approximation or its squared norm is beyond f32 (the error names the first such row); or the monitor cancels.
    pub(super) fn numbers(
        &self,
        model: &Model,
        metric: Metric,
        (codes, lists): (ArrayView2<'_, u8>, Option<&[u32]>),
        monitor: &dyn Monitor,
    ) -> Result<Vec<f32>> {
        let codebooks = &model.codebooks;
        let counter = Counter::new(monitor, codes.nrows() as u64);
        let rows = parallel::rows(CHUNK);
        let mut numbers = vec![0.0; codes.nrows()];
        let chunks = numbers.par_chunks_mut(rows).enumerate();
        let refused = chunks.map(|(chunk, numbers)| {
            let mut decoded = vec![0.0; codebooks.dim()];
            for (i, number) in numbers.iter_mut().enumerate() {
                let row = chunk * rows + i;
                let list = lists.map_or(0, |lists| lists[row]);
                decode(model, codes.row(row).iter().copied(), list, &mut decoded);
                let value = match metric {
                    Metric::Euclidean => -0.5 * self.squared_distance(&decoded),
                    // A norm of 0, or so small that its inverse is beyond f32, counts as any norm below 2⁻¹²⁸.
                    _ => squared_norm(&decoded).sqrt().recip().min(f32::MAX.into()),
                };
                *number = value as f32;
                // 1 / ∞ is 0.
                if !number.is_finite() || !decoded.iter().all(|x| x.is_finite()) {
                    return Ok(Some(chunk * rows + i));
                }
            }
            counter.add(numbers.len() as u64).map(|()| None)
        });
        match refused.collect::<Result<Vec<_>>>()?.into_iter().flatten().min() {
            Some(row) => Err(argument!(
                "codes",
                "row {row} is too large: the square of its approximation is beyond float32; scale the vectors down"
            )),
            None => Ok(numbers),
        }
    }

    /// Rejects vectors whose squared distance from the center is beyond f32: exact distances to them would be, too.
    ///
    /// # Errors
    /// There is such a vector (the error names the first); a row is not finite; or the monitor cancels.
    pub(super) fn check_vectors(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<()> {
        check_dim(x, "X", self.center.len())?;
        let counter = Counter::new(monitor, x.n() as u64);
        let rows = parallel::rows(CHUNK);
        let refused = (0..x.n().div_ceil(rows)).into_par_iter().map(|chunk| {
            let mut vector = vec![0.0; x.dim()];
            let chunk = chunk * rows..((chunk + 1) * rows).min(x.n());
            for row in chunk.clone() {
                read_finite(x, "X", row, &mut vector)?;
                if !(self.squared_distance(&vector) as f32).is_finite() {
                    return Ok(Some(row));
                }
            }
            counter.add(chunk.len() as u64).map(|()| None)
        });
        match refused.collect::<Result<Vec<_>>>()?.into_iter().flatten().min() {
            Some(row) => Err(argument!(
                "X",
                "row {row} is too large: its square is beyond float32; scale the vectors down"
            )),
            None => Ok(()),
        }
    }

    /// ‖x − c‖².
    fn squared_distance(&self, x: &[f32]) -> f64 {
        x.iter().zip(&self.center).map(|(&x, c)| (f64::from(x) - c) * (f64::from(x) - c)).sum()
    }
}

/// The approximation of a code, identical to the bit to that of [`Model::decode`]; `list` is ignored if approximations
/// do not start from centroids.
#[inline(always)]
pub(super) fn decode(model: &Model, code: impl Iterator<Item = u8>, list: u32, out: &mut [f32]) {
    let codebooks = &model.codebooks;
    match model.bases() {
        None => out.fill(0.0),
        Some(centroids) => out.copy_from_slice(centroids.centroid(list as usize)),
    }
    for (m, code) in code.enumerate() {
        // As in the tables, a code beyond K counts as codeword 0.
        let codeword = Some(usize::from(code)).filter(|&code| code < codebooks.n_codewords());
        out.iter_mut().zip(codebooks.codeword(m, codeword.unwrap_or(0))).for_each(|(x, c)| *x += c);
    }
}

/// −½‖c'‖² − ⟨c', ahead⟩ for each row c'.
fn offsets(rows: ArrayView2<'_, f32>, ahead: &[f64]) -> Vec<f32> {
    let offset = |row: ArrayView1<'_, f32>| {
        let terms = row.iter().zip(ahead).map(|(&c, ahead)| f64::from(c) * (0.5 * f64::from(c) + ahead));
        -terms.sum::<f64>() as f32
    };
    rows.outer_iter().map(offset).collect()
}

/// The largest norm of the rows.
fn longest(rows: ArrayView2<'_, f32>) -> f64 {
    let norm = |row: ArrayView1<'_, f32>| squared_norm(row.as_slice().expect("standard layout")).sqrt();
    rows.outer_iter().map(norm).fold(0.0, f64::max)
}

/// The largest ‖codeword‖ of each codebook.
pub(super) fn largest(codebooks: &Codebooks) -> Vec<f64> {
    let (n_codebooks, n_codewords, _) = codebooks.view().dim();
    let norms = |m| (0..n_codewords).map(move |k| squared_norm(codebooks.codeword(m, k)).sqrt());
    (0..n_codebooks).map(|m| norms(m).fold(0.0, f64::max)).collect()
}
