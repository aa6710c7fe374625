"""What makes a shell complete the command, written by shtab."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from compcodes.cli.common import UsageError

__all__ = ["Completion"]

_SHELLS = ("bash", "zsh", "tcsh")


class Completion(argparse.Action):
    """Print the completion for a shell, and end."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Print it."""
        if values not in _SHELLS:
            raise UsageError(f"--print-completion {values}: want one of {', '.join(_SHELLS)}")
        try:
            shtab = importlib.import_module("shtab")
        except ImportError:
            raise UsageError("--print-completion needs shtab; run: pip install 'compcodes[completion]'") from None
        _complete_files(parser, shtab.FILE)
        sys.stdout.write(shtab.complete(parser, values))
        parser.exit()


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Complete arguments that name files with file names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, files)
        elif action.metavar in _FILES or action.dest in _FILES:
            action.complete = files  # type: ignore[attr-defined]


_FILES = ("vectors", "queries", "model", "index", "FILE", "MODEL", "INDEX", "CODES", "IDS", "VECTORS", "HTML")
"""The names of arguments that take files."""
