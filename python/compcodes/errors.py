"""Errors that carry the argument they are about as data, so that whoever knows it by another name can say that."""

from __future__ import annotations

__all__ = ["ArgumentError", "ArgumentTypeError", "ArgumentValueError"]


class ArgumentError(Exception):
    """An argument that cannot be used.

    Attributes
    ----------
    argument : str
        Its name in the function's signature.
    problem : str
        The rest of the message: its value or shape, and what would be right.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)  # as pickles need it
        self.argument, self.problem = argument, problem

    def __str__(self) -> str:
        return self.told(self.argument)

    def told(self, name: str) -> str:
        """Return the message with another name of the argument.

        A problem may be with a part of it, an element, ``[3] is …``, or an attribute, ``.encode gave …``.
        """
        return f"{name}{self.problem}" if self.problem.startswith(("[", ".")) else f"{name} {self.problem}"


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of a wrong value or shape."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type or dtype."""
