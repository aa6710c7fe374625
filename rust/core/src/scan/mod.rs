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
use crate::packed::{BLOCK, Line, PackedView};
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
/// Blocks in a row that a sample takes.
const SAMPLE_RUN: usize = 8;
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
    let plan = Plan { codes, tables, k: k.min(codes.len()), kernel };

    let queries: Vec<usize> = (0..n_queries).collect();
    let mut found = plan.run(&queries, true, &counter)?;
    // A guess that was too high: hardly ever (see `guess`).
    let missed: Vec<usize> = queries.into_iter().filter(|&query| found[query].len() < plan.k).collect();
    if !missed.is_empty() {
        let again = plan.run(&missed, false, &Counter::new(monitor, 0))?;
        missed.into_iter().zip(again).for_each(|(query, again)| found[query] = again);
    }

    let mut hits = Hits {
        scores: Array2::from_elem((n_queries, k), f32::NEG_INFINITY),
        positions: Array2::from_elem((n_queries, k), -1),
    };
    for ((found, mut scores), mut positions) in
        found.iter().zip(hits.scores.rows_mut()).zip(hits.positions.rows_mut())
    {
        for ((key, score), position) in found.iter().zip(&mut scores).zip(&mut positions) {
            (*score, *position) = (key.score(), key.position().into());
        }
    }
    Ok(hits)
}

/// What is the same for all queries of a search.
struct Plan<'a> {
    codes: PackedView<'a>,
    tables: &'a Tables,
    k: usize,
    kernel: Kernel,
}

impl Plan<'_> {
    /// The at most k best of each of `queries`, sorted. With `guess`, fewer than k where the guess was too high.
    fn run(&self, queries: &[usize], guess: bool, counter: &Counter<'_>) -> Result<Vec<Vec<Key>>> {
        let (segments, groups) = split(self.codes.n_blocks(), queries.len(), rayon::current_num_threads());
        let tasks = groups.iter().flat_map(|group| segments.iter().map(move |blocks| (group, blocks)));
        let tasks: Vec<_> = tasks.collect();
        let parts = tasks.into_par_iter().with_max_len(1).map(|(group, blocks)| {
            let scanners = queries[group.clone()].iter().map(|&query| {
                let floor =
                    if guess { guess_floor(self, query, 32 * segments.len()) } else { f32::NEG_INFINITY };
                Scanner::new(self.codes, self.tables.query(query), self.k, floor, self.kernel)
            });
            scan(scanners.collect(), blocks.clone(), counter)
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(parts.chunks(segments.len()).flat_map(merge).collect())
    }
}

/// A score that the k best most likely reach: the floor to start with.
///
/// From a sample of 1 / `share` of the codes. If it is too high, then more than `rank` of the k best were in the
/// sample, where k / share are expected; `rank` is four standard deviations and some more above that.
/// Without a guess, k · (1 + ln(n / k)) vectors are scored that turn out not to be of the best; with it, some 4 k.
fn guess_floor(plan: &Plan<'_>, query: usize, share: usize) -> f32 {
    let expected = plan.k as f64 / share as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 4.0).ceil() as usize;
    let n_blocks = plan.codes.n_blocks();
    // Too few to choose from, or nothing to gain.
    if rank * 4 > plan.k || n_blocks * BLOCK < 8 * rank * share {
        return f32::NEG_INFINITY;
    }
    let mut sample = Scanner::new(plan.codes, plan.tables.query(query), rank, f32::NEG_INFINITY, plan.kernel);
    for start in (0..n_blocks).step_by(SAMPLE_RUN * share) {
        sample.scan(start..n_blocks.min(start + SAMPLE_RUN));
    }
    sample.found.settle();
    sample.found.floor().unwrap_or(f32::NEG_INFINITY)
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

/// The best of each query over all segments, sorted.
fn merge(segments: &[Vec<Scanner<'_>>]) -> Vec<Vec<Key>> {
    let queries = 0..segments[0].len();
    let best = queries.map(|query| {
        let mut found = TopK::new(segments[0][query].k);
        segments.iter().for_each(|segment| found.merge(&segment[query].found));
        let mut found = found.into_sorted();
        // Below the guess, vectors were skipped.
        found.truncate(found.partition_point(|key| key.score() >= segments[0][query].guess));
        found
    });
    best.collect()
}

/// Takes all scanners over `blocks`, chunk by chunk.
fn scan<'a>(
    mut scanners: Vec<Scanner<'a>>,
    blocks: Range<usize>,
    counter: &Counter<'_>,
) -> Result<Vec<Scanner<'a>>> {
    let Some(first) = scanners.first() else { return Ok(scanners) };
    let codes = first.codes;
    let rows = chunk::rows(CHUNK_BYTES / codes.n_columns());
    for chunk in ranges(blocks.len(), rows.div_ceil(BLOCK)) {
        let chunk = blocks.start + chunk.start..blocks.start + chunk.end;
        scanners.iter_mut().for_each(|scanner| scanner.scan(chunk.clone()));
        let rows = (chunk.end * BLOCK).min(codes.len()).saturating_sub(chunk.start * BLOCK);
        counter.add((rows * scanners.len()) as u64)?;
    }
    Ok(scanners)
}

/// One query on its way over the codes.
struct Scanner<'a> {
    codes: PackedView<'a>,
    tables: &'a [Table],
    kernel: Kernel,
    k: usize,
    /// Vectors that score less need not be found.
    guess: f32,
    /// `None`: every vector is scored.
    bounds: Option<Bounds>,
    found: TopK,
    /// Blocks seen.
    seen: usize,
}

impl<'a> Scanner<'a> {
    fn new(codes: PackedView<'a>, tables: &'a [Table], k: usize, guess: f32, kernel: Kernel) -> Self {
        Self { codes, tables, kernel, k, guess, bounds: Bounds::new(tables), found: TopK::new(k), seen: 0 }
    }

    /// The score that a vector must reach, if anything is known of it.
    fn floor(&mut self) -> Option<f32> {
        self.found.settle();
        let floor = self.found.floor().unwrap_or(f32::NEG_INFINITY).max(self.guess);
        (floor > f32::NEG_INFINITY).then_some(floor)
    }

    fn scan(&mut self, mut blocks: Range<usize>) {
        while !blocks.is_empty() {
            let floor = self.floor();
            // Without a guess the floor rises fast at first: look at it often.
            let size = if self.guess > f32::NEG_INFINITY { CALL } else { (self.seen / 4).clamp(1, CALL) };
            let call = blocks.start..blocks.end.min(blocks.start + size);
            match (&mut self.bounds, floor) {
                (Some(bounds), Some(floor)) => {
                    let limit = bounds.limit(self.tables, floor);
                    let mut hits = [0; CALL];
                    let hits = &mut hits[..call.len()];
                    let lines = self.codes.lines(call.clone());
                    self.kernel.filter(lines, bounds.bytes(), &[limit; CALL][..call.len()], hits);
                    self.score_hits(call.start, lines, hits);
                }
                _ => self.score_all(call.clone()),
            }
            self.seen += call.len();
            blocks.start = call.end;
        }
    }

    /// Scores the vectors marked in `hits`, one a block from block `first` on; `lines` are those blocks'.
    fn score_hits(&mut self, first: usize, lines: &[Line], hits: &mut [u64]) {
        if let Some(last) = hits.last_mut() {
            *last &= self.filled(first + lines.len() / self.tables.len() - 1);
        }
        for (block, &hits) in hits.iter().enumerate() {
            if hits != 0 {
                let lines = &lines[block * self.tables.len()..][..self.tables.len()];
                self.score_block_hits(first + block, lines, hits);
            }
        }
    }

    #[inline(never)] // keeps the loop above in registers: 15 % of a search
    fn score_block_hits(&mut self, block: usize, lines: &[Line], mut hits: u64) {
        while hits != 0 {
            let lane = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            let score = scalar::score_lane(lines, self.tables, lane);
            self.found.push(Key::new(score, (block * BLOCK + lane) as u32));
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
