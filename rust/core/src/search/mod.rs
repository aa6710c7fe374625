//! Searches that need no index: exact ones, re-ranking of candidates, and Hamming distances.

pub mod exact;
pub mod hamming;
pub mod rerank;
