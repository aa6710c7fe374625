"""Compress vectors to codes with a model."""

from __future__ import annotations

import argparse
from typing import Any

from compcodes.cli.common import Stopwatch, called, check_output, check_overwriting, duration, load_model, sizes
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


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode and write (n, M) uint8."""
    check_overwriting({"-o": args.output}, [args.model, args.vectors])
    check_output(args.output, ".npy")
    quantizer = load_model(args.model, args.jobs)
    X = load(with_column(args.vectors, args.column))
    with called({"X": args.vectors}), Stopwatch() as watch:
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
