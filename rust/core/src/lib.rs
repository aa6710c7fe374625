#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! The modules are listed in the order of the data flow, and each uses only those before it: [`vectors`] are encoded;
//! each is approximated by a sum of codewords from [`codebooks`]; [`encode`] finds the codes and [`train`] the
//! codebooks; [`codes`] are packed for the [`scan`], which finds the best of them given the tables of a query;
//! [`search`] compares the vectors themselves. A [`model`] and its codes make up an [`index`], and [`io`] writes both
//! to files.

pub mod error;
pub mod monitor;
mod parallel;

pub mod isa;
mod linalg;

pub mod vectors;

pub mod codebooks;
pub mod encode;
pub mod train;

pub mod codes;
pub mod scan;
pub mod search;

pub mod model;

pub mod index;

pub mod io;

pub use codebooks::{Codebooks, Selection};
pub use error::{Error, Result};
pub use index::Index;
pub use model::Model;
/// The crate whose arrays the interface uses, in the matching version.
pub use ndarray;
pub use vectors::metric::Metric;
