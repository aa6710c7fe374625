"""The command ``compcodes``: one module for each subcommand, this one for what they share at the door.

A subcommand's ``run(args)`` returns what it found as a dictionary, which ``--json`` prints as it is and the
module's ``show(result)`` prints for people; there is no NaN or infinity in JSON, so they become null. Errors
are one line on standard error. Exit codes: 0 done, 1 bad data or failure, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from compcodes import __version__
from compcodes.cli import build, compare, demo, encode, evaluation, fit, info, paper, search
from compcodes.cli.common import StageBar, UsageError
from compcodes.cli.parameters import threads

__all__ = ["main"]

_FAILURES = (OSError, ValueError, TypeError, ImportError, MemoryError)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (try: {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (that of the process by default) and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a sign (such as ⟨ in ASCII) shows another: no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        return _run(argv)
    except BrokenPipeError:
        # The reader (such as `head`) has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(argv: Sequence[str]) -> int:
    if sys.stdout is None:
        return _fail("standard output is closed", 1, as_json=False)
    parser = _parser()
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    try:
        args = parser.parse_args(argv)
    except UsageError as error:
        return _fail(str(error), 2, as_json="--json" in argv)
    except SystemExit:  # after --help or --version
        sys.stdout.flush()
        raise
    bar = StageBar() if sys.stderr is not None and sys.stderr.isatty() and not args.quiet else None
    args.progress = bar
    try:
        result: dict[str, Any] = args.run(args)
        if bar:
            bar.fill()
            bar.clear()
        if args.json:
            print(json.dumps(_finite(result), allow_nan=False))
        else:
            args.show(result)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 130, args.json, bar)
    except BrokenPipeError:
        raise
    except UsageError as error:
        return _fail(str(error), 2, args.json, bar)
    except _FAILURES as error:
        return _fail(_message(error), 1, args.json, bar)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="compcodes",
        description="Compress vectors to a few bytes each, and find those that answer queries best.",
    )
    parser.add_argument("--version", action="version", version=f"compcodes {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for module in (demo, fit, encode, build, search, evaluation, info, compare, paper):
        summary = str(module.__doc__).partition("\n")[0]
        command = commands.add_parser(module.NAME, help=summary, description=module.__doc__)
        command.set_defaults(run=module.run, show=module.show)
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print one JSON document instead of text")
        command.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
        command.add_argument("-j", "--jobs", type=threads, metavar="N", help="threads (default: all cores)")
    return parser


def _finite(value: Any) -> Any:
    """Put None, which JSON has, for NaN and infinities, which it has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str, code: int, as_json: bool, bar: StageBar | None = None) -> int:
    if bar:
        bar.clear()
    if sys.stderr is not None:
        print(f"compcodes: error: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message}), flush=True)
    return code
