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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(lines: &[Line], tables: &[[u8; 256]], limits: &[u8]) -> Vec<u64> {
        let blocks = lines.chunks_exact(tables.len()).zip(limits);
        let marks = blocks.map(|(lines, &limit)| {
            (0..64).fold(0, |marks, lane| {
                let values =
                    lines.iter().zip(tables).map(|(line, table)| u32::from(table[usize::from(line[lane])]));
                marks | u64::from(values.sum::<u32>() < u32::from(limit)) << lane
            })
        });
        marks.collect()
    }

    proptest! {
        #[test]
        fn every_isa_marks_the_same(blocks in 0..40usize, m in 1..=66usize, seed in any::<u32>(), size in 1..=256usize) {
            let mut state = u64::from(seed);
            let mut random = move |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) as usize % below) as u8
            };
            let lines: Vec<Line> = (0..blocks * m).map(|_| std::array::from_fn(|_| random(256))).collect();
            let tables: Vec<[u8; 256]> = (0..m).map(|_| std::array::from_fn(|_| random(size))).collect();
            let limits: Vec<u8> = (0..blocks).map(|_| random(256)).collect();
            let want = naive(&lines, &tables, &limits);
            for kernel in Isa::ALL.into_iter().filter_map(Kernel::new) {
                let mut hits = vec![7; blocks];
                kernel.filter(&lines, &tables, &limits, &mut hits);
                prop_assert_eq!(&hits, &want, "{}", kernel.isa.name());
            }
        }
    }
}
