//! Inner product search on compositional codes.
//!
//! The modules stand in the order of the data's way through them.

pub mod error;
pub mod isa;
pub mod monitor;

pub mod codebooks;
pub mod packed;
pub mod scan;
pub mod tables;

mod chunk;
mod topk;

pub use codebooks::Codebooks;
pub use error::{Error, Result};
