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
)
from compcodes.cli.parameters import add_parameter
from compcodes.data import load, load_ids

NAME = "build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("vectors", nargs="?", help="the database's vectors")
    source.add_argument("--codes", metavar="FILE", help="their codes instead, from: compcodes encode")
    parser.add_argument("-o", "--output", required=True, metavar="INDEX", help="where to write the index")
    parser.add_argument("--ids", metavar="FILE", help="an integer for each vector (default: 0, 1, 2, …)")
    add_parameter(
        parser, Index, "metric", help="what makes a vector a good answer, by default what the model was trained for"
    )
    add_parameter(parser, Index, "scale", help="correct the length of approximations, for one more byte each (ip)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode what is not encoded yet, and write the index."""
    if args.scale and args.codes is not None:
        raise UsageError("--scale compares codes with vectors: it needs them instead of --codes")
    check_overwriting({"-o": args.output}, [args.model, args.vectors, args.codes, args.ids])
    check_output(args.output)
    model = load_model(args.model, args.jobs)
    ids = None if args.ids is None else load_ids(args.ids).reshape(-1)
    with called({"metric": "--metric", "scale": "--scale", "X": str(args.vectors)}), Stopwatch() as watch:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MetricWarning)
            index = Index(model, args.metric, args.jobs, scale=args.scale)
        if args.codes is not None:
            index.add_codes(load(args.codes), ids=ids)
        else:
            index.add(load(args.vectors), ids=ids, progress=args.progress)
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
