"""The command ``compcodes``: one module per subcommand, and `door` for what they share."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from compcodes import __version__
from compcodes.cli import build, compare, demo, encode, evaluation, fit, info, search
from compcodes.cli.completion import Completion
from compcodes.cli.door import Parser, declare, enter

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (that of the process by default) and return its exit code."""
    return enter(_parser(), sys.argv[1:] if argv is None else argv)


def _parser() -> Parser:
    parser = Parser(
        prog="compcodes",
        description="Compress vectors to a few bytes each, and find those that answer queries best.",
    )
    parser.add_argument("--version", action="version", version=f"compcodes {__version__}")
    parser.add_argument(
        "--print-completion",
        action=Completion,
        metavar="SHELL",
        help="print what makes a shell complete commands and options: bash, zsh or tcsh (needs compcodes[completion])",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for module in (demo, fit, encode, build, search, evaluation, info, compare):
        description = f"{module.SUMMARY} {module.DETAILS}"
        declare(commands.add_parser(module.NAME, help=module.SUMMARY, description=description), module)
    return parser
