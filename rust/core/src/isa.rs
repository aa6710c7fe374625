//! Which instruction set the kernels use: detected once, or forced by `COMPCODES_ISA`.

use crate::error::{Result, invalid};
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code: whatever the compilation target guarantees.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, VL and VBMI (Intel since Ice Lake, AMD since Zen 4).
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512];

    /// Its name, as `COMPCODES_ISA` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this machine can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
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

    /// The one in use: `COMPCODES_ISA` if it is set, else the best available. Read once a process.
    ///
    /// # Errors
    /// `COMPCODES_ISA` names none of [`Isa::ALL`], or one that this machine lacks.
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
