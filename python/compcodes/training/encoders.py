"""How codes are chosen. Finding the best code is NP-hard: the encoders trade time for closeness to it.

An encoder consists of parameters, with a name in files and a `build` that prepares it for given codebooks. A new
encoder takes one class with the methods of `Encoder`, and a line in `_NAMED`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._arrays import check_range
from compcodes.errors import ArgumentValueError
from compcodes.training.losses import Objective

__all__ = ["Beam", "Coder", "Encoder", "Greedy", "LocalSearch", "Pass", "as_encoder", "of", "parameters"]


Parts: TypeAlias = tuple[list[int], list[int], NDArray[np.float32], int]
"""Codebooks and dimensions of each group, and the columns (d, Σ d_g) that span them."""


class Coder(Protocol):
    """An encoder prepared for codebooks: one of the core's, or another with these methods."""

    def encode(
        self, x: NDArray[Any], n_jobs: int | None = None, progress: Callable[[int, int], object] | None = None
    ) -> NDArray[np.uint8]:
        """Choose codes (n, M) for vectors (n, d)."""

    def improve(
        self,
        x: NDArray[Any],
        codes: NDArray[np.uint8],
        n_jobs: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
        """Return codes that are nowhere worse than the given ones, and the losses (n,) before and after."""


class Encoder(Protocol):
    """A way of choosing codes: parameters, which compare equal if they choose alike."""

    name: ClassVar[str]
    """Its name, in files and for `CompositionalCodes(encoder=…)`."""
    anneals: ClassVar[bool]
    """Whether training with it benefits from noise on the codebooks."""

    def steps(self) -> tuple[str, int]:
        """Return name and effort, in the form stored in files for every program."""

    def build(
        self,
        codebooks: NDArray[np.float32],
        selection: str,
        objective: Objective,
        seed: int,
        n_jobs: int | None,
        start: tuple[str, int] | None = None,
        groups: Parts | None = None,
    ) -> Coder:
        """Prepare the encoder for `codebooks` (M, K, d); `start` is that of a search, by name and effort."""

    def for_training(self) -> Encoder:
        """Return the same encoder with the effort of a training pass."""


class _Core:
    """An encoder of the core, identified there by name and effort."""

    name: ClassVar[str]
    anneals: ClassVar[bool] = False

    def _effort(self) -> int:
        return 0

    def steps(self) -> tuple[str, int]:
        """Return name and effort, in the form stored in files for every program."""
        return self.name, self._effort()

    def build(
        self,
        codebooks: NDArray[np.float32],
        selection: str,
        objective: Objective,
        seed: int,
        n_jobs: int | None,
        start: tuple[str, int] | None = None,
        groups: Parts | None = None,
    ) -> _core.Encoder:
        """Prepare the encoder for `codebooks` (M, K, d); `start` is that of a search, by name and effort."""
        return _core.Encoder(
            codebooks,
            selection,
            objective.eta,
            self.steps(),
            seed,
            n_jobs,
            start,
            directions=objective.directions,
            groups=groups,
        )

    def for_training(self) -> Encoder:
        """Return the same encoder with the effort of a training pass."""
        return self


@dataclass(frozen=True)
class Greedy(_Core):
    """The paper's encoder: each step takes the codebook and codeword that leave the smallest loss."""

    name: ClassVar[str] = "greedy"


@dataclass(frozen=True)
class Beam(_Core):
    """Goes through the codebooks in turn, keeping the best partial codes: the encoder of residual quantization.

    Parameters
    ----------
    width : int, default 8
        How many partial codes are kept, 1 to 4096. Twice as many take twice the time.
    """

    name: ClassVar[str] = "beam"
    width: int = 8

    def __post_init__(self) -> None:
        check_range("width", self.width, 1, 4096)

    def _effort(self) -> int:
        return self.width


TRAINING_ROUNDS = 8
"""Rounds of local search in a training pass, which starts from the codes of the previous pass."""


@dataclass(frozen=True)
class LocalSearch(_Core):
    """Starting from a greedy code: changes a few codewords at random, lets the others settle, keeps improvements.

    Parameters
    ----------
    rounds : int, default 128
        The number of rounds. Twice as many take twice the time and leave a few percent less error on average. No code
        is worse than the greedy one. Codebooks in groups are searched group by group, starting from a beam search. The
        more codebooks there are, the fewer rounds each group takes: a quarter of 16 codebooks, an eighth of 32.
    """

    name: ClassVar[str] = "local-search"
    anneals: ClassVar[bool] = True
    rounds: int = 128

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 0, 1_000_000)

    def _effort(self) -> int:
        return self.rounds

    def for_training(self) -> LocalSearch:
        """Return the same encoder with the effort of a training pass."""
        return LocalSearch(min(self.rounds, TRAINING_ROUNDS))


@dataclass(frozen=True)
class Pass:
    """What one pass over vectors encodes with: small, so that it can be sent to where they are."""

    codebooks: NDArray[np.float32]
    selection: str
    objective: Objective
    encoder: Encoder
    seed: int

    def build(self, n_jobs: int | None) -> Coder:
        """Prepare the encoder, in this process."""
        return self.encoder.build(self.codebooks, self.selection, self.objective, self.seed, n_jobs)


_NAMED: dict[str, Callable[..., Encoder]] = {kind.name: kind for kind in (Greedy, Beam, LocalSearch)}


def as_encoder(encoder: Any) -> Encoder:
    """Return an encoder given as an object, by name, or as returned by `parameters`."""
    if isinstance(encoder, (Greedy, Beam, LocalSearch)):
        return encoder
    given = dict(encoder) if isinstance(encoder, dict) else {"name": encoder}
    name = given.pop("name", None)
    if not isinstance(name, str) or name not in _NAMED:
        raise ArgumentValueError(
            "encoder", f"is {name!r}: want one of {', '.join(map(repr, _NAMED))}, or an object of those"
        )
    return _NAMED[name](**given)


def of(name: str, effort: int) -> Encoder:
    """Make the encoder whose `steps` are these."""
    if name == "greedy":
        return Greedy()
    return Beam(effort) if name == "beam" else LocalSearch(effort)


def parameters(encoder: Encoder) -> dict[str, Any]:
    """Return name and parameters, in the form stored in files."""
    return {"name": encoder.name, **asdict(encoder)}  # type: ignore[call-overload]
