//! Python's interface to the core: arrays in and out, errors, signals, threads. No arithmetic.

mod arrays;
mod candidates;
mod encoders;
mod equations;
mod errors;
mod heap;
mod index;
mod late;
mod lists;
mod model;
mod names;
mod run;
mod searches;
mod sharded;
mod shared;
mod starts;
mod steps;
mod targets;
mod texts;

use pyo3::prelude::*;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

// `gil_used = false`: nothing here relies on the interpreter lock. Classes are frozen, except `Moments`, which pyo3
// lets only one thread change at a time; indexes change behind `shared`, and the thread pools are behind a mutex.
/// The compiled part of compcodes; use the `compcodes` package instead.
#[pymodule(name = "_core", gil_used = false)]
mod core {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::shared::register(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::arrays::{RestRows, SomeRows, UnitRows};
    #[pymodule_export]
    use super::candidates::Candidates;
    #[pymodule_export]
    use super::encoders::{Encoder, SubspaceEncoder};
    #[pymodule_export]
    use super::equations::{apply, multiply, normal_equations, sides, sums};
    #[pymodule_export]
    use super::index::Index;
    #[pymodule_export]
    use super::lists::Lists;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::searches::{exact_search, hamming_search};
    #[pymodule_export]
    use super::sharded::Shards;
    #[pymodule_export]
    use super::starts::{
        doubtful, halves, halves_sample, lloyd, noiseless_wins, random_vectors, residual_kmeans, sample_rows,
    };
    #[pymodule_export]
    use super::steps::{
        PyMoments, check_codebooks, decode, error_bounds, errors, isa, isas, moment_rows, norms, part,
        pass_seed, perturbed, pull, reseed, rotated, stretch, train, uses, weights_by_norm, worst,
    };
    #[pymodule_export]
    use super::targets::Target;
    #[pymodule_export]
    use super::texts::{Keys, are_plain, ids_of_each, keys_of_each};
}
