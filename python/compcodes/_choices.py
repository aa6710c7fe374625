"""The strings that arguments take: for type checkers, for errors, and for the command's help."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from compcodes.errors import ArgumentValueError

__all__ = ["Effort", "EncoderName", "LossName", "Metric", "Selection", "Start", "check_choice"]

Metric: TypeAlias = Literal["ip", "cosine", "l2"]
Selection: TypeAlias = Literal["group", "m-selection", "m-combination"]
EncoderName: TypeAlias = Literal["local-search", "beam", "greedy"]
Effort: TypeAlias = Literal["low", "default", "high"]
LossName: TypeAlias = Literal["inner-product", "reconstruction"]
Start: TypeAlias = Literal["residual", "random"]


def check_choice(name: str, value: object, choices: Any) -> None:
    """Reject a value that is none of the strings of a `Literal`."""
    known = get_args(choices)
    if not (isinstance(value, str) and value in known):
        raise ArgumentValueError(name, f"is {value!r}: want one of {', '.join(map(repr, known))}")
