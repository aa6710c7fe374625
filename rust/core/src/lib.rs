#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! They stand in the order of the data's way: [`vectors`] are what is encoded; [`train`] learns [`codebooks`], by turns of
//! [`encode`], [`update`] and [`solve`] from an [`init`]; codes are [`packed`], and with a query's [`tables`] [`scan`]
//! finds the best, which [`rerank`] orders by exact products. An [`index`] puts this together, and [`io`] keeps it.

mod chunk;
pub mod error;
pub mod isa;
mod lines;
pub mod monitor;
mod product;

pub mod vectors;

pub mod codebooks;
pub mod conjugate;
pub mod directions;
pub mod encode;
pub mod init;
pub mod kmeans;
pub mod reseed;
pub mod solve;
pub mod train;
pub mod update;

pub mod exact;
pub mod hamming;
pub mod metric;
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
pub use metric::Metric;
pub use model::Model;
