//! The search: the k largest table sums of each query over all packed codes.
//!
//! **What is returned** is defined to the bit, whatever the instruction set, number of threads, batch or chunk size:
//! the k best by score descending, then position ascending, where a score is the sum of f32 table entries added in the
//! order m = 0 … M−1, from 0; NaN counts as −∞.
//!
//! **How.** Each query keeps the k best so far and with them a floor. [`bounds`] turns the floor and the query's tables
//! into byte tables and a limit; a [`kernel`] marks, 64 vectors at a time, those that may reach the floor; these few are
//! scored in f32 and offered to the [`TopK`]. The kernel is the only part written per instruction set.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bounds;
mod kernel;
mod scalar;

use crate::chunk;
use crate::error::{Result, invalid};
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::packed::{BLOCK, PackedView};
use crate::tables::{Table, Tables};
use crate::topk::{Key, TopK};
use bounds::Bounds;
use kernel::Kernel;
use ndarray::Array2;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of codes that all queries of a group pass over before the next: they stay in L2.
const CHUNK_BYTES: usize = 256 << 10;
/// Blocks given to the kernel at once, between two looks at the floor.
const CALL: usize = 64;
/// Queries that share a pass over the codes.
const GROUP: usize = 64;
/// Blocks below which it does not pay to split the codes between threads.
const MIN_SEGMENT: usize = 256;

/// What a search found, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// (nq, k). −∞ where fewer than k vectors were searched.
    pub scores: Array2<f32>,
    /// (nq, k), rows of the codes. −1 where fewer than k vectors were searched.
    pub positions: Array2<i64>,
}

/// Finds the `k` best of `codes` for each query of `tables`, on the threads of the current rayon pool.
///
/// `monitor` hears of vectors × queries, once a chunk.
///
/// # Errors
/// `codes` and `tables` are of another M, this machine lacks `isa`, or the monitor stops the search.
pub fn search(
    codes: PackedView<'_>,
    tables: &Tables,
    k: usize,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    if codes.n_columns() != tables.n_tables() {
        return Err(invalid!(
            "codes have {} columns, there are {} tables",
            codes.n_columns(),
            tables.n_tables()
        ));
    }
    let kernel = Kernel::new(isa).ok_or_else(|| invalid!("this machine lacks {}", isa.name()))?;
    let n_queries = tables.n_queries();
    let counter = Counter::new(monitor, codes.len() as u64 * n_queries as u64);

    let (segments, groups) = split(codes.n_blocks(), n_queries, rayon::current_num_threads());
    let tasks: Vec<_> =
        groups.iter().flat_map(|group| segments.iter().map(move |blocks| (group, blocks))).collect();
    let parts = tasks.into_par_iter().with_max_len(1).map(|(group, blocks)| {
        let scanners =
            group.clone().map(|query| Scanner::new(codes, tables.query(query), k.min(codes.len()), kernel));
        scan(scanners.collect(), blocks.clone(), &counter)
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;

    let mut hits = Hits {
        scores: Array2::from_elem((n_queries, k), f32::NEG_INFINITY),
        positions: Array2::from_elem((n_queries, k), -1),
    };
    let found = parts.chunks(segments.len()).flat_map(merge);
    for ((found, mut scores), mut positions) in
        found.zip(hits.scores.rows_mut()).zip(hits.positions.rows_mut())
    {
        for ((key, score), position) in found.into_sorted().into_iter().zip(&mut scores).zip(&mut positions) {
            (*score, *position) = (key.score(), key.position().into());
        }
    }
    Ok(hits)
}

/// Ranges of blocks and of queries; each thread takes one of each at a time.
///
/// Queries are split if every thread gets some that share a pass over the codes; else the codes are.
fn split(n_blocks: usize, n_queries: usize, n_threads: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let by_queries = n_queries >= 4 * n_threads;
    let segments = if by_queries { 1 } else { n_threads.min(n_blocks / MIN_SEGMENT).max(1) };
    let group = if by_queries { n_queries.div_ceil(n_threads).min(GROUP) } else { GROUP };
    (ranges(n_blocks, n_blocks.div_ceil(segments)), ranges(n_queries, group))
}

/// 0..n in pieces of `size`; one empty piece if n is 0.
fn ranges(n: usize, size: usize) -> Vec<Range<usize>> {
    let starts = (0..n.max(1)).step_by(size.max(1));
    starts.map(|start| start..n.min(start + size)).collect()
}

/// The best of each query over all segments.
fn merge(segments: &[Vec<TopK>]) -> Vec<TopK> {
    let (first, rest) = segments.split_first().expect("at least one segment");
    let mut found = first.clone();
    for segment in rest {
        found.iter_mut().zip(segment).for_each(|(found, other)| found.merge(other.clone()));
    }
    found
}

/// Takes all scanners over `blocks`, chunk by chunk.
fn scan(mut scanners: Vec<Scanner<'_>>, blocks: Range<usize>, counter: &Counter<'_>) -> Result<Vec<TopK>> {
    let Some(first) = scanners.first() else { return Ok(Vec::new()) };
    let codes = first.codes;
    let rows = chunk::rows(CHUNK_BYTES / codes.n_columns());
    for chunk in ranges(blocks.len(), rows.div_ceil(BLOCK)) {
        let chunk = blocks.start + chunk.start..blocks.start + chunk.end;
        scanners.iter_mut().for_each(|scanner| scanner.scan(chunk.clone()));
        let rows = (chunk.end * BLOCK).min(codes.len()).saturating_sub(chunk.start * BLOCK);
        counter.add((rows * scanners.len()) as u64)?;
    }
    Ok(scanners.into_iter().map(|scanner| scanner.found).collect())
}

/// One query on its way over the codes, in order of position.
struct Scanner<'a> {
    codes: PackedView<'a>,
    tables: &'a [Table],
    kernel: Kernel,
    /// `None`: every vector is scored.
    bounds: Option<Bounds>,
    found: TopK,
    /// Blocks seen.
    seen: usize,
}

impl<'a> Scanner<'a> {
    fn new(codes: PackedView<'a>, tables: &'a [Table], k: usize, kernel: Kernel) -> Self {
        Self { codes, tables, kernel, bounds: Bounds::new(tables), found: TopK::new(k), seen: 0 }
    }

    fn scan(&mut self, mut blocks: Range<usize>) {
        while !blocks.is_empty() {
            // At first the floor rises fast: look at it often.
            let end = blocks.end.min(blocks.start + (self.seen / 4).clamp(1, CALL));
            let call = blocks.start..end;
            self.found.settle();
            match (&mut self.bounds, self.found.floor()) {
                (Some(bounds), Some(floor)) => {
                    let limit = bounds.limit(self.tables, floor);
                    let mut hits = [0; CALL];
                    let hits = &mut hits[..call.len()];
                    let lines = self.codes.lines(call.clone());
                    self.kernel.filter(lines, bounds.bytes(), &[limit; CALL][..call.len()], hits);
                    self.score_hits(call, hits);
                }
                _ => self.score_all(call),
            }
            self.seen += end - blocks.start;
            blocks.start = end;
        }
    }

    fn score_hits(&mut self, blocks: Range<usize>, hits: &[u64]) {
        for (block, &hits) in blocks.zip(hits) {
            let mut hits = hits & self.filled(block);
            while hits != 0 {
                let lane = hits.trailing_zeros() as usize;
                hits &= hits - 1;
                let score = scalar::score_lane(self.codes.lines(block..block + 1), self.tables, lane);
                self.found.push(Key::new(score, (block * BLOCK + lane) as u32));
            }
        }
    }

    fn score_all(&mut self, blocks: Range<usize>) {
        for block in blocks {
            let scores = scalar::score_block(self.codes.lines(block..block + 1), self.tables);
            let filled = self.filled(block).count_ones() as usize;
            for (lane, &score) in scores[..filled].iter().enumerate() {
                self.found.push(Key::new(score, (block * BLOCK + lane) as u32));
            }
        }
    }

    /// Which lanes of a block hold vectors.
    fn filled(&self, block: usize) -> u64 {
        match self.codes.len() - block * BLOCK {
            rest @ 0..BLOCK => (1 << rest) - 1,
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::PackedCodes;
    use ndarray::{Array3, ArrayView2};

    /// The definition.
    fn full_sort(codes: ArrayView2<'_, u8>, tables: &Tables, k: usize) -> Hits {
        let (nq, n) = (tables.n_queries(), codes.nrows());
        let mut hits = Hits {
            scores: Array2::from_elem((nq, k), f32::NEG_INFINITY),
            positions: Array2::from_elem((nq, k), -1),
        };
        for q in 0..nq {
            let score = |i: usize| {
                let row = codes.row(i);
                let sum = row
                    .iter()
                    .zip(tables.query(q))
                    .fold(0.0f32, |sum, (&code, table)| sum + table[usize::from(code)]);
                if sum.is_nan() { f32::NEG_INFINITY } else { sum }
            };
            let mut all: Vec<(f32, usize)> = (0..n).map(|i| (score(i), i)).collect();
            all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
            for (rank, &(score, position)) in all.iter().take(k).enumerate() {
                hits.scores[[q, rank]] = score;
                hits.positions[[q, rank]] = position as i64;
            }
        }
        hits
    }

    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    #[test]
    fn equals_a_full_sort() {
        let mut seed = 1;
        for (n, m, k, nq) in [
            (0, 3, 2, 1),
            (1, 1, 1, 1),
            (63, 8, 5, 2),
            (64, 8, 64, 3),
            (1000, 8, 10, 5),
            (5000, 8, 100, 1),
            (20_000, 4, 3, 2),
            (3000, 64, 7, 2),
            (700, 16, 1000, 1),
        ] {
            let codes = Array2::from_shape_simple_fn((n, m), || random(&mut seed) as u8);
            let tables = Array3::from_shape_simple_fn((nq, m, 256), || random(&mut seed) as f32 / 1e8 - 10.0);
            let tables = Tables::from_array(tables.view()).unwrap();
            let packed = PackedCodes::pack(codes.view()).unwrap();
            let want = full_sort(codes.view(), &tables, k);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let hits = search(packed.view(), &tables, k, isa, &()).unwrap();
                assert_eq!(hits, want, "n {n} m {m} k {k} {}", isa.name());
            }
        }
    }
}
