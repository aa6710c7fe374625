//! The task of a search: the codes, the queries, and what each of them may find.

use super::kernel::ScanKernel;
use super::tables::Tables;
use super::{Each, Probe, Probes, Segment};
use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use crate::isa::Isa;
use rayon::prelude::*;

/// Queries that share a pass over the codes.
pub(super) const GROUP: usize = 64;
/// How many queries of a group must search a segment, on average, for all to scan it together. Below that it is better
/// for each query to go through its best segments first, with its tables in the nearest cache.
const SHARED: usize = 8;

/// What is the same for all queries of a search.
pub(super) struct Plan<'a> {
    pub(super) segments: &'a [Segment<'a>],
    pub(super) probes: Probes<'a>,
    pub(super) each: Each<'a>,
    pub(super) tables: &'a Tables,
    pub(super) kernel: ScanKernel,
    /// The number of vectors that each query may find.
    pub(super) n: Vec<usize>,
    /// The number of blocks before each segment; and the total.
    pub(super) starts: Vec<usize>,
    pub(super) k: usize,
    /// Whether the best are returned in order.
    pub(super) is_sorted: bool,
    /// Whether each query goes through its segments alone, best first, since few queries share a segment.
    pub(super) is_by_query: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        segments: &'a [Segment<'a>],
        (probes, each): (Probes<'a>, Each<'a>),
        tables: &'a Tables,
        k: usize,
        isa: Isa,
    ) -> Result<Self> {
        let kernel = ScanKernel::new(isa).ok_or_else(|| invalid!("this machine lacks {}", isa.name()))?;
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
        if let Some(segment) = segments.first()
            && tables.is_narrow()
            && segment.codes.layout().n_nibbles() < tables.n_tables()
        {
            return Err(invalid!(
                "tables are for nibbles: the codes are stored as {:?}",
                segment.codes.layout()
            ));
        }
        let allowed: Vec<usize> = segments.iter().map(Segment::n_allowed).collect();
        let n = match probes {
            _ if !each.is_all() => {
                let of = |query| {
                    let own = each.of(query);
                    let count = |Probe { segment: at, .. }: Probe| {
                        let segment: &Segment<'_> = &segments[at];
                        if segment.positions.is_none() {
                            return own.count(
                                segment.first,
                                segment.codes.len(),
                                (segment.allowed, allowed[at]),
                            );
                        }
                        let word =
                            |block| segment.present(block) & own.word(segment.first + (block * BLOCK) as u64);
                        (0..segment.codes.n_blocks()).map(|block| word(block).count_ones() as usize).sum()
                    };
                    probes.of(query, segments.len()).map(count).sum::<usize>()
                };
                (0..tables.n_queries()).into_par_iter().map(of).collect()
            }
            Probes::All => vec![allowed.iter().sum(); tables.n_queries()],
            Probes::Each(probes) => {
                probes.iter().map(|probes| probes.iter().map(|probe| allowed[probe.segment]).sum()).collect()
            }
        };
        let is_by_query = match probes {
            Probes::All => false,
            Probes::Each(probes) => {
                let visits = probes.iter().map(Vec::len).sum::<usize>();
                visits * GROUP.min(probes.len()) <= SHARED * segments.len() * probes.len()
            }
        };
        Ok(Self { segments, probes, each, tables, kernel, n, starts, k, is_sorted: true, is_by_query })
    }

    /// How many vectors to find for a query.
    pub(super) fn k(&self, query: usize) -> usize {
        self.k.min(self.n[query])
    }

    /// Vectors that all queries together scan.
    pub(super) fn work(&self) -> u64 {
        let of = |segment: usize| self.segments[segment].codes.len() as u64;
        match self.probes {
            Probes::All => self.tables.n_queries() as u64 * (0..self.segments.len()).map(of).sum::<u64>(),
            Probes::Each(probes) => probes.iter().flatten().map(|probe| of(probe.segment)).sum(),
        }
    }
}
