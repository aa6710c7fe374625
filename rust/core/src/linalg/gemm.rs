//! The matrix product X·Cᵀ of many vectors with all codewords: where training and encoding spend most of their time.
//!
//! C is packed once, X a chunk at a time, so that the inner loop reads both in order:
//!
//! ```text
//! panels   [panel][j][64]   64 columns (codewords) side by side, dimension after dimension
//! tiles    [tile][j][6]      6 rows (vectors) side by side
//! ```
//!
//! A 6 × 64 block of the result stays in 24 AVX-512 registers (6 × 16 in 12 AVX2 registers) while j runs.
//! `benches/training.py` times encoding, most of which is this product, against the same product in numpy's OpenBLAS. A
//! result depends neither on the other rows, nor on where the chunk begins, nor on the instruction set: products are
//! added in order, each fused with its addition, even if the processor has no single instruction for that.

use crate::isa::{Isa, Kernel, Level};

/// Columns per panel.
const PANEL: usize = 64;
/// Rows per tile.
const TILE: usize = 6;
/// Dimensions processed before the next panel: 64 KB of a panel, which stay in the caches while the tiles pass.
const DEPTH: usize = 256;

/// The right-hand side: columns packed for the product.
pub(crate) struct Panels {
    data: Vec<f32>,
    columns: usize,
    dim: usize,
}

impl Panels {
    /// Packs `columns` columns; `column(i)` returns the `dim` numbers of each, or `None` for a column of zeros.
    pub(crate) fn new<'a>(columns: usize, dim: usize, column: impl Fn(usize) -> Option<&'a [f32]>) -> Self {
        let columns = columns.next_multiple_of(PANEL);
        let mut data = vec![0.0; columns * dim];
        let zeros = vec![0.0; dim];
        for (p, panel) in data.chunks_exact_mut(PANEL * dim).enumerate() {
            let of: [&[f32]; PANEL] =
                std::array::from_fn(|c| column(p * PANEL + c).map_or(&zeros[..], |numbers| &numbers[..dim]));
            for (j, row) in panel.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
                for (to, numbers) in row.iter_mut().zip(of) {
                    *to = numbers[j];
                }
            }
        }
        Self { data, columns, dim }
    }

    /// Columns of the result: the requested number, rounded up to whole panels.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }
}

/// The left-hand side: rows packed for the product.
pub(crate) struct Tiles {
    data: Vec<f32>,
    rows: usize,
    dim: usize,
}

impl Tiles {
    /// Room for `rows` rows, rounded up to whole tiles.
    pub(crate) fn new(rows: usize, dim: usize) -> Self {
        let rows = rows.next_multiple_of(TILE);
        Self { data: vec![0.0; rows * dim], rows, dim }
    }

    /// Rows of the result.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Sets row `row`.
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize, values: impl Iterator<Item = f32>) {
        let tile = &mut self.data[row / TILE * TILE * self.dim..][..TILE * self.dim];
        tile[row % TILE..].iter_mut().step_by(TILE).zip(values).for_each(|(to, value)| *to = value);
    }
}

/// `out = start + tiles · panels` for the first `rows` rows, rounded up to whole tiles: every row of the result, which
/// has `panels.columns()` numbers, starts from `start`.
#[inline(always)]
pub(crate) fn multiply<L: Level>(
    tiles: &Tiles,
    rows: usize,
    panels: &Panels,
    start: &[f32],
    out: &mut [f32],
) {
    assert_eq!(tiles.dim, panels.dim);
    match L::ISA {
        Isa::Avx512 => blocks::<L, 4>(tiles, rows, panels, start, out),
        Isa::Avx2 => blocks::<L, 2>(tiles, rows, panels, start, out),
        Isa::Scalar | Isa::Neon if L::FMA => blocks::<L, 2>(tiles, rows, panels, start, out),
        Isa::Scalar | Isa::Neon => blocks::<L, 1>(tiles, rows, panels, start, out),
    }
}

#[inline(always)]
fn blocks<L: Level, const N: usize>(
    tiles: &Tiles,
    rows: usize,
    panels: &Panels,
    start: &[f32],
    out: &mut [f32],
) {
    let (dim, columns, width) = (panels.dim, panels.columns, N * L::LANES);
    for first in (0..dim).step_by(DEPTH) {
        let last = dim.min(first + DEPTH);
        for (p, panel) in panels.data.chunks_exact(PANEL * dim).enumerate() {
            let panel = &panel[first * PANEL..last * PANEL];
            for t in 0..rows.div_ceil(TILE) {
                let tile = &tiles.data[(t * dim + first) * TILE..(t * dim + last) * TILE];
                for column in (0..PANEL).step_by(width) {
                    let out = &mut out[t * TILE * columns + p * PANEL + column..];
                    let start = (first == 0).then(|| &start[p * PANEL + column..][..width]);
                    block::<L, N>(tile, panel, column, start, out, columns);
                }
            }
        }
    }
}

/// One block of `TILE` rows and `N` registers of results; each row starts from `start`, or from the sums that `out`
/// holds.
#[inline(always)]
fn block<L: Level, const N: usize>(
    tile: &[f32],
    panel: &[f32],
    column: usize,
    start: Option<&[f32]>,
    out: &mut [f32],
    columns: usize,
) {
    let mut sums = [[L::splat_float(0.0); N]; TILE];
    for (r, sums) in sums.iter_mut().enumerate() {
        let from = start.unwrap_or_else(|| &out[r * columns..]);
        for (n, sum) in sums.iter_mut().enumerate() {
            *sum = L::load_floats(&from[n * L::LANES..]);
        }
    }
    for (x, c) in tile.as_chunks::<TILE>().0.iter().zip(panel.as_chunks::<PANEL>().0) {
        let (c, mut registers) = (&c[column..column + N * L::LANES], [L::splat_float(0.0); N]);
        for (n, register) in registers.iter_mut().enumerate() {
            *register = L::load_floats(&c[n * L::LANES..]);
        }
        for r in 0..TILE {
            let x = L::splat_float(x[r]);
            for n in 0..N {
                sums[r][n] = L::multiply_add(x, registers[n], sums[r][n]);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (n, sum) in sums.into_iter().enumerate() {
            L::store_floats(sum, &mut out[r * columns + n * L::LANES..]);
        }
    }
}

/// The product of all tiles and panels, as [`multiply`] computes it.
pub(crate) struct Product<'a> {
    pub(crate) tiles: &'a Tiles,
    pub(crate) rows: usize,
    pub(crate) panels: &'a Panels,
    pub(crate) start: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        multiply::<L>(self.tiles, self.rows, self.panels, self.start, self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{self, Kernel};

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let (rows, columns, dim) = (7, 65, 300);
        let value = |i: usize| ((i * 7919 + 13) % 10_007) as f32 / 5003.0 - 1.0;
        let c: Vec<f32> = (0..columns * dim).map(value).collect();
        let panels = Panels::new(columns, dim, |i| c.chunks_exact(dim).nth(i));
        let mut tiles = Tiles::new(rows, dim);
        (0..rows).for_each(|r| tiles.set(r, (0..dim).map(|j| value(r * dim + j + 5))));
        let product = |isa| {
            let mut out = vec![0.0; tiles.rows() * panels.columns()];
            isa::run(isa, Multiply(&tiles, &panels, &mut out));
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert!(product(isa) == product(Isa::Scalar), "{isa:?}");
        }
    }

    struct Multiply<'a>(&'a Tiles, &'a Panels, &'a mut [f32]);
    impl Kernel for Multiply<'_> {
        type Output = ();
        #[inline(always)]
        fn run<L: Level>(self) {
            multiply::<L>(self.0, self.0.rows(), self.1, &vec![1.0; self.1.columns()], self.2);
        }
    }

    #[test]
    fn equals_the_plain_product_for_every_shape_and_instruction_set() {
        for (rows, columns, dim) in [(1, 1, 1), (6, 64, 16), (7, 65, 3), (48, 130, 257), (5, 63, 513)] {
            // Small integers: every order of summation gives the same exact value.
            let x = |r: usize, j: usize| ((r * 7 + j * 3) % 11) as f32 - 5.0;
            let c: Vec<f32> = (0..columns * dim).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
            let panels = Panels::new(columns, dim, |i| c.chunks_exact(dim).nth(i));
            let mut tiles = Tiles::new(rows, dim);
            (0..rows).for_each(|r| tiles.set(r, (0..dim).map(|j| x(r, j))));
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let mut out = vec![0.0; tiles.rows() * panels.columns()];
                isa::run(isa, Multiply(&tiles, &panels, &mut out));
                for (r, out) in out.chunks_exact(panels.columns()).take(rows).enumerate() {
                    for (i, c) in c.chunks_exact(dim).enumerate() {
                        let want: f32 = 1.0 + (0..dim).map(|j| x(r, j) * c[j]).sum::<f32>();
                        assert_eq!(out[i], want, "{isa:?} {rows}×{columns}×{dim} at {r}, {i}");
                    }
                }
            }
        }
    }
}
