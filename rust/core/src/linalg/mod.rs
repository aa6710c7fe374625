//! Linear algebra that knows nothing of losses or codes.

pub(crate) mod cholesky;
pub(crate) mod conjugate;
pub(crate) mod gemm;
