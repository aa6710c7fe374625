//! What a search covers: segments of codes, and for each query those that it probes.

use super::adjust::Adjust;
use crate::codes::packed::{BLOCK, PackedView};
use crate::error::{Result, invalid};
use crate::scan::tables::Tables;

/// Codes that are searched as one: they share levels, and have consecutive positions.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The codes, with an additional column if [`adjust`](Self::adjust) uses one.
    pub codes: PackedView<'a>,
    /// How the scores of its vectors are adjusted.
    pub adjust: Adjust<'a>,
    /// The vectors that may be found: bit i of word b stands for vector 64 b + i; as many words as the codes have
    /// blocks.
    pub allowed: Option<&'a [u64]>,
    /// The position of the first of its codes; if [`positions`](Self::positions) are given, the number by which sets of
    /// a query identify it.
    pub first: u64,
    /// The range of the codes that belong to the segment, if its first block and its last also hold others. This is so
    /// for lists, which lie end to end.
    pub within: (usize, usize),
    /// The position of each of the codes, if they are not consecutive from [`first`](Self::first) on.
    pub positions: Option<&'a [u32]>,
    /// The list that a [`Measure`](super::Measure) is given.
    pub list: u32,
    /// The offset added to [`positions`](Self::positions).
    pub before: u64,
}

impl<'a> Segment<'a> {
    /// All of `codes`, from position 0 on, scored by the tables alone.
    #[must_use]
    pub fn new(codes: PackedView<'a>) -> Self {
        let within = (0, codes.len());
        Self {
            codes,
            adjust: Adjust::None,
            allowed: None,
            first: 0,
            within,
            positions: None,
            list: 0,
            before: 0,
        }
    }

    /// The position of the vector at place `at` of the codes.
    #[inline]
    pub(super) fn position(&self, at: usize) -> u64 {
        self.positions.map_or(self.first + at as u64, |positions| self.before + u64::from(positions[at]))
    }

    /// Which lanes of a block hold its own vectors that may be found.
    #[inline]
    pub(super) fn present(&self, block: usize) -> u64 {
        let (from, to) = (self.within.0.saturating_sub(block * BLOCK), self.within.1 - block * BLOCK);
        let (from, to) = (from.min(BLOCK), to.min(BLOCK));
        let below = |lane: usize| if lane < BLOCK { (1u64 << lane) - 1 } else { u64::MAX };
        let own = below(to) & !below(from);
        self.allowed.map_or(own, |allowed| allowed[block] & own)
    }

    pub(super) fn check(&self, tables: &Tables) -> Result<()> {
        let (m, extra) = (tables.n_tables(), self.adjust.n_columns());
        if self.codes.n_columns() != m + extra {
            let columns = self.codes.n_columns();
            return Err(invalid!(
                "codes have {columns} columns: want {m} for the tables and {extra} for what adjusts scores"
            ));
        }
        if self.codes.layout().n_nibbles() > m {
            let nibbles = self.codes.layout().n_nibbles();
            return Err(invalid!("{nibbles} columns of codes are nibbles, of {m} that the tables are for"));
        }
        if let Some(allowed) = self.allowed
            && allowed.len() != self.codes.n_blocks()
        {
            let (words, blocks) = (allowed.len(), self.codes.n_blocks());
            return Err(invalid!("allowed has {words} words of 64 vectors, the codes have {blocks} blocks"));
        }
        let (from, to) = self.within;
        // Scanning blocks without a vector of its own would be a waste.
        if from > to || from >= BLOCK.max(1) || to > self.codes.len() || to + BLOCK <= self.codes.len() {
            return Err(invalid!("a segment is {from} to {to} of {} codes", self.codes.len()));
        }
        if let Some(positions) = self.positions
            && positions.len() != self.codes.len()
        {
            return Err(invalid!("there are {} positions of {} codes", positions.len(), self.codes.len()));
        }
        self.adjust.check(self.codes)
    }

    /// How many vectors may be found.
    pub(super) fn n_allowed(&self) -> usize {
        match self.allowed {
            None => self.within.1 - self.within.0,
            Some(allowed) => (0..allowed.len()).map(|block| self.present(block).count_ones() as usize).sum(),
        }
    }
}

/// A segment that a query searches, and the base of the scores of its vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// The number of the segment.
    pub segment: usize,
    /// The table sums are added to this number; finite.
    pub base: f32,
}

/// The segments that each query searches.
#[derive(Clone, Copy, Debug)]
pub enum Probes<'a> {
    /// Every query searches all segments, from base 0.
    All,
    /// For each query, the segments it searches, in ascending order and without repetition.
    Each(&'a [Vec<Probe>]),
}

impl Probes<'_> {
    pub(super) fn check(&self, n_segments: usize, n_queries: usize) -> Result<()> {
        let Probes::Each(probes) = self else { return Ok(()) };
        if probes.len() != n_queries {
            return Err(invalid!("there are probes of {} queries, and tables of {n_queries}", probes.len()));
        }
        for (query, probes) in probes.iter().enumerate() {
            let ascends = probes.is_sorted_by(|a, b| a.segment < b.segment);
            if !ascends || probes.last().is_some_and(|last| last.segment >= n_segments) {
                return Err(invalid!(
                    "probes of query {query}: want ascending ones of {n_segments} segments"
                ));
            }
            if let Some(probe) = probes.iter().find(|probe| !probe.base.is_finite()) {
                return Err(invalid!("probes of query {query}: a base is {}, want a finite one", probe.base));
            }
        }
        Ok(())
    }

    /// The segments that a query searches, of `n_segments`, and the bases of their vectors.
    pub(super) fn of(&self, query: usize, n_segments: usize) -> impl Iterator<Item = Probe> + '_ {
        let (all, own): (_, &[Probe]) = match self {
            Probes::All => (n_segments, &[]),
            Probes::Each(probes) => (0, &probes[query]),
        };
        (0..all).map(|segment| Probe { segment, base: 0.0 }).chain(own.iter().copied())
    }
}
