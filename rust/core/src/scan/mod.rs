//! The search: the k largest scores of each query over all packed codes.
//!
//! **What is returned** is defined to the bit, whatever the instruction set, number of threads, batch or chunk size:
//! the k best by score descending, then position ascending, where a score is the sum of f32 table entries added in the
//! order m = 0 … M−1, from 0, times the scale and plus the bias if there are any; NaN counts as −∞.
//!
//! **How.** Each query keeps the k best so far and with them a floor. `bounds` turns the floor and the query's tables
//! into byte tables and a limit; a `kernel` marks, 64 vectors at a time, those that may reach the floor; these few are
//! scored in f32 (`score`) and offered to the top k. The kernel is the only part written per instruction set.

mod adjust;
mod bounds;
mod kernel;
mod scanner;
mod score;
pub mod tables;
pub(crate) mod topk;

pub use adjust::{Adjust, Levels, levels_above};

use crate::codes::packed::{BLOCK, PackedView};
use crate::error::{Result, invalid};
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::tables::Tables;
use crate::scan::topk::{Key, TopK};
use kernel::Kernel;
use ndarray::Array2;
use rayon::prelude::*;
use scanner::Scanner;
use std::ops::Range;

/// Bytes of codes that all queries of a group pass over before the next: they stay in L2.
const CHUNK_BYTES: usize = 256 << 10;
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

/// What a search takes into account beside codes and tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The vectors to search: bit i of word b stands for vector 64 b + i; as many words as the codes have blocks.
    pub allowed: Option<&'a [u64]>,
    /// Scale and bias of the vectors.
    pub adjust: Adjust<'a>,
}

/// Finds the `k` best of `codes` for each query of `tables`, on the threads of the current rayon pool.
///
/// `monitor` hears of vectors × queries, once a chunk.
///
/// # Errors
/// `codes` are not of as many columns as `tables` and options ask for, an option is of another length or value than
/// said there, this machine lacks `isa`, or the monitor stops the search.
pub fn search(
    codes: PackedView<'_>,
    tables: &Tables,
    k: usize,
    options: Options<'_>,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let plan = Plan::new(codes, tables, k, options, isa)?;
    let mut hits = Hits::none(tables.n_queries(), k)?;
    let n_queries = tables.n_queries();
    let counter = Counter::new(monitor, codes.len() as u64 * n_queries as u64);
    let queries: Vec<usize> = (0..n_queries).collect();
    let mut found = plan.run(&queries, true, &counter)?;
    // A guess that was too high: hardly ever (see `guess`).
    let missed: Vec<usize> = queries.into_iter().filter(|&query| found[query].len() < plan.k).collect();
    if !missed.is_empty() {
        let again = plan.run(&missed, false, &Counter::new(monitor, 0))?;
        missed.into_iter().zip(again).for_each(|(query, again)| found[query] = again);
    }

    for (query, found) in found.iter().enumerate() {
        hits.set(query, found);
    }
    Ok(hits)
}

/// What is the same for all queries of a search.
struct Plan<'a> {
    codes: PackedView<'a>,
    tables: &'a Tables,
    options: Options<'a>,
    kernel: Kernel,
    /// Vectors to search.
    n: usize,
    /// At most n.
    k: usize,
}

impl<'a> Plan<'a> {
    fn new(
        codes: PackedView<'a>,
        tables: &'a Tables,
        k: usize,
        options: Options<'a>,
        isa: Isa,
    ) -> Result<Self> {
        let (m, extra) = (tables.n_tables(), options.adjust.n_columns());
        if codes.n_columns() != m + extra {
            let columns = codes.n_columns();
            return Err(invalid!(
                "codes have {columns} columns: want {m} for the tables and {extra} for scale and bias"
            ));
        }
        options.adjust.check(codes)?;
        let n = match options.allowed {
            Some(allowed) if allowed.len() != codes.n_blocks() => {
                let (words, blocks) = (allowed.len(), codes.n_blocks());
                return Err(invalid!(
                    "allowed has {words} words of 64 vectors, the codes have {blocks} blocks"
                ));
            }
            Some(allowed) => {
                let beyond = allowed.len() * BLOCK - codes.len();
                let in_last = allowed.last().map_or(0, |&last| beyond_bits(last, beyond));
                allowed.iter().map(|word| word.count_ones() as usize).sum::<usize>() - in_last
            }
            None => codes.len(),
        };
        let kernel = Kernel::new(isa).ok_or_else(|| invalid!("this machine lacks {}", isa.name()))?;
        Ok(Self { codes, tables, options, kernel, n, k: k.min(n) })
    }

    /// The at most k best of each of `queries`, sorted. With `guess`, fewer than k where the guess was too high.
    fn run(&self, queries: &[usize], guess: bool, counter: &Counter<'_>) -> Result<Vec<Vec<Key>>> {
        let (segments, groups) = split(self.codes.n_blocks(), queries.len(), rayon::current_num_threads());
        let tasks = groups.iter().flat_map(|group| segments.iter().map(move |blocks| (group, blocks)));
        let tasks: Vec<_> = tasks.collect();
        let parts = tasks.into_par_iter().with_max_len(1).map(|(group, blocks)| {
            let mut scanners: Vec<_> = queries[group.clone()]
                .iter()
                .map(|&query| {
                    let floor =
                        if guess { self.guess(query, 32 * segments.len()) } else { f32::NEG_INFINITY };
                    Scanner::new(self, query, self.k, floor)
                })
                .collect();
            self.scan(&mut scanners, blocks.clone(), counter)?;
            Ok(scanners.into_iter().map(Scanner::into_sorted).collect())
        });
        let parts = parts.collect::<Result<Vec<Vec<Vec<Key>>>>>()?;
        if segments.len() == 1 {
            return Ok(parts.into_iter().flatten().collect());
        }
        Ok(parts.chunks(segments.len()).flat_map(|segments| self.merge(segments)).collect())
    }

    /// A score that the k best most likely reach: the floor to start with.
    ///
    /// From a sample of 1 / `share` of the codes. It is too high if `rank` or more of the k best are in the sample,
    /// where k / share are expected; `rank` is three standard deviations and some more above that.
    /// Without a guess, k · (1 + ln(n / k)) vectors are scored that turn out not to be of the best; with it, some 4 k.
    fn guess(&self, query: usize, share: usize) -> f32 {
        let expected = self.k as f64 / share as f64;
        let rank = (expected + 3.0 * expected.sqrt() + 2.0).ceil() as usize;
        // Nothing to gain, or too few to choose from.
        if rank * 4 > self.k || self.n < 8 * rank * share {
            return f32::NEG_INFINITY;
        }
        let mut sample = Scanner::new(self, query, rank, f32::NEG_INFINITY);
        let n_blocks = self.codes.n_blocks();
        for start in (0..n_blocks).step_by(SAMPLE_RUN * share) {
            sample.scan(start..n_blocks.min(start + SAMPLE_RUN));
        }
        sample.floor()
    }

    /// Takes all scanners over `blocks`, chunk by chunk.
    fn scan(&self, scanners: &mut [Scanner<'_>], blocks: Range<usize>, counter: &Counter<'_>) -> Result<()> {
        let rows = parallel::rows(CHUNK_BYTES / self.codes.n_columns());
        for chunk in ranges(blocks.len(), rows.div_ceil(BLOCK)) {
            let chunk = blocks.start + chunk.start..blocks.start + chunk.end;
            scanners.iter_mut().for_each(|scanner| scanner.scan(chunk.clone()));
            let rows = (chunk.end * BLOCK).min(self.codes.len()).saturating_sub(chunk.start * BLOCK);
            counter.add((rows * scanners.len()) as u64)?;
        }
        Ok(())
    }

    /// The best of each query over all segments, sorted.
    fn merge(&self, segments: &[Vec<Vec<Key>>]) -> Vec<Vec<Key>> {
        let best = (0..segments[0].len()).map(|query| {
            let mut found = TopK::new(self.k);
            segments.iter().flat_map(|segment| &segment[query]).for_each(|&key| found.push(key));
            found.into_sorted()
        });
        best.collect()
    }
}

/// How many of the upper `beyond` bits of a word are set.
fn beyond_bits(word: u64, beyond: usize) -> usize {
    word.checked_shr((BLOCK - beyond) as u32).unwrap_or(0).count_ones() as usize
}

/// Ranges of blocks and of queries; each thread takes one of each at a time.
///
/// Queries are split if every thread gets some that share a pass over the codes; else the codes are.
fn split(n_blocks: usize, n_queries: usize, n_threads: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    if n_queries >= 4 * n_threads {
        // As many groups for each thread, none above GROUP.
        let n_groups = n_threads * n_queries.div_ceil(n_threads * GROUP);
        return (ranges(n_blocks, n_blocks), ranges(n_queries, n_queries.div_ceil(n_groups)));
    }
    let segments = n_threads.min(n_blocks / MIN_SEGMENT).max(1);
    (ranges(n_blocks, n_blocks.div_ceil(segments)), ranges(n_queries, GROUP))
}

/// 0..n in pieces of `size`; one empty piece if n is 0.
fn ranges(n: usize, size: usize) -> Vec<Range<usize>> {
    let starts = (0..n.max(1)).step_by(size.max(1));
    starts.map(|start| start..n.min(start + size)).collect()
}
