//! Python's view of the core: arrays in and out, errors, signals, threads. No arithmetic.

mod arrays;
mod errors;
mod index;
mod run;
mod shared;
mod steps;

use pyo3::prelude::*;

/// The compiled part of compcodes; use the `compcodes` package instead.
#[pymodule(name = "_core", gil_used = true)]
mod core {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::shared::register(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::index::{Candidates, Index, exact_search, load_model, save_model};
    #[pymodule_export]
    use super::steps::{
        Encoder, SubspaceEncoder, decode, descend, error_bounds, errors, hamming_search, isa, isas, lloyd,
        normal_equations, random_vectors, reseed, residual_kmeans, sums,
    };
}
