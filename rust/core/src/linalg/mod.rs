//! Linear algebra that knows nothing of losses or codes.

pub(crate) mod gemm;
