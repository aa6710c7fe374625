//! The one operation that is written per instruction set.

use super::scalar;
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
    /// Σ_m `tables[m][code m of vector i]` < `limits[b]`. Sums are at most 66 · 255 = 16,830, so 16 bits hold them.
    ///
    /// # Panics
    /// `limits` and `hits` are not one a block, or `lines` not M a block.
    pub(super) fn filter(self, lines: &[Line], tables: &[[u8; 256]], limits: &[u16], hits: &mut [u64]) {
        assert!(
            limits.len() == hits.len() && lines.len() == hits.len() * tables.len() && tables.len() <= 257
        );
        match self.isa {
            _ => scalar::filter(lines, tables, limits, hits),
        }
    }
}
