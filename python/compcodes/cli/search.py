"""The command `search`."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import Index, ShardedIndex
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    cluster_of,
    duration,
    key_text,
    load_some,
    noted,
    number_of_results,
    open_index,
)
from compcodes.cli.depth import add_depth, check_depth, depth, depth_names
from compcodes.cli.parameters import whole
from compcodes.data import load_ids, load_names, save
from compcodes.data.many import is_many, split_column

NAME = "search"
SUMMARY = "Find the vectors of an index that answer queries best."
DETAILS = "Without -o the answers are printed, one per line: query, rank, id and score, separated by tabs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("index", help="from: compcodes build")
    add("queries", help="vectors to search with, or one vector")
    add("-k", type=whole(1), default=10, help="answers for each query, or all there are (default: 10)")
    add("-o", "--output", metavar="IDS", help="write ids (queries × answers) to a .npy file")
    add("--scores", metavar="FILE", help="write scores (queries × answers) to a .npy file")
    add(
        "--filter",
        metavar="IDS",
        help="the ids among which to search: a file, a folder, or a pattern in quotes; of either :NAME names a "
        "column (default: all)",
    )
    add(
        "--exclude",
        metavar="IDS",
        help="a file of ids not to find: for all queries, or a row for each (queries × ids, −1 for none)",
    )
    add("--scheduler", metavar="ADDRESS", help="search a folder of shards on a Dask cluster")
    add_depth(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Search, and write the answers or return them."""
    check_depth(args)
    check_overwriting(
        {"-o": args.output, "--scores": args.scores}, [args.index, args.queries, args.rerank, args.filter, args.exclude]
    )
    outputs = {"ids": args.output, "scores": args.scores}
    for path in filter(None, outputs.values()):
        check_output(path, ".npy")
    index = open_index(args.index, args.jobs)
    if args.scheduler is not None and not isinstance(index, ShardedIndex):
        raise UsageError("--scheduler searches a folder of shards: build it with --shards N")
    Q = load_some(args.queries)
    given = depth(args, index) | {"progress": args.progress}
    allowed = None if args.filter is None else _names(args.filter, index).reshape(-1)
    excluded = None if args.exclude is None else _excluded(args.exclude, index)
    k = number_of_results("-k", args.k, len(index), len(Q))
    names = {"Q": args.queries, "filter": str(args.filter), "exclude": str(args.exclude), **depth_names(args)}
    given |= {"filter": allowed, "exclude": excluded}
    with (
        called(names),
        cluster_of(args.scheduler) as client,
        Stopwatch() as watch,
        noted("--") as notes,
    ):
        given |= {"client": client} if isinstance(index, ShardedIndex) else {}
        scores, ids = index.search(Q, k, **given)
    is_keyed = ids.dtype == object
    found = ids != (None if is_keyed else -1)
    if len(ids):  # a filter can leave fewer: columns that are padding for all queries are cut off
        k = int(found.sum(axis=1).max())
    scores, ids, found = scores[:, :k], ids[:, :k], found[:, :k]
    if is_keyed:  # text, which files and terminals can hold; an empty string for none
        texts = [[key_text(key) for key in row] for row in ids.tolist()]
        ids = np.array(texts, dtype=str).reshape(scores.shape)
    for array, path in ((ids, args.output), (scores, args.scores)):
        if path is not None:
            save(path, array)
    result: dict[str, Any] = {
        **notes,
        "queries": len(ids),
        "k": k,
        "vectors": len(index),
        "metric": index.metric,
        "seconds": watch.seconds,
        "written": outputs,
    }
    if args.output is None:
        rows = zip(ids.tolist(), found, strict=True)
        result |= {
            "ids": [[id_ if one else None for id_, one in zip(*row, strict=True)] for row in rows]
            if is_keyed
            else ids.tolist(),
            "scores": scores.tolist(),
        }
    return result


def _names(path: str, index: Index[Any] | ShardedIndex) -> NDArray[Any]:
    """Read ids, or keys if the index has them."""
    if not index.has_keys and not is_many(path):
        return load_ids(path)
    names = load_names(path)
    if index.has_keys:
        return names.astype(str).astype(object) if names.dtype != object else names
    if names.dtype == object:
        raise ValueError(f"{path}: ids must be integers, found strings")
    return names


def _excluded(path: str, index: Index[Any] | ShardedIndex) -> NDArray[Any]:
    """Read ids or keys that are not to be found."""
    if not index.has_keys and is_many(path) and split_column(path)[1] is None:
        # Which of their arrays hold a row for each query, nobody can tell.
        raise UsageError(f"--exclude {path} stands for many files: give one file, or name a column as {path}:NAME")
    return _names(path, index)


def show(result: dict[str, Any]) -> None:
    """Print the results, or where they are."""
    if "ids" in result:
        for query, (ids, scores) in enumerate(zip(result["ids"], result["scores"], strict=True)):
            for rank, (id_, score) in enumerate(zip(ids, scores, strict=True), start=1):
                if id_ is None or (score == -math.inf and id_ == -1):
                    break
                print(query, rank, id_, f"{score:.6g}", sep="\t")
        return
    each = result["seconds"] / max(result["queries"], 1)
    print(f"searched {result['vectors']:,} vectors for {result['queries']:,} queries")
    print(f"{duration(result['seconds'])}, {duration(each)} a query")
    for name, path in result["written"].items():
        if path is not None:
            print(f"{name} written to {path}")
