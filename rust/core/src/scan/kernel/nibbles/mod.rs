//! Lines of two nibbles: each half of a byte looks up a table of 16 entries, which every instruction set's byte shuffle
//! does in one instruction.
//!
//! As the kernels beside this folder these go table by table over a few blocks, whose sums stay in registers. A column of
//! bytes after the nibbles is looked up as theirs do it.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

/// For the lower and the upper halves of a line.
pub(in crate::scan) type Pair = [[u8; 16]; 2];
