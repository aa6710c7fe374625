"""The command `demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from compcodes import CompositionalCodes, Index, evaluate
from compcodes._choices import Effort
from compcodes.cli.common import Stopwatch, amount, duration, table, written
from compcodes.cli.evaluation import recall_table
from compcodes.cli.parameters import whole
from compcodes.data import glove
from compcodes.plot import recall_figure

NAME = "demo"
SUMMARY = "Show the method at work on word vectors that come with the package."
DETAILS = (
    "20,000 English words as 100-dimensional GloVe vectors are compressed from 400 bytes to 8. A thousand of them, "
    "always the same, are kept out of the compressed set and looked up in it, to measure recall."
)

_WORDS = "king paris guitar physics coffee monday"
_HELD_OUT = 1000
_PLOT = "recall.png"
_FOUND = 1000  # results requested from the index per query: the width of the curves
_RERANKED = 100  # candidates from the codes that are sorted by exact inner products
_SHOWN = 6  # matches printed per word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add = parser.add_argument
    add(
        "--words",
        nargs="+",
        default=_WORDS.split(),
        metavar="WORD",
        help=f"words to look up (default: {_WORDS})",
    )
    add("--bytes", type=whole(1, 64), default=8, metavar="M", help="bytes per vector, 1 to 64 (default: 8)")
    add(
        "--effort",
        choices=get_args(Effort),
        default="low",
        help="how much time training and encoding take (default: low)",
    )
    add("--output", default="demo-output", metavar="DIR", help=f"folder for {_PLOT}, the plot (default: demo-output)")
    add("--seed", type=whole(0, 2**64 - 1), default=0, metavar="N", help="seed of the random numbers (default: 0)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train, compress, search, compare with the exact answers, and draw."""
    words, vectors = glove()
    shown = _rows(words, args.words)
    queries, database = _split(words)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    X, Q, W = (_unit(vectors[rows]) for rows in (database, queries, shown))

    index, seconds = _compress(X, database, args.bytes, args, "inner-product")
    with Stopwatch() as search:
        _, ids = index.search(Q, k=_FOUND, progress=args.progress)
    found = {}
    for n_bytes in sorted({max(args.bytes // 4, 1), max(args.bytes // 2, 1)} - {args.bytes}):
        # The loss chosen for the largest size is reused for the smaller ones: this saves choosing it again.
        smaller, _ = _compress(X, database, n_bytes, args, cast(CompositionalCodes, index.quantizer).loss_)
        found[f"{n_bytes} byte{'s'[: n_bytes > 1]}"] = smaller.search(Q, k=_FOUND, progress=args.progress)[1]
    found[f"{args.bytes} byte{'s'[: args.bytes > 1]}"] = ids
    true_ids = database[evaluate.ground_truth(X, Q, k=100, n_jobs=args.jobs, progress=args.progress)[1]]
    # Words in the database find themselves, which is left out: so one more is requested.
    exact_scores, exact_rows = evaluate.ground_truth(X, W, k=_SHOWN + 1, n_jobs=args.jobs)
    matches = {
        "codes": index.search(W, k=_SHOWN + 1),
        "reranked": index.search(W, k=_SHOWN + 1, rerank=X, n_candidates=_RERANKED),
        "exact": (exact_scores, database[exact_rows]),
    }

    pairs = [(r, p) for r in (1, 10, 100) for p in (1, 10, 100, 1000) if p >= r]
    return {
        "database": len(X),
        "queries": len(Q),
        "dimension": X.shape[1],
        "bytes_before": X.shape[1] * X.itemsize,
        "bytes_per_vector": index.bytes_per_vector,
        "codebooks_bytes": index.quantizer.codebooks_.nbytes,
        "effort": args.effort,
        "seconds": {**seconds, "search": search.seconds},
        "words": [
            {"word": word, **{key: _named(words, row, ids[i], s[i]) for key, (s, ids) in matches.items()}}
            for i, (word, row) in enumerate(zip(args.words, shown, strict=True))
        ],
        "recall": [{"R": r, "P": p, "recall": evaluate.recall(ids, true_ids, R=r, P=p)} for r, p in pairs],
        **_draw(folder / _PLOT, found, true_ids, f"{len(X):,} words in a few bytes each"),
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    n, before, after = result["database"], result["bytes_before"], result["bytes_per_vector"]
    seconds = result["seconds"]
    print(f"{n:,} words as {result['dimension']}-dimensional GloVe vectors, scaled to length 1 so that")
    print(f"the inner product is the cosine. {result['queries']:,} others, always the same, are queries.\n")
    print(
        table(
            [
                ["vectors (float32)", f"{before} bytes each", amount(n * before)],
                ["codes", f"{after} bytes each", amount(n * after)],
                ["codebooks", "", amount(result["codebooks_bytes"])],
            ]
        )
    )
    print(
        f"\ntrained with {result['effort']} effort in {duration(seconds['fit'])}, "
        f"encoded in {duration(seconds['encode'])}",
        end=", ",
    )
    print(f"searched in {duration(seconds['search'] / result['queries'])} a query of {_FOUND:,} answers\n")
    for entry in result["words"]:
        exact = [name for name, _ in entry["exact"]]
        print(entry["word"])
        for title, key in (("codes", "codes"), ("re-ranked", "reranked"), ("exact", "exact")):
            names = (name if name in exact else f"({name})" for name, _ in entry[key])
            print(f"  {title:<10}", ", ".join(names))
    print(f"\nRe-ranked: the first {_RERANKED} from the codes in the order of their exact inner products.")
    print("In brackets: not among the exact matches shown.\n")
    print(recall_table(result["recall"]))
    print("Each figure is the share of the true best that are among the first found in the codes.\n")
    print(f"curves written to {result['plot']}" if result["plot"] else f"no plot: {result['no_plot']}")


def _rows(words: list[str], shown: list[str]) -> NDArray[np.int64]:
    position = {word: i for i, word in enumerate(words)}
    if unknown := [word for word in shown if word not in position]:
        raise ValueError(f"not among the {len(words):,} words: {', '.join(unknown)}")
    return np.array([position[word] for word in shown], np.int64)


def _split(words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the rows that are queries and those that are the database: always the same, so results are comparable."""
    first = _rows(words, _WORDS.split())
    others = np.setdiff1d(np.arange(len(words)), first)
    queries = np.concatenate([first, np.random.default_rng(0).choice(others, _HELD_OUT - len(first), replace=False)])
    return queries, np.setdiff1d(np.arange(len(words)), queries)


def _compress(
    X: NDArray[np.float32], ids: NDArray[np.int64], n_bytes: int, args: argparse.Namespace, loss: Any
) -> tuple[Index, dict[str, float]]:
    """Train on the vectors and index them; also return how many seconds that took."""
    effort = {"effort": args.effort, "random_state": args.seed, "n_jobs": args.jobs}
    quantizer = CompositionalCodes(n_codebooks=n_bytes, loss=loss, **effort)
    with Stopwatch() as fit:
        quantizer.fit(X, progress=args.progress)
    index = Index(quantizer, n_jobs=args.jobs)
    with Stopwatch() as encode:
        index.add(X, ids=ids, progress=args.progress)
    return index, {"fit": fit.seconds, "encode": encode.seconds}


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Scale to length 1: raw inner products would favour words with long vectors over those that are near."""
    floats = vectors.astype(np.float32)
    unit: NDArray[np.float32] = floats / np.linalg.norm(floats, axis=1, keepdims=True)
    return unit


def _named(
    words: list[str], row: np.int64, ids: NDArray[np.int64], scores: NDArray[np.float32]
) -> list[tuple[str, float]]:
    """Return the words found for the word in `row`, leaving out the word itself."""
    found = [(words[i], float(score)) for i, score in zip(ids, scores, strict=True) if i != row]
    return found[:_SHOWN]


def _draw(path: Path, found: dict[str, NDArray[np.int64]], true_ids: NDArray[np.int64], title: str) -> dict[str, Any]:
    """Write the curves, or say why not: everything else is useful without them."""
    try:
        figure = recall_figure(found, true_ids, title=title)
    except ImportError as error:
        return {"plot": None, "no_plot": str(error)}
    with written(str(path)):
        figure.savefig(path, dpi=150)
    return {"plot": str(path)}
