//! The only operation that is written separately for each instruction set.
#![allow(unsafe_code)] // to enter code compiled for an instruction set that was found

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod nibbles;
mod scalar;

use crate::codes::packed::{BLOCK, Line};
use crate::isa::Isa;
pub(super) use nibbles::Pair;

/// The minimum prefetch distance, in lines. Kernels go from block to block for each table, a pattern that the hardware
/// prefetcher does not predict. One query over 10⁶ codes, AVX-512, Zen 5: 16 bytes 345 → 257 µs, 32 bytes 1330 → 940
/// µs; over 16 · 10⁶ codes of 8 bytes 6.6 → 3.9 ms.
pub(super) const AHEAD: usize = 128;
/// The most blocks that a kernel takes at once: prefetches must reach beyond them.
pub(super) const TOGETHER: usize = 8;

/// The byte tables of a query, in the order of the lines of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteTables {
    /// The tables for lines of two nibbles, which come first.
    pub(super) pairs: Vec<Pair>,
    /// The tables for lines of bytes.
    pub(super) bytes: Vec<[u8; 256]>,
}

/// Blocks of codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<'a> {
    pub(super) lines: &'a [Line],
    /// Lines per block.
    pub(super) n_lines: usize,
}

impl<'a> Blocks<'a> {
    /// The block of vector `at`, its lines, and the vector's place in each.
    #[inline(always)]
    pub(super) fn place(&self, at: u16) -> (usize, &'a [Line], usize) {
        let (block, lane) = (usize::from(at) / BLOCK, usize::from(at) % BLOCK);
        (block, &self.lines[block * self.n_lines..][..self.n_lines], lane)
    }
}

impl ByteTables {
    fn n_lines(&self) -> usize {
        self.pairs.len() + self.bytes.len()
    }
}

/// A filter that this machine can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanKernel {
    isa: Isa,
    /// With [`Isa::Avx2`]: whether nibbles are looked up with AVX-512, on a machine whose AVX-512 lacks the VBMI that
    /// [`Isa::Avx512`] requires.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    is_wide: bool,
}

impl ScanKernel {
    /// `None` if the machine lacks `isa`.
    pub(super) fn new(isa: Isa) -> Option<Self> {
        let is_wide = isa == Isa::Avx2 && !Isa::Avx512.is_available() && has_avx512bw();
        isa.is_available().then_some(Self { isa, is_wide })
    }

    /// Marks the vectors whose byte tables sum to less than a limit.
    ///
    /// For every block b of `lines`, bit i of `hits[b]` is set if and only if the entries for the codes of vector i sum
    /// to less than `limit`. The limit is at most 255, so it does not matter whether sums saturate there or go on.
    ///
    /// Codes `ahead` bytes beyond each line are prefetched; nothing is read there.
    ///
    /// # Panics
    /// `lines` and `hits` are not for the same number of blocks.
    pub(super) fn filter(
        self,
        lines: &[Line],
        tables: &ByteTables,
        limit: u8,
        ahead: isize,
        hits: &mut [u64],
    ) {
        assert!(lines.len() == hits.len() * tables.n_lines());
        let ByteTables { pairs, bytes } = tables;
        if pairs.is_empty() {
            self.filter_bytes(lines, bytes, limit, ahead, hits);
        } else {
            self.filter_nibbles(lines, (pairs, bytes), limit, ahead, hits);
        }
    }

    fn filter_bytes(self, lines: &[Line], tables: &[[u8; 256]], limit: u8, ahead: isize, hits: &mut [u64]) {
        let _ = ahead; // of no use but on x86
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { avx512::filter(lines, tables, limit, ahead, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::filter(lines, tables, limit, ahead, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::filter(lines, tables, limit, hits) },
            _ => scalar::filter(lines, tables, limit.into(), hits),
        }
    }

    /// [`filter`](Self::filter) with sums and a limit of 16 bits. The two entries for a byte of nibbles are added first;
    /// this sum saturates at 255. With nibbles there are at most 257 lines to a block, whose sums fit 16 bits.
    ///
    /// # Panics
    /// `lines` and `hits` are not for the same number of blocks, or there are more lines.
    pub(super) fn filter_long(
        self,
        lines: &[Line],
        tables: &ByteTables,
        limit: u16,
        ahead: isize,
        hits: &mut [u64],
    ) {
        assert!(lines.len() == hits.len() * tables.n_lines());
        let ByteTables { pairs, bytes } = tables;
        if pairs.is_empty() {
            self.filter_bytes_long(lines, bytes, limit, ahead, hits);
        } else {
            assert!(tables.n_lines() <= 257);
            self.filter_nibbles_long(lines, (pairs, bytes), limit, ahead, hits);
        }
    }

    fn filter_bytes_long(
        self,
        lines: &[Line],
        tables: &[[u8; 256]],
        limit: u16,
        ahead: isize,
        hits: &mut [u64],
    ) {
        let _ = ahead; // of no use but on x86
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { avx512::filter_long(lines, tables, limit, ahead, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::filter_long(lines, tables, limit, ahead, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::filter_long(lines, tables, limit, hits) },
            _ => scalar::filter(lines, tables, limit, hits),
        }
    }

    fn filter_nibbles(
        self,
        lines: &[Line],
        tables: (&[Pair], &[[u8; 256]]),
        limit: u8,
        ahead: isize,
        hits: &mut [u64],
    ) {
        let (pairs, bytes) = tables;
        let _ = ahead; // of no use but on x86
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe { nibbles::avx512::filter_vbmi(lines, pairs, bytes, limit, ahead, hits) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found AVX2, and AVX-512 F and BW before it set `is_wide`.
            Isa::Avx2 if self.is_wide => unsafe {
                nibbles::avx512::filter_bw(lines, pairs, bytes, limit, ahead, hits)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx2 => unsafe { nibbles::avx2::filter(lines, pairs, bytes, limit, ahead, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { nibbles::neon::filter(lines, pairs, bytes, limit, hits) },
            _ => nibbles::scalar::filter(lines, pairs, bytes, limit.into(), hits),
        }
    }

    fn filter_nibbles_long(
        self,
        lines: &[Line],
        tables: (&[Pair], &[[u8; 256]]),
        limit: u16,
        ahead: isize,
        hits: &mut [u64],
    ) {
        let (pairs, bytes) = tables;
        let _ = ahead; // of no use but on x86
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx512 => unsafe {
                nibbles::avx512::filter_long_vbmi(lines, pairs, bytes, limit, ahead, hits)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found AVX2, and AVX-512 F and BW before it set `is_wide`.
            Isa::Avx2 if self.is_wide => unsafe {
                nibbles::avx512::filter_long_bw(lines, pairs, bytes, limit, ahead, hits)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` found the instruction set.
            Isa::Avx2 => unsafe { nibbles::avx2::filter_long(lines, pairs, bytes, limit, ahead, hits) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { nibbles::neon::filter_long(lines, pairs, bytes, limit, hits) },
            _ => nibbles::scalar::filter(lines, pairs, bytes, limit, hits),
        }
    }

    /// Table sums of some vectors of `blocks`, whose lines begin with nibbles, two for each pair of `tables`; entries are
    /// added in order, starting from `base`. Vector i is lane i mod 64 of block i / 64. Returns `false`, with nothing
    /// done, if there is no kernel for them here.
    pub(super) fn sums(
        self,
        blocks: &Blocks<'_>,
        vectors: &[u16],
        tables: &[[f32; 16]],
        base: f32,
        scores: &mut Vec<f32>,
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self.isa {
            Isa::Avx512 => {
                // SAFETY: `new` found the instruction set.
                unsafe { nibbles::avx512::sums(blocks, vectors, tables, base, scores) };
                return true;
            }
            Isa::Avx2 => {
                // SAFETY: as above.
                unsafe { nibbles::avx2::sums(blocks, vectors, tables, base, scores) };
                return true;
            }
            _ => {}
        }
        let _ = (blocks, vectors, tables, base, scores);
        false
    }
}

/// What a kernel marks in all blocks, which it goes through `N` at a time, and the last of them one by one.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_groups<const N: usize>(
    lines: &[Line],
    n_lines: usize,
    hits: &mut [u64],
    group: impl Fn(&[Line]) -> [u64; N],
    one: impl Fn(&[Line]) -> [u64; 1],
) {
    let (groups, rest) = hits.as_chunks_mut::<N>();
    let (group_lines, rest_lines) = lines.split_at(groups.len() * N * n_lines);
    for (hits, lines) in groups.iter_mut().zip(group_lines.chunks_exact(N * n_lines)) {
        *hits = group(lines);
    }
    for (hits, lines) in rest.iter_mut().zip(rest_lines.chunks_exact(n_lines)) {
        [*hits] = one(lines);
    }
}

/// Whether this machine has AVX-512 F and BW.
fn has_avx512bw() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(lines: &[Line], tables: &ByteTables, limit: u16, is_long: bool) -> Vec<u64> {
        let entry = |line: usize, byte: u8| match tables.pairs.get(line) {
            Some([low, high]) => {
                let sum = u32::from(low[usize::from(byte % 16)]) + u32::from(high[usize::from(byte / 16)]);
                if is_long { sum.min(255) } else { sum }
            }
            None => u32::from(tables.bytes[line - tables.pairs.len()][usize::from(byte)]),
        };
        let marks = lines.chunks_exact(tables.n_lines()).map(|lines| {
            (0..64).fold(0, |marks, lane| {
                let sum: u32 = lines.iter().enumerate().map(|(at, line)| entry(at, line[lane])).sum();
                marks | u64::from(sum < u32::from(limit)) << lane
            })
        });
        marks.collect()
    }

    proptest! {
        #[test]
        fn every_isa_marks_the_same(
            blocks in 0..=64usize, m in 1..=258usize, of_nibbles in 0..=66usize, seed in any::<u32>(), size in 1..=256usize,
        ) {
            let mut state = u64::from(seed);
            let mut random = move |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) as usize % below) as u8
            };
            let of_nibbles = if random(2) == 0 { 0 } else { m - of_nibbles % m.min(3) };
            let m = if of_nibbles > 0 { m.min(257) } else { m };
            let of_nibbles = of_nibbles.min(m);
            let lines: Vec<Line> = (0..blocks * m).map(|_| std::array::from_fn(|_| random(256))).collect();
            let tables = ByteTables {
                pairs: (0..of_nibbles).map(|_| [(); 2].map(|()| [(); 16].map(|()| random(size)))).collect(),
                bytes: (of_nibbles..m).map(|_| std::array::from_fn(|_| random(size))).collect(),
            };
            let (limit, ahead) = (random(256), seed as isize);
            let want = naive(&lines, &tables, limit.into(), false);
            // Close to typical sums, so that some pass; or anything, up to saturation.
            let wide_limit = match seed % 4 {
                0 => (seed >> 8) as u16,
                1 => u16::MAX - 1,
                _ => (m * size / 2) as u16 + (seed >> 2) as u16 % 256,
            };
            let want_wide = naive(&lines, &tables, wide_limit, true);
            let wide = ScanKernel { isa: Isa::Avx2, is_wide: true };
            let wide = (Isa::Avx2.is_available() && has_avx512bw()).then_some(wide);
            for kernel in Isa::ALL.into_iter().filter_map(ScanKernel::new).chain(wide) {
                let mut hits = vec![7; blocks];
                kernel.filter(&lines, &tables, limit, ahead, &mut hits);
                prop_assert_eq!(&hits, &want, "{:?}", kernel);
                kernel.filter_long(&lines, &tables, wide_limit, ahead, &mut hits);
                prop_assert_eq!(&hits, &want_wide, "long, {:?}", kernel);
            }
        }

        #[test]
        fn every_isa_adds_the_same(
            blocks in 1..=64usize, n in 0..=70usize, m in 1..=100usize, more in 0..3usize, seed in any::<u64>(),
        ) {
            sums_as_added_in_order(blocks, n, (m, more), seed);
        }
    }

    /// Compares the sums of `n` random vectors, bit for bit, with sums in order; the last vector of all is among them.
    fn sums_as_added_in_order(blocks: usize, n: usize, (m, more): (usize, usize), seed: u64) {
        let mut state = seed;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let n_lines = m.div_ceil(2) + more;
        let lines: Vec<Line> =
            (0..blocks * n_lines).map(|_| std::array::from_fn(|_| random(256) as u8)).collect();
        // Magnitudes so different that another order of additions would give different sums.
        let mut entry =
            |_: usize| (random(1 << 24) as f32 - (1 << 23) as f32) * 2f32.powi(random(40) as i32 - 20);
        let tables: Vec<[f32; 16]> = (0..m).map(|_| std::array::from_fn(&mut entry)).collect();
        let base = entry(0);
        let last = blocks * 64 - 1;
        let vectors: Vec<u16> =
            (0..n).map(|i| if i == n / 2 { last } else { random(last + 1) } as u16).collect();
        let want = vectors.iter().map(|&at| {
            let (block, lane) = (usize::from(at) / 64, usize::from(at) % 64);
            let lines = &lines[block * n_lines..];
            let code = |column: usize| usize::from(lines[column / 2][lane] >> (column % 2 * 4) & 15);
            tables.iter().enumerate().fold(base, |sum, (column, table)| sum + table[code(column)])
        });
        // What was there before stays.
        let want: Vec<u32> = std::iter::once(7.0).chain(want).map(f32::to_bits).collect();
        for kernel in Isa::ALL.into_iter().filter_map(ScanKernel::new) {
            let mut scores = vec![7.0];
            let is_done =
                kernel.sums(&Blocks { lines: &lines, n_lines }, &vectors, &tables, base, &mut scores);
            assert_eq!(is_done, matches!(kernel.isa, Isa::Avx2 | Isa::Avx512), "{kernel:?}");
            let got: Vec<u32> = scores.into_iter().map(f32::to_bits).collect();
            assert_eq!(got, if is_done { &want[..] } else { &want[..1] }, "{m} tables, {kernel:?}");
        }
    }
}
