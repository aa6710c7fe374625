//! The lookup tables of a query: its inner products with every codeword, (nq, M, K).
//!
//! Every entry is defined down to the last bit, whatever the instruction set, batch or thread: dimensions in blocks of
//! 64; in a block, products are rounded and added in order, from 0; then the blocks' sums are added in order, from 0.
//! No fused multiply-add. The loops run over codewords side by side, so nothing needs to be reordered to be fast.
//! The error of an entry is at most (64 + d / 64) · 2⁻²⁴ · Σ|q_j c_j|, to first order.
#![allow(unsafe_code)] // to compile one loop for several instruction sets

use crate::codebooks::{Codebooks, MAX_CODEWORDS};
use crate::codes::layout::NIBBLE;
use crate::codes::packed::{Layout, MAX_COLUMNS};
use crate::error::{Error, Result, argument, invalid};
use crate::isa::Isa;
use ndarray::{ArrayView2, ArrayView3};
use rayon::prelude::*;
use std::ops::Range;

/// Lookup tables of some queries, (nq, M, K).
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Table after table, each with `width` entries, so that any code is a valid index: beyond the K codewords the
    /// first entry is repeated.
    entries: Vec<f32>,
    width: usize,
    n_tables: usize,
    n_codewords: usize,
}

/// The M tables of one query.
#[derive(Clone, Copy, Debug)]
pub struct QueryTables<'a> {
    entries: &'a [f32],
    width: usize,
}

impl<'a> QueryTables<'a> {
    /// The number of tables, M.
    #[must_use]
    pub fn len(self) -> usize {
        self.entries.len() / self.width
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// Table `m`: an entry for every value of a nibble, or of a byte.
    ///
    /// # Panics
    /// There is no table `m`.
    #[must_use]
    pub fn table(self, m: usize) -> &'a [f32] {
        &self.entries[m * self.width..][..self.width]
    }

    /// All tables, in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [f32]> {
        self.entries.chunks_exact(self.width)
    }

    /// All tables, if they have `N` entries.
    pub(super) fn of_width<const N: usize>(self) -> Option<&'a [[f32; N]]> {
        (self.width == N).then_some(self.entries.as_chunks().0)
    }
}

impl Tables {
    /// Takes tables of shape (nq, M, K) that were computed elsewhere. Any value is accepted, including NaN and
    /// infinities.
    ///
    /// # Errors
    /// M is 0 or above [`MAX_COLUMNS`], or K is not in 1..=256.
    pub fn from_array(tables: ArrayView3<'_, f32>) -> Result<Self> {
        let (n_queries, n_tables, n_codewords) = tables.dim();
        if !(1..=MAX_COLUMNS).contains(&n_tables) || !(1..=MAX_CODEWORDS).contains(&n_codewords) {
            return Err(argument!(
                "tables",
                "have shape ({n_queries}, {n_tables}, {n_codewords}): want 1 to {MAX_COLUMNS} tables of 1 to {MAX_CODEWORDS} entries"
            ));
        }
        let width = MAX_CODEWORDS;
        let entries = tables
            .rows()
            .into_iter()
            .flat_map(|row| (0..width).map(move |code| row[if code < n_codewords { code } else { 0 }]));
        Ok(Self { entries: entries.collect(), width, n_tables, n_codewords })
    }

    /// The number of queries, nq.
    #[must_use]
    pub fn n_queries(&self) -> usize {
        self.entries.len() / self.width / self.n_tables
    }

    /// Whether only nibbles may be used to look up entries.
    pub(super) fn is_narrow(&self) -> bool {
        self.width < MAX_CODEWORDS
    }

    /// The number of tables per query, M.
    #[must_use]
    pub fn n_tables(&self) -> usize {
        self.n_tables
    }

    /// The M tables of query `query`.
    #[must_use]
    pub fn query(&self, query: usize) -> QueryTables<'_> {
        QueryTables { entries: self.entries(query), width: self.width }
    }

    /// The entries of all tables of query `query`, end to end.
    pub(crate) fn entries(&self, query: usize) -> &[f32] {
        let n = self.n_tables * self.width;
        &self.entries[query * n..][..n]
    }

    /// All tables, (nq, M, K).
    #[must_use]
    pub fn view(&self) -> ArrayView3<'_, f32> {
        let all = (self.n_queries(), self.n_tables, self.width);
        let view = ArrayView3::from_shape(all, &self.entries).expect("nq · M tables");
        view.slice_move(ndarray::s![.., .., ..self.n_codewords])
    }
}

/// Codewords per strip: two AVX-512 registers. A strip of 128 dimensions is 16 KB and stays in L1 for a whole batch.
const STRIP: usize = 32;
/// Dimensions whose products are added up before they join the rest.
const SPAN: usize = 64;
/// Queries that share each load of codewords; 4 × 32 sums are eight AVX-512 registers.
const GROUP: usize = 4;
/// Queries per parallel task.
const TASK: usize = 32;

type Strip = [f32; STRIP];

/// Codebooks transposed for computing tables: `[m][strip][dimension][codeword of the strip]`.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    strips: Vec<Strip>,
    /// Codebooks that share a strip: as many as fit.
    shared: usize,
    /// For the codebooks of each strip, the dimensions outside which all codewords are 0: the subspace of a product
    /// quantizer. Skipping products with 0 changes no sum, and saves a single query much of the time that its tables
    /// take.
    used: Vec<Range<usize>>,
    n_codebooks: usize,
    n_codewords: usize,
    dim: usize,
}

impl TableBuilder {
    /// Copies the codebooks into the order that tables are computed in.
    #[must_use]
    pub fn new(codebooks: &Codebooks) -> Self {
        let groups = codebooks.groups();
        let used = (0..codebooks.n_codebooks()).map(|m| groups.dimensions(groups.of_codebook(m))).collect();
        Self::of(codebooks.view().dim(), used, |m, k| Some(codebooks.codeword(m, k)))
    }

    /// Prepares products with any number of vectors (n, d): the product with vector i is entry i mod 256 of table i /
    /// 256.
    #[must_use]
    pub(crate) fn of_rows(rows: ArrayView2<'_, f32>) -> Self {
        let (n, dim) = rows.dim();
        let n_tables = n.div_ceil(MAX_CODEWORDS);
        let word = |m: usize, k: usize| {
            let at = m * MAX_CODEWORDS + k;
            (at < n).then(|| rows.row(at).to_slice().expect("standard layout"))
        };
        Self::of((n_tables, MAX_CODEWORDS, dim), vec![0..dim; n_tables], word)
    }

    fn of<'a>(
        (n_codebooks, n_codewords, dim): (usize, usize, usize),
        used: Vec<Range<usize>>,
        word: impl Fn(usize, usize) -> Option<&'a [f32]>,
    ) -> Self {
        let n_strips = n_codewords.div_ceil(STRIP);
        let shared = (STRIP / n_codewords.max(1)).max(1);
        let mut strips = vec![[0.0; STRIP]; n_codebooks.div_ceil(shared) * n_strips * dim];
        for m in 0..n_codebooks {
            for k in 0..n_codewords {
                let strip = &mut strips[(m / shared * n_strips + k / STRIP) * dim..][..dim];
                let word = word(m, k).into_iter().flatten();
                let column = m % shared * n_codewords + k % STRIP;
                strip.iter_mut().zip(word).for_each(|(row, &value)| row[column] = value);
            }
        }
        let both = |used: &[Range<usize>]| {
            let start = used.iter().map(|used| used.start).min();
            let end = used.iter().map(|used| used.end).max();
            start.unwrap_or(0)..end.unwrap_or(0)
        };
        let used = used.chunks(shared).map(both).collect();
        Self { strips, shared, used, n_codebooks, n_codewords, dim }
    }

    /// Tables of `queries` (nq, d), in parallel over queries.
    ///
    /// # Errors
    /// A different d, or a query that is not finite.
    pub fn tables(&self, queries: ArrayView2<'_, f32>, isa: Isa) -> Result<Tables> {
        self.tables_of(queries, MAX_CODEWORDS, isa)
    }

    /// Like [`tables`](Self::tables), for codes with this layout: if all of them are nibbles, a table has 16 entries,
    /// and those of a query lie close together.
    pub(crate) fn tables_for(
        &self,
        queries: ArrayView2<'_, f32>,
        layout: Layout,
        isa: Isa,
    ) -> Result<Tables> {
        let is_narrow = layout.n_nibbles() >= self.n_codebooks && self.n_codewords <= NIBBLE;
        self.tables_of(queries, if is_narrow { NIBBLE } else { MAX_CODEWORDS }, isa)
    }

    fn tables_of(&self, queries: ArrayView2<'_, f32>, width: usize, isa: Isa) -> Result<Tables> {
        if queries.ncols() != self.dim {
            return Err(argument!(
                "queries",
                "have {} dimensions, the model has {}",
                queries.ncols(),
                self.dim
            ));
        }
        let queries = queries.as_standard_layout();
        let rows = queries.as_slice().expect("standard layout");
        if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
            return Err(Error::NotFinite { what: "queries", row: at / self.dim });
        }
        if !isa.is_available() {
            return Err(invalid!("this machine lacks {}", isa.name()));
        }
        let of_query = self.n_codebooks * width;
        let mut entries = vec![0.0; queries.nrows() * of_query];
        entries.par_chunks_mut(TASK * of_query).zip(rows.par_chunks(TASK * self.dim)).for_each(
            |(entries, queries)| match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `isa` was found available above.
                Isa::Avx512 => unsafe { self.fill_avx512(queries, entries, width) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx2 => unsafe { self.fill_avx2(queries, entries, width) },
                _ => self.fill(queries, entries, width),
            },
        );
        Ok(Tables { entries, width, n_tables: self.n_codebooks, n_codewords: self.n_codewords })
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn fill_avx512(&self, queries: &[f32], entries: &mut [f32], width: usize) {
        self.fill(queries, entries, width);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn fill_avx2(&self, queries: &[f32], entries: &mut [f32], width: usize) {
        self.fill(queries, entries, width);
    }

    /// Computes the tables of `queries` (nq, d) into `entries` (nq, M, width), both flat.
    #[inline(always)]
    fn fill(&self, queries: &[f32], entries: &mut [f32], width: usize) {
        let in_groups = queries.len() / self.dim / GROUP * GROUP;
        let (grouped, rest) = queries.split_at(in_groups * self.dim);
        let (in_grouped, in_rest) = entries.split_at_mut(in_groups * self.n_codebooks * width);
        self.fill_groups::<GROUP>(grouped, in_grouped, width);
        self.fill_groups::<1>(rest, in_rest, width);
        if self.n_codewords == width {
            return;
        }
        for table in entries.chunks_exact_mut(width) {
            let first = table[0];
            table[self.n_codewords..].fill(first);
        }
    }

    /// Like `fill`, for a multiple of `Q` queries, and only the first K entries.
    #[inline(always)]
    fn fill_groups<const Q: usize>(&self, queries: &[f32], entries: &mut [f32], width: usize) {
        if queries.is_empty() {
            return;
        }
        // (nq / Q, d, Q): the values that meet one row of codewords side by side.
        let groups = queries.chunks_exact(Q * self.dim);
        let groups =
            groups.flat_map(|group| (0..self.dim).map(|j| std::array::from_fn(|q| group[q * self.dim + j])));
        let groups: Vec<[f32; Q]> = groups.collect();
        let n_strips = self.n_codewords.div_ceil(STRIP);
        for (at, strip) in self.strips.chunks_exact(self.dim).enumerate() {
            let (m, first) = (at / n_strips * self.shared, at % n_strips * STRIP);
            let used = &self.used[at / n_strips];
            let books = m..self.n_codebooks.min(m + self.shared);
            let of_query = self.n_codebooks * width;
            let entries = entries.chunks_exact_mut(Q * of_query);
            for (group, entries) in groups.chunks_exact(self.dim).zip(entries) {
                for (q, sums) in products(strip, group, used).iter().enumerate() {
                    let entries = &mut entries[q * of_query..];
                    if self.shared == 1 {
                        entries[m * width + first..][..STRIP].copy_from_slice(sums.as_flattened());
                        continue;
                    }
                    let tables = entries[books.start * width..books.end * width].chunks_exact_mut(width);
                    for (table, sums) in tables.zip(sums.as_flattened().chunks(self.n_codewords)) {
                        table[..self.n_codewords].copy_from_slice(sums);
                    }
                }
            }
        }
    }
}

/// Inner products of `Q` queries (d, Q) with the codewords of a strip, which are 0 outside the dimensions `used`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators keep the sums in memory
fn products<const Q: usize>(
    strip: &[Strip],
    queries: &[[f32; Q]],
    used: &Range<usize>,
) -> [[[f32; LANES]; STRIP / LANES]; Q] {
    let mut sums = [[LaneSums::ZERO; STRIP / LANES]; Q];
    let mut first = used.start;
    while first < used.end {
        let span = first..((first / SPAN + 1) * SPAN).min(used.end);
        first = span.end;
        let (rows, queries) = (&strip[span.clone()], &queries[span]);
        let mut partial = [[LaneSums::ZERO; STRIP / LANES]; Q];
        for (row, values) in rows.iter().zip(queries) {
            let row: &[[f32; LANES]] = row.as_chunks().0;
            for q in 0..Q {
                for i in 0..STRIP / LANES {
                    partial[q][i] = partial[q][i].add(LaneSums(row[i]).scale(values[q]));
                }
            }
        }
        for q in 0..Q {
            for i in 0..STRIP / LANES {
                sums[q][i] = sums[q][i].add(partial[q][i]);
            }
        }
    }
    // An array's `map` and `from_fn` remain calls if the standard library is not optimised along with this crate, as in
    // programs with the default profile: tables would be computed at a hundredth of the speed.
    let mut entries = [[[0.0; LANES]; STRIP / LANES]; Q];
    for q in 0..Q {
        for i in 0..STRIP / LANES {
            entries[q][i] = sums[q][i].0;
        }
    }
    entries
}

/// Numbers that fit one AVX-512 register.
const LANES: usize = 16;

/// [`LANES`] numbers, treated as one value.
#[derive(Clone, Copy)]
struct LaneSums([f32; LANES]);

impl LaneSums {
    const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for i in 0..LANES {
            self.0[i] += other.0[i];
        }
        self
    }

    #[inline(always)]
    fn scale(mut self, by: f32) -> Self {
        for value in &mut self.0 {
            *value *= by;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, Array3};
    use proptest::prelude::*;

    fn value(seed: usize) -> f32 {
        (seed.wrapping_mul(2_654_435_761) % 20_011) as f32 / 3e3 - 3.3
    }

    /// The definition, for a single entry.
    fn entry(query: &[f32], codeword: &[f32]) -> f32 {
        query
            .chunks(SPAN)
            .zip(codeword.chunks(SPAN))
            .fold(0.0, |sum, (q, c)| sum + q.iter().zip(c).fold(0.0, |sum, (q, c)| sum + q * c))
    }

    proptest! {
        #[test]
        fn every_isa_and_batch_gives_the_defined_bits(
            nq in 0..12usize, m in 1..4usize, k in 1..=256usize, d in 1..200usize, zeros in prop::array::uniform2(0..300usize),
        ) {
            let used = |l| l >= zeros[0] % (d + 1) && l < d.max(zeros[1]) - zeros[1] % d;
            let codeword = |(i, j, l)| if used(l) { value((i * k + j) * d + l) } else { [0.0, -0.0][j % 2] };
            let codebooks = Codebooks::new(Array3::from_shape_fn((m, k, d), codeword)).unwrap();
            let queries = Array2::from_shape_fn((nq, d), |(i, j)| value(7 + i * d + j));
            let builder = TableBuilder::new(&codebooks);
            let want = Array3::from_shape_fn((nq, m, k), |(q, i, j)| entry(queries.row(q).to_slice().unwrap(), codebooks.codeword(i, j)));
            let from_array = Tables::from_array(want.view()).unwrap();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let tables = builder.tables(queries.view(), isa).unwrap();
                prop_assert_eq!(tables.view(), &want);
                prop_assert_eq!(&tables, &from_array);
                let narrow = builder.tables_for(queries.view(), Layout::smallest(m, k, 0), isa).unwrap();
                prop_assert_eq!(narrow.is_narrow(), k <= 16);
                prop_assert_eq!(narrow.view(), &want);
            }
        }
    }

    #[test]
    fn refuses_wrong_queries() {
        let builder = TableBuilder::new(&Codebooks::new(Array3::zeros((2, 3, 4))).unwrap());
        assert!(builder.tables(Array2::zeros((1, 5)).view(), Isa::Scalar).is_err());
        let mut queries = Array2::zeros((3, 4));
        queries[[2, 1]] = f32::NAN;
        assert!(matches!(builder.tables(queries.view(), Isa::Scalar), Err(Error::NotFinite { row: 2, .. })));
    }
}
