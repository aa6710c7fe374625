//! Codes as the scan reads them: blocks of 64 vectors, each block column by column.
//!
//! A block holds the codes of 64 vectors in M lines of 64 bytes; line m holds the indices into table m for all 64
//! vectors. Blocks follow one another without gaps; the last one is padded with zero codes.
//!
//! | byte of the block | 0 | 1 | … | 63 |
//! |---|---|---|---|---|
//! | line 0 | code 0 of vector 0 | code 0 of vector 1 | … | code 0 of vector 63 |
//! | line 1 | code 1 of vector 0 | code 1 of vector 1 | … | code 1 of vector 63 |
//! | … | | | | |
//! | line M−1 | code M−1 of vector 0 | code M−1 of vector 1 | … | code M−1 of vector 63 |
//!
//! So code m of vector n is byte `((n / 64) * M + m) * 64 + n % 64`. Codes below 16 may share lines in pairs: see
//! [`Layout`].

use crate::codes::layout::NIBBLE;
pub use crate::codes::layout::{BLOCK, Layout, Line, MAX_COLUMNS};
use crate::codes::memory::Lines;
use crate::error::{Result, argument, invalid};
use ndarray::{Array2, ArrayView1, ArrayView2, s};
use rayon::prelude::*;

/// The most vectors in one packed array: more than any memory holds, but few enough that their bytes can be counted.
pub const MAX_VECTORS: usize = 1 << 48;

/// Blocks whose layout is converted at once.
const RELAID: usize = 1024;

/// Bytes that `len` packed vectors of `n_lines` bytes take.
#[must_use]
pub fn packed_bytes(len: usize, n_lines: usize) -> usize {
    len.div_ceil(BLOCK) * n_lines * BLOCK
}

/// Packed codes that can grow and be changed.
#[derive(Debug)]
pub struct PackedCodes {
    lines: Lines,
    len: usize,
    layout: Layout,
}

impl PackedCodes {
    /// An empty array with `n_columns` codes per vector, one byte each.
    ///
    /// # Errors
    /// `n_columns` is 0 or above [`MAX_COLUMNS`].
    pub fn new(n_columns: usize) -> Result<Self> {
        Self::with(Layout::bytes(n_columns))
    }

    /// An empty array.
    ///
    /// # Errors
    /// The layout has no columns, or more than [`MAX_COLUMNS`].
    pub fn with(layout: Layout) -> Result<Self> {
        check_shape(0, layout)?;
        Ok(Self { lines: Lines::default(), len: 0, layout })
    }

    /// Packs `codes` (n, M), one byte each.
    ///
    /// # Errors
    /// M is 0 or above [`MAX_COLUMNS`], n is above [`MAX_VECTORS`], or there is no memory for them.
    pub fn pack(codes: ArrayView2<'_, u8>) -> Result<Self> {
        let mut packed = Self::new(codes.ncols())?;
        packed.extend(codes)?;
        Ok(packed)
    }

    /// Copies a view, for example of a memory-mapped file.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_view(view: PackedView<'_>) -> Result<Self> {
        Ok(Self { lines: Lines::copy(view.lines)?, len: view.len, layout: view.layout })
    }

    /// Copies a view into another layout with the same number of columns.
    ///
    /// # Errors
    /// A code is too large for the layout, or there is not enough memory for the copy.
    pub(crate) fn relaid(view: PackedView<'_>, layout: Layout) -> Result<Self> {
        let mut packed = Self::with(layout)?;
        let blocks = (0..view.n_blocks()).step_by(RELAID);
        for first in blocks {
            let part = view.slice(first..view.n_blocks().min(first + RELAID));
            packed.extend(part.unpack().view())?;
        }
        Ok(packed)
    }

    /// Builds `len` vectors in `layout`; `fill` writes their bytes in the order of [`PackedView::as_bytes`].
    ///
    /// # Errors
    /// The shape is not one of packed codes, there is no memory for them, or `fill` fails.
    pub(crate) fn filled(
        len: usize,
        layout: Layout,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        check_shape(len, layout)?;
        let mut lines = Lines::default();
        lines.grow(len.div_ceil(BLOCK) * layout.n_lines())?;
        fill(lines.as_flattened_mut())?;
        Ok(Self { lines, len, layout })
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

    /// Codes per vector, M.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        self.layout.n_columns()
    }

    /// How the codes are stored.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The view that the scan reads.
    #[must_use]
    pub fn view(&self) -> PackedView<'_> {
        PackedView { lines: &self.lines, len: self.len, layout: self.layout }
    }

    /// Appends `codes` (n, M).
    ///
    /// # Errors
    /// A different M, a code that its column cannot hold, more than [`MAX_VECTORS`] in total, or not enough memory;
    /// nothing is appended in that case.
    pub fn extend(&mut self, codes: ArrayView2<'_, u8>) -> Result<()> {
        self.rewrite(self.len, codes)
    }

    /// Overwrites the vectors from `first` to the end with `codes` (n, M), which may be more vectors than these.
    ///
    /// # Errors
    /// The errors of [`extend`](Self::extend); nothing is changed in that case.
    ///
    /// # Panics
    /// There are fewer `codes` than vectors from `first` on.
    pub(crate) fn rewrite(&mut self, first: usize, codes: ArrayView2<'_, u8>) -> Result<()> {
        let layout = self.layout;
        if codes.ncols() != layout.n_columns() {
            return Err(argument!("codes", "have {} columns, want {}", codes.ncols(), layout.n_columns()));
        }
        let nibbles = codes.slice(s![.., ..layout.n_nibbles()]);
        if let Some(code) = nibbles.iter().find(|&&code| usize::from(code) >= NIBBLE) {
            return Err(argument!(
                "codes",
                "hold {code}, which does not fit half a byte: want 0 to {}",
                NIBBLE - 1
            ));
        }
        let (old_len, len) = (first, first + codes.nrows());
        assert!(first <= self.len && self.len <= len, "{first} to {len} of {}", self.len);
        check_shape(len, layout)?;
        self.lines.grow(len.div_ceil(BLOCK) * layout.n_lines())?;
        self.len = len;

        // First the block that was partial, then whole blocks in parallel.
        let head = (old_len.next_multiple_of(BLOCK) - old_len).min(codes.nrows());
        for row in 0..head {
            self.write(old_len + row, codes.row(row));
        }
        let first_block = (old_len + head).div_ceil(BLOCK);
        self.lines[first_block * layout.n_lines()..]
            .par_chunks_exact_mut(layout.n_lines())
            .enumerate()
            .with_min_len(64)
            .for_each(|(block, lines)| {
                let first = head + block * BLOCK;
                let rows = first..codes.nrows().min(first + BLOCK);
                match codes.slice(s![rows.clone(), ..]).as_slice() {
                    Some(whole) if rows.len() == BLOCK && layout.n_pairs() == 0 => transpose(whole, lines),
                    _ => rows.enumerate().for_each(|(lane, row)| write(layout, lines, lane, codes.row(row))),
                }
            });
        Ok(())
    }

    /// Overwrites the last column, a column of bytes, for the vectors from `first` on.
    ///
    /// # Panics
    /// There are fewer vectors than `bytes`.
    pub fn set_last(&mut self, first: usize, bytes: &[u8]) {
        assert!(first + bytes.len() <= self.len, "{} bytes from {first} of {}", bytes.len(), self.len);
        for (position, &byte) in (first..).zip(bytes) {
            self.lines[(position / BLOCK + 1) * self.layout.n_lines() - 1][position % BLOCK] = byte;
        }
    }

    /// Overwrites the codes of the vectors at `positions` with the rows of `codes` (positions, M).
    ///
    /// # Panics
    /// A position is not below [`len`](Self::len), or `codes` has not M codes per position.
    pub(crate) fn replace(&mut self, positions: &[usize], codes: ArrayView2<'_, u8>) {
        assert_eq!(codes.dim(), (positions.len(), self.n_columns()), "codes for the positions");
        for (&position, codes) in positions.iter().zip(codes.outer_iter()) {
            assert!(position < self.len, "position {position} of {}", self.len);
            self.write(position, codes);
        }
    }

    fn write(&mut self, position: usize, codes: ArrayView1<'_, u8>) {
        let n_lines = self.layout.n_lines();
        let lines = &mut self.lines[position / BLOCK * n_lines..][..n_lines];
        write(self.layout, lines, position % BLOCK, codes);
    }
}

/// Writes the codes of vector `lane` of a block.
fn write(layout: Layout, lines: &mut [Line], lane: usize, codes: ArrayView1<'_, u8>) {
    let (pairs, bytes) = lines.split_at_mut(layout.n_pairs());
    let mut codes = codes.iter().copied();
    let mut nibbles = codes.by_ref().take(layout.n_nibbles());
    for line in pairs {
        let (low, high) = (nibbles.next().unwrap_or(0), nibbles.next().unwrap_or(0));
        line[lane] = low & 15 | high << 4;
    }
    bytes.iter_mut().zip(codes).for_each(|(line, code)| line[lane] = code);
}

/// Writes a block whose codes take a byte each: its lines are the columns of `codes` (64, M).
///
/// Eight codes of eight vectors at a time, since reading or writing single bytes takes several times as long.
fn transpose(codes: &[u8], lines: &mut [Line]) {
    let n_lines = lines.len();
    for (tile, lines) in lines.chunks_mut(8).enumerate() {
        for (eight, rows) in codes.chunks_exact(8 * n_lines).enumerate() {
            let mut square = [0; 8];
            for (row, codes) in square.iter_mut().zip(rows.chunks_exact(n_lines)) {
                *row = match codes[8 * tile..].first_chunk() {
                    Some(&bytes) => u64::from_le_bytes(bytes),
                    None => codes[8 * tile..].iter().rev().fold(0, |row, &code| row << 8 | u64::from(code)),
                };
            }
            for (line, column) in lines.iter_mut().zip(transposed(square)) {
                line[8 * eight..][..8].copy_from_slice(&column.to_le_bytes());
            }
        }
    }
}

/// Byte i of row j becomes byte j of row i: blocks of 4 × 4 bytes off the diagonal change places, then 2 × 2, then 1 × 1.
fn transposed(mut square: [u64; 8]) -> [u64; 8] {
    for (step, mask) in [(4, 0x0000_0000_FFFF_FFFF), (2, 0x0000_FFFF_0000_FFFF), (1, 0x00FF_00FF_00FF_00FF)] {
        for row in (0..8).filter(|row| row & step == 0) {
            let (low, high) = (square[row], square[row + step]);
            let swapped = (low >> (8 * step) ^ high) & mask;
            square[row] = low ^ swapped << (8 * step);
            square[row + step] = high ^ swapped;
        }
    }
    square
}

impl Clone for PackedCodes {
    /// # Panics
    /// There is not enough memory for the copy.
    fn clone(&self) -> Self {
        Self::from_view(self.view()).expect("memory for a copy")
    }
}

impl PartialEq for PackedCodes {
    fn eq(&self, other: &Self) -> bool {
        (self.len, self.layout, &*self.lines) == (other.len, other.layout, &*other.lines)
    }
}

impl Eq for PackedCodes {}

/// A view of packed codes, held by a [`PackedCodes`] or in a memory-mapped file.
#[derive(Clone, Copy, Debug)]
pub struct PackedView<'a> {
    lines: &'a [Line],
    len: usize,
    layout: Layout,
}

impl<'a> PackedView<'a> {
    /// Takes `bytes` as `len` packed vectors of `n_columns` codes, one byte each. No alignment is required.
    ///
    /// # Errors
    /// `bytes` is not [`packed_bytes`] long, or the shape is not one of [`PackedCodes`].
    pub fn new(bytes: &'a [u8], len: usize, n_columns: usize) -> Result<Self> {
        Self::with(bytes, len, Layout::bytes(n_columns))
    }

    /// Takes `bytes` as `len` packed vectors in `layout`. No alignment is required.
    ///
    /// # Errors
    /// `bytes` is not [`packed_bytes`] long, or the shape is not one of [`PackedCodes`].
    pub fn with(bytes: &'a [u8], len: usize, layout: Layout) -> Result<Self> {
        check_shape(len, layout)?;
        let (n_lines, want) = (layout.n_lines(), packed_bytes(len, layout.n_lines()));
        if bytes.len() != want {
            return Err(invalid!(
                "packed codes: {} bytes for {len} vectors of {n_lines} bytes, want {want}",
                bytes.len()
            ));
        }
        Ok(Self { lines: bytes.as_chunks().0, len, layout })
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

    /// Codes per vector, M.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        self.layout.n_columns()
    }

    /// How the codes are stored.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of blocks; the last may be partial.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    /// Lines per block, which equals bytes per vector: M if every code takes a byte.
    #[must_use]
    pub fn n_lines(&self) -> usize {
        self.layout.n_lines()
    }

    /// The lines of each of `blocks`.
    #[must_use]
    pub fn lines(&self, blocks: std::ops::Range<usize>) -> &'a [Line] {
        &self.lines[blocks.start * self.n_lines()..blocks.end * self.n_lines()]
    }

    /// A view of the vectors of `blocks` alone.
    ///
    /// # Panics
    /// A block does not exist.
    #[must_use]
    pub fn slice(&self, blocks: std::ops::Range<usize>) -> PackedView<'a> {
        let len = self.len.min(blocks.end * BLOCK).saturating_sub(blocks.start * BLOCK);
        PackedView { lines: self.lines(blocks), len, layout: self.layout }
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
        self.layout.codes(self.lines(block..block + 1), lane)
    }

    /// The codes of the vectors at `positions`, (positions, M).
    ///
    /// # Panics
    /// A position is not below [`len`](Self::len).
    #[must_use]
    pub fn select(&self, positions: &[usize]) -> Array2<u8> {
        let codes = positions.iter().flat_map(|&position| self.codes(position)).collect();
        Array2::from_shape_vec((positions.len(), self.n_columns()), codes).expect("M codes a position")
    }

    /// All codes, (n, M): the inverse of [`PackedCodes::pack`].
    #[must_use]
    pub fn unpack(&self) -> Array2<u8> {
        let (layout, n_columns) = (self.layout, self.n_columns());
        let mut codes = Array2::zeros((self.len, n_columns));
        let rows = codes.as_slice_mut().expect("fresh").par_chunks_mut(BLOCK * n_columns);
        rows.enumerate().with_min_len(64).for_each(|(block, rows)| {
            let lines = self.lines(block..block + 1);
            for (lane, row) in rows.chunks_exact_mut(n_columns).enumerate() {
                row.iter_mut().zip(layout.codes(lines, lane)).for_each(|(to, code)| *to = code);
            }
        });
        codes
    }
}

fn check_shape(len: usize, layout: Layout) -> Result<()> {
    layout.check()?;
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
            let columns = want.t().as_standard_layout().into_owned();
            prop_assert_eq!(&packed, &PackedCodes::pack(columns.t()).unwrap());
            let view = PackedView::new(packed.view().as_bytes(), want.nrows(), m).unwrap();
            prop_assert_eq!(&PackedCodes::from_view(view).unwrap(), &packed);
            for n in (0..want.nrows()).step_by(37) {
                prop_assert!(view.codes(n).eq(want.row(n).iter().copied()));
            }
        }

        #[test]
        fn nibbles_take_half_the_lines(m in 1..20usize, extra in 0..3usize, n in 0..200usize, cut in 0..200usize, seed in 0..9usize) {
            let layout = Layout::nibbles(m, extra);
            let mut want = codes(n, m + extra, seed);
            want.slice_mut(s![.., ..m]).mapv_inplace(|code| code % 16);
            let mut packed = PackedCodes::with(layout).unwrap();
            let (head, tail) = want.view().split_at(ndarray::Axis(0), cut.min(n));
            packed.extend(head).unwrap();
            packed.extend(tail).unwrap();
            prop_assert_eq!(packed.view().as_bytes().len(), packed_bytes(n, m.div_ceil(2) + extra));
            prop_assert_eq!(packed.view().unpack(), &want);
            let view = PackedView::with(packed.view().as_bytes(), n, layout).unwrap();
            prop_assert!((0..n).all(|n| view.codes(n).eq(want.row(n).iter().copied())));
            let bytes = PackedCodes::relaid(view, Layout::bytes(m + extra)).unwrap();
            prop_assert_eq!(&bytes, &PackedCodes::pack(want.view()).unwrap());
            prop_assert_eq!(&PackedCodes::relaid(bytes.view(), layout).unwrap(), &packed);
            if n > 0 {
                let row = codes(1, m + extra, seed + 1).mapv(|code| code % 16);
                packed.replace(&[n / 2], row.view());
                want.row_mut(n / 2).assign(&row.row(0));
                if extra > 0 {
                    packed.set_last(n - 1, &[200]);
                    want[[n - 1, m + extra - 1]] = 200;
                }
                prop_assert_eq!(packed.view().unpack(), &want);
                want[[n / 2, m / 2]] = 16;
                prop_assert!(packed.extend(want.view()).is_err() && packed.len() == n);
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
