"""Vectors in a few bytes each, and the largest inner products found on the codes.

>>> import numpy as np, compcodes as cc
>>> X = np.random.default_rng(0).normal(size=(5000, 32)).astype(np.float32)
>>> q = cc.CompositionalCodes(n_codebooks=4, n_codewords=64).fit(X)
>>> index = cc.Index(q).add(X)
>>> scores, ids = index.search(X[:2], k=10)
"""

from compcodes import _interrupt  # isort: skip  # first: the rest takes a while
from compcodes import data, evaluate, quantizers
from compcodes._core import __version__
from compcodes.index import Above, FilterWarning, Index, MetricWarning
from compcodes.quantizers import (
    CartesianKMeans,
    CompositionalCodes,
    LengthWarning,
    NotFittedError,
    OptimizedProductQuantizer,
    ProductQuantizer,
    Quantizer,
    RandomHyperplaneHash,
    ResidualQuantizer,
)
from compcodes.sharded import ShardedIndex
from compcodes.together import Together, search_together
from compcodes.training.encoders import Beam, Greedy, LocalSearch
from compcodes.training.losses import InnerProduct, Reconstruction
from compcodes.training.trainer import normal_equations

del _interrupt

__all__ = [
    "Above",
    "Beam",
    "CartesianKMeans",
    "CompositionalCodes",
    "FilterWarning",
    "Greedy",
    "Index",
    "InnerProduct",
    "LengthWarning",
    "LocalSearch",
    "MetricWarning",
    "NotFittedError",
    "OptimizedProductQuantizer",
    "ProductQuantizer",
    "Quantizer",
    "RandomHyperplaneHash",
    "Reconstruction",
    "ResidualQuantizer",
    "ShardedIndex",
    "Together",
    "__version__",
    "data",
    "evaluate",
    "normal_equations",
    "quantizers",
    "search_together",
]
