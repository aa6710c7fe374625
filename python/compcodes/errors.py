"""Errors that carry the name of the argument as data, so that callers with another name for it can use that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ArgumentError", "ArgumentTypeError", "ArgumentValueError"]


class ArgumentError(Exception):
    """An argument that cannot be used.

    Attributes
    ----------
    argument : str
        Its name in the function's signature.
    problem : str
        The rest of the message: its value or shape, and what would be valid.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)  # required for pickling
        self.argument, self.problem = argument, problem

    def __str__(self) -> str:
        return self.told(self.argument)

    def told(self, name: str) -> str:
        """Return the message with another name for the argument.

        The problem may concern a part of it: an element, ``[3] is …``, or an attribute, ``.encode gave …``.
        """
        return f"{name}{self.problem}" if self.problem.startswith(("[", ".")) else f"{name} {self.problem}"


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of a wrong value or shape."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type or dtype."""


@contextmanager
def renamed(name: str, by: str) -> Iterator[None]:
    """Make errors about the argument `name` name `by` in its place, which it was computed from."""
    try:
        yield
    except ArgumentError as error:
        if error.argument != name:
            raise
        raise type(error)(by, error.problem) from None
