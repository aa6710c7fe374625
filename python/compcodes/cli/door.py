"""What all commands share: options, progress, results as text or JSON, one-line errors, exit codes.

A command's ``run(args)`` returns what it found as a dictionary. ``--json`` prints it directly, and the command's
``show(result)`` prints it for people; JSON has no NaN or infinity, so they become null. Errors are one line on standard
error. Exit codes: 0 success, 1 bad data or failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from compcodes.cli.common import UsageError
from compcodes.cli.parameters import threads
from compcodes.progress import Bar

__all__ = ["Parser", "declare", "enter"]

_EXPECTED = (OSError, ValueError, TypeError, ImportError, MemoryError, RuntimeError)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `UsageError`."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting the process."""
        raise UsageError(f"{message} (try: {self.prog} --help)")


def declare(command: argparse.ArgumentParser, module: ModuleType) -> None:
    """Declare the arguments of a command, given as a module, and those that all commands have."""
    command.set_defaults(run=module.run, show=module.show, logs=getattr(module, "LOGS", False))
    module.add_arguments(command)
    command.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    command.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    command.add_argument("-j", "--jobs", type=threads, metavar="N", help="threads (default: all cores)")


def enter(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """Run what the arguments ask for, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character (such as ⟨ in ASCII) shows another: that is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stdout is None:
        return _fail("standard output is closed", 1)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    try:
        args = parser.parse_args(argv)
    except UsageError as error:
        return _fail(str(error), 2, as_json="--json" in argv)
    except SystemExit as done:  # after --help or --version
        return _print("", done.code if isinstance(done.code, int) else 0)
    args.progress = bar = _bar(args)
    try:
        result: dict[str, Any] = args.run(args)
        text = json.dumps(_finite(result), allow_nan=False) + "\n" if args.json else _shown(args, result)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, args.json, bar)
    except UsageError as error:
        return _fail(str(error), 2, args.json, bar)
    except Exception as error:
        return _fail(_message(error), 1, args.json, bar)
    if bar:
        bar.close()
    return _print(text, getattr(args, "exit_code", 0))


def _bar(args: argparse.Namespace) -> Bar | None:
    """Return the progress display: a bar on a terminal; for the longest commands, lines elsewhere."""
    if sys.stderr is None or args.quiet or not (sys.stderr.isatty() or args.logs):
        return None
    return Bar()


def _shown(args: argparse.Namespace, result: dict[str, Any]) -> str:
    """Return what the command prints for people; warnings go to standard error."""
    if "warning" in result:
        print(f"compcodes: warning: {result['warning']}", file=sys.stderr)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        args.show(result)
        return sys.stdout.getvalue()
    finally:
        sys.stdout = stdout


def _print(text: str, code: int) -> int:
    """Write to standard output; if nobody reads it (such as after `head`) or it is full, the exit code is 1."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python would retry at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _tell(f"standard output: {error.strerror or error}")
        return 1
    return code


def _fail(message: str, code: int, as_json: bool = False, bar: Bar | None = None) -> int:
    if bar:
        bar.close()
    _tell(message)
    return _print(json.dumps({"error": message}) + "\n", code) if as_json else code


def _tell(message: str) -> None:
    if sys.stderr is not None:
        print(f"compcodes: error: {message}", file=sys.stderr)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    message = " ".join(str(error).split())
    kind = type(error).__name__
    return (message or kind) if isinstance(error, _EXPECTED) else f"unexpected {kind}: {message}"


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, with None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
