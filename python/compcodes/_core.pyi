"""The compiled core. Arguments are numpy arrays of the dtypes given; `progress` is called (done, total)."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, disjoint_base

__all__ = [
    "Candidates",
    "Encoder",
    "Index",
    "Keys",
    "Lists",
    "Model",
    "Moments",
    "RestRows",
    "Shards",
    "SomeRows",
    "SubspaceEncoder",
    "Target",
    "UnitRows",
    "__version__",
    "apply",
    "are_plain",
    "check_codebooks",
    "decode",
    "doubtful",
    "error_bounds",
    "errors",
    "exact_search",
    "halves",
    "halves_sample",
    "hamming_search",
    "ids_of_each",
    "isa",
    "isas",
    "keys_of_each",
    "kmeans",
    "moment_rows",
    "multiply",
    "noiseless_wins",
    "normal_equations",
    "norms",
    "part",
    "pass_seed",
    "perturbed",
    "pull",
    "random_vectors",
    "reseed",
    "residual_kmeans",
    "rotated",
    "sample_rows",
    "sides",
    "stretch",
    "sums",
    "train",
    "uses",
    "weights_by_norm",
    "worst",
]

__version__: str

_F32 = NDArray[np.float32]
_F64 = NDArray[np.float64]
_I64 = NDArray[np.int64]
_U8 = NDArray[np.uint8]
_Progress = Callable[[int, int], object] | None

@final
class Keys:
    def __new__(cls, keys: list[str]) -> Keys: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> str: ...
    def __reduce__(self) -> tuple[Any, tuple[list[str]]]: ...

_Names = _I64 | list[str] | Keys  # ids or keys
_Found = _I64 | list[str | None]
_Filter = tuple[int, int, int] | tuple[_I64, _Names] | NDArray[np.bool_] | _Names | None

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
        groups: tuple[list[int], list[int], _F32, int] | None = None,
    ) -> Encoder: ...
    @staticmethod
    def of_trunk(
        codebooks: _F32,
        n_codebooks: int,
        eta: float,
        encoding: tuple[str, int],
        n_jobs: int | None = None,
        directions: _F32 | None = None,
    ) -> Encoder: ...
    def encode(self, x: NDArray[Any] | Target, n_jobs: int | None = None, progress: _Progress = None) -> _U8: ...
    def improve(
        self, x: NDArray[Any] | Target, codes: _U8, n_jobs: int | None = None, progress: _Progress = None
    ) -> tuple[_U8, _F64, _F64]: ...

@final
class Moments:
    def __new__(
        cls,
        x: NDArray[Any],
        sample_weight: _F64 | None = None,
        directions: _F32 | None = None,
        n_jobs: int | None = None,
    ) -> Moments: ...
    def merge(self, other: Moments) -> None: ...
    @property
    def weight(self) -> float: ...
    @property
    def mean_weight(self) -> float: ...
    @property
    def deviation(self) -> _F64: ...
    @property
    def variance(self) -> float: ...

@final
class Target:
    def __new__(
        cls,
        x: NDArray[Any] | UnitRows,
        base: NDArray[Any] | None = None,
        places: NDArray[np.int64] | None = None,
        rest: _F64 | None = None,
    ) -> Target: ...

@final
class Lists:
    def __new__(
        cls,
        centroids: _F32,
        eta: float = 1.0,
        bonuses: _F32 | None = None,
        shares: _F32 | None = None,
        reach: _F64 | None = None,
        by_residual: bool = True,
        gaps: _F64 | None = None,
    ) -> Lists: ...
    def __len__(self) -> int: ...
    @property
    def centroids(self) -> _F32: ...
    @property
    def eta(self) -> float: ...
    @property
    def bonuses(self) -> _F32: ...
    @property
    def shares(self) -> _F32: ...
    @property
    def reach(self) -> list[tuple[int, float]]: ...
    @property
    def gaps(self) -> list[tuple[float, float]]: ...
    @property
    def by_residual(self) -> bool: ...
    def __reduce__(self) -> tuple[Any, Any]: ...
    def assign(self, x: NDArray[Any], n_jobs: int | None = None, progress: _Progress = None) -> tuple[_I64, _F32]: ...
    def updated(
        self,
        x: NDArray[Any],
        lists: _I64,
        weights: _F64 | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> _F32: ...
    def decode(self, books: _F32, codes: _U8, lists: _I64, n_jobs: int | None = None) -> _F32: ...

@final
class RestRows:
    def __new__(
        cls,
        x: NDArray[Any] | UnitRows,
        base: NDArray[Any],
        places: _I64,
        eta: float = 1.0,
        directions: _F32 | None = None,
    ) -> RestRows: ...
    def __len__(self) -> int: ...

@final
class SubspaceEncoder:
    def __new__(cls, words: list[_F32], rotation: _F32 | None = None) -> SubspaceEncoder: ...
    @staticmethod
    def of(codebooks: _F32, sizes: list[int], basis: _F32 | None = None) -> SubspaceEncoder: ...
    def encode(self, x: NDArray[Any] | Target, n_jobs: int | None = None, progress: _Progress = None) -> _U8: ...
    def improve(
        self, x: NDArray[Any] | Target, codes: _U8, n_jobs: int | None = None, progress: _Progress = None
    ) -> tuple[_U8, _F64, _F64]: ...

@disjoint_base
class UnitRows:
    def __new__(cls, array: NDArray[Any]) -> Self: ...
    @property
    def array(self) -> NDArray[Any]: ...

@disjoint_base
class SomeRows:
    def __new__(cls, array: NDArray[Any], rows: NDArray[np.int64]) -> Self: ...
    @property
    def array(self) -> NDArray[Any]: ...
    def __len__(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...

@final
class Model:
    def __new__(
        cls,
        codebooks: _F32,
        selection: str = "group",
        *,
        eta: float = 1.0,
        encoding: tuple[str, int] | None = None,
        seed: int = 0,
        start: tuple[str, int] | None = None,
        directions: _F32 | None = None,
        subspaces: tuple[list[int], _F32 | None] | None = None,
        signs: bool = False,
        metric: str | None = None,
        parameters: str = "{}",
        lists: Lists | None = None,
        groups: tuple[list[int], list[int], _F32, int] | None = None,
    ) -> Model: ...
    @staticmethod
    def load(path: str) -> Model: ...
    @staticmethod
    def from_bytes(content: bytes) -> Model: ...
    def save(self, path: str) -> None: ...
    def to_bytes(self) -> bytes: ...
    @property
    def codebooks(self) -> _F32: ...
    @property
    def selection(self) -> str: ...
    @property
    def eta(self) -> float: ...
    @property
    def encoding(self) -> tuple[str, int]: ...
    @property
    def seed(self) -> int: ...
    @property
    def start(self) -> tuple[str, int] | None: ...
    @property
    def directions(self) -> _F32 | None: ...
    @property
    def subspaces(self) -> tuple[list[int], _F32 | None] | None: ...
    @property
    def groups(self) -> tuple[list[int], list[int], _F32, int] | None: ...
    @property
    def metric(self) -> str | None: ...
    @property
    def parameters(self) -> str: ...
    @property
    def lists(self) -> Lists | None: ...

@final
class Index:
    def __new__(
        cls,
        model: Model,
        metric: str,
        scale: bool,
        exact_norms: bool,
        residuals: bool,
        keys: bool = False,
    ) -> Index: ...
    @staticmethod
    def load(path: str, mmap: bool = False, n_jobs: int | None = None) -> Index: ...
    @staticmethod
    def from_bytes(content: bytes) -> Index: ...
    def save(self, path: str, n_jobs: int | None = None) -> None: ...
    def to_bytes(self) -> bytes: ...
    def __len__(self) -> int: ...
    def contains(self, id: int | str) -> bool: ...
    def has_keys(self) -> bool: ...
    def model(self) -> Model: ...
    def settings(self) -> tuple[str, bool, bool, bool]: ...
    def bytes_per_vector(self) -> int: ...
    def codes(self) -> _U8: ...
    def ids(self) -> _Found: ...
    def lists(self) -> _I64 | None: ...
    def list_sizes(self) -> _I64 | None: ...
    def drift(self) -> float | None: ...
    def add_codes(
        self,
        codes: _U8,
        ids: _Names | None = None,
        side: _F32 | None = None,
        n_jobs: int | None = None,
        lists: _I64 | None = None,
    ) -> None: ...
    def update_codes(
        self,
        codes: _U8,
        ids: _Names,
        side: _F32 | None = None,
        n_jobs: int | None = None,
        lists: _I64 | None = None,
    ) -> None: ...
    def scales(self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None, lists: _I64 | None = None) -> _F32: ...
    def residuals(self, x: NDArray[Any], codes: _U8, n_jobs: int | None = None, lists: _I64 | None = None) -> _F32: ...
    def check_vectors(self, x: NDArray[Any], n_jobs: int | None = None) -> None: ...
    def remove(self, ids: _Names, n_jobs: int | None = None) -> int: ...
    def clear(self) -> None: ...
    def merge(self, other: Index, n_jobs: int | None = None) -> None: ...
    def search(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any] | None = None,
        n_candidates: int = 0,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
        n_probe: int | None = None,
        recall: float | None = None,
    ) -> tuple[_F32, _Found]: ...
    def search_above(
        self,
        queries: _F32,
        floors: _F32,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_I64, _Found, _F32]: ...
    def search_certified(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any],
        n_candidates: int,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _Found, NDArray[np.bool_]]: ...
    def candidates(
        self,
        queries: _F32,
        n_candidates: int,
        certify: bool = False,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
        n_probe: int | None = None,
        recall: float | None = None,
    ) -> Candidates: ...
    def reconstruct(self, ids: _Names, n_jobs: int | None = None) -> _F32: ...

@final
class Candidates:
    def ids(self) -> _Found: ...
    def rerank(
        self,
        queries: _F32,
        k: int,
        vectors: NDArray[Any],
        row_ids: _Names | None = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _Found, NDArray[np.bool_]]: ...

@final
class Shards:
    def __new__(cls, indexes: list[Index], offsets: list[int], removed: list[_I64]) -> Shards: ...
    def __len__(self) -> int: ...
    def has_keys(self) -> bool: ...
    def positions(self) -> _I64: ...
    def names(self, positions: _I64) -> _Found: ...
    def numbers(self, positions: _I64) -> _I64: ...
    def list_sizes(self) -> _I64 | None: ...
    def probes(
        self, queries: _F32, n_probe: int | None = None, recall: float | None = None, n_jobs: int | None = None
    ) -> _I64 | None: ...
    def find(self, ids: _Names, n_jobs: int | None = None) -> _I64: ...
    def reconstruct(self, positions: _I64, n_jobs: int | None = None) -> _F32: ...
    def search(
        self,
        queries: _F32,
        k: int,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
        n_probe: int | None = None,
        recall: float | None = None,
        ends: _I64 | None = None,
    ) -> tuple[_F32, _I64]: ...
    def unrounded(
        self,
        queries: NDArray[np.float32],
        rows: NDArray[np.int64],
        positions: NDArray[np.int64],
        n_jobs: int | None = None,
    ) -> NDArray[np.float64] | None: ...
    def search_bounds(
        self,
        queries: _F32,
        k: int,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_F32, _I64]: ...
    def search_above(
        self,
        queries: _F32,
        floors: _F32,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
    ) -> tuple[_I64, _I64, _F32]: ...
    def list_counts(
        self, queries: _F32, filter: _Filter = None, exclude: _Filter = None, n_jobs: int | None = None
    ) -> NDArray[np.uint32]: ...
    def candidates(
        self,
        queries: _F32,
        n_candidates: int,
        certify: bool = False,
        filter: _Filter = None,
        exclude: _Filter = None,
        n_jobs: int | None = None,
        progress: _Progress = None,
        n_probe: int | None = None,
        recall: float | None = None,
    ) -> tuple[Candidates, _I64]: ...
    def chosen(
        self, queries: _F32, positions: _I64, bounds: _F32 | None = None, bounded: _I64 | None = None
    ) -> tuple[Candidates, _I64]: ...

def isa() -> str: ...
def isas() -> list[str]: ...
def apply(
    x: NDArray[Any],
    codes: _U8,
    n_codewords: int,
    p: _F64,
    extra: float,
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
    directions: _F32 | None = None,
) -> _F64: ...
def are_plain(keys: list[Any]) -> bool: ...
def check_codebooks(codebooks: _F32, selection: str) -> None: ...
def decode(codebooks: _F32, codes: _U8, n_jobs: int | None = None) -> _F32: ...
def doubtful(n: int, dim: int, n_codebooks: int, n_codewords: int) -> bool: ...
def error_bounds(codebooks: _F32, x: NDArray[Any] | Target, codes: _U8, n_jobs: int | None = None) -> _F64: ...
def errors(
    codebooks: _F32,
    x: NDArray[Any] | Target,
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
def ids_of_each(rows: list[Any]) -> tuple[_I64, _I64] | None: ...
def keys_of_each(rows: list[Any]) -> tuple[_I64, Keys] | None: ...
def kmeans(
    x: NDArray[Any],
    n_codewords: int,
    max_iter: int,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: _Progress = None,
) -> tuple[_F32, list[float]]: ...
def moment_rows(n: int, weights: _F64 | None) -> _I64: ...
def multiply(a: _F32, p: _F64, n_jobs: int | None = None) -> _F64: ...
def normal_equations(
    x: NDArray[Any],
    codes: _U8,
    n_codewords: int,
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
) -> tuple[_F64, _F64]: ...
def noiseless_wins(n: int, n_codewords: int, without: float, with_noise: float) -> bool: ...
def norms(x: NDArray[Any], directions: _F32 | None = None, n_jobs: int | None = None) -> _F64: ...
def pass_seed(seed: int, pass_number: int) -> int: ...
def perturbed(codebooks: _F32, deviation: _F64, selection: str, seed: int, iteration: int, iterations: int) -> _F32: ...
def pull(shrinkage: float, n_codebooks: int, objective: float, variance: float, mean_weight: float) -> float: ...
def random_vectors(
    x: NDArray[Any], n_codebooks: int, n_codewords: int, selection: str = "group", seed: int = 0
) -> _F32: ...
def reseed(codebooks: _F32, uses: NDArray[np.uint64], vectors: _F32, codes: _U8, selection: str = "group") -> _F32: ...
def rotated(x: NDArray[Any], basis: _F32, n_jobs: int | None = None) -> _F32: ...
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
def halves(n: int, n_codebooks: int, n_codewords: int, anneal: int) -> tuple[int, int, int] | None: ...
def halves_sample(n: int, dim: int, weights: _F64 | None, n_codewords: int, seed: int) -> tuple[_I64, _F64 | None]: ...
def part(
    n: int, weights: _F64 | None, n_codewords: int, seed: int, iteration: int
) -> tuple[_I64, _F64 | None] | None: ...
def sample_rows(n: int, dim: int, weights: _F64 | None, n_codewords: int, seed: int) -> _I64: ...
def sides(
    x: NDArray[Any] | RestRows,
    codes: _U8,
    n_codewords: int,
    shared: bool = False,
    sample_weight: _F64 | None = None,
    n_jobs: int | None = None,
    directions: _F32 | None = None,
) -> tuple[_F64, _F64]: ...
def stretch(codebooks: _F32, directions: _F32, back: bool = False) -> _F32: ...
def sums(x: NDArray[Any], codes: _U8, n_codewords: int, n_jobs: int | None = None) -> _F64: ...
def train(
    x: NDArray[Any],
    n_codebooks: int,
    n_codewords: int,
    selection: str = "group",
    *,
    init: str | _F32 | None = None,
    encoding: tuple[str, int] | None = None,
    eta: float = 1.0,
    directions: _F32 | None = None,
    weight_power: float = 0.0,
    anneal: int | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    ridge: float | None = None,
    shrinkage: float | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: _Progress = None,
    lists: Lists | None = None,
) -> tuple[_F32, _U8, list[float]]: ...
def uses(codes: _U8, n_codewords: int, selection: str, weights: _F64 | None = None) -> NDArray[np.uint64]: ...
def weights_by_norm(norms: _F64, power: float) -> _F64 | None: ...
def worst(x: NDArray[Any], codes: _U8, errors: _F64, count: int) -> tuple[_F64, _F32, _U8]: ...
