//! Training the lists that an index is divided into.

mod balanced;
mod centroids;

pub use balanced::balanced;
pub use centroids::centroids;
