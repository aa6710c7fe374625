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
//! `benches/training.py` times encoding, of which this is the larger part, beside the same product in numpy's OpenBLAS. A
//! result depends neither on the other rows, nor on where the chunk begins, nor on the instruction set: products are
//! added in order, each fused with its addition, which [`fused`] does where the processor cannot.

use crate::isa::{Isa, Level};

/// Columns of a panel.
const PANEL: usize = 64;
/// Rows of a tile.
const TILE: usize = 6;
/// Dimensions gone through before the next panel: 64 KB of a panel, which the caches keep while the tiles pass.
const DEPTH: usize = 256;

/// The right-hand side: columns packed for the product.
pub(crate) struct Panels {
    data: Vec<f32>,
    columns: usize,
    dim: usize,
}

impl Panels {
    /// Packs `columns` columns; `column(i)` gives the `dim` numbers of each, `None` one of zeros.
    pub(crate) fn new<'a>(columns: usize, dim: usize, column: impl Fn(usize) -> Option<&'a [f32]>) -> Self {
        let columns = columns.next_multiple_of(PANEL);
        let mut data = vec![0.0; columns * dim];
        for (p, panel) in data.chunks_exact_mut(PANEL * dim).enumerate() {
            for c in 0..PANEL {
                for (j, &value) in column(p * PANEL + c).into_iter().flatten().enumerate() {
                    panel[j * PANEL + c] = value;
                }
            }
        }
        Self { data, columns, dim }
    }

    /// Columns of the result: those asked for, rounded up to whole panels.
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

/// `out = start + tiles · panels` for the first `rows` rows, rounded up to whole tiles: every row of the result, of
/// `panels.columns()` numbers, begins with `start`.
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
        Isa::Avx512 => blocks::<64, true>(tiles, rows, panels, start, out),
        Isa::Avx2 => blocks::<16, true>(tiles, rows, panels, start, out),
        Isa::Scalar | Isa::Neon if L::FMA => blocks::<16, true>(tiles, rows, panels, start, out),
        Isa::Scalar | Isa::Neon => blocks::<8, false>(tiles, rows, panels, start, out),
    }
}

#[inline(always)]
fn blocks<const W: usize, const FMA: bool>(
    tiles: &Tiles,
    rows: usize,
    panels: &Panels,
    start: &[f32],
    out: &mut [f32],
) {
    let (dim, columns) = (panels.dim, panels.columns);
    for first in (0..dim).step_by(DEPTH) {
        let last = dim.min(first + DEPTH);
        for (p, panel) in panels.data.chunks_exact(PANEL * dim).enumerate() {
            let panel = &panel[first * PANEL..last * PANEL];
            for t in 0..rows.div_ceil(TILE) {
                let tile = &tiles.data[(t * dim + first) * TILE..(t * dim + last) * TILE];
                for column in (0..PANEL).step_by(W) {
                    let out = &mut out[t * TILE * columns + p * PANEL + column..];
                    let start = (first == 0).then(|| &start[p * PANEL + column..][..W]);
                    block::<W, FMA>(tile, panel, column, start, out, columns);
                }
            }
        }
    }
}

/// One block of `TILE` × `W` results, from registers; the sums so far are `start` in each row, or what `out` holds.
#[inline(always)]
fn block<const W: usize, const FMA: bool>(
    tile: &[f32],
    panel: &[f32],
    column: usize,
    start: Option<&[f32]>,
    out: &mut [f32],
    columns: usize,
) {
    let mut sums = [[0.0f32; W]; TILE];
    for (r, sum) in sums.iter_mut().enumerate() {
        sum.copy_from_slice(start.unwrap_or_else(|| &out[r * columns..][..W]));
    }
    for (x, c) in tile.chunks_exact(TILE).zip(panel.chunks_exact(PANEL)) {
        let x: &[f32; TILE] = x.try_into().expect("a tile is TILE wide");
        let c: &[f32; W] = c[column..][..W].try_into().expect("W divides PANEL");
        for r in 0..TILE {
            for w in 0..W {
                sums[r][w] = if FMA { x[r].mul_add(c[w], sums[r][w]) } else { fused(x[r], c[w], sums[r][w]) };
            }
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        out[r * columns..][..W].copy_from_slice(sum);
    }
}

/// `a · b + c`, rounded once: what `f32::mul_add` returns, without a call where the processor has no such instruction.
///
/// In f64 the product is exact. Its sum with `c` is rounded to odd: where it is inexact, to the neighbour whose last bit
/// is 1. No such number lies half-way between two f32, so that rounding it again is right (Boldo & Melquiond, *Emulation
/// of FMA and correctly rounded sums*, 2008).
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let back = sum - product;
    // What the sum was rounded by, exactly; NaN where the sum is not finite.
    let error = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    let even = u64::from((error > 0.0) | (error < 0.0)) & !bits;
    let (step, toward_zero) = (even & 1, (error.to_bits() ^ bits) >> 63);
    f64::from_bits(bits.wrapping_add(step).wrapping_sub((step & toward_zero) << 1)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{self, Kernel};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn fused_rounds_once(a: f32, b: f32, c: f32, near in -40i32..40, bit in 0u32..24) {
            let near = 2f32.powi(near);
            // Numbers of few bits meet the middle between two f32 often; those of any size overflow and underflow.
            let few = |x: f32| f32::from_bits(x.to_bits() & (!0 << bit));
            let ordinary = |x: f32| f32::from_bits(x.to_bits() & 0x807F_FFFF | 0x3F80_0000);
            for (a, b, c) in [
                (a, b, c),
                (few(a), few(b), few(c)),
                (ordinary(a), ordinary(b), ordinary(c) * near),
                (ordinary(few(a)), ordinary(few(b)), ordinary(few(c)) * near),
                (ordinary(a), ordinary(b), f32::INFINITY),
                (a, f32::MIN_POSITIVE, f32::from_bits(c.to_bits() & 0x807F_FFFF)),
            ] {
                let (got, want) = (fused(a, b, c), a.mul_add(b, c));
                prop_assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{a:e} · {b:e} + {c:e}: {got:e}, not {want:e}");
            }
        }
    }

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
