"""Options that are parameters of the library: defaults and choices are those of its signatures and docstrings."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any

__all__ = ["add_parameter", "documented", "threads", "whole"]


def whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Make the type of an option that is an integer of a range."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not from {low} to {high}")
        return value

    return convert


def threads(text: str) -> int:
    """Read a number of threads: 1 or more, or negative, to count from all."""
    value = whole(-(2**31))(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is not a number of threads (-1 is all cores)")
    return value


def documented(cls: type, name: str) -> tuple[tuple[str, ...], str]:
    """Return the choices that the docstring of `cls` gives for a parameter, and the first sentence about it."""
    lines = re.search(rf"^{name} : (.*)\n((?: +.*\n)+)", inspect.getdoc(cls) or "", re.MULTILINE)
    if lines is None:
        return (), ""
    choices = re.match(r"\{(.*?)\}", lines[1])
    sentence = re.split(r"\.\s", " ".join(lines[2].split()) + " ")[0]
    return tuple(re.findall(r'"(.*?)"', choices[1])) if choices else (), sentence


def add_parameter(
    parser: argparse.ArgumentParser,
    cls: type,
    name: str,
    option: str | None = None,
    *,
    metavar: str | None = None,
    help: str | None = None,
    type: Callable[[str], Any] | None = None,
) -> str:
    """Declare the option for parameter `name` of `cls`, and return what it is called.

    What is not given follows from the parameter. The names it can have are shown, not checked: that is for `cls`.
    """
    option = option or f"--{name.replace('_', '-')}"
    default = inspect.signature(cls).parameters[name].default
    choices, sentence = documented(cls, name)
    text = help or sentence[:1].lower() + sentence[1:]
    if isinstance(default, bool):
        parser.add_argument(option, dest=name, action="store_true", default=default, help=text.replace("%", "%%"))
        return option
    text += f" ({', '.join(choices)}; default: {default})" if choices else f" (default: {default})"
    parser.add_argument(
        option,
        dest=name,
        type=type or (str if default is None else default.__class__),
        default=default,
        metavar=metavar or ("NAME" if choices else "N"),
        help=text.replace("%", "%%"),
    )
    return option
