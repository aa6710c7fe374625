"""The command `eval`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import Index, ShardedIndex, evaluate
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    duration,
    key_text,
    load_some,
    load_vectors,
    number_of_results,
    open_index,
    table,
    written,
)
from compcodes.cli.depth import add_depth, check_depth, depth, depth_names
from compcodes.cli.parameters import whole
from compcodes.data import load_ids
from compcodes.data.files import open_array
from compcodes.plot import recall_figure

NAME = "eval"
SUMMARY = "Measure the recall of an index against exact answers."
DETAILS = (
    "recall R@P is the share of the R truly best vectors that stand among the first P found. It is also the share "
    "that is right after re-ranking the first P with exact scores. Exact answers are those by the index's metric."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add("index", help="from: compcodes build")
    add("queries", help="vectors to search with, or one vector")
    truth = parser.add_mutually_exclusive_group(required=True)
    truth.add_argument(
        "--vectors",
        metavar="FILE",
        help="the database's vectors, in the order of the index: a file, a folder, or a pattern in quotes",
    )
    truth.add_argument("--truth", metavar="FILE", help="the ids of the exact answers instead, best first")
    counts: dict[str, Any] = {"type": whole(1), "nargs": "+", "default": [1, 10, 100]}
    add("-R", **counts, help="how many true best are sought (default: 1 10 100)")
    add("-P", **counts, help="among how many found (default: 1 10 100)")
    add_depth(parser)
    add("--plot", metavar="FILE", help="draw recall@P (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Search, compare, and tabulate R@P for each R ≤ P."""
    check_depth(args)
    check_overwriting({"--plot": args.plot}, [args.index, args.queries, args.vectors, args.truth, args.rerank])
    if args.plot is not None:
        check_output(args.plot, ".png", ".svg", ".pdf")
    index = open_index(args.index, args.jobs)
    if len(index) == 0:
        raise ValueError(f"{args.index}: no vectors to find")
    Q = load_some(args.queries)
    if len(Q) == 0:
        raise ValueError(f"{args.queries}: no queries to measure with")
    k = number_of_results("-P", max(args.P), len(index), len(Q))
    if args.candidates is not None and args.candidates < k:
        raise UsageError(f"--candidates {args.candidates}: want at least {k}, the largest -P")
    numbers, given = _numbers(index), depth(args, index)
    with called({"X": str(args.vectors), "Q": args.queries, **depth_names(args)}):
        index.search(Q[:1], k, **given)  # so that what cannot be is refused before the exact search
        true_ids = _exact(index, Q, args)
        with Stopwatch() as watch:
            _, ids = index.search(Q, k, progress=args.progress, **given)
    ids = numbers(ids)
    pairs = [(r, p) for r in sorted(set(args.R)) if r <= true_ids.shape[1] for p in sorted(set(args.P)) if p >= r]
    if not pairs:
        raise ValueError(f"no R in {args.R} is at most the {true_ids.shape[1]} exact answers and some P in {args.P}")
    sizes = index.list_sizes
    probes = _probes(index, Q, true_ids, k, numbers, given) if sizes is not None else []
    if args.plot is not None:
        results = {"as searched" if probes else "codes": ids}
        for entry in probes:
            ids_there = index.search(Q, k, **_through(given, entry["lists"]))[1]
            results[f"at least {_count(entry['lists'])}"] = numbers(ids_there)
        figure = recall_figure(results, true_ids, tuple(sorted({r for r, _ in pairs})))
        with written(args.plot):
            figure.savefig(args.plot, dpi=150)
    return {
        "queries": len(ids),
        "vectors": len(index),
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        **({} if sizes is None else {"lists": _lists(args, len(sizes))}),
        "reranked": None if args.rerank is None else min(args.candidates or 10 * k, len(index)),
        "seconds": watch.seconds,
        "recall": [{"R": r, "P": p, "recall": evaluate.recall(ids, true_ids, r, min(p, k))} for r, p in pairs],
        **({"probes": probes} if probes else {}),
        "plot": args.plot,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(
        f"searched {result['vectors']:,} vectors of {result['bytes_per_vector']} bytes "
        f"for {result['queries']:,} queries in {duration(result['seconds'])}"
        + (f", in {result['lists']}" if "lists" in result else "")
        + (f", and re-ranked {result['reranked']:,} candidates for each" if result["reranked"] else "")
    )
    print(recall_table(result["recall"]))
    if "probes" in result:
        best = result["probes"][0]["best"]
        rows = [["lists, at least", "of all", "time per query", f"true best {best}, first {best}"]]
        for entry in result["probes"]:
            share = f"{entry['share']:.1%}"
            rows.append([f"{entry['lists']:,}", share, duration(entry["seconds"]), f"{entry['recall']:.3f}"])
        print(table(rows))
    if result["plot"]:
        print(f"curves written to {result['plot']}")


def _lists(args: argparse.Namespace, n_lists: int) -> str:
    """Say which lists were gone through: more if these hold too few candidates."""
    if args.probe is not None:
        return "at least " + _count(min(args.probe, n_lists))
    held = 0.95 if args.recall is None else args.recall
    return f"the lists that hold {held:.4g} of the 10 nearest by the model"


def _through(given: dict[str, Any], n_lists: int) -> dict[str, Any]:
    """Return the same arguments of a search for so many lists."""
    return given | {"n_probe": n_lists, "recall": None}


def _count(n_lists: int) -> str:
    return f"{n_lists:,} {'list' if n_lists == 1 else 'lists'}"


def _numbers(index: Index | ShardedIndex) -> Callable[[NDArray[Any]], NDArray[np.int64]]:
    """Return a function that turns results into numbers, which recall compares: keys become their row numbers."""
    if not index.has_keys:
        return lambda ids: ids
    rows = {key: row for row, key in enumerate(index.ids)} | {None: -1}
    return lambda keys: np.array([rows[key] for key in keys.flat], dtype=np.int64).reshape(keys.shape)


def _probes(
    index: Index | ShardedIndex,
    Q: NDArray[Any],
    true_ids: NDArray[np.int64],
    k: int,
    numbers: Callable[[NDArray[Any]], NDArray[np.int64]],
    given: dict[str, Any],
) -> list[dict[str, Any]]:
    """Search more and more lists for the 10 best, or as many as are known, and return the share that is found."""
    sizes = index.list_sizes
    assert sizes is not None
    best, entries, n = min(10, true_ids.shape[1], k), [], 1
    while True:
        n = min(n, len(sizes))
        with Stopwatch() as watch:
            _, ids = index.search(Q, best, **_through(given, n))
        found = evaluate.recall(numbers(ids), true_ids, best, best)
        each = watch.seconds / len(ids)
        entry = {"lists": n, "share": n / len(sizes), "seconds": each, "best": best, "recall": found}
        entries.append(entry)
        if n == len(sizes):
            return entries
        n *= 4


def _exact(index: Index | ShardedIndex, Q: NDArray[Any], args: argparse.Namespace) -> NDArray[np.int64]:
    """Read or find the ids of the exact answers, best first; keys become their row numbers."""
    if args.truth is not None:
        true_ids = _rows_of_keys(args.truth, index) if index.has_keys else load_ids(args.truth)
        true_ids = true_ids[None, :] if true_ids.ndim == 1 else true_ids
        if true_ids.ndim != 2 or len(true_ids) != len(Q):
            raise ValueError(f"{args.truth} has shape {true_ids.shape}: want a row of ids for each of {len(Q)} queries")
        return true_ids
    X = load_vectors(args.vectors)
    if len(X) != len(index):
        raise ValueError(f"{args.vectors} has {len(X)} vectors, the index has {len(index)}: they must be the same")
    if X.shape[1] != index.dimension:
        raise ValueError(f"{args.vectors} has {X.shape[1]} dimensions, the index has {index.dimension}")
    k = number_of_results("-R", max(args.R), len(X), len(Q))
    _, rows = evaluate.ground_truth(X, Q, k, metric=index.metric, n_jobs=args.jobs, progress=args.progress)
    return rows if index.has_keys else index.ids[rows]


def _rows_of_keys(path: str, index: Index | ShardedIndex) -> NDArray[np.int64]:
    """Read keys as `search -o` writes them, texts that are empty where there is none, as the numbers of their rows."""
    array = open_array(path)
    texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    if texts.dtype.kind not in "Uiu":
        raise ValueError(f"{path}: has dtype {array.dtype}: want keys, as strings or integers")
    rows = {key_text(key): row for row, key in enumerate(index.ids)}
    if len(rows) < len(index):
        raise ValueError(f"{path}: the index has keys that are different and read the same, such as 7 and '7'")
    rows.setdefault("", -1)
    try:
        found = [rows[text] for text in np.ravel(texts.astype(str)).tolist()]
    except KeyError as error:
        raise ValueError(f"{path}: holds {error.args[0]!r}, which is no key of the index") from None
    return np.array(found, dtype=np.int64).reshape(texts.shape)


def recall_table(entries: list[dict[str, Any]]) -> str:
    """Lay out recall entries: one row per R, one column per P."""
    columns = sorted({entry["P"] for entry in entries})
    cells = {(entry["R"], entry["P"]): f"{entry['recall']:.3f}" for entry in entries}
    rows = [["recall", *(f"first {p}" for p in columns)]]
    rows += [
        [f"true best {r}" if r > 1 else "true best", *(cells.get((r, p), "") for p in columns)]
        for r in sorted({entry["R"] for entry in entries})
    ]
    return table(rows)
