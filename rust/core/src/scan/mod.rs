//! The search: the k largest scores of each query over all packed codes.
//!
//! **What is returned** is defined to the bit, whatever the instruction set, number of threads, batch or chunk size:
//! the k best by score descending, then position ascending, where a score is the sum of f32 table entries added in the
//! order m = 0 … M−1, from the probe's base, times the scale or plus the bias if there is one; NaN counts as −∞. Where a
//! [`Measure`] scores, the table sums only bound its scores, and the k best are those by the measure, to its last bit.
//!
//! **How.** Each query keeps the k best so far and with them a floor. `bounds` turns the floor and the query's tables
//! into byte tables and a limit; a `kernel` marks, 64 vectors at a time, those that may reach the floor; these few are
//! scored in f32 (`score`) and offered to the top k, or their scores are bounded (`brackets`), and those that may be of
//! the k best at last are scored by the measure. The kernel is the only part written per instruction set.

mod adjust;
mod bounds;
mod brackets;
mod each;
mod kernel;
mod scanner;
mod score;
mod segment;
pub mod tables;
pub(crate) mod topk;

pub use adjust::{Adjust, Edges, Levels, Measure};
pub use each::{Each, Sets};
pub use segment::{Probe, Probes, Segment};

use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::scan::tables::Tables;
use crate::scan::topk::{Key, TopK};
use brackets::{Brackets, Candidate};
use kernel::Kernel;
use ndarray::Array2;
use rayon::prelude::*;
use scanner::{Found, Scanner};
use std::ops::Range;

/// Bytes of codes that all queries of a group pass over before the next: they stay in L2.
const CHUNK_BYTES: usize = 256 << 10;
/// Queries that share a pass over the codes.
const GROUP: usize = 64;
/// Blocks in a row that a sample takes.
const SAMPLE_RUN: usize = 8;
/// Blocks below which it does not pay to split the codes between threads.
const MIN_PART: usize = 256;
/// Candidates that a measure scores before another thread may take some.
const MEASURED: usize = 128;

/// What a search found, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// (nq, k). −∞ where fewer than k vectors were searched.
    pub scores: Array2<f32>,
    /// (nq, k), positions of the vectors. −1 where fewer than k vectors were searched.
    pub positions: Array2<i64>,
}

/// Finds the `k` best vectors of `segments` for each query of `tables`, on the threads of the current rayon pool. Each
/// query searches the segments that `probes` names.
///
/// `monitor` hears of vectors × queries, once a chunk.
///
/// # Errors
/// Codes are not of as many columns as `tables` and adjustment ask for, segments differ in kind, something is of another
/// length or value than said there, this machine lacks `isa`, or the monitor stops the search.
pub fn search(
    segments: &[Segment<'_>],
    probes: Probes<'_>,
    tables: &Tables,
    k: usize,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    search_each(segments, (probes, Each::default()), tables, k, isa, monitor)
}

/// Like [`search`], where queries may find different vectors.
///
/// # Errors
/// Those of [`search`], or sets of fewer queries.
pub fn search_each(
    segments: &[Segment<'_>],
    (probes, each): (Probes<'_>, Each<'_>),
    tables: &Tables,
    k: usize,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let n_queries = tables.n_queries();
    let n = segments.iter().map(|segment| segment.codes.len()).sum();
    let mut hits = Hits::none(n_queries, k, n)?;
    if segments.is_empty() {
        return Ok(hits);
    }
    let plan = Plan::new(segments, (probes, each), tables, k, isa)?;
    let counter = Counter::new(monitor, plan.work());
    let queries: Vec<usize> = (0..n_queries).collect();
    let guess = |query: usize, share: usize| plan.guess(query, share);
    let mut found = plan.run(&queries, guess, &counter)?;
    // A guess that was too high: hardly ever (see `guess`).
    let missed: Vec<usize> =
        queries.into_iter().filter(|&query| found[query].len() < plan.k(query)).collect();
    if !missed.is_empty() {
        let again = plan.run(&missed, |_, _| f32::NEG_INFINITY, &Counter::new(monitor, 0))?;
        missed.into_iter().zip(again).for_each(|(query, again)| found[query] = again);
    }

    for (query, found) in found.iter().enumerate() {
        hits.set(query, found);
    }
    Ok(hits)
}

/// All vectors that score a floor or more, best first, ties to the lower position; like [`search_each`] in all else.
/// `floors` has a number for each query.
///
/// # Errors
/// Those of [`search_each`].
pub(crate) fn above(
    segments: &[Segment<'_>],
    (probes, each): (Probes<'_>, Each<'_>),
    tables: &Tables,
    floors: &[f32],
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Vec<Vec<Key>>> {
    if segments.is_empty() {
        return Ok(vec![Vec::new(); tables.n_queries()]);
    }
    let plan = Plan::new(segments, (probes, each), tables, usize::MAX, isa)?;
    let queries: Vec<usize> = (0..tables.n_queries()).collect();
    plan.run(&queries, |query, _| floors[query], &Counter::new(monitor, plan.work()))
}

/// What is the same for all queries of a search.
struct Plan<'a> {
    segments: &'a [Segment<'a>],
    probes: Probes<'a>,
    each: Each<'a>,
    tables: &'a Tables,
    kernel: Kernel,
    /// Of each query, the vectors that it may find.
    n: Vec<usize>,
    /// Before each segment, the blocks of those before it; and all of them.
    starts: Vec<usize>,
    k: usize,
}

impl<'a> Plan<'a> {
    fn new(
        segments: &'a [Segment<'a>],
        (probes, each): (Probes<'a>, Each<'a>),
        tables: &'a Tables,
        k: usize,
        isa: Isa,
    ) -> Result<Self> {
        let kernel = Kernel::new(isa).ok_or_else(|| invalid!("this machine lacks {}", isa.name()))?;
        probes.check(segments.len(), tables.n_queries())?;
        each.check(tables.n_queries())?;
        let mut starts = vec![0];
        for segment in segments {
            segment.check(tables)?;
            if !segment.adjust.is_like(&segments[0].adjust) {
                let (one, other) = (segments[0].adjust, segment.adjust);
                return Err(invalid!("segments differ in what adjusts scores: {one:?} and {other:?}"));
            }
            if segment.codes.layout() != segments[0].codes.layout() {
                let (one, other) = (segments[0].codes.layout(), segment.codes.layout());
                return Err(invalid!("segments differ in how codes are stored: {one:?} and {other:?}"));
            }
            starts.push(starts[starts.len() - 1] + segment.codes.n_blocks());
        }
        let allowed: Vec<usize> = segments.iter().map(Segment::n_allowed).collect();
        let n = match probes {
            _ if !each.is_all() => {
                let of = |query| {
                    let own = each.of(query);
                    let probed = (0..segments.len()).filter(|&at| probes.base(query, at).is_some());
                    let count = |at: usize| {
                        let segment: &Segment<'_> = &segments[at];
                        own.count(segment.first, segment.codes.len(), (segment.allowed, allowed[at]))
                    };
                    probed.map(count).sum()
                };
                (0..tables.n_queries()).into_par_iter().map(of).collect()
            }
            Probes::All => vec![allowed.iter().sum(); tables.n_queries()],
            Probes::Each(probes) => {
                probes.iter().map(|probes| probes.iter().map(|probe| allowed[probe.segment]).sum()).collect()
            }
        };
        Ok(Self { segments, probes, each, tables, kernel, n, starts, k })
    }

    /// How many vectors to find for a query.
    fn k(&self, query: usize) -> usize {
        self.k.min(self.n[query])
    }

    /// Vectors that all queries together pass over.
    fn work(&self) -> u64 {
        let of = |segment: usize| self.segments[segment].codes.len() as u64;
        match self.probes {
            Probes::All => self.tables.n_queries() as u64 * (0..self.segments.len()).map(of).sum::<u64>(),
            Probes::Each(probes) => probes.iter().flatten().map(|probe| of(probe.segment)).sum(),
        }
    }

    /// The at most k best of each of `queries`, sorted, of those that reach what `guess` says of a query, where a sample
    /// may be 1 / `share` of the codes: fewer than k where that is too high.
    fn run(
        &self,
        queries: &[usize],
        guess: impl Fn(usize, usize) -> f32 + Sync,
        counter: &Counter<'_>,
    ) -> Result<Vec<Vec<Key>>> {
        let n_blocks = self.starts[self.segments.len()];
        let (parts, groups) = split(n_blocks, queries.len(), rayon::current_num_threads());
        let tasks = groups.iter().flat_map(|group| parts.iter().map(move |blocks| (group, blocks)));
        let tasks: Vec<_> = tasks.collect();
        let found = tasks.into_par_iter().with_max_len(1).map(|(group, blocks)| {
            let mut scanners: Vec<_> = queries[group.clone()]
                .iter()
                .map(|&query| {
                    let floor = guess(query, 32 * parts.len());
                    (query, Scanner::new(self, query, self.k(query), floor))
                })
                .collect();
            self.scan(&mut scanners, blocks.clone(), counter)?;
            Ok(scanners.into_iter().map(|(_, scanner)| (scanner.guess(), scanner.into_found())).collect())
        });
        let found = found.collect::<Result<Vec<Vec<(f32, Found)>>>>()?;
        if parts.len() == 1 {
            let found = found.into_iter().flatten().zip(queries).map(|(found, &query)| (query, [found]));
            return Ok(self.merge_all(found));
        }
        // Of each query, what was found in every part.
        let mut merged: Vec<Vec<(f32, Found)>> = queries.iter().map(|_| Vec::new()).collect();
        let of = groups.iter().flat_map(|group| parts.iter().map(move |_| group));
        for (found, group) in found.into_iter().zip(of) {
            merged[group.clone()].iter_mut().zip(found).for_each(|(merged, found)| merged.push(found));
        }
        Ok(self.merge_all(queries.iter().copied().zip(merged)))
    }

    /// The best of each query, of what was found in all parts.
    fn merge_all<T: IntoIterator<Item = (f32, Found)> + Send>(
        &self,
        found: impl Iterator<Item = (usize, T)>,
    ) -> Vec<Vec<Key>> {
        let merge = |(query, found): (usize, T)| self.merge(query, found);
        match self.segments[0].adjust.measure() {
            // It takes time to measure.
            Some(_) => found.collect::<Vec<_>>().into_par_iter().map(merge).collect(),
            None => found.map(merge).collect(),
        }
    }

    /// A score that the k best most likely reach: the floor to start with.
    ///
    /// From a sample of 1 / `share` of the codes. It is too high if `rank` or more of the k best are in the sample,
    /// where k / share are expected; `rank` is three standard deviations and some more above that.
    /// Without a guess, k · (1 + ln(n / k)) vectors are scored that turn out not to be of the best; with it, some 4 k.
    fn guess(&self, query: usize, share: usize) -> f32 {
        let (n, k) = (self.n[query], self.k(query));
        let expected = k as f64 / share as f64;
        let rank = (expected + 3.0 * expected.sqrt() + 2.0).ceil() as usize;
        // Nothing to gain, or too few to choose from.
        if rank * 4 > k || n < 8 * rank * share {
            return f32::NEG_INFINITY;
        }
        let mut sample = Scanner::new(self, query, rank, f32::NEG_INFINITY);
        // Blocks of the query's segments, counted through: those before, and the next run.
        let (mut before, mut next) = (0, 0);
        for (segment, codes) in self.segments.iter().map(|segment| segment.codes).enumerate() {
            let Some(base) = self.probes.base(query, segment) else { continue };
            let n_blocks = codes.n_blocks();
            while next < before + n_blocks {
                let start = next - before;
                sample.scan((segment, base), start..n_blocks.min(start + SAMPLE_RUN));
                next += SAMPLE_RUN * share;
            }
            before += n_blocks;
        }
        sample.floor()
    }

    /// Takes all scanners over `blocks` of all segments, chunk by chunk.
    fn scan(
        &self,
        scanners: &mut [(usize, Scanner<'_>)],
        blocks: Range<usize>,
        counter: &Counter<'_>,
    ) -> Result<()> {
        for (at, segment) in self.segments.iter().enumerate() {
            let here = self.starts[at]..self.starts[at + 1];
            let blocks = blocks.start.max(here.start)..blocks.end.min(here.end);
            if blocks.is_empty() {
                continue;
            }
            let blocks = blocks.start - here.start..blocks.end - here.start;
            let probing = scanners
                .iter_mut()
                .filter_map(|(query, scanner)| self.probes.base(*query, at).map(|base| (base, scanner)));
            let mut probing: Vec<_> = probing.collect();
            let rows = parallel::rows(CHUNK_BYTES / segment.codes.n_lines());
            for chunk in ranges(blocks.len(), rows.div_ceil(BLOCK)) {
                let chunk = blocks.start + chunk.start..blocks.start + chunk.end;
                probing.iter_mut().for_each(|(base, scanner)| scanner.scan((at, *base), chunk.clone()));
                let rows = (chunk.end * BLOCK).min(segment.codes.len()).saturating_sub(chunk.start * BLOCK);
                counter.add((rows * probing.len()) as u64)?;
            }
        }
        Ok(())
    }

    /// The best of a query over all parts, sorted; `found` says of each part the guess and what was found.
    fn merge(&self, query: usize, found: impl IntoIterator<Item = (f32, Found)>) -> Vec<Key> {
        let k = self.k(query);
        let mut found = found.into_iter().peekable();
        let (mut best, mut brackets, mut guess) = (TopK::new(k), Brackets::new(k), f32::NEG_INFINITY);
        while let Some((part_guess, part)) = found.next() {
            guess = guess.max(part_guess);
            match part {
                // The only one.
                Found::Known(keys) if best.is_empty() && found.peek().is_none() => return keys,
                Found::Known(keys) => keys.into_iter().for_each(|key| best.push(key)),
                Found::Bracketed(candidates) => candidates.into_iter().for_each(|one| brackets.push(one)),
            }
        }
        let candidates = brackets.into_candidates();
        if let Some(measure) = self.segments[0].adjust.measure() {
            let measured =
                candidates.par_iter().with_min_len(MEASURED).map(|&Candidate { segment, at, .. }| {
                    let segment = &self.segments[segment];
                    let code = segment.codes.codes(at).take(self.tables.n_tables()).collect::<Vec<u8>>();
                    Key::new(measure.score(query, &code), segment.first + at as u64)
                });
            // Those below the guess were not all looked for.
            let measured = measured.filter(|key| key.score() >= guess).collect::<Vec<_>>();
            measured.into_iter().for_each(|key| best.push(key));
        }
        best.into_sorted()
    }
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
    let parts = n_threads.min(n_blocks / MIN_PART).max(1);
    (ranges(n_blocks, n_blocks.div_ceil(parts)), ranges(n_queries, GROUP))
}

/// 0..n in pieces of `size`; one empty piece if n is 0.
fn ranges(n: usize, size: usize) -> Vec<Range<usize>> {
    let starts = (0..n.max(1)).step_by(size.max(1));
    starts.map(|start| start..n.min(start + size)).collect()
}
