//! Codes as they are stored: their layout, the memory that holds them, and where that is.

mod memory;
pub mod packed;
pub(crate) mod store;
