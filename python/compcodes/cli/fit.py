"""Learn a model (codebooks) from vectors.

Options that are left out have the defaults of compcodes.CompositionalCodes.
"""

from __future__ import annotations

import argparse
from typing import Any

from compcodes import CompositionalCodes
from compcodes.cli.common import Stopwatch, check_output, duration
from compcodes.data import load

NAME = "fit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("vectors", help="vectors to learn from (.npy, .fvecs, .bvecs, .ivecs, .parquet, .h5)")
    add("-o", "--output", required=True, metavar="MODEL", help="where to write the model")
    add("--bytes", type=int, dest="n_codebooks", metavar="M", help="bytes of a code, and number of codebooks")
    add("--codewords", type=int, dest="n_codewords", metavar="K", help="codewords in a codebook, at most 256")
    add("--selection", metavar="NAME", help="group, m-selection or m-combination")
    add("--encoder", metavar="NAME", help="how codes are chosen, such as greedy")
    add("--loss", metavar="NAME", help="what is made small, such as reconstruction")
    add("--init", metavar="NAME", help="residual or random")
    add("--iterations", type=int, dest="max_iter", metavar="N", help="at most so many rounds")
    add("--tol", type=float, metavar="SHARE", help="stop when a round gains less than this share")
    add("--seed", type=int, dest="random_state", metavar="N", help="of the random numbers")
    add("--queries", metavar="FILE", help="sample queries, for a loss that uses them")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train, write the model, and say how well it went."""
    check_output(args.output)
    X = load(args.vectors)
    queries = None if args.queries is None else load(args.queries)
    names = (
        "n_codebooks",
        "n_codewords",
        "selection",
        "encoder",
        "loss",
        "init",
        "max_iter",
        "tol",
        "random_state",
    )
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    quantizer = CompositionalCodes(n_jobs=args.jobs, **given)
    with Stopwatch() as watch:
        quantizer.fit(X, queries=queries, progress=args.progress)
    quantizer.save(args.output)
    M, K, d = quantizer.codebooks_.shape
    return {
        "model": args.output,
        "vectors": len(X),
        "dimension": d,
        "codebooks": M,
        "codewords": K,
        "bytes_per_vector": M,
        "iterations": quantizer.history_[-1]["iteration"],
        "objective": float(quantizer.history_[-1]["objective"]),
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    before, after = 4 * result["dimension"], result["bytes_per_vector"]
    print(f"learned from {result['vectors']:,} vectors in {duration(result['seconds'])}")
    print(f"iterations: {result['iterations']}, mean squared error: {result['objective']:.6g}")
    print(f"a vector of {before} bytes (float32) becomes {after} bytes, {before / after:.3g} times less")
    print(f"model written to {result['model']}")
