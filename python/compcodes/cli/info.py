"""Say what is in a file: a model, an index, or vectors."""

from __future__ import annotations

import argparse
from typing import Any

NAME = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", help="a model, an index, or a file of vectors")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Open the file and describe it."""
    return {}


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
