"""The compiled core. Arguments are numpy arrays of the dtypes given; `progress` is called (done, total)."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

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
    ) -> Encoder: ...
    def encode(self, x: NDArray[Any], n_jobs: int | None = None, progress: _Progress = None) -> _U8: ...
    def improve(
        self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None, progress: _Progress = None
    ) -> tuple[_U8, _F64, _F64]: ...

@final
class Index:
    def __new__(cls, codebooks: _F32, selection: str, parameters: str) -> Index: ...
    @staticmethod
    def load(path: str) -> Index: ...
    def save(self, path: str) -> None: ...
    def __len__(self) -> int: ...
    def model(self) -> tuple[_F32, str, str]: ...
    def codes(self) -> _U8: ...
    def ids(self) -> _I64: ...
    def add_codes(self, codes: _U8, ids: _I64 | None = None) -> None: ...
    def search(
        self, queries: _F32, k: int, n_jobs: int | None = None, progress: _Progress = None
    ) -> tuple[_F32, _I64]: ...
    def search_rerank(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any],
        n_candidates: int,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _I64]: ...
    def reconstruct(self, id: int) -> _F32: ...

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
) -> _F32: ...
def errors(
    codebooks: _F32,
    x: NDArray[Any],
    codes: _U8,
    eta: float = 1.0,
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> _F64: ...
def exact_search(
    x: NDArray[Any], queries: NDArray[Any], k: int, n_jobs: int | None = None, progress: _Progress = None
) -> tuple[_F32, _I64]: ...
def load_model(path: str) -> tuple[_F32, str, str]: ...
def normal_equations(
    x: NDArray[Any],
    codes: _U8,
    n_codewords: int,
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> tuple[_F64, _F64]: ...
def random_codes(n: int, n_codebooks: int, n_codewords: int, selection: str = "group", seed: int = 0) -> _U8: ...
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
) -> _F32: ...
def save_model(path: str, codebooks: _F32, selection: str, parameters: str) -> None: ...
