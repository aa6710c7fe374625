"""How codes are chosen. Finding the best code is NP-hard: the encoders trade time for nearness to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Encoder", "Greedy", "LocalSearch", "as_encoder"]


@dataclass(frozen=True)
class Greedy:
    """The paper's: at each step the codebook and codeword that leave the smallest loss."""

    def steps(self) -> tuple[str, int]:
        """Name and effort, as the core takes them."""
        return "greedy", 0


@dataclass(frozen=True)
class LocalSearch:
    """From a greedy code on: change a few codewords at random, let the others settle, keep what is better.

    Parameters
    ----------
    rounds : int, default 16
        How often. Twice as many take twice the time and leave a few percent less error; it never hurts.
    """

    rounds: int = 16

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int):
            raise TypeError(f"rounds is {self.rounds!r}: want an integer")
        if not 0 <= self.rounds <= 1_000_000:
            raise ValueError(f"rounds is {self.rounds}: want 0 to 1000000")

    def steps(self) -> tuple[str, int]:
        """Name and effort, as the core takes them."""
        return "local-search", self.rounds


Encoder: TypeAlias = Greedy | LocalSearch


def as_encoder(encoder: Any) -> Encoder:
    """Take an encoder by object or by name."""
    if isinstance(encoder, (Greedy, LocalSearch)):
        return encoder
    named: dict[str, Encoder] = {"greedy": Greedy(), "local-search": LocalSearch()}
    if not isinstance(encoder, str) or encoder not in named:
        raise ValueError(
            f"encoder is {encoder!r}: want one of {', '.join(map(repr, named))}, or an object of those"
        )
    return named[encoder]
