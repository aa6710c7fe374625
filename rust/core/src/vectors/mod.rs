//! Rows of numbers of any type and layout, read as f32 a chunk at a time: the whole input is never converted at once.

pub mod basis;
pub mod metric;
pub mod rest;
pub mod unit;

use crate::error::{Error, Result, argument};
use crate::isa;
use half::f16;
use half::slice::HalfFloatSliceExt;
use ndarray::{ArrayView2, Axis};

/// A number type that vectors may be stored in.
pub trait Number: Copy + Send + Sync {
    /// Its value in 32 bits; a value beyond their range becomes an infinity (which is then rejected).
    fn to_f32(self) -> f32;

    /// Applies [`to_f32`](Self::to_f32) to an equal number of numbers.
    fn convert(from: &[Self], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
    }

    /// The numbers themselves, if they are f32.
    fn as_f32(_row: &[Self]) -> Option<&[f32]> {
        None
    }

    /// The numbers themselves, if their type is one that exact scores read fast.
    fn kept(_all: &[Self]) -> Option<Kept<'_>> {
        None
    }
}

/// Rows end to end in memory, n · d numbers.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats.
    F16(&'a [f16]),
    /// Bytes.
    U8(&'a [u8]),
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }
        }
    )*};
}
number!(f64, i8, u16, i16, u32, i32, u64, i64);

impl Number for f32 {
    #[inline]
    fn to_f32(self) -> f32 {
        self
    }

    fn as_f32(row: &[Self]) -> Option<&[f32]> {
        Some(row)
    }

    fn kept(all: &[Self]) -> Option<Kept<'_>> {
        Some(Kept::F32(all))
    }
}

impl Number for u8 {
    #[inline]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }

    fn kept(all: &[Self]) -> Option<Kept<'_>> {
        Some(Kept::U8(all))
    }
}

impl Number for f16 {
    #[inline]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    /// Checks only once, not for each number, whether the processor has an instruction for this.
    fn convert(from: &[Self], to: &mut [f32]) {
        let n = from.len().min(to.len());
        from[..n].convert_to_f32_slice(&mut to[..n]);
    }

    fn kept(all: &[Self]) -> Option<Kept<'_>> {
        Some(Kept::F16(all))
    }
}

/// n vectors of d numbers, readable from many threads.
pub trait Vectors: Sync {
    /// The number of vectors, n.
    fn n(&self) -> usize;

    /// The length of the vectors, d.
    fn dim(&self) -> usize;

    /// Writes rows `first ..` into `out`, whose length is a multiple of d.
    fn read(&self, first: usize, out: &mut [f32]);

    /// Row `row` as it is stored, if it is stored as d contiguous f32: it need not be copied then.
    fn kept(&self, _row: usize) -> Option<&[f32]> {
        None
    }

    /// All rows, if they are stored end to end, in memory with fast random access.
    fn all_kept(&self) -> Option<Kept<'_>> {
        None
    }

    /// Prefetches row `row` into the nearest cache, if it is known to be in memory; has no other effect.
    fn prefetch(&self, _row: usize) {}

    /// The number that an error gives row `row`: if these are some rows of other vectors, that among all of those.
    fn numbered(&self, row: usize) -> usize {
        row
    }
}

impl<T: Number> Vectors for ArrayView2<'_, T> {
    fn n(&self) -> usize {
        self.nrows()
    }

    fn dim(&self) -> usize {
        self.ncols()
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        for (i, to) in out.chunks_exact_mut(self.ncols()).enumerate() {
            let row = self.row(first + i);
            match row.as_slice() {
                Some(row) => T::convert(row, to),
                None => to.iter_mut().zip(row).for_each(|(to, from)| *to = from.to_f32()),
            }
        }
    }

    fn kept(&self, row: usize) -> Option<&[f32]> {
        self.index_axis(Axis(0), row).to_slice().and_then(T::as_f32)
    }

    fn all_kept(&self) -> Option<Kept<'_>> {
        self.to_slice().and_then(T::kept)
    }

    fn prefetch(&self, row: usize) {
        if let Some(row) = self.index_axis(Axis(0), row).to_slice() {
            isa::prefetch(row);
        }
    }
}

impl<V: Vectors + ?Sized> Vectors for &V {
    fn n(&self) -> usize {
        (**self).n()
    }

    fn dim(&self) -> usize {
        (**self).dim()
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        (**self).read(first, out);
    }

    fn kept(&self, row: usize) -> Option<&[f32]> {
        (**self).kept(row)
    }

    fn all_kept(&self) -> Option<Kept<'_>> {
        (**self).all_kept()
    }

    fn prefetch(&self, row: usize) {
        (**self).prefetch(row);
    }

    fn numbered(&self, row: usize) -> usize {
        (**self).numbered(row)
    }
}

impl<V: Vectors + Send + ?Sized> Vectors for Box<V> {
    fn n(&self) -> usize {
        (**self).n()
    }

    fn dim(&self) -> usize {
        (**self).dim()
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        (**self).read(first, out);
    }

    fn kept(&self, row: usize) -> Option<&[f32]> {
        (**self).kept(row)
    }

    fn all_kept(&self) -> Option<Kept<'_>> {
        (**self).all_kept()
    }

    fn prefetch(&self, row: usize) {
        (**self).prefetch(row);
    }

    fn numbered(&self, row: usize) -> usize {
        (**self).numbered(row)
    }
}

/// Some rows of other vectors, in the order of `rows`.
pub struct Subset<'a> {
    vectors: &'a dyn Vectors,
    rows: &'a [usize],
}

impl<'a> Subset<'a> {
    /// Rows `rows` of `vectors`.
    ///
    /// # Panics
    /// When read, if a row is not below n.
    #[must_use]
    pub fn new(vectors: &'a dyn Vectors, rows: &'a [usize]) -> Self {
        Self { vectors, rows }
    }
}

impl Vectors for Subset<'_> {
    fn n(&self) -> usize {
        self.rows.len()
    }

    fn dim(&self) -> usize {
        self.vectors.dim()
    }

    fn read(&self, first: usize, out: &mut [f32]) {
        for (to, &row) in out.chunks_exact_mut(self.dim()).zip(&self.rows[first..]) {
            self.vectors.read(row, to);
        }
    }

    fn numbered(&self, row: usize) -> usize {
        self.vectors.numbered(self.rows[row])
    }
}

/// Like [`Vectors::read`], but rejects NaN and infinities, naming `what` and the row.
pub(crate) fn read_finite(
    vectors: &dyn Vectors,
    what: &'static str,
    first: usize,
    out: &mut [f32],
) -> Result<()> {
    vectors.read(first, out);
    // No early exit: written this way, the compiler checks many numbers at a time.
    if out.iter().fold(true, |all, value| all & value.is_finite()) {
        return Ok(());
    }
    let at = out.iter().position(|value| !value.is_finite()).expect("one was seen");
    Err(Error::NotFinite { what, row: vectors.numbered(first + at / vectors.dim()) })
}

/// Rejects vectors whose length differs from the model's.
pub(crate) fn check_dim(vectors: &dyn Vectors, what: &'static str, dim: usize) -> Result<()> {
    if vectors.dim() == dim {
        return Ok(());
    }
    Err(argument!(what, "has {} dimensions, the model has {dim}", vectors.dim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{array, s};

    #[test]
    fn reads_any_type_and_layout() {
        let x = array![[1u8, 2, 3], [4, 5, 6]];
        let mut out = [0.0; 6];
        x.view().read(0, &mut out);
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let columns = x.slice(s![.., ..;2]);
        columns.read(0, &mut out[..4]);
        assert_eq!(out[..4], [1.0, 3.0, 4.0, 6.0]);
        x.t().read(1, &mut out[..4]);
        assert_eq!(out[..4], [2.0, 5.0, 3.0, 6.0]);
        Subset::new(&x.view(), &[1, 0, 1]).read(1, &mut out);
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        array![[f16::from_f32(0.5)]].view().read(0, &mut out[..1]);
        assert_eq!(out[0], 0.5);
    }

    #[test]
    fn names_the_first_row_that_is_not_finite() {
        let x = array![[0.0, 1.0], [2.0, 1e300], [f64::NAN, 0.0]];
        let mut out = [0.0; 6];
        let error = read_finite(&x.view(), "X", 0, &mut out).unwrap_err();
        assert!(matches!(error, Error::NotFinite { what: "X", row: 1 }));
        let x = x.view();
        let (last, two) = (Subset::new(&x, &[0, 2]), [1, 0]);
        let error = read_finite(&Subset::new(&last, &two), "X", 0, &mut out[..4]).unwrap_err();
        assert!(matches!(error, Error::NotFinite { what: "X", row: 2 }));
    }
}
