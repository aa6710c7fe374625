//! What a search goes over: segments of codes, and for each query those that it probes.

use super::adjust::Adjust;
use crate::codes::packed::{BLOCK, PackedView};
use crate::error::{Result, invalid};
use crate::scan::tables::Tables;

/// Codes that are searched as one: they share levels, and their positions follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The codes, and a column more where [`adjust`](Self::adjust) takes one.
    pub codes: PackedView<'a>,
    /// What changes the scores of its vectors beside the tables.
    pub adjust: Adjust<'a>,
    /// The vectors that may be found: bit i of word b stands for vector 64 b + i; as many words as the codes have blocks.
    pub allowed: Option<&'a [u64]>,
    /// The position of its first vector.
    pub first: u64,
}

impl<'a> Segment<'a> {
    /// All of `codes`, from position 0 on, scored by the tables alone.
    #[must_use]
    pub fn new(codes: PackedView<'a>) -> Self {
        Self { codes, adjust: Adjust::None, allowed: None, first: 0 }
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
        self.adjust.check(self.codes)
    }

    /// How many vectors may be found.
    pub(super) fn n_allowed(&self) -> usize {
        let Some(allowed) = self.allowed else { return self.codes.len() };
        let beyond = allowed.len() * BLOCK - self.codes.len();
        let in_last = allowed.last().map_or(0, |&last| beyond_bits(last, beyond));
        allowed.iter().map(|word| word.count_ones() as usize).sum::<usize>() - in_last
    }
}

/// How many of the upper `beyond` bits of a word are set.
fn beyond_bits(word: u64, beyond: usize) -> usize {
    word.checked_shr((BLOCK - beyond) as u32).unwrap_or(0).count_ones() as usize
}

/// A segment that a query searches, and what the scores of its vectors begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Which of the search's segments.
    pub segment: usize,
    /// The table sums are added to this number; finite.
    pub base: f32,
}

/// The segments that each query searches.
#[derive(Clone, Copy, Debug)]
pub enum Probes<'a> {
    /// Every query searches all segments, from base 0.
    All,
    /// Those of each query, in ascending order of their segments, none twice.
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

    /// The base of a segment's vectors for a query; `None` if it does not search them.
    pub(super) fn base(&self, query: usize, segment: usize) -> Option<f32> {
        match self {
            Probes::All => Some(0.0),
            Probes::Each(probes) => {
                let probes = &probes[query];
                let at = probes.binary_search_by_key(&segment, |probe| probe.segment).ok()?;
                Some(probes[at].base)
            }
        }
    }
}
