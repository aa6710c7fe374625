//! Inner product search on compositional codes.
//!
//! The modules stand in the order of the data's way through them.

mod chunk;
pub mod error;
pub mod isa;
pub mod monitor;
mod product;

pub mod vectors;

pub mod codebooks;
pub mod conjugate;
pub mod encode;
pub mod init;
pub mod solve;
pub mod train;
pub mod update;

pub mod exact;
pub mod packed;
pub mod rerank;
pub mod scan;
pub mod tables;
mod topk;

pub mod index;
pub mod io;
pub mod model;

pub use codebooks::{Codebooks, Selection};
pub use error::{Error, Result};
pub use index::Index;
pub use model::Model;
