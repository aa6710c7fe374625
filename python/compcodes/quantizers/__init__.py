"""Quantizers: `CompositionalCodes`, the methods that the paper compares with, and the usual baselines of the field.

Each yields codebooks (M, K, d) and codes, and is searched by the same `compcodes.Index`.
"""

from compcodes.quantizers._lengths import LengthWarning
from compcodes.quantizers.cartesian import CartesianKMeans
from compcodes.quantizers.compositional import CompositionalCodes
from compcodes.quantizers.hyperplanes import RandomHyperplaneHash
from compcodes.quantizers.opq import OptimizedProductQuantizer
from compcodes.quantizers.permutation import order_permutations, permutation_codebooks, permutation_queries
from compcodes.quantizers.product import ProductQuantizer
from compcodes.quantizers.protocol import QuantizerLike
from compcodes.quantizers.quantizer import NotFittedError, Quantizer
from compcodes.quantizers.residual import ResidualQuantizer

__all__ = [
    "CartesianKMeans",
    "CompositionalCodes",
    "LengthWarning",
    "NotFittedError",
    "OptimizedProductQuantizer",
    "ProductQuantizer",
    "Quantizer",
    "QuantizerLike",
    "RandomHyperplaneHash",
    "ResidualQuantizer",
    "order_permutations",
    "permutation_codebooks",
    "permutation_queries",
]
