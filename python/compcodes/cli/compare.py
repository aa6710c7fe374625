"""The command `compare`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import Index, evaluate
from compcodes.cli.common import (
    Stopwatch,
    called,
    check_output,
    check_overwriting,
    duration,
    load_some,
    load_vectors,
    table,
    written,
)
from compcodes.cli.compare_page import METRICS, page
from compcodes.cli.parameters import choices, whole
from compcodes.comparison import METHODS, Contestant, Method, train
from compcodes.data.files import replacing
from compcodes.data.many import is_many
from compcodes.plot import thinned
from compcodes.progress import Bar
from compcodes.quantizers._settings import stages as stages_of
from compcodes.training.effort import EFFORTS
from compcodes.training.unit import unit

NAME = "compare"
SUMMARY = "Compare compression methods on your own vectors, and recommend one."
DETAILS = (
    "Every method is trained, encodes the database and is searched at each size; what it finds is measured against "
    "an exact search. Without --queries some vectors are kept out of the database and serve as queries. With at "
    "least 100 queries, half of them help to choose a loss and the other half is measured with."
)
LOGS = True  # it takes long, so lines of progress are also shown if standard error is not a terminal

MEASURES = ((1, 1), (10, 10), (10, 100), (100, 1000))
_QUERIES = 1000  # the most, for measuring
_RANKED_BY = "10@100"
_OPTIONS = {"n_codewords": "codewords"}  # parameters of `compcodes fit` that have a different name there


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    methods = "; ".join(f"{method.name}, {method.about}" for method in METHODS.values())
    add(
        "vectors",
        help="the database's vectors: a file, a folder, or a pattern in quotes; of either :NAME names a column",
    )
    add("--queries", metavar="FILE", help="vectors to search with (default: some of the vectors)")
    add("--bytes", type=_sizes, default=[8], metavar="M,M,…", help="sizes of a code, 1 to 64 each (default: 8)")
    add("--methods", type=_names, metavar="A,B,…", help=f"which (default: all): {methods}")
    add("--sample", type=whole(100), default=100_000, metavar="N", help="at most N of the vectors (default: 100000)")
    add(
        "--metric",
        choices=choices(Index, "metric"),
        default="ip",
        help="what makes a vector a good answer (default: ip, the inner product)",
    )
    add("--target", type=_share, default=0.9, metavar="SHARE", help="recall 10@100 that is enough (default: 0.9)")
    add(
        "--iterations",
        type=whole(1),
        metavar="N",
        help="the most rounds of training (default: each method's own)",
    )
    add(
        "--effort",
        choices=tuple(EFFORTS),
        default="low",
        help="of training compcodes itself; more takes longer and finds more (default: low)",
    )
    add("--seed", type=whole(0, 2**64 - 1), default=0, metavar="N", help="seed of the random numbers (default: 0)")
    add("--output", metavar="HTML", help="write a report with plots: one file, which needs no other")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train, measure, rank, recommend, and write the report."""
    if args.output is not None:
        check_overwriting({"--output": args.output}, [args.vectors, args.queries])
        check_output(args.output, ".html")
    X, Q, sample = _data(args)
    args.bytes_before, args.has_sample = X.shape[1] * X.itemsize, sample is not None
    if args.metric == "cosine":  # few methods scale vectors themselves
        X, Q = unit(X), unit(Q)
    k = min(1000, len(X))
    jobs = [(name, n_bytes) for n_bytes in args.bytes for name in args.methods or METHODS]
    bar_of_all = args.progress if isinstance(args.progress, Bar) else None
    if bar_of_all:
        bar_of_all.expect(_stages(jobs, len(X), args))
    results: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    interrupted = False
    try:
        with called({"X": args.vectors, "Q": str(args.queries or args.vectors)}):
            _, true_ids = evaluate.ground_truth(
                X, Q, min(100, k), metric=args.metric, n_jobs=args.jobs, progress=args.progress
            )
        for name, n_bytes in jobs:
            bar = _labelled(args.progress, f"{name} {n_bytes}")
            try:
                made = train(
                    METHODS[name], n_bytes, X, X, queries=sample, n_jobs=args.jobs, random_state=args.seed,
                    metric=args.metric, progress=bar, **_effort(METHODS[name], args),
                )  # fmt: skip
            except ValueError as error:  # such as product quantization with more parts than there are dimensions
                failed.append({"method": name, "bytes": n_bytes, "error": str(error)})
                continue
            result = {**_measure(made, X, Q, true_ids, k), "code": _python(made.method, n_bytes, args)}
            result["command"] = _command(made.method, n_bytes, args)
            results.append(result)
            if bar_of_all:
                shown = ", ".join(f"{measure} {recall:.3f}" for measure, recall in result["recall"].items())
                bar_of_all.say(f"{name} in {n_bytes} bytes: {shown}, trained in {duration(made.fit_seconds)}")
            # Written each time, so that a run that is killed leaves what it has found.
            _report(args, _found(args, X, Q, results, failed))
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True  # what was measured so far is kept
        args.exit_code = 130
    if not results:
        raise ValueError(f"no method could be trained: {failed[0]['method']}: {failed[0]['error']}")
    found = _found(args, X, Q, results, failed) | {"interrupted": interrupted}
    _report(args, found)
    return found


def _found(
    args: argparse.Namespace,
    X: NDArray[Any],
    Q: NDArray[Any],
    results: list[dict[str, Any]],
    failed: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return what is known after this many methods are measured."""
    ranked = sorted(
        results, key=lambda result: (result["bytes"], *(-result["recall"][m] for m in (_RANKED_BY, "10@10")))
    )
    best, reason = _recommend(ranked, args.target)
    return {
        "vectors": len(X),
        "dimension": X.shape[1],
        "queries": len(Q),
        "metric": args.metric,
        "held_out": args.queries is None,
        "sampled": len(X) + (len(Q) if args.queries is None else 0) < args.n_vectors,
        "bytes_before": args.bytes_before,
        "effort": None if args.iterations is not None else args.effort,
        "planned": len(args.bytes) * len(args.methods or METHODS),
        "results": ranked,
        "failed": failed,
        "interrupted": False,
        "recommended": {**{key: best[key] for key in ("method", "bytes", "command", "code")}, "reason": reason},
        "output": args.output,
    }


def _report(args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write the page, replacing an earlier one atomically."""
    if args.output is None:
        return
    with written(args.output), replacing(args.output) as beside:
        beside.write_text(page(found, Path(args.vectors).name), encoding="utf-8")


def show(result: dict[str, Any]) -> None:
    """Print the ranking for people."""
    queries = "of them kept out as queries" if result["held_out"] else "queries"
    part = "a sample of " if result["sampled"] else ""
    size = f"{result['vectors']:,} vectors of {result['bytes_before']} bytes"
    print(f"{part}{size}, {result['queries']:,} {queries}; exact answers by {METRICS[result['metric']]}\n")
    measures = list(result["results"][0]["recall"])
    header = ["method", "bytes", *measures, "x error", "ip error", "train", "encode", "search"]
    print(table([header, *(_row(entry, measures) for entry in result["results"])]))
    print(
        "\n10@100: the share of the true best 10 that are among the first 100 found, and so after these are re-ranked."
    )
    print("x error: mean squared; ip error: mean, of a query's 100 best. Encode: per vector; search: per query.")
    if result["interrupted"]:
        print("interrupted: only these were compared.")
    if result["effort"] == "low":
        print("compcodes was trained with --effort low; its default takes longer and finds more.")
    for entry in result["failed"]:
        print(f"not compared: {entry['method']} in {entry['bytes']} bytes: {entry['error']}")
    best = result["recommended"]
    print(
        f"\nrecommended: {best['method']} in {best['bytes']} bytes. {best['reason']}\n\n"
        f"{best['command'] or best['code']}"
    )
    if result["output"]:
        print(f"\nreport written to {result['output']}")


def _stages(jobs: list[tuple[str, int]], n: int, args: argparse.Namespace) -> dict[str, float]:
    """Return the stages of a comparison of `n` vectors, and the approximate relative time of each."""
    stages: dict[str, float] = {"exact search": 0.02}
    for name, n_bytes in jobs:
        method = METHODS[name]
        if method.cls == "CompositionalCodes":
            model = method.make(n_bytes, **_effort(method, args))
            each = 1.0 if model.encoder == "local-search" else 0.1
            passes = stages_of(model, n)
            stages |= {f"{name} {n_bytes} {stage}": each * n_bytes / 8 * share / n for stage, share in passes.items()}
            stages[f"{name} {n_bytes} encode"] = 8 * each * n_bytes / 8
        else:
            stages |= {f"{name} {n_bytes} {stage}": 0.5 * n_bytes / 8 for stage in ("fit", "encode")}
    return stages


def _row(entry: dict[str, Any], measures: list[str]) -> list[str]:
    recalls = (f"{entry['recall'][m]:.3f}" for m in measures)
    errors = ("–" if entry[key] is None else f"{entry[key]:.4g}" for key in ("vector_error", "inner_product_error"))
    times = (duration(entry[key]) for key in ("fit_seconds", "encode_seconds_each", "search_seconds_each"))
    return [entry["method"], str(entry["bytes"]), *recalls, *errors, *times]


def _sizes(text: str) -> list[int]:
    """Read sizes separated by commas, without repetition and in ascending order."""
    return sorted({whole(1, 64)(part.strip()) for part in text.split(",")})


def _names(text: str) -> list[str]:
    by_name = {name.lower(): name for name in METHODS}
    names = [part.strip().lower() for part in text.split(",")]
    if unknown := [name for name in names if name not in by_name]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(METHODS)}")
    return list(dict.fromkeys(by_name[name] for name in names))


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def _data(args: argparse.Namespace) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return the database, the queries to measure with, and those to choose a loss with, if any."""
    X = load_vectors(args.vectors)
    args.n_vectors = len(X)
    if len(X) < 20:
        raise ValueError(f"{args.vectors} has {len(X)} vectors: comparing needs at least 20")
    rng = np.random.default_rng(args.seed)
    if args.queries is None:
        n_queries = min(_QUERIES, len(X) // 10)
        rows = rng.permutation(len(X))[: args.sample + n_queries]
        return np.asarray(X[np.sort(rows[n_queries:])]), np.asarray(X[np.sort(rows[:n_queries])]), None
    Q = load_some(args.queries)
    if len(Q) == 0:
        raise ValueError(f"{args.queries}: no queries to measure with")
    if Q.shape[1] != X.shape[1]:
        raise ValueError(f"{args.queries} has {Q.shape[1]} dimensions, {args.vectors} has {X.shape[1]}")
    if len(X) > args.sample:
        X = X[np.sort(rng.choice(len(X), args.sample, replace=False))]
    order = rng.permutation(len(Q))
    measured = np.sort(order[: min(_QUERIES, len(Q) // 2 if len(Q) >= 100 else len(Q))])
    others = np.sort(order[len(Q) // 2 :][:10_000]) if len(Q) >= 100 else None
    return np.asarray(X), np.asarray(Q[measured]), None if others is None else np.asarray(Q[others])


def _effort(method: Method, args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that determine how long a method trains."""
    if args.iterations is not None:
        return {"max_iter": args.iterations, "anneal": args.iterations}
    own = method.cls == "CompositionalCodes" and "encoder" not in method.parameters  # the paper's lacks this choice
    return {"effort": args.effort} if own and args.effort != "default" else {}


def _labelled(progress: Callable[[str, int, int], object] | None, label: str) -> Any:
    return None if progress is None else lambda stage, done, total: progress(f"{label} {stage}", done, total)


def _measure(made: Contestant, X: NDArray[Any], Q: NDArray[Any], true_ids: NDArray[np.int64], k: int) -> dict[str, Any]:
    seconds = []
    for _ in range(3):
        with Stopwatch() as watch:
            ids = made.search(Q, k)
        seconds.append(watch.seconds)
    # With few vectors, only the smaller measures remain.
    pairs = [(R, P) for R, P in MEASURES if true_ids.shape[1] >= R]
    positions, curve = thinned(evaluate.recall_curve(ids, true_ids, min(10, true_ids.shape[1])))
    errors: tuple[float | None, float | None] = (None, None)
    if made.approximates:
        errors = (
            evaluate.vector_error(X, made.decode_batches()),
            evaluate.inner_product_error(X, made.decode_batches(), Q, true_ids),
        )
    return {
        "method": made.method.name,
        "about": made.method.about,
        "bytes": made.n_bytes,
        "recall": {f"{R}@{P}": evaluate.recall(ids, true_ids, R, min(P, k)) for R, P in pairs},
        "curve": {"P": positions, "recall": curve},
        "vector_error": errors[0],
        "inner_product_error": errors[1],
        "fit_seconds": made.fit_seconds,
        "encode_seconds_each": made.encode_seconds / len(X),
        "search_seconds_each": min(seconds) / len(Q),
    }


def _recommend(results: list[dict[str, Any]], target: float) -> tuple[dict[str, Any], str]:
    """Choose the best result of the smallest size whose best is good enough, or else the best of all."""
    enough = [result for result in results if result["recall"][_RANKED_BY] >= target]
    if enough:
        best = enough[0]
        return best, f"It is the best of the smallest size that reaches recall 10@100 of {target:g}."
    best = max(results, key=lambda result: (result["recall"][_RANKED_BY], -result["bytes"]))
    return best, f"It finds most; none reaches recall 10@100 of {target:g}: larger codes would."


def _command(method: Method, n_bytes: int, args: argparse.Namespace) -> str | None:
    """Return the commands that build the index, if the command can train the method."""
    if method.cls != "CompositionalCodes":
        return None
    options = [f"--{_OPTIONS.get(name, name)} {value}" for name, value in method.parameters.items()]
    if args.metric != "ip":
        options.append(f"--metric {args.metric}")
    if args.has_sample:
        options.append(f"--queries {shlex.quote(args.queries)}")
    if args.seed:
        options.append(f"--seed {args.seed}")
    if args.iterations is not None:
        options.append(f"--iterations {args.iterations} --anneal {args.iterations}")
    elif "effort" in _effort(method, args):
        options.append(f"--effort {args.effort}")
    vectors = shlex.quote(args.vectors)
    fit = " ".join([f"compcodes fit {vectors} -o model.cc --bytes {n_bytes}", *options])
    return f"{fit}\ncompcodes build model.cc {vectors} -o index.cc"


def _python(method: Method, n_bytes: int, args: argparse.Namespace) -> str:
    opener = "open_many" if is_many(args.vectors) else "load"
    lines = ["import compcodes as cc", f"X = cc.data.{opener}({args.vectors!r})"]
    others = _effort(method, args) | ({"random_state": args.seed} if args.seed else {})
    others |= {"metric": args.metric} if args.metric != "ip" else {}
    if args.metric == "cosine" and method.cls != "CompositionalCodes":
        lines[:1] = ["import numpy as np", *lines[:1]]
        lines.append("X = np.asarray(X[:], np.float32).astype(np.float64)")
        lines.append("lengths = np.linalg.norm(X, axis=1, keepdims=True)")
        lines.append("X /= np.where(lengths > 0, lengths, 1)")
    expression = method.expression(n_bytes, **others)
    queries = ""
    if method.cls == "CompositionalCodes" and args.has_sample:
        queries = f", queries={_queries(args.queries)}"
    lines.append(f"q = {expression}.fit(X{queries})")
    if method.hashes:
        return "\n".join([*lines, "codes = q.encode(X)  # and then q.search(Q, codes, k=10)"])
    metric = f", {args.metric!r}" if args.metric != "ip" else ""
    return "\n".join([*lines, f'cc.Index(q{metric}).add(X).save("index.cc")'])


def _queries(path: str) -> str:
    """Return the Python expression for the queries in a file, or in several."""
    return f"cc.data.open_many({path!r})[:]" if is_many(path) else f"cc.data.load_queries({path!r})"
