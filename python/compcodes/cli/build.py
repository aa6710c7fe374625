"""Build an index: the codes of a database, ready to search.

Vectors are encoded piece by piece; a build that was killed goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

from compcodes import Index, MetricWarning
from compcodes._arrays import as_ids
from compcodes.cli import resume
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
from compcodes.data.files import file_of

NAME = "build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("vectors", nargs="?", help="the database's vectors")
    source.add_argument("--codes", metavar="FILE", help="their codes instead, from: compcodes encode")
    parser.add_argument("-o", "--output", required=True, metavar="INDEX", help="where to write the index")
    parser.add_argument("--lists", metavar="FILE", help="with --codes, of a model with lists: the list of each vector")
    parser.add_argument("--ids", metavar="FILE", help="an integer for each vector (default: 0, 1, 2, …)")
    add_parameter(
        parser, Index, "metric", help="what makes a vector a good answer, by default what the model was trained for"
    )
    add_parameter(parser, Index, "scale", help="correct the length of approximations, for one more byte each (ip)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode what is not encoded yet, and write the index."""
    if args.scale and args.codes is not None:
        raise UsageError("--scale compares codes with vectors: it needs them instead of --codes")
    check_overwriting({"-o": args.output}, [args.model, args.vectors, args.codes, args.ids, args.lists])
    check_output(args.output)
    model = load_model(args.model, args.jobs)
    ids = None if args.ids is None else load_ids(args.ids).reshape(-1)
    resumed = 0
    with called({"metric": "--metric", "scale": "--scale", "X": str(args.vectors)}), Stopwatch() as watch:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MetricWarning)
            index = Index(model, args.metric, args.jobs, scale=args.scale)
        if args.codes is not None:
            lists = None if args.lists is None else load_ids(args.lists).reshape(-1)
            index.add_codes(load(args.codes), ids=ids, lists=lists)
        else:
            X = load(args.vectors)
            if ids is not None:  # before the vectors are encoded, and not after
                ids = as_ids(ids, len(X))
            sources = [args.model, file_of(args.vectors)]
            resumed = resume.build(index, X, ids, sources, args.output, args.progress)
    index.save(args.output)
    resume.forget(args.output)
    notes = {"warning": str(caught[0].message)} if caught else {}
    return {
        **notes,
        **({"resumed": resumed} if resumed else {}),
        "index": args.output,
        "vectors": len(index),
        **({} if index.list_sizes is None else {"lists": len(index.list_sizes)}),
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "bytes": len(index) * index.bytes_per_vector,
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    if "warning" in result:
        print(f"compcodes: warning: {result['warning']}", file=sys.stderr)
    if "resumed" in result:
        print(f"went on after {result['resumed']:,} vectors that were encoded before")
    if "lists" in result:
        print(f"in {result['lists']:,} lists")
    print(f"indexed {result['vectors']:,} vectors by {result['metric']} in {duration(result['seconds'])}")
    print(f"{sizes(result)}, written to {result['index']}")
