"""Vectors in a few bytes each, and the largest inner products found on the codes.

>>> import numpy as np, compcodes as cc
>>> X = np.random.default_rng(0).normal(size=(5000, 32)).astype(np.float32)
>>> q = cc.CompositionalCodes(n_codebooks=4, n_codewords=64).fit(X)
>>> index = cc.Index(q).add(X)
>>> scores, ids = index.search(X[:2], k=10)
"""

from compcodes import data, evaluate, methods
from compcodes._core import __version__
from compcodes.base import NotFittedError, Quantizer
from compcodes.encoders import Beam, Greedy, LocalSearch
from compcodes.index import Index
from compcodes.losses import InnerProduct, Reconstruction
from compcodes.methods import (
    CartesianKMeans,
    OptimizedProductQuantizer,
    ProductQuantizer,
    RandomHyperplaneHash,
    ResidualQuantizer,
)
from compcodes.quantizer import CompositionalCodes
from compcodes.training import normal_equations

__all__ = [
    "Beam",
    "CartesianKMeans",
    "CompositionalCodes",
    "Greedy",
    "Index",
    "InnerProduct",
    "LocalSearch",
    "NotFittedError",
    "OptimizedProductQuantizer",
    "ProductQuantizer",
    "Quantizer",
    "RandomHyperplaneHash",
    "Reconstruction",
    "ResidualQuantizer",
    "__version__",
    "data",
    "evaluate",
    "methods",
    "normal_equations",
]
