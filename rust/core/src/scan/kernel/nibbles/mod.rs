//! Lines of two nibbles: each half of a byte looks up a table of 16 entries, which the byte shuffle of every
//! instruction set does in one instruction.
//!
//! Like the kernels next to this folder, these go table by table over a few blocks, whose sums stay in registers. A
//! column of bytes after the nibbles is looked up as those kernels do it.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

#[cfg(target_arch = "x86_64")]
use crate::codes::packed::{BLOCK, Line};

/// Vectors whose table sums are computed together.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 16;

/// Collects the bytes of some vectors, at most [`TOGETHER`], line by line; vector i is lane i mod 64 of block i / 64.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn gather<const P: usize>(blocks: &[[Line; P]], vectors: &[u16], codes: &mut [[u8; TOGETHER]; P]) {
    for (i, &at) in vectors.iter().enumerate() {
        let (lines, lane) = (&blocks[usize::from(at) / BLOCK], usize::from(at) % BLOCK);
        for p in 0..P {
            codes[p][i % TOGETHER] = lines[p][lane];
        }
    }
}

/// The tables for the lower and the upper halves of a line.
pub(in crate::scan) type Pair = [[u8; 16]; 2];
