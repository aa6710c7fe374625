//! Searches without an index: exact search, re-ranking of candidates, and Hamming distances.

pub mod exact;
pub mod hamming;
mod margin;
pub mod rerank;
mod scaled;
mod shortlist;

#[cfg(test)]
mod exact_tests;
