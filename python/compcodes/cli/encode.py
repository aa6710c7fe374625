"""Compress vectors to codes with a model."""

from __future__ import annotations

import argparse
from typing import Any

from compcodes import CompositionalCodes
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
from compcodes.cli.parameters import add_column
from compcodes.data import load, save
from compcodes.data.files import with_column

NAME = "encode"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    parser.add_argument("vectors", help="vectors to compress")
    add_column(parser)
    parser.add_argument("-o", "--output", required=True, metavar="CODES", help="where to write the codes, a .npy file")
    parser.add_argument("--lists", metavar="FILE", help="of a model with lists: where to write the list of each vector")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode and write (n, M) uint8."""
    check_overwriting({"-o": args.output, "--lists": args.lists}, [args.model, args.vectors])
    for path in filter(None, (args.output, args.lists)):
        check_output(path, ".npy")
    quantizer = load_model(args.model, args.jobs)
    X = load(with_column(args.vectors, args.column))
    if args.lists is None and quantizer._lists is not None:
        raise UsageError(f"{args.model} has lists, which a code does not tell: want --lists FILE")
    if args.lists is not None and not isinstance(quantizer, CompositionalCodes):
        raise UsageError(f"--lists: {args.model} has none")
    with called({"X": args.vectors}), Stopwatch() as watch:
        if args.lists is not None and isinstance(quantizer, CompositionalCodes):
            lists = quantizer.assign(X, progress=args.progress)
            codes = quantizer.encode(X, lists=lists, progress=args.progress)
            save(args.lists, lists)
        else:
            codes = quantizer.encode(X, progress=args.progress)
    save(args.output, codes)
    return {
        "codes": args.output,
        "vectors": len(codes),
        "bytes_per_vector": codes.shape[1],
        "bytes": codes.nbytes,
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(f"encoded {result['vectors']:,} vectors in {duration(result['seconds'])}")
    print(f"{sizes(result)}, written to {result['codes']}")
