//! How the work of a search is divided: which threads scan which codes for which queries, in what order, and how their
//! finds are merged into the best of each query.

use super::adjust::Measure;
use super::brackets::{Brackets, Candidate};
use super::finish::Finish;
use super::plan::{GROUP, Plan};
use super::scanner::{CALL, Found, Scanner};
use super::scored::{self, Scored};
use super::segment::Probe;
use super::topk::{Key, TopK};
use crate::codes::packed::BLOCK;
use crate::error::Result;
use crate::isa;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of codes that all queries of a group scan before the next chunk: they stay in L2.
const CHUNK_BYTES: usize = 256 << 10;
/// Consecutive blocks that a sample takes.
const SAMPLE_RUN: usize = 8;
/// Blocks below which splitting the codes between threads does not pay off.
const MIN_PART: usize = 256;
/// Lines of the next segment that are prefetched while one is scanned.
const AHEAD: usize = 64;
/// The most bytes that are prefetched: they wait in L2 while another query goes through its segments.
const ASKED_BYTES: usize = 256 << 10;
/// Vectors that a query scans alone between two reports.
const HEARD: usize = 1 << 16;
/// Candidates that a measure scores before another thread may take some.
const MEASURED: usize = 128;

impl Plan<'_> {
    /// [`split`] of all blocks and this many queries.
    pub(super) fn split(&self, n_queries: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        split(self.starts[self.segments.len()], n_queries, rayon::current_num_threads())
    }

    /// The at most k best for each of `queries`, which are all there are.
    pub(super) fn run_all(
        &self,
        queries: Vec<usize>,
        counter: &Counter<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<Vec<Key>>> {
        let guess = |query: usize, share: usize| self.guess(query, share);
        let mut found = self.run(&queries, guess, counter)?;
        // The guess was too high, which hardly ever happens (see `guess`).
        let missed: Vec<usize> =
            queries.into_iter().filter(|&query| found[query].len() < self.k(query)).collect();
        if !missed.is_empty() {
            let again = self.run(&missed, |_, _| f32::NEG_INFINITY, &Counter::new(monitor, 0))?;
            missed.into_iter().zip(again).for_each(|(query, again)| found[query] = again);
        }
        Ok(found)
    }

    /// What `finish` makes of the best of some queries, each of which goes through its segments alone. During that
    /// time, the data needed to finish the previous query is being fetched from memory.
    pub(super) fn run_finished(
        &self,
        queries: Range<usize>,
        finish: &dyn Finish,
        counter: &Counter<'_>,
    ) -> Result<Vec<Vec<Key>>> {
        let mut finished = Vec::with_capacity(queries.len());
        let mut before: Vec<Key> = Vec::new();
        for query in queries.clone() {
            let ask = |range: Range<usize>| before[range].iter().for_each(|&key| finish.prefetch(key));
            let is_little = before.len().saturating_mul(finish.n_bytes()) <= ASKED_BYTES;
            let n_asked = if is_little { before.len() } else { 0 };
            let found = self.scan_alone(query, f32::NEG_INFINITY, (n_asked, &ask), counter)?;
            if query > queries.start {
                finished.push(finish.finish(query - 1, &before, is_little, counter)?);
            }
            before = self.merge(query, [found]);
        }
        if !queries.is_empty() {
            finished.push(finish.finish(queries.end - 1, &before, false, counter)?);
        }
        Ok(finished)
    }

    /// The at most k best of each of `queries`, sorted, among those that reach the `guess` for the query, which may use
    /// a sample of 1 / `share` of the codes: fewer than k if the guess is too high.
    pub(super) fn run(
        &self,
        queries: &[usize],
        guess: impl Fn(usize, usize) -> f32 + Sync,
        counter: &Counter<'_>,
    ) -> Result<Vec<Vec<Key>>> {
        let (parts, groups) = self.split(queries.len());
        let tasks = groups.iter().flat_map(|group| parts.iter().map(move |blocks| (group, blocks)));
        let tasks: Vec<_> = tasks.collect();
        let found = tasks.into_par_iter().with_max_len(1).map(|(group, blocks)| {
            if self.is_by_query && parts.len() == 1 {
                let alone = |&query: &usize| self.scan_alone(query, guess(query, 32), (0, &|_| ()), counter);
                return queries[group.clone()].iter().map(alone).collect();
            }
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
        // For each query, what was found in every part.
        let mut merged: Vec<Vec<(f32, Found)>> = queries.iter().map(|_| Vec::new()).collect();
        let of = groups.iter().flat_map(|group| parts.iter().map(move |_| group));
        for (found, group) in found.into_iter().zip(of) {
            merged[group.clone()].iter_mut().zip(found).for_each(|(merged, found)| merged.push(found));
        }
        Ok(self.merge_all(queries.iter().copied().zip(merged)))
    }

    /// The best of each query, merged from what was found in all parts.
    fn merge_all<T: IntoIterator<Item = (f32, Found)> + Send>(
        &self,
        found: impl Iterator<Item = (usize, T)>,
    ) -> Vec<Vec<Key>> {
        let merge = |(query, found): (usize, T)| self.merge(query, found);
        match self.segments[0].adjust.measure() {
            // Measuring takes time, so it is done in parallel.
            Some(_) => found.collect::<Vec<_>>().into_par_iter().map(merge).collect(),
            None => found.map(merge).collect(),
        }
    }

    /// A score that the k best most likely reach: the initial floor.
    ///
    /// Computed from a sample of 1 / `share` of the codes. It is too high if `rank` or more of the k best are in the
    /// sample, where k / share are expected; `rank` is a little more than three standard deviations above that. Without
    /// a guess, k · (1 + ln(n / k)) vectors are scored in vain; with it, about 4 k.
    fn guess(&self, query: usize, share: usize) -> f32 {
        if self.is_by_query {
            return f32::NEG_INFINITY; // The best segments come first, and raise the floor as fast.
        }
        let (n, k) = (self.n[query], self.k(query));
        let expected = k as f64 / share as f64;
        let rank = (expected + 3.0 * expected.sqrt() + 2.0).ceil() as usize;
        // Nothing to gain, or too few to choose from.
        if rank * 4 > k || n < 8 * rank * share {
            return f32::NEG_INFINITY;
        }
        let mut sample = Scanner::new(self, query, rank, f32::NEG_INFINITY);
        // Blocks of the query's segments, numbered through all of them: those before, and the next run.
        let (mut before, mut next) = (0, 0);
        for Probe { segment, base } in self.probes.of(query, self.segments.len()) {
            let n_blocks = self.segments[segment].codes.n_blocks();
            while next < before + n_blocks {
                let start = next - before;
                sample.scan((segment, base), start..n_blocks.min(start + SAMPLE_RUN));
                next += SAMPLE_RUN * share;
            }
            before += n_blocks;
        }
        sample.floor()
    }

    /// What a query finds in its segments, in descending order of their bases. Meanwhile `ask` is called for all
    /// numbers below `n_asked`, a few at a time.
    fn scan_alone(
        &self,
        query: usize,
        guess: f32,
        (n_asked, ask): (usize, &dyn Fn(Range<usize>)),
        counter: &Counter<'_>,
    ) -> Result<(f32, Found)> {
        let mut scanner = Scanner::new(self, query, self.k(query), guess);
        let mut probes: Vec<Probe> = self.probes.of(query, self.segments.len()).collect();
        // A query's own sets are traversed in order.
        if self.each.is_all() {
            probes.sort_unstable_by(|a, b| b.base.total_cmp(&a.base));
        }
        let mut rows = 0;
        for (i, &Probe { segment: at, base }) in probes.iter().enumerate() {
            ask(n_asked * i / probes.len()..n_asked * (i + 1) / probes.len());
            let codes = self.segments[at].codes;
            if let Some(next) = probes.get(i + 1) {
                // With each line of this segment the kernel prefetches one of the next. The rest must be prefetched
                // here if this segment is shorter, or is not filtered.
                let next = self.segments[next.segment].codes;
                let asked = if i == 0 || codes.n_blocks() > CALL { 0 } else { codes.n_blocks() };
                let more =
                    [asked, asked + AHEAD.div_ceil(codes.n_lines())].map(|end| end.min(next.n_blocks()));
                isa::prefetch(next.lines(more[0]..more[1]).as_flattened());
                scanner.then(next.lines(0..next.n_blocks()));
            } else {
                scanner.then(&[]);
            }
            let chunk = parallel::rows(CHUNK_BYTES / codes.n_lines()).div_ceil(BLOCK);
            for first in (0..codes.n_blocks()).step_by(chunk) {
                let next = codes.n_blocks().min(first + chunk);
                scanner.scan((at, base), first..next);
                rows += codes.len().min(next * BLOCK) - first * BLOCK;
                if rows >= HEARD {
                    counter.add(std::mem::take(&mut rows) as u64)?;
                }
            }
        }
        if probes.is_empty() {
            ask(0..n_asked);
        }
        counter.add(rows as u64)?;
        Ok((scanner.guess(), scanner.into_found()))
    }

    /// Runs all scanners over `blocks` of all segments, chunk by chunk.
    fn scan(
        &self,
        scanners: &mut [(usize, Scanner<'_>)],
        blocks: Range<usize>,
        counter: &Counter<'_>,
    ) -> Result<()> {
        let n_segments = self.segments.len();
        let visits = scanners.iter().enumerate().flat_map(|(i, &(query, _))| {
            self.probes.of(query, n_segments).map(move |probe| (probe.segment, i, probe.base))
        });
        let mut visits: Vec<(usize, usize, f32)> = visits.collect();
        // The segments of a single query are in order.
        if scanners.len() > 1 {
            visits.sort_unstable_by_key(|&(segment, i, _)| (segment, i));
        }
        for probing in visits.chunk_by(|one, other| one.0 == other.0) {
            let at = probing[0].0;
            let segment = &self.segments[at];
            let here = self.starts[at]..self.starts[at + 1];
            let blocks = blocks.start.max(here.start)..blocks.end.min(here.end);
            if blocks.is_empty() {
                continue;
            }
            let blocks = blocks.start - here.start..blocks.end - here.start;
            let rows = parallel::rows(CHUNK_BYTES / segment.codes.n_lines());
            for chunk in ranges(blocks.len(), rows.div_ceil(BLOCK)) {
                let chunk = blocks.start + chunk.start..blocks.start + chunk.end;
                probing.iter().for_each(|&(_, i, base)| scanners[i].1.scan((at, base), chunk.clone()));
                let rows = (chunk.end * BLOCK).min(segment.codes.len()).saturating_sub(chunk.start * BLOCK);
                counter.add((rows * probing.len()) as u64)?;
            }
        }
        Ok(())
    }

    /// The best of a query over all parts, sorted; `found` gives, for each part, the guess and what was found.
    fn merge(&self, query: usize, found: impl IntoIterator<Item = (f32, Found)>) -> Vec<Key> {
        let k = self.k(query);
        let mut found = found.into_iter().peekable();
        let (mut best, mut brackets, mut guess) = (TopK::new(k), Brackets::new(k), f32::NEG_INFINITY);
        while let Some((part_guess, part)) = found.next() {
            guess = guess.max(part_guess);
            match part {
                // The only part.
                Found::Known(keys) if best.is_empty() && found.peek().is_none() => return keys,
                Found::Known(keys) => keys.into_iter().for_each(|key| best.push(key)),
                Found::Bracketed(candidates) => candidates.into_iter().for_each(|one| brackets.push(one)),
            }
        }
        let Some(measure) = self.segments[0].adjust.measure() else { return best.into_sorted() };
        let candidates = brackets.into_candidates();
        // The search did not look for all vectors below the guess, which is compared as results are: rounded.
        let measured = candidates.par_chunks(MEASURED).flat_map_iter(|candidates| {
            let scored = self.measured(query, measure, candidates);
            scored.into_iter().filter(|scored| scored.score as f32 >= guess)
        });
        scored::best(measured.collect(), k)
    }

    /// Candidates with the scores that `measure` gives them.
    fn measured(&self, query: usize, measure: &dyn Measure, candidates: &[Candidate]) -> Vec<Scored> {
        let m = self.tables.n_tables();
        let (mut codes, mut lists) = (Vec::with_capacity(candidates.len() * m), Vec::new());
        for &Candidate { segment, at, .. } in candidates {
            let segment = &self.segments[segment];
            codes.extend(segment.codes.codes(at).take(m));
            lists.push(segment.list);
        }
        let mut scores = vec![0.0; candidates.len()];
        measure.scores(query, &codes, &lists, &mut scores);
        let scored = |(candidate, score): (&Candidate, f64)| {
            let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
            Scored::new(score, self.segments[candidate.segment].position(candidate.at))
        };
        candidates.iter().zip(scores).map(scored).collect()
    }
}

/// Splits into ranges of blocks and of queries; each thread takes one of each at a time.
///
/// Queries are split if every thread gets some that share a pass over the codes; otherwise the codes are split.
fn split(n_blocks: usize, n_queries: usize, n_threads: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    if n_queries >= 4 * n_threads {
        // The same number of groups for each thread, none larger than GROUP.
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
