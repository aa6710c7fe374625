"""The compiled core. Arguments are numpy arrays of the dtypes given; `progress` is called (done, total)."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Candidates",
    "Encoder",
    "Index",
    "SubspaceEncoder",
    "__version__",
    "decode",
    "descend",
    "error_bounds",
    "errors",
    "exact_search",
    "hamming_search",
    "isa",
    "isas",
    "kmeans",
    "load_model",
    "normal_equations",
    "random_vectors",
    "reseed",
    "residual_kmeans",
    "save_model",
    "sums",
]

__version__: str

_F32 = NDArray[np.float32]
_F64 = NDArray[np.float64]
_I64 = NDArray[np.int64]
_U8 = NDArray[np.uint8]
_Progress = Callable[[int, int], object] | None

@final
class Encoder:
    def __new__(
        cls,
        codebooks: _F32,
        selection: str = "group",
        eta: float = 1.0,
        encoding: tuple[str, int] | None = None,
        seed: int = 0,
        n_jobs: int | None = None,
        start: tuple[str, int] | None = None,
        directions: _F32 | None = None,
    ) -> Encoder: ...
    def encode(self, x: NDArray[Any], n_jobs: int | None = None, progress: _Progress = None) -> _U8: ...
    def improve(
        self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None, progress: _Progress = None
    ) -> tuple[_U8, _F64, _F64]: ...

@final
class SubspaceEncoder:
    def __new__(cls, words: list[_F32], rotation: _F32 | None = None) -> SubspaceEncoder: ...
    def encode(self, x: NDArray[Any], n_jobs: int | None = None, progress: _Progress = None) -> _U8: ...

@final
class Index:
    def __new__(
        cls,
        codebooks: _F32,
        selection: str,
        parameters: str,
        metric: str,
        scale: bool,
        exact_norms: bool,
        residuals: bool,
    ) -> Index: ...
    @staticmethod
    def load(path: str, mmap: bool = False, n_jobs: int | None = None) -> Index: ...
    def save(self, path: str, n_jobs: int | None = None) -> None: ...
    def __len__(self) -> int: ...
    def contains(self, id: int) -> bool: ...
    def model(self) -> tuple[_F32, str, str]: ...
    def settings(self) -> tuple[str, bool, bool, bool]: ...
    def bytes_per_vector(self) -> int: ...
    def codes(self) -> _U8: ...
    def ids(self) -> _I64: ...
    def add_codes(
        self, codes: _U8, ids: _I64 | None = None, side: _F32 | None = None, n_jobs: int | None = None
    ) -> None: ...
    def update_codes(self, codes: _U8, ids: _I64, side: _F32 | None = None, n_jobs: int | None = None) -> None: ...
    def scales(self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None) -> _F32: ...
    def residuals(self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None) -> _F32: ...
    def remove(self, ids: _I64, n_jobs: int | None = None) -> int: ...
    def clear(self) -> None: ...
    def merge(self, other: Index, n_jobs: int | None = None) -> None: ...
    def search(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any] | None = None,
        n_candidates: int = 0,
        filter: tuple[int, int, int] | NDArray[np.bool_] | _I64 | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _I64]: ...
    def search_certified(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any],
        n_candidates: int,
        filter: tuple[int, int, int] | NDArray[np.bool_] | _I64 | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _I64, NDArray[np.bool_]]: ...
    def candidates(
        self,
        queries: _F32,
        n_candidates: int,
        certify: bool = False,
        filter: tuple[int, int, int] | NDArray[np.bool_] | _I64 | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> Candidates: ...
    def reconstruct(self, ids: _I64, n_jobs: int | None = None) -> _F32: ...

@final
class Candidates:
    def ids(self) -> _I64: ...
    def rerank(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any],
        row_ids: _I64 | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _I64, NDArray[np.bool_]]: ...

def isa() -> str: ...
def isas() -> list[str]: ...
def decode(codebooks: _F32, codes: _U8, n_jobs: int | None = None) -> _F32: ...
def descend(
    x: NDArray[Any],
    codes: _U8,
    previous: _F32,
    eta: float,
    ridge: float,
    selection: str = "group",
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
    progress: _Progress = None,
    shrink: float = 0.0,
    past: tuple[_F64, _F64] | None = None,
    directions: _F32 | None = None,
) -> _F32: ...
def error_bounds(codebooks: _F32, x: NDArray[Any], codes: _U8, n_jobs: int | None = None) -> _F64: ...
def errors(
    codebooks: _F32,
    x: NDArray[Any],
    codes: _U8,
    eta: float = 1.0,
    n_jobs: int | None = None,
    progress: _Progress = None,
    directions: _F32 | None = None,
) -> _F64: ...
def exact_search(
    x: NDArray[Any],
    queries: NDArray[Any],
    k: int,
    metric: str = "ip",
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> tuple[_F32, _I64]: ...
def hamming_search(
    codes: _U8, queries: _U8, k: int, n_jobs: int | None = None, progress: _Progress = None
) -> tuple[_F32, _I64]: ...
def kmeans(
    x: NDArray[Any],
    n_codewords: int,
    max_iter: int,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> tuple[_F32, list[float]]: ...
def load_model(path: str) -> tuple[_F32, str, str]: ...
def normal_equations(
    x: NDArray[Any],
    codes: _U8,
    n_codewords: int,
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> tuple[_F64, _F64]: ...
def random_vectors(
    x: NDArray[Any], n_codebooks: int, n_codewords: int, selection: str = "group", seed: int = 0
) -> _F32: ...
def reseed(
    codebooks: _F32, x: NDArray[Any], codes: _U8, errors: _F64, selection: str = "group"
) -> tuple[_F32, int]: ...
def residual_kmeans(
    x: NDArray[Any],
    n_codebooks: int,
    n_codewords: int,
    selection: str = "group",
    seed: int = 0,
    n_jobs: int | None = None,
    progress: _Progress = None,
    directions: _F32 | None = None,
) -> _F32: ...
def save_model(path: str, codebooks: _F32, selection: str, parameters: str) -> None: ...
def sums(x: NDArray[Any], codes: _U8, n_codewords: int, n_jobs: int | None = None) -> _F64: ...
