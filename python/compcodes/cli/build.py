"""Build an index: the codes of a database, ready to search."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

from compcodes import Index, MetricWarning
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    duration,
    load_model,
    sizes,
    written,
)
from compcodes.cli.parameters import add_column, add_parameter
from compcodes.data import load, load_names
from compcodes.data.files import file_of, with_column

NAME = "build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("vectors", nargs="?", help="the database's vectors")
    source.add_argument("--codes", metavar="FILE", help="their codes instead, from: compcodes encode")
    parser.add_argument("-o", "--output", required=True, metavar="INDEX", help="where to write the index")
    add_column(parser)
    names = parser.add_mutually_exclusive_group()
    names.add_argument(
        "--ids",
        metavar="FILE",
        help="an integer or a string for each vector, in a file of any kind, or of text lines (default: 0, 1, 2, …)",
    )
    names.add_argument("--id-column", metavar="NAME", help="their column in the file of the vectors (.parquet, .h5)")
    add_parameter(
        parser, Index, "metric", help="what makes a vector a good answer, by default what the model was trained for"
    )
    add_parameter(parser, Index, "scale", help="correct the length of approximations, for one more byte each (ip)")
    add_parameter(
        parser,
        Index,
        "residuals",
        help="keep what proves results exact, for five more bytes each (ip, not with --scale)",
    )
    parser.add_argument(
        "--compact-norms",
        action="store_true",
        help="one more byte each instead of five (l2): the results are the same, and take longer to find",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode what is not encoded yet, and write the index."""
    for option in ("scale", "residuals"):
        if getattr(args, option) and args.codes is not None:
            raise UsageError(f"--{option} compares codes with vectors: it needs them instead of --codes")
    if args.codes is not None and (args.column or args.id_column):
        raise UsageError("--column and --id-column are of the file of vectors, which --codes takes the place of")
    source = None if args.vectors is None else with_column(args.vectors, args.column)
    if args.id_column is not None:
        args.ids = with_column(file_of(str(args.vectors)), args.id_column, "--id-column")
    check_overwriting({"-o": args.output}, [args.model, args.vectors, args.codes, args.ids])
    check_output(args.output)
    model = load_model(args.model, args.jobs)
    ids = None if args.ids is None else load_names(args.ids)
    names = {option: f"--{option}" for option in ("metric", "scale", "residuals")}
    names |= {"X": str(source), "ids": str(args.ids), "codes": str(args.codes)}
    with called(names), Stopwatch() as watch:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MetricWarning)
            index: Index[Any] = Index(
                model,
                args.metric,
                args.jobs,
                scale=args.scale,
                residuals=args.residuals,
                exact_norms=not args.compact_norms,
                keys=ids is not None and ids.dtype == object,
            )
        if args.codes is not None:
            index.add_codes(load(args.codes), ids=ids)
        else:
            index.add(load(str(source)), ids=ids, progress=args.progress)
    with written(args.output):
        index.save(args.output)
    notes = {"warning": str(caught[0].message)} if caught else {}
    return {
        **notes,
        "index": args.output,
        "vectors": len(index),
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "bytes": len(index) * index.bytes_per_vector,
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    if "warning" in result:
        print(f"compcodes: warning: {result['warning']}", file=sys.stderr)
    print(f"indexed {result['vectors']:,} vectors by {result['metric']} in {duration(result['seconds'])}")
    print(f"{sizes(result)}, written to {result['index']}")
