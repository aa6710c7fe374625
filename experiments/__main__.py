"""Run the experiments of the paper, on its data or on what stands in for them: ``python -m experiments`` in a clone.

Each writes NAME.md, its tables as .csv and its figures as .svg. Without --data, the word vectors of this package stand
in for the paper's data, or SIFT and Gowalla vectors where the environment variable COMPCODES_DATA names their folder.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compcodes.cli.common import Stopwatch, UsageError, duration
from compcodes.cli.door import Parser, declare, enter
from compcodes.cli.parameters import whole
from experiments import EXPERIMENTS, Lab, datasets, title

LOGS = True  # it takes hours: lines of progress also where standard error is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all")
    add("--list", action="store_true", help="say what the experiments are, and what files --data may hold")
    add("--data", metavar="DIR", help="the folder with the paper's data (see --list)")
    add(
        "--bits", type=whole(8, 512), nargs="+", metavar="B", help="code lengths instead of the paper's: multiples of 8"
    )
    add("--limit", type=whole(1000), metavar="N", help="take only the first N vectors of each database")
    add("--out", default="paper-output", metavar="DIR", help="where to write (default: paper-output)")
    add("--page", metavar="FILE", help="also write all of them as one Markdown page")
    add("--quick", action="store_true", help="in seconds, only to see that it runs: its figures mean nothing")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiments, and write what they found."""
    if args.list:
        files = inspect.getdoc(datasets) or ""
        return {"experiments": {name: title(module) for name, module in EXPERIMENTS.items()}, "data": files}
    if not args.names:
        raise UsageError("name an experiment, or all (try: python -m experiments --list)")
    names = list(EXPERIMENTS) if "all" in args.names else args.names
    for name in names:
        if name not in EXPERIMENTS:
            raise UsageError(f"{name}: there is no such experiment, want one of {', '.join(EXPERIMENTS)}, or all")
    if args.bits and (odd := [bits for bits in args.bits if bits % 8]):
        raise UsageError(f"--bits {odd[0]}: want a multiple of 8, a codebook takes a byte")
    lab = Lab(
        folder=None if args.data is None else Path(args.data),
        bits=tuple(args.bits) if args.bits else None,
        limit=args.limit,
        quick=args.quick,
        n_jobs=args.jobs,
        progress=args.progress,
    )
    sets = [dataset.description for dataset in lab.datasets]
    out, found, reports = Path(args.out), [], []
    for name in names:
        with Stopwatch() as watch:
            report = EXPERIMENTS[name].run(lab)
        written = report.write(out, markdown=args.page is None)
        reports.append(report)
        found.append(
            {
                "name": name,
                "title": report.title,
                "seconds": watch.seconds,
                "tables": {table.name: table.dictionaries() for table in report.tables},
                "claims": [{"claim": c, "came_out": bool(h), "figures": f} for c, h, f in report.claims],
                "skipped": report.skipped,
                "written": [str(path) for path in written],
                "markdown": report.markdown(level=2),
            }
        )
    if args.page is not None:
        page = Path(args.page)
        folder = Path(os.path.relpath(out, page.parent)).as_posix() + "/"
        text = "\n".join([_opening(sets), *(report.markdown(2, folder) for report in reports)])
        page.write_text(text, encoding="utf-8")
    return {"data": sets, "experiments": found, "page": args.page}


def show(result: dict[str, Any]) -> None:
    """Print the tables and where they are."""
    if "page" not in result:
        for name, text in result["experiments"].items():
            print(f"{name:<16}{text}")
        print(f"\n{result['data']}")
        return
    for report in result["experiments"]:
        print(report["markdown"])
        print(f"in {duration(report['seconds'])}; written: {', '.join(report['written'])}\n")
    if result["page"]:
        print(f"page written to {result['page']}")


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    module = sys.modules[__name__]
    parser = Parser(prog="python -m experiments", description=__doc__)
    declare(parser, module)
    return enter(parser, argv)


def _opening(sets: list[str]) -> str:
    lines = "\n".join(f"- {text}" for text in sets)
    return f"""\
# The paper's experiments

What `make paper` wrote: every table and figure of *Inner Product Similarity Search using Compositional Codes*, run by
this package. Where the paper's data are not at hand, others stand in for them:

{lines}

`python -m experiments --list` says where to put the paper's own. "CC" is the paper's procedure (greedy encoder, squared
error), "compcodes" this package with its defaults; CKM is Cartesian k-means, OPQ product quantization after eigenvalue
allocation, PQ product quantization, LSH signs of random projections. A table under each experiment says whether what
the paper reports, or argues for, came out.
"""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
