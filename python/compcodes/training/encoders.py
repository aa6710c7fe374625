"""How codes are chosen. Finding the best code is NP-hard: the encoders trade time for nearness to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from compcodes._arrays import check_range

__all__ = ["Beam", "Encoder", "Greedy", "LocalSearch", "as_encoder", "of", "parameters"]


@dataclass(frozen=True)
class Greedy:
    """The paper's: at each step the codebook and codeword that leave the smallest loss."""

    anneals: ClassVar[bool] = False

    def steps(self) -> tuple[str, int]:
        """Name and effort, as the core takes them."""
        return "greedy", 0

    def training_steps(self) -> tuple[str, int]:
        """Like `steps`, for a pass of training."""
        return self.steps()


@dataclass(frozen=True)
class Beam:
    """The codebooks in turn, keeping the best beginnings of a code: the encoder of residual quantization.

    Parameters
    ----------
    width : int, default 8
        How many beginnings are kept, 1 to 4096. Twice as many take twice the time.
    """

    anneals: ClassVar[bool] = False
    width: int = 8

    def __post_init__(self) -> None:
        check_range("width", self.width, 1, 4096)

    def steps(self) -> tuple[str, int]:
        """Name and effort, as the core takes them."""
        return "beam", self.width

    def training_steps(self) -> tuple[str, int]:
        """Like `steps`, for a pass of training."""
        return self.steps()


@dataclass(frozen=True)
class LocalSearch:
    """From a greedy code on: change a few codewords at random, let the others settle, keep what is better.

    Parameters
    ----------
    rounds : int, default 128
        How often. Twice as many take twice the time and leave a few percent less error; it never hurts.
    """

    anneals: ClassVar[bool] = True
    rounds: int = 128

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 0, 1_000_000)

    def steps(self) -> tuple[str, int]:
        """Name and effort, as the core takes them."""
        return "local-search", self.rounds

    def training_steps(self) -> tuple[str, int]:
        """Like `steps`, for a pass of training: each goes on from the codes of the one before."""
        return "local-search", min(self.rounds, 8)


Encoder: TypeAlias = Greedy | Beam | LocalSearch

_NAMED: dict[str, Callable[..., Encoder]] = {
    "greedy": Greedy,
    "beam": Beam,
    "local-search": LocalSearch,
}


def as_encoder(encoder: Any) -> Encoder:
    """Take an encoder by object, by name, or as `parameters` gives it."""
    if isinstance(encoder, (Greedy, Beam, LocalSearch)):
        return encoder
    given = dict(encoder) if isinstance(encoder, dict) else {"name": encoder}
    name = given.pop("name", None)
    if not isinstance(name, str) or name not in _NAMED:
        raise ValueError(f"encoder is {name!r}: want one of {', '.join(map(repr, _NAMED))}, or an object of those")
    return _NAMED[name](**given)


def of(name: str, effort: int) -> Encoder:
    """Make the encoder of which `steps` says this."""
    if name == "greedy":
        return Greedy()
    return Beam(effort) if name == "beam" else LocalSearch(effort)


def parameters(encoder: Encoder) -> dict[str, Any]:
    """Name and parameters, as files keep them."""
    return {"name": encoder.steps()[0], **asdict(encoder)}
