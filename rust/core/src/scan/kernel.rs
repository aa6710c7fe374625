//! The one operation that is written per instruction set.
#![allow(unsafe_code)] // to enter code compiled for an instruction set that was found

use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;
use crate::packed::Line;

/// A filter that this machine can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    isa: Isa,
}

impl Kernel {
    /// `None` where the machine lacks `isa`.
    pub(super) fn new(isa: Isa) -> Option<Self> {
        isa.is_available().then_some(Self { isa })
    }

    /// Marks the vectors whose byte tables sum to less than their block's limit.
    ///
    /// For every block b of `lines` (blocks × M), bit i of `hits[b]` is set if and only if
    /// Σ_m `tables[m][code m of vector i]` < `limits[b]`. A limit is at most 255: it does not matter whether sums saturate
    /// there or go on.
    ///
    /// # Panics
    /// `limits` and `hits` are not one a block, or `lines` not M a block.
    pub(super) fn filter(self, lines: &[Line], tables: &[[u8; 256]], limits: &[u8], hits: &mut [u64]) {
        assert!(
            limits.len() == hits.len() && lines.len() == hits.len() * tables.len() && tables.len() <= 257
        );
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { avx512::filter(lines, tables, limits, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::filter(lines, tables, limits, hits) },
            _ => scalar::filter(lines, tables, limits, hits),
        }
    }
}
