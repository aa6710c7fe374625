//! Holds no code of its own: the Rust blocks of the tutorial are tested here, as parts of a user's own program would be.
#![cfg_attr(doctest, doc = include_str!("../../../docs/tutorials/rust.md"))]
