"""Find the largest inner products of queries with an index.

Without -o the answers are printed, one a line: query, rank, id and score, with tabs between.
"""

from __future__ import annotations

import argparse
from typing import Any

from compcodes import Index
from compcodes.cli.common import Stopwatch, UsageError, check_output, duration
from compcodes.data import load, save

NAME = "search"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("index", help="from: compcodes build")
    add("queries", help="vectors to search with")
    add("-k", type=int, default=10, help="answers for each query (default: 10)")
    add("-o", "--output", metavar="IDS", help="write ids (queries × k) to a .npy file")
    add("--scores", metavar="FILE", help="write scores (queries × k) to a .npy file")
    add(
        "--rerank",
        metavar="VECTORS",
        help="the database's vectors, to re-rank candidates with exact inner products",
    )
    add("--candidates", type=int, metavar="N", help="with --rerank: how many to re-rank for each query")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Search, and write the answers or return them."""
    if args.candidates is not None and args.rerank is None:
        raise UsageError("--candidates says how many to re-rank: it needs --rerank VECTORS")
    outputs = {"ids": args.output, "scores": args.scores}
    for path in filter(None, outputs.values()):
        check_output(path, ".npy")
    index = Index.load(args.index, n_jobs=args.jobs)
    Q = load(args.queries)
    vectors = None if args.rerank is None else load(args.rerank)
    with Stopwatch() as watch:
        scores, ids = index.search(Q, k=args.k, rerank=vectors, n_candidates=args.candidates, progress=args.progress)
    for array, path in ((ids, args.output), (scores, args.scores)):
        if path is not None:
            save(path, array)
    result: dict[str, Any] = {
        "queries": len(ids),
        "k": args.k,
        "vectors": len(index),
        "seconds": watch.seconds,
        "written": outputs,
    }
    if args.output is None:
        kept = min(args.k, len(index))  # without the padding, whose score JSON does not know
        result |= {"ids": ids[:, :kept].tolist(), "scores": scores[:, :kept].tolist()}
    return result


def show(result: dict[str, Any]) -> None:
    """Print the answers, or where they are."""
    if "ids" in result:
        for query, (ids, scores) in enumerate(zip(result["ids"], result["scores"], strict=True)):
            for rank, (id_, score) in enumerate(zip(ids, scores, strict=True), start=1):
                print(query, rank, id_, f"{score:.6g}", sep="\t")
        return
    each = result["seconds"] / max(result["queries"], 1)
    print(f"searched {result['vectors']:,} vectors for {result['queries']:,} queries")
    print(f"{duration(result['seconds'])}, {duration(each)} a query")
    for name, path in result["written"].items():
        if path is not None:
            print(f"{name} written to {path}")
