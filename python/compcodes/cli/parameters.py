"""Options that are parameters of the library: defaults and choices come from its signatures."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

__all__ = ["add_column", "add_parameter", "choices", "groups", "share", "threads", "whole"]


def whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Make the type of an option that is an integer in a range."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not from {low} to {high}")
        return value

    return convert


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def groups(text: str) -> int | str:
    """Read a number of groups, or "auto"."""
    return text if text == "auto" else whole(1)(text)


def threads(text: str) -> int:
    """Read a number of threads: 1 or more, or negative, to count from all."""
    value = whole(-(2**31))(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is not a number of threads (-1 is all cores)")
    return value


def choices(cls: type, name: str) -> tuple[str, ...]:
    """Return the strings that a parameter of `cls` takes, from the `Literal` among its types."""
    hint = get_type_hints(vars(cls)["__init__"])[name]
    literals = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal]
    return tuple(name for literal in literals for name in get_args(literal))


def add_column(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the column of the vectors; FILE:NAME is the alternative."""
    parser.add_argument(
        "--column", metavar="NAME", help="the column of the vectors, or dataset, in a file of several (.parquet, .h5)"
    )


def add_parameter(
    parser: argparse._ActionsContainer,
    cls: type,
    name: str,
    option: str | None = None,
    *,
    help: str,
    metavar: str | None = None,
    type: Callable[[str], Any] | None = None,
) -> str:
    """Declare the option for parameter `name` of `cls`, and return its name.

    Anything not given follows from the parameter. The possible names are shown but not checked; `cls` does that.
    """
    option = option or f"--{name.replace('_', '-')}"
    default = inspect.signature(cls).parameters[name].default
    help = help.replace("%", "%%")
    if isinstance(default, bool):
        parser.add_argument(option, dest=name, action="store_true", default=default, help=help)
        return option
    names = choices(cls, name)
    told = [", ".join(names)] * bool(names) + [f"default: {default}"] * (default is not None)
    parser.add_argument(
        option,
        dest=name,
        type=type or (str if default is None else default.__class__),
        default=default,
        metavar=metavar or ("NAME" if names else "N"),
        help=f"{help} ({'; '.join(told)})" if told else help,
    )
    return option
