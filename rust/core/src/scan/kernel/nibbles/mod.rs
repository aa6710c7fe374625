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
use super::Blocks;

/// Vectors whose table sums are computed together.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 16;

/// Lines whose bytes are collected together.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 8;

/// Collects the bytes of some vectors, at most [`TOGETHER`], from some lines of each block, which start at `first`;
/// vector i is lane i mod 64 of block i / 64.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn gather(blocks: &Blocks<'_>, first: usize, vectors: &[u16], codes: &mut [[u8; TOGETHER]]) {
    for (i, &at) in vectors.iter().enumerate() {
        let (_, lines, lane) = blocks.place(at);
        let lines = &lines[first..];
        // The compiler unrolls loops of a fixed length.
        match (codes.as_chunks_mut::<LINES>(), lines.first_chunk::<LINES>()) {
            (([codes], []), Some(lines)) => {
                for p in 0..LINES {
                    codes[p][i % TOGETHER] = lines[p][lane];
                }
            }
            _ => {
                for (codes, line) in codes.iter_mut().zip(lines) {
                    codes[i % TOGETHER] = line[lane];
                }
            }
        }
    }
}

/// The tables for the lower and the upper halves of a line.
pub(in crate::scan) type Pair = [[u8; 16]; 2];
