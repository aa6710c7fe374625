"""The methods that are compared at equal size, each trained and searched in the same way.

`METHODS` lists them; `train` returns a `Contestant`: a method's codes of a database, their cost, and its answers.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import compcodes as cc
from compcodes._choices import Metric
from compcodes.progress import ProgressLike

__all__ = ["METHODS", "Contestant", "Method", "train"]


@dataclass(frozen=True)
class Method:
    """A way to make codes of a given number of bytes.

    Parameters
    ----------
    name : str
        Its name in tables.
    about : str
        A description in one line.
    cls : str
        Its class in `compcodes`.
    parameters : mapping
        Arguments of the class in addition to the size.
    size : str
        The parameter that sets the size.
    per_byte : int
        By how much that parameter grows per byte.
    """

    name: str
    about: str
    cls: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    size: str = "n_codebooks"
    per_byte: int = 1

    @property
    def hashes(self) -> bool:
        """Whether codes are compared with codes, and do not approximate vectors."""
        return self.size == "n_bits"

    def arguments(self, n_bytes: int) -> dict[str, Any]:
        """Return the arguments of the class for codes of `n_bytes` bytes."""
        return {self.size: n_bytes * self.per_byte, **self.parameters}

    def expression(self, n_bytes: int, **others: Any) -> str:
        """Return the Python expression for the result of `make`."""
        arguments = {**self.arguments(n_bytes), **self._known(others)}
        return f"cc.{self.cls}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    def make(self, n_bytes: int, **others: Any) -> Any:
        """Make the untrained model; it gets those of the `others` that are parameters of its class."""
        return getattr(cc, self.cls)(**{**self.arguments(n_bytes), **self._known(others)})

    def _known(self, others: Mapping[str, Any]) -> dict[str, Any]:
        known = inspect.signature(getattr(cc, self.cls)).parameters
        return {name: value for name, value in others.items() if name in known}


_PAPER = {"encoder": "greedy", "loss": "reconstruction"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("compcodes", "compositional codes with the defaults of this package", "CompositionalCodes"),
        Method(
            "compcodes-x4",
            "the same with 16 codewords per codebook, two codes per byte",
            "CompositionalCodes",
            {"n_codewords": 16},
            per_byte=2,
        ),
        Method("CC", "compositional codes as in the paper: greedy, squared error", "CompositionalCodes", _PAPER),
        Method("RQ", "residual quantization, beam of 5", "ResidualQuantizer"),
        Method("CKM", "Cartesian k-means: a product with learned rotation", "CartesianKMeans"),
        Method("OPQ", "product quantization after eigenvalue allocation", "OptimizedProductQuantizer"),
        Method("PQ", "product quantization", "ProductQuantizer"),
        Method("LSH", "signs of random projections, by Hamming distance", "RandomHyperplaneHash", {}, "n_bits", 8),
    )
}
"""Methods by name; the paper's own and this package's first, then rivals."""


@dataclass
class Contestant:
    """A trained method and its codes of a database."""

    method: Method
    n_bytes: int
    model: Any
    codes: NDArray[np.uint8]
    fit_seconds: float
    encode_seconds: float
    n_jobs: int | None
    metric: Metric = "ip"

    def __post_init__(self) -> None:
        self._index = None
        if not self.method.hashes:
            self._index = cc.Index(self.model, self.metric, n_jobs=self.n_jobs).add_codes(self.codes)

    @property
    def approximates(self) -> bool:
        """Whether codes approximate vectors, which is so for all methods except LSH."""
        return self._index is not None

    def search(self, Q: NDArray[Any], k: int) -> NDArray[np.int64]:
        """Find the rows (nq, k) with the best scores by code, best first."""
        if self._index is None:
            ids: NDArray[np.int64] = self.model.search(Q, self.codes, k)[1]
            return ids
        return self._index.search(Q, k)[1]

    def decode_batches(self) -> Iterator[NDArray[np.float32]]:
        """Read the approximations of all vectors, some at a time."""
        batches: Iterator[NDArray[np.float32]] = self.model.decode_batches(self.codes)
        return batches


def train(
    method: Method,
    n_bytes: int,
    learn: NDArray[Any],
    base: NDArray[Any],
    *,
    queries: NDArray[Any] | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    metric: Metric = "ip",
    progress: ProgressLike = None,
    **others: Any,
) -> Contestant:
    """Train a method, encode the database, and measure how long each takes.

    Parameters
    ----------
    method : Method
    n_bytes : int
        Size of a code.
    learn, base : (n, d)
        The vectors to learn from, and those to encode.
    queries : (nq, d), optional
        Sample queries, for `CompositionalCodes`, which uses them to choose the loss.
    metric : {"ip", "l2", "cosine"}
        What is searched by. For cosine all vectors should have length 1: most methods do not scale them.
    **others
        Further parameters of the class, for example to shorten the training.
    """
    model = method.make(n_bytes, n_jobs=n_jobs, random_state=random_state, metric=metric, **others)
    start = time.perf_counter()
    if queries is not None and method.cls == "CompositionalCodes":
        model.fit(learn, queries=queries, progress=progress)
    else:
        model.fit(learn, progress=progress)
    fitted = time.perf_counter()
    codes = model.encode(base, progress=progress)
    return Contestant(method, n_bytes, model, codes, fitted - start, time.perf_counter() - fitted, n_jobs, metric)
