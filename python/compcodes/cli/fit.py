"""The command `fit`."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from numpy.typing import NDArray

from compcodes import Beam, CompositionalCodes, LocalSearch
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    cluster_of,
    duration,
    load_some,
    load_vectors,
    loss_text,
    noted,
    written,
)
from compcodes.cli.parameters import add_column, add_parameter, groups, whole
from compcodes.data import Files
from compcodes.progress import Bar
from compcodes.quantizers._settings import anneals, stages

NAME = "fit"
SUMMARY = "Learn a model (codebooks) from vectors."
DETAILS = "The options are the parameters of compcodes.CompositionalCodes, which explains them."

SAMPLE = 1 << 30
"""Bytes of vectors that are trained on if there are several files."""


_HALF_A_BYTE = 16
"""The most codewords whose numbers take half a byte."""


def _lists(text: str) -> int | str:
    """Read a number of lists, or "auto"."""
    return text if text == "auto" else whole(1, 2**20)(text)


_PARAMETERS: dict[str, dict[str, Any]] = {
    "n_codebooks": {
        "option": "--codebooks",
        "metavar": "M",
        "type": whole(1, 256),
        "help": "codebooks, 1 to 256, if not --bytes",
    },
    "n_codewords": {
        "option": "--codewords",
        "metavar": "K",
        "type": whole(2, 256),
        "help": "codewords of a codebook, 2 to 256",
    },
    "selection": {"help": "which codewords make a sum"},
    "encoder": {"help": "how codes are chosen"},
    "metric": {"help": "what vectors will be searched by"},
    "loss": {"help": "what training makes small, by default what suits the metric"},
    "init": {"help": "the codebooks it starts from"},
    "effort": {"help": "how much time training and encoding take"},
    "anneal": {"type": whole(0), "metavar": "N", "help": "rounds with decreasing noise before those, for local search"},
    "max_iter": {"option": "--iterations", "type": whole(0), "help": "the most rounds of training"},
    "tol": {"metavar": "SHARE", "help": "stop when a round lowers the loss by less than this share"},
    "ridge": {"metavar": "SHARE", "help": "how strongly an update is held to the codebooks before it"},
    "shrinkage": {"help": "how strongly few data pull codewords together, 0 for not at all"},
    "n_groups": {
        "option": "--groups",
        "type": groups,
        "metavar": "G",
        "help": "groups of codebooks, each in dimensions of its own",
    },
    "max_train": {"type": whole(1), "help": "train on a random sample of at most N vectors"},
    "n_lists": {"option": "--lists", "metavar": "N", "type": _lists, "help": "divide an index into N lists"},
    "list_size": {"metavar": "N", "type": whole(1), "help": "divide an index into lists of about N vectors"},
    "random_state": {"option": "--seed", "type": whole(0, 2**64 - 1), "help": "seed of the random numbers"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command, including one option per parameter of the model."""
    add = parser.add_argument
    add(
        "vectors",
        help="vectors to learn from (.npy, .fvecs, .bvecs, .ivecs, .parquet, .h5): a file, a folder, or a pattern in "
        "quotes; of several files a random sample of 1 GB, if --max-train does not say otherwise",
    )
    add_column(parser)
    add("-o", "--output", required=True, metavar="MODEL", help="where to write the model")
    names = [name for name in inspect.signature(CompositionalCodes).parameters if name != "n_jobs"]
    add(
        "--bytes",
        type=whole(1, 256),
        metavar="B",
        help="bytes of a code, 1 to 256: as many codebooks, or twice as many of at most 16 codewords, two to a byte",
    )
    options = {name: add_parameter(parser, CompositionalCodes, name, **_PARAMETERS[name]) for name in names}
    add(
        "--rounds",
        type=whole(1, 65535),
        metavar="N",
        help="rounds of local search per vector, in the place of what the effort stands for",
    )
    add("--beam", type=whole(1, 65535), metavar="N", help="partial codes that the beam keeps, with --encoder beam")
    add("--scheduler", metavar="ADDRESS", help="train on a Dask cluster")
    add("--queries", metavar="FILE", help="sample queries, for a loss that uses them")
    # What is given is told from what is not, even if it is the default.
    parser.set_defaults(options=options, n_codebooks=None)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train, write the model, and say how well it went."""
    check_overwriting({"-o": args.output}, [args.vectors, args.queries])
    check_output(args.output)
    _choose_encoder(args)
    _choose_codebooks(args)
    X = load_vectors(args.vectors, args.column)
    queries = None if args.queries is None else load_some(args.queries)
    parameters = {name: getattr(args, name) for name in args.options}
    if isinstance(X, Files) and args.max_train is None:
        parameters["max_train"] = max(1, SAMPLE // max(1, X.shape[1] * X.itemsize))
    names = {**args.options, "X": args.vectors, "queries": str(args.queries)}
    with called(names), cluster_of(args.scheduler), Stopwatch() as watch, noted() as notes:
        quantizer = CompositionalCodes(n_jobs=args.jobs, **parameters)
        if isinstance(args.progress, Bar):
            args.progress.expect(stages(quantizer, len(X)))
        quantizer.fit(_on_cluster(X) if args.scheduler else X, queries=queries, progress=args.progress)
    with written(args.output):
        quantizer.save(args.output)
    M, K, d = quantizer.codebooks_.shape
    last = quantizer.history_[-1]
    return {
        **notes,
        "model": args.output,
        "vectors": len(X),
        "trained_on": last["vectors"],
        "dimension": d,
        "type": str(X.dtype),
        "codebooks": M,
        "codewords": K,
        "bytes_before": d * X.itemsize,
        "bytes_per_vector": M if K > _HALF_A_BYTE else (M + 1) // 2,
        **({} if quantizer.centroids_ is None else {"lists": len(quantizer.centroids_)}),
        "metric": quantizer.metric_,
        "loss": quantizer.loss_,
        "iterations": last["iteration"],
        "objective": float(last["objective"]),
        "ended": _why(quantizer),
        "seconds": watch.seconds,
    }


def _on_cluster(X: NDArray[Any] | Files) -> Any:
    """Let the workers read what they can read themselves."""
    if isinstance(X, Files):
        return X
    import dask.array

    return dask.array.from_array(X, chunks=("auto", -1))  # type: ignore[no-untyped-call]


def _choose_encoder(args: argparse.Namespace) -> None:
    """Replace the name of an encoder with the encoder and its parameters."""
    for option, encoder, kind in (("rounds", "local-search", LocalSearch), ("beam", "beam", Beam)):
        value = getattr(args, option)
        if value is None:
            continue
        if args.encoder != encoder:
            raise UsageError(f"--{option} goes with --encoder {encoder}, not {args.encoder}")
        args.encoder = kind(value)


def _choose_codebooks(args: argparse.Namespace) -> None:
    """Set the number of codebooks: by default, or those that fill a size in bytes."""
    if args.bytes is None:
        if args.n_codebooks is None:
            args.n_codebooks = inspect.signature(CompositionalCodes).parameters["n_codebooks"].default
    else:
        if args.n_codebooks is not None:
            raise UsageError("argument --codebooks: not allowed with argument --bytes")
        args.n_codebooks = args.bytes * (2 if args.n_codewords <= _HALF_A_BYTE else 1)
        if args.n_codebooks > 256:
            raise UsageError(f"--bytes is {args.bytes}: with --codewords {args.n_codewords}, want at most 128")
        args.options["n_codebooks"] = "--bytes"


def _why(quantizer: CompositionalCodes) -> str:
    """Say why training ended."""
    history, asked = quantizer.history_, quantizer.max_iter
    before = "after those with noise " if anneals(quantizer) else ""
    if history[-1]["objective"] == 0:
        return "the start is exact"
    if asked is not None and history[-1]["iteration"] >= asked:
        return f"{before}as many as were asked for"
    if len(history) == 1:
        return f"{before}none lowered the loss"
    gain = 1 - history[-1]["objective"] / history[-2]["objective"]
    return f"{before}the last gained {gain:.1%}"


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    before, after = result["bytes_before"], result["bytes_per_vector"]
    few = result["trained_on"] < result["vectors"]
    of = f"{result['trained_on']:,} of " if few else ""
    print(f"learned from {of}{result['vectors']:,} vectors in {duration(result['seconds'])}")
    print(f"metric: {result['metric']}, loss: {loss_text(result['loss'])}")
    print(f"iterations: {result['iterations']} ({result['ended']}), mean loss: {result['objective']:.6g}")
    if "lists" in result:
        print(f"lists: {result['lists']:,}")
    gain = f"{before / after:.3g} times less" if before > after else "no less"
    print(f"a vector of {before} bytes ({result['type']}) becomes {after} byte{'s' * (after > 1)}, {gain}")
    print(f"model written to {result['model']}")
