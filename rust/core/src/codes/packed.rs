//! Codes as the scan reads them: blocks of 64 vectors, each block column by column.
//!
//! One block holds 64 vectors' codes in M lines of 64 bytes; line m is what table m is looked up with, for 64 vectors
//! at once. Blocks follow one another without gaps; the last one is filled up with zero codes.
//!
//! | byte of the block | 0 | 1 | … | 63 |
//! |---|---|---|---|---|
//! | line 0 | code 0 of vector 0 | code 0 of vector 1 | … | code 0 of vector 63 |
//! | line 1 | code 1 of vector 0 | code 1 of vector 1 | … | code 1 of vector 63 |
//! | … | | | | |
//! | line M−1 | code M−1 of vector 0 | code M−1 of vector 1 | … | code M−1 of vector 63 |
//!
//! So code m of vector n is byte `((n / 64) * M + m) * 64 + n % 64`.

use crate::codebooks::MAX_CODEBOOKS;
use crate::codes::memory::Lines;
use crate::error::{Result, invalid};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// Vectors in a block: the bytes of one AVX-512 register.
pub const BLOCK: usize = 64;
/// The most columns of a packed array: the codebooks, and two more for what an index stores beside the codes.
pub const MAX_COLUMNS: usize = MAX_CODEBOOKS + 2;
/// The most vectors of one packed array: beyond every memory, and their bytes can still be counted.
pub const MAX_VECTORS: usize = 1 << 48;

/// One column of one block.
pub type Line = [u8; BLOCK];

/// Bytes that `len` packed vectors of `n_columns` codes take.
#[must_use]
pub fn packed_bytes(len: usize, n_columns: usize) -> usize {
    len.div_ceil(BLOCK) * n_columns * BLOCK
}

/// Packed codes that can grow and change.
#[derive(Debug)]
pub struct PackedCodes {
    lines: Lines,
    len: usize,
    n_columns: usize,
}

impl PackedCodes {
    /// No vectors yet, of `n_columns` codes each.
    ///
    /// # Errors
    /// `n_columns` is 0 or above [`MAX_COLUMNS`].
    pub fn new(n_columns: usize) -> Result<Self> {
        check_shape(0, n_columns)?;
        Ok(Self { lines: Lines::default(), len: 0, n_columns })
    }

    /// Packs `codes` (n, M).
    ///
    /// # Errors
    /// M is 0 or above [`MAX_COLUMNS`], n is above [`MAX_VECTORS`], or there is no memory for them.
    pub fn pack(codes: ArrayView2<'_, u8>) -> Result<Self> {
        let mut packed = Self::new(codes.ncols())?;
        packed.extend(codes)?;
        Ok(packed)
    }

    /// Copies a view, from a memory-mapped file say.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn from_view(view: PackedView<'_>) -> Result<Self> {
        Ok(Self { lines: Lines::copy(view.lines)?, len: view.len, n_columns: view.n_columns })
    }

    /// `len` vectors of `n_columns` codes, whose bytes `fill` writes as [`PackedView::as_bytes`] has them.
    ///
    /// # Errors
    /// The shape is not one of packed codes, there is no memory for them, or `fill` fails.
    pub(crate) fn filled(
        len: usize,
        n_columns: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        check_shape(len, n_columns)?;
        let mut lines = Lines::default();
        lines.grow(len.div_ceil(BLOCK) * n_columns)?;
        fill(lines.as_flattened_mut())?;
        Ok(Self { lines, len, n_columns })
    }

    /// Number of vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Codes a vector, M.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// What the scan reads.
    #[must_use]
    pub fn view(&self) -> PackedView<'_> {
        PackedView { lines: &self.lines, len: self.len, n_columns: self.n_columns }
    }

    /// Appends `codes` (n, M).
    ///
    /// # Errors
    /// Another M, more than [`MAX_VECTORS`] in all, or no memory for them; nothing is appended then.
    pub fn extend(&mut self, codes: ArrayView2<'_, u8>) -> Result<()> {
        self.rewrite(self.len, codes)
    }

    /// Puts `codes` (n, M) in the place of all from `first` on, which are at most as many.
    ///
    /// # Errors
    /// Those of [`extend`](Self::extend); nothing is changed then.
    ///
    /// # Panics
    /// There are more.
    pub(crate) fn rewrite(&mut self, first: usize, codes: ArrayView2<'_, u8>) -> Result<()> {
        if codes.ncols() != self.n_columns {
            return Err(invalid!("codes have {} columns, want {}", codes.ncols(), self.n_columns));
        }
        let (old_len, len) = (first, first + codes.nrows());
        assert!(first <= self.len && self.len <= len, "{first} to {len} of {}", self.len);
        check_shape(len, self.n_columns)?;
        self.lines.grow(len.div_ceil(BLOCK) * self.n_columns)?;
        self.len = len;

        // The block that was partial, then whole blocks in parallel.
        let head = (old_len.next_multiple_of(BLOCK) - old_len).min(codes.nrows());
        for row in 0..head {
            self.write(old_len + row, codes.row(row).iter().copied());
        }
        let first_block = (old_len + head).div_ceil(BLOCK);
        self.lines[first_block * self.n_columns..]
            .par_chunks_exact_mut(self.n_columns)
            .enumerate()
            .with_min_len(64)
            .for_each(|(block, lines)| {
                let first = head + block * BLOCK;
                for lane in 0..BLOCK.min(codes.nrows() - first) {
                    lines.iter_mut().zip(codes.row(first + lane)).for_each(|(line, &code)| line[lane] = code);
                }
            });
        Ok(())
    }

    /// Overwrites the last column of the vectors from `first` on.
    ///
    /// # Panics
    /// There are not as many.
    pub fn set_last(&mut self, first: usize, bytes: &[u8]) {
        assert!(first + bytes.len() <= self.len, "{} bytes from {first} of {}", bytes.len(), self.len);
        for (position, &byte) in (first..).zip(bytes) {
            self.lines[(position / BLOCK + 1) * self.n_columns - 1][position % BLOCK] = byte;
        }
    }

    /// Overwrites the codes of the vectors at `positions` by the rows of `codes` (positions, M).
    ///
    /// # Panics
    /// A position is not below [`len`](Self::len), or `codes` are not M for each.
    pub(crate) fn replace(&mut self, positions: &[usize], codes: ArrayView2<'_, u8>) {
        assert_eq!(codes.dim(), (positions.len(), self.n_columns), "codes for the positions");
        for (&position, codes) in positions.iter().zip(codes.outer_iter()) {
            assert!(position < self.len, "position {position} of {}", self.len);
            self.write(position, codes.iter().copied());
        }
    }

    fn write(&mut self, position: usize, codes: impl Iterator<Item = u8>) {
        let (block, lane) = (position / BLOCK, position % BLOCK);
        let lines = &mut self.lines[block * self.n_columns..][..self.n_columns];
        lines.iter_mut().zip(codes).for_each(|(line, code)| line[lane] = code);
    }
}

impl Clone for PackedCodes {
    /// # Panics
    /// There is no memory for it.
    fn clone(&self) -> Self {
        Self::from_view(self.view()).expect("memory for a copy")
    }
}

impl PartialEq for PackedCodes {
    fn eq(&self, other: &Self) -> bool {
        (self.len, self.n_columns, &*self.lines) == (other.len, other.n_columns, &*other.lines)
    }
}

impl Eq for PackedCodes {}

/// Packed codes that lie somewhere: in a [`PackedCodes`], or in a memory-mapped file.
#[derive(Clone, Copy, Debug)]
pub struct PackedView<'a> {
    lines: &'a [Line],
    len: usize,
    n_columns: usize,
}

impl<'a> PackedView<'a> {
    /// Takes `bytes` as `len` packed vectors of `n_columns` codes. No alignment is asked for.
    ///
    /// # Errors
    /// `bytes` is not [`packed_bytes`] long, or the shape is not one of [`PackedCodes`].
    pub fn new(bytes: &'a [u8], len: usize, n_columns: usize) -> Result<Self> {
        check_shape(len, n_columns)?;
        let want = packed_bytes(len, n_columns);
        if bytes.len() != want {
            return Err(invalid!(
                "packed codes: {} bytes for {len} vectors of {n_columns} codes, want {want}",
                bytes.len()
            ));
        }
        Ok(Self { lines: bytes.as_chunks().0, len, n_columns })
    }

    /// Number of vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Codes a vector, M.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Number of blocks, the last of which may be partial.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    /// The M lines of each of `blocks`.
    #[must_use]
    pub fn lines(&self, blocks: std::ops::Range<usize>) -> &'a [Line] {
        &self.lines[blocks.start * self.n_columns..blocks.end * self.n_columns]
    }

    /// The vectors of `blocks` alone.
    ///
    /// # Panics
    /// There are no such blocks.
    #[must_use]
    pub fn slice(&self, blocks: std::ops::Range<usize>) -> PackedView<'a> {
        let len = self.len.min(blocks.end * BLOCK).saturating_sub(blocks.start * BLOCK);
        PackedView { lines: self.lines(blocks), len, n_columns: self.n_columns }
    }

    /// All bytes, as [`PackedView::new`] takes them and a file stores them.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.lines.as_flattened()
    }

    /// The codes of the vector at `position`.
    ///
    /// # Panics
    /// `position` is not below [`len`](Self::len).
    pub fn codes(&self, position: usize) -> impl Iterator<Item = u8> + use<'a> {
        assert!(position < self.len, "position {position} of {}", self.len);
        let (block, lane) = (position / BLOCK, position % BLOCK);
        self.lines(block..block + 1).iter().map(move |line| line[lane])
    }

    /// The codes of the vectors at `positions`, (positions, M).
    ///
    /// # Panics
    /// A position is not below [`len`](Self::len).
    #[must_use]
    pub fn select(&self, positions: &[usize]) -> Array2<u8> {
        let codes = positions.iter().flat_map(|&position| self.codes(position)).collect();
        Array2::from_shape_vec((positions.len(), self.n_columns), codes).expect("M codes a position")
    }

    /// All codes, (n, M): the inverse of [`PackedCodes::pack`].
    #[must_use]
    pub fn unpack(&self) -> Array2<u8> {
        let mut codes = Array2::zeros((self.len, self.n_columns));
        let rows = codes.as_slice_mut().expect("fresh").par_chunks_mut(BLOCK * self.n_columns);
        rows.enumerate().with_min_len(64).for_each(|(block, rows)| {
            for (lane, row) in rows.chunks_exact_mut(self.n_columns).enumerate() {
                row.iter_mut().zip(self.lines(block..block + 1)).for_each(|(code, line)| *code = line[lane]);
            }
        });
        codes
    }
}

fn check_shape(len: usize, n_columns: usize) -> Result<()> {
    if !(1..=MAX_COLUMNS).contains(&n_columns) {
        return Err(invalid!("{n_columns} codes a vector: want 1 to {MAX_COLUMNS}"));
    }
    if len > MAX_VECTORS {
        return Err(invalid!("{len} vectors: one packed array holds at most {MAX_VECTORS}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn codes(n: usize, m: usize, seed: usize) -> Array2<u8> {
        Array2::from_shape_fn((n, m), |(i, j)| (i * 31 + j * 7 + seed).wrapping_mul(2_654_435_761) as u8)
    }

    proptest! {
        #[test]
        fn unpack_inverts_pack_in_pieces(m in 1..20usize, pieces in prop::collection::vec(0..200usize, 0..5)) {
            let want = codes(pieces.iter().sum(), m, 1);
            let mut packed = PackedCodes::new(m).unwrap();
            let mut row = 0;
            for piece in pieces {
                packed.extend(want.slice(ndarray::s![row..row + piece, ..])).unwrap();
                row += piece;
            }
            prop_assert_eq!(packed.view().unpack(), &want);
            prop_assert_eq!(&packed, &PackedCodes::pack(want.view()).unwrap());
            let view = PackedView::new(packed.view().as_bytes(), want.nrows(), m).unwrap();
            prop_assert_eq!(&PackedCodes::from_view(view).unwrap(), &packed);
            for n in (0..want.nrows()).step_by(37) {
                prop_assert!(view.codes(n).eq(want.row(n).iter().copied()));
            }
        }
    }

    #[test]
    fn refuses_wrong_shapes() {
        assert!(PackedCodes::new(0).is_err());
        assert!(PackedCodes::new(MAX_COLUMNS + 1).is_err());
        assert!(PackedCodes::new(3).unwrap().extend(codes(1, 4, 0).view()).is_err());
        assert!(PackedView::new(&[0; 64], 65, 1).is_err());
        assert!(PackedView::new(&[0; 64], 64, 1).is_ok());
    }
}
