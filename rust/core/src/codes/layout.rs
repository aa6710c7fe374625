//! How the codes of a vector are stored: some as nibbles, two to a byte, and the others as bytes.
//!
//! The columns of nibbles come first, in pairs that share a line: the even column is the lower half of each byte. If
//! their number is odd, the upper half of the last of these lines is 0. Then comes a line for each column of bytes.

use crate::codebooks::MAX_CODEBOOKS;
use crate::error::{Result, argument};

/// Vectors in a block: the bytes of one AVX-512 register.
pub const BLOCK: usize = 64;
/// One byte for each vector of a block: one column of bytes, or two of nibbles.
pub type Line = [u8; BLOCK];

/// The most columns of a packed array: one per codebook, and two more for what an index stores with the codes.
pub const MAX_COLUMNS: usize = MAX_CODEBOOKS + 2;
/// The most codewords that a nibble can index.
pub(crate) const NIBBLE: usize = 16;

/// The columns of a packed array, and the lines that hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    n_nibbles: usize,
    n_bytes: usize,
}

impl Layout {
    /// A layout of `n_columns` columns of bytes.
    #[must_use]
    pub fn bytes(n_columns: usize) -> Self {
        Self { n_nibbles: 0, n_bytes: n_columns }
    }

    /// A layout of `n_nibbles` columns of nibbles, then `n_bytes` columns of bytes.
    #[must_use]
    pub fn nibbles(n_nibbles: usize, n_bytes: usize) -> Self {
        Self { n_nibbles, n_bytes }
    }

    /// The smallest layout for the codes of `n_codebooks` codebooks of `n_codewords` codewords, with `n_extra` bytes
    /// after them.
    #[must_use]
    pub fn smallest(n_codebooks: usize, n_codewords: usize, n_extra: usize) -> Self {
        if n_codewords <= NIBBLE {
            Self::nibbles(n_codebooks, n_extra)
        } else {
            Self::bytes(n_codebooks + n_extra)
        }
    }

    /// Codes per vector.
    #[must_use]
    pub fn n_columns(self) -> usize {
        self.n_nibbles + self.n_bytes
    }

    /// The number of columns of nibbles, which come first.
    #[must_use]
    pub fn n_nibbles(self) -> usize {
        self.n_nibbles
    }

    /// Lines that hold two columns of nibbles; the last may hold only one.
    #[must_use]
    pub fn n_pairs(self) -> usize {
        self.n_nibbles.div_ceil(2)
    }

    /// Lines per block, which equals bytes per vector.
    #[must_use]
    pub fn n_lines(self) -> usize {
        self.n_pairs() + self.n_bytes
    }

    /// The line of a column, and the shift of its codes within that line.
    #[inline]
    pub(crate) fn place(self, column: usize) -> (usize, u32) {
        if column < self.n_nibbles {
            (column / 2, column as u32 % 2 * 4)
        } else {
            (column - self.n_nibbles + self.n_pairs(), 0)
        }
    }

    /// The codes of vector `lane` of a block with these lines.
    #[inline]
    pub(crate) fn codes(self, lines: &[[u8; 64]], lane: usize) -> impl Iterator<Item = u8> {
        let (pairs, bytes) = lines.split_at(self.n_pairs().min(lines.len()));
        let halves = pairs.iter().flat_map(move |line| [line[lane] & 15, line[lane] >> 4]);
        halves.take(self.n_nibbles).chain(bytes.iter().map(move |line| line[lane]))
    }

    pub(crate) fn check(self) -> Result<()> {
        let n_columns = self.n_columns();
        if !(1..=MAX_COLUMNS).contains(&n_columns) {
            return Err(argument!("n_columns", "is {n_columns}: want 1 to {MAX_COLUMNS}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_places_of_their_own() {
        let layout = Layout::nibbles(5, 2);
        let places: Vec<_> = (0..layout.n_columns()).map(|column| layout.place(column)).collect();
        assert_eq!(places, [(0, 0), (0, 4), (1, 0), (1, 4), (2, 0), (3, 0), (4, 0)]);
        assert_eq!((layout.n_lines(), layout.n_pairs()), (5, 3));
        assert_eq!(Layout::bytes(3).place(2), (2, 0));
        assert_eq!(Layout::smallest(7, 16, 1), Layout::nibbles(7, 1));
        assert_eq!(Layout::smallest(7, 17, 1), Layout::bytes(8));
    }
}
