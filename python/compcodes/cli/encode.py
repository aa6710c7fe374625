"""The command `encode`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import CompositionalCodes, Quantizer
from compcodes._arrays import numbered
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    duration,
    load_model,
    load_vectors,
    sizes,
)
from compcodes.cli.parameters import add_column
from compcodes.data import Files, save
from compcodes.progress import ProgressLike, staged

NAME = "encode"
SUMMARY = "Compress vectors to codes with a model."
DETAILS = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    parser.add_argument("vectors", help="vectors to compress: a file, a folder, or a pattern in quotes")
    add_column(parser)
    parser.add_argument("-o", "--output", required=True, metavar="CODES", help="where to write the codes, a .npy file")
    parser.add_argument("--lists", metavar="FILE", help="of a model with lists: where to write the list of each vector")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode and write (n, M) uint8."""
    check_overwriting({"-o": args.output, "--lists": args.lists}, [args.model, args.vectors])
    for path in filter(None, (args.output, args.lists)):
        check_output(path, ".npy")
    quantizer = load_model(args.model, args.jobs)
    X = load_vectors(args.vectors, args.column)
    if args.lists is None and quantizer._lists is not None:
        raise UsageError(f"{args.model} has lists, which a code does not tell: want --lists FILE")
    if args.lists is not None and not isinstance(quantizer, CompositionalCodes):
        raise UsageError(f"--lists: {args.model} has none")
    with called({"X": args.vectors}), Stopwatch() as watch:
        if isinstance(X, Files) and len(X):
            codes, lists = _encoded_files(quantizer, X, args.progress)
        else:
            codes, lists = _encoded(quantizer, np.asarray(X), args.progress)
    if lists is not None:
        save(args.lists, lists)
    save(args.output, codes)
    return {
        "codes": args.output,
        "vectors": len(codes),
        "bytes_per_vector": codes.shape[1],
        "bytes": codes.nbytes,
        "seconds": watch.seconds,
    }


def _encoded(
    quantizer: Quantizer, X: NDArray[Any], progress: ProgressLike
) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """Return codes, and lists if the model has some."""
    if quantizer._lists is not None and isinstance(quantizer, CompositionalCodes):
        lists = quantizer.assign(X, progress=progress)
        return quantizer.encode(X, lists=lists, progress=progress), lists
    return quantizer.encode(X, progress=progress), None


def _encoded_files(
    quantizer: Quantizer, X: Files, progress: ProgressLike
) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """Encode vectors in several files, a piece at a time."""
    report, codes, lists = staged(progress, "encode"), [], []
    for first, block in numbered("X", X.blocks()):
        own = _encoded(quantizer, block, None)
        codes.append(own[0])
        if own[1] is not None:
            lists.append(own[1])
        if report is not None:
            report(first + len(block), len(X))
    return np.concatenate(codes), np.concatenate(lists) if lists else None


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(f"encoded {result['vectors']:,} vectors in {duration(result['seconds'])}")
    print(f"{sizes(result)}, written to {result['codes']}")
