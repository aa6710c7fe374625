//! Which instruction set the kernels use: detected once, or forced by `COMPCODES_ISA`.
//!
//! An algorithm is written once, as a [`Kernel`] of plain loops over arrays that fit registers; [`run`] compiles it for
//! every instruction set and calls the requested one. Everything unsafe about this is in this file.
//!
//! The choice changes no result: each level computes the same roundings in the same order (`tests/test_same_bits.py`).

#![allow(unsafe_code)]

mod floats;
mod halves;
mod words;

use crate::error::{Result, invalid};
pub(crate) use floats::Floats;
pub(crate) use halves::{HALF, Halves};
use std::sync::OnceLock;
pub(crate) use words::{WORDS, Words};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code: whatever the compilation target guarantees.
    Scalar,
    /// NEON, which every 64-bit ARM has. Portable code is already compiled for it: only the scan has a kernel of its
    /// own.
    Neon,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL and VBMI (Intel since Ice Lake, AMD since Zen 4).
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// Its name, as used by `COMPCODES_ISA`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this machine can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            Isa::Neon => cfg!(all(target_arch = "aarch64", target_feature = "neon")),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The instruction set in use: `COMPCODES_ISA` if it is set, else the best available. Read once per process.
    ///
    /// # Errors
    /// `COMPCODES_ISA` is none of [`Isa::ALL`], or one that this machine lacks.
    pub fn current() -> Result<Isa> {
        static CURRENT: OnceLock<std::result::Result<Isa, String>> = OnceLock::new();
        CURRENT.get_or_init(Isa::choose).clone().map_err(|reason| invalid!("{reason}"))
    }

    fn choose() -> std::result::Result<Isa, String> {
        let available: Vec<Isa> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect();
        match std::env::var("COMPCODES_ISA") {
            Ok(wanted) if !wanted.is_empty() => {
                available.iter().copied().find(|isa| isa.name() == wanted).ok_or_else(|| {
                    let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
                    format!("COMPCODES_ISA={wanted}: this machine offers {}", names.join(", "))
                })
            }
            _ => Ok(*available.last().expect("scalar is always available")),
        }
    }
}

/// A computation that is compiled once for every instruction set.
///
/// Implementations mark `run`, and all that it calls in hot loops, `#[inline(always)]`: only code that is inlined
/// into the caller below is compiled with the caller's instructions.
pub(crate) trait Kernel {
    /// The result.
    type Output;
    /// Does the work with the instructions of `L`.
    fn run<L: Level>(self) -> Self::Output;
}

/// An [`Isa`] as a type, so that kernels choose their block sizes at compile time.
pub(crate) trait Level: Words + Halves + Floats {
    /// The instruction set.
    const ISA: Isa;
    /// Whether `f32::mul_add` is one instruction here, and not a slow call; without it, the same result is computed.
    const FMA: bool;
}

struct Portable;
impl Level for Portable {
    const ISA: Isa = Isa::Scalar;
    const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
}

/// Runs `kernel` compiled for `isa`, or for the portable level if this machine lacks it.
pub(crate) fn run<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if isa.is_available() {
        return match isa {
            Isa::Scalar | Isa::Neon => kernel.run::<Portable>(),
            // SAFETY: `is_available` found AVX2, FMA and F16C.
            Isa::Avx2 => unsafe { x86::avx2(kernel) },
            // SAFETY: `is_available` found AVX2, FMA, F16C and these parts of AVX-512.
            Isa::Avx512 => unsafe { x86::avx512(kernel) },
        };
    }
    let _ = isa;
    kernel.run::<Portable>()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Isa, Kernel, Level};

    pub(super) struct Avx2;
    impl Level for Avx2 {
        const ISA: Isa = Isa::Avx2;
        const FMA: bool = true;
    }

    pub(super) struct Avx512;
    impl Level for Avx512 {
        const ISA: Isa = Isa::Avx512;
        const FMA: bool = true;
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx2>()
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
    pub(super) fn avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx512>()
    }
}

/// Prefetches `values` into the nearest cache; has no other effect.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T]) {
    /// Bytes per cache line.
    #[cfg(target_arch = "x86_64")]
    const TOGETHER: usize = 64;
    // The last value too: if the first is in the middle of a cache line, the values extend over one line more.
    #[cfg(target_arch = "x86_64")]
    for value in values.iter().step_by((TOGETHER / size_of::<T>().max(1)).max(1)).chain(values.last()) {
        prefetch_one(value);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// [`prefetch`] of one value.
#[inline(always)]
pub(crate) fn prefetch_one<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching is defined for any address; this one is that of a live value.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(value).cast(),
        );
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
