//! Codes as they are stored: their layout, the memory that holds them, and where that memory is.

pub(crate) mod layout;
mod memory;
pub mod packed;
pub(crate) mod store;
