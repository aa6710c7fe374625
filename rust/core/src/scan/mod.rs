//! The search: the k largest scores of each query over all packed codes.
//!
//! **The result** is defined to the bit, whatever the instruction set, number of threads, batch or chunk size: the k
//! best by descending score, then ascending position, where a score is the sum of f32 table entries added in the order
//! m = 0 … M−1, starting from the probe's base, times the scale or plus the bias if there is one; NaN counts as −∞. If
//! a [`Measure`] scores, the table sums only bound its scores, and the k best are those by the measure: scores in f64,
//! rounded to f32 once they are in order.
//!
//! **How it works.** A `plan` divides the work: who scans which codes, in what order. Each query keeps the k best so
//! far, which give a floor. `bounds` turns the floor and the query's tables into byte tables and a limit; a `kernel`
//! marks, 64 vectors at a time, those that may reach the floor; these few are scored in f32 (`score`) and offered to
//! the top k, or their scores are bounded (`brackets`), and those that may be among the k best in the end are scored by
//! the measure. The kernel is the only part written per instruction set.

mod adjust;
mod bounds;
mod brackets;
mod each;
mod finish;
mod kernel;
mod plan;
mod run;
mod scanner;
mod score;
pub(crate) mod scored;
mod segment;
pub mod tables;
pub(crate) mod topk;

pub use adjust::{Adjust, Edges, Levels, Measure};
pub use each::{Each, Sets};
pub(crate) use finish::Finish;
pub use segment::{Probe, Probes, Segment};
pub use topk::Hits;

use crate::error::Result;
use crate::isa::Isa;
use crate::monitor::{Counter, Monitor};
use crate::scan::tables::Tables;
use crate::scan::topk::Key;
use plan::Plan;
use rayon::prelude::*;

/// Finds the `k` best vectors of `segments` for each query of `tables`, on the threads of the current rayon pool. Each
/// query searches the segments that `probes` lists for it.
///
/// `monitor` is told the number of vectors × queries, once per chunk.
///
/// # Errors
/// The codes do not have as many columns as `tables` and the adjustment require, segments differ in kind, something has
/// a different length or value than documented, this machine lacks `isa`, or the monitor stops the search.
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

/// Like [`search`], but each query may be limited to different vectors.
///
/// # Errors
/// The errors of [`search`], or sets for fewer queries.
pub fn search_each(
    segments: &[Segment<'_>],
    of: (Probes<'_>, Each<'_>),
    tables: &Tables,
    k: usize,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    search_ordered(segments, of, tables, (k, true), isa, monitor)
}

/// Like [`search_each`]; unless `is_sorted`, the k best may come in any order.
pub(crate) fn search_ordered(
    segments: &[Segment<'_>],
    of: (Probes<'_>, Each<'_>),
    tables: &Tables,
    (k, is_sorted): (usize, bool),
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let n_queries = tables.n_queries();
    let n = segments.iter().map(|segment| segment.codes.len()).sum();
    let mut hits = Hits::none(n_queries, k, n)?;
    if segments.is_empty() {
        return Ok(hits);
    }
    let mut plan = Plan::new(segments, of, tables, k, isa)?;
    plan.is_sorted = is_sorted;
    let counter = Counter::new(monitor, plan.work());
    let found = plan.run_all((0..n_queries).collect(), &counter, monitor)?;
    for (query, found) in found.iter().enumerate() {
        hits.set(query, found);
    }
    Ok(hits)
}

/// All vectors that score a floor or more, best first, ties to the lower position; otherwise like [`search_each`].
/// `floors` has one number per query.
///
/// # Errors
/// The errors of [`search_each`].
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

/// Like [`search_each`], but returns what `finish` makes of the k best of each query, in any order.
pub(crate) fn search_finished(
    segments: &[Segment<'_>],
    of: (Probes<'_>, Each<'_>),
    tables: &Tables,
    k: usize,
    finish: &dyn Finish,
    isa: Isa,
    monitor: &dyn Monitor,
) -> Result<Vec<Vec<Key>>> {
    let queries: Vec<usize> = (0..tables.n_queries()).collect();
    if segments.is_empty() {
        let counter = Counter::new(monitor, 0);
        return queries.into_iter().map(|query| finish.finish(query, &[], true, &counter)).collect();
    }
    let mut plan = Plan::new(segments, of, tables, k, isa)?;
    plan.is_sorted = false;
    let counter = Counter::new(monitor, plan.work());
    let (parts, groups) = plan.split(queries.len());
    // The results of one query after another, or of a group: if there are several errors, that of the first query is
    // returned.
    let found: Vec<Result<Vec<Vec<Key>>>> = if plan.is_by_query && parts.len() == 1 {
        let groups = groups.into_par_iter().with_max_len(1);
        groups.map(|group| plan.run_finished(group, finish, &counter)).collect()
    } else {
        let found = plan.run_all(queries, &counter, monitor)?;
        let found = found.par_iter().enumerate();
        found.map(|(query, best)| Ok(vec![finish.finish(query, best, false, &counter)?])).collect()
    };
    let mut finished = Vec::with_capacity(tables.n_queries());
    for found in found {
        finished.append(&mut found?);
    }
    Ok(finished)
}
