"""The methods that the paper compares with, and the field's usual baselines.

Each yields codebooks (M, K, d) and codes, and is searched by the same `compcodes.Index`.
"""

from compcodes.methods.hyperplanes import RandomHyperplaneHash
from compcodes.methods.kmeans_cartesian import CartesianKMeans
from compcodes.methods.permutation import order_permutations, permutation_codebooks, permutation_queries
from compcodes.methods.product import ProductQuantizer
from compcodes.methods.product_optimized import OptimizedProductQuantizer
from compcodes.methods.residual import ResidualQuantizer

__all__ = [
    "CartesianKMeans",
    "OptimizedProductQuantizer",
    "ProductQuantizer",
    "RandomHyperplaneHash",
    "ResidualQuantizer",
    "order_permutations",
    "permutation_codebooks",
    "permutation_queries",
]
