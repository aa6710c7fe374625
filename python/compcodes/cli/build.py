"""Build an index: the codes of a database, ready to search."""

from __future__ import annotations

import argparse
from typing import Any

from compcodes import Index
from compcodes.cli.common import Stopwatch, check_output, duration, load_model, sizes
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


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode what is not encoded yet, and write the index."""
    check_output(args.output)
    index = Index(load_model(args.model, args.jobs), n_jobs=args.jobs)
    ids = None if args.ids is None else load_ids(args.ids)
    with Stopwatch() as watch:
        if args.codes is not None:
            index.add_codes(load(args.codes), ids=ids)
        else:
            index.add(load(args.vectors), ids=ids, progress=args.progress)
    index.save(args.output)
    return {
        "index": args.output,
        "vectors": len(index),
        "bytes_per_vector": index.bytes_per_vector,
        "bytes": len(index) * index.bytes_per_vector,
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(f"indexed {result['vectors']:,} vectors in {duration(result['seconds'])}")
    print(f"{sizes(result)}, written to {result['index']}")
