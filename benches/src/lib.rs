//! Benchmarks of the Rust crate.
