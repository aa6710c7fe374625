//! The one operation that is written per instruction set.
#![allow(unsafe_code)] // to enter code compiled for an instruction set that was found

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
use crate::codes::packed::Line;
use crate::isa::Isa;

/// How far ahead, in lines, kernels ask for codes, at least. They go from block to block for each table, which the
/// hardware does not foresee. One query over 10⁶ codes, AVX-512, Zen 5: 16 bytes 345 → 257 µs, 32 bytes 1330 → 940 µs;
/// over 16 · 10⁶ codes of 8 bytes 6.6 → 3.9 ms.
#[cfg(target_arch = "x86_64")]
pub(super) const AHEAD: usize = 128;

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

    /// Marks the vectors whose byte tables sum to less than a limit.
    ///
    /// For every block b of `lines` (blocks × M), bit i of `hits[b]` is set if and only if
    /// Σ_m `tables[m][code m of vector i]` < `limit`. That is at most 255: it does not matter whether sums saturate there or
    /// go on.
    ///
    /// # Panics
    /// `lines` are not M for each of `hits`.
    pub(super) fn filter(self, lines: &[Line], tables: &[[u8; 256]], limit: u8, hits: &mut [u64]) {
        assert!(lines.len() == hits.len() * tables.len());
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { avx512::filter(lines, tables, limit, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::filter(lines, tables, limit, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::filter(lines, tables, limit, hits) },
            _ => scalar::filter(lines, tables, limit.into(), hits),
        }
    }

    /// [`filter`](Self::filter) with sums and a limit of 16 bits.
    ///
    /// # Panics
    /// `lines` are not M for each of `hits`.
    pub(super) fn filter_wide(self, lines: &[Line], tables: &[[u8; 256]], limit: u16, hits: &mut [u64]) {
        assert!(lines.len() == hits.len() * tables.len());
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { avx512::filter_wide(lines, tables, limit, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::filter_wide(lines, tables, limit, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::filter_wide(lines, tables, limit, hits) },
            _ => scalar::filter(lines, tables, limit, hits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(lines: &[Line], tables: &[[u8; 256]], limit: u16) -> Vec<u64> {
        let marks = lines.chunks_exact(tables.len()).map(|lines| {
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
        fn every_isa_marks_the_same(blocks in 0..=64usize, m in 1..=258usize, seed in any::<u32>(), size in 1..=256usize) {
            let mut state = u64::from(seed);
            let mut random = move |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) as usize % below) as u8
            };
            let lines: Vec<Line> = (0..blocks * m).map(|_| std::array::from_fn(|_| random(256))).collect();
            let tables: Vec<[u8; 256]> = (0..m).map(|_| std::array::from_fn(|_| random(size))).collect();
            let limit = random(256);
            let want = naive(&lines, &tables, limit.into());
            // About what sums are, so that some pass; or anything, up to what saturates.
            let wide_limit = match seed % 4 {
                0 => (seed >> 8) as u16,
                1 => u16::MAX - 1,
                _ => (m * size / 2) as u16 + (seed >> 2) as u16 % 256,
            };
            let want_wide = naive(&lines, &tables, wide_limit);
            for kernel in Isa::ALL.into_iter().filter_map(Kernel::new) {
                let mut hits = vec![7; blocks];
                kernel.filter(&lines, &tables, limit, &mut hits);
                prop_assert_eq!(&hits, &want, "{}", kernel.isa.name());
                kernel.filter_wide(&lines, &tables, wide_limit, &mut hits);
                prop_assert_eq!(&hits, &want_wide, "wide, {}", kernel.isa.name());
            }
        }
    }
}
