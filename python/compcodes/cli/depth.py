"""How far a search goes: options that `search` and `eval` share."""

from __future__ import annotations

import argparse
from typing import Any

from compcodes import Index, ShardedIndex
from compcodes.cli.common import UsageError, load_vectors
from compcodes.cli.parameters import share, whole

__all__ = ["add_depth", "check_depth", "depth", "depth_names"]


def add_depth(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add(
        "--rerank",
        metavar="VECTORS",
        help="the database's vectors, to re-rank candidates with exact scores: a file, a folder, or a pattern in "
        "quotes; of either :NAME names a column",
    )
    add("--probe", type=whole(1), metavar="N", help="go through N lists, of an index that has them")
    add(
        "--recall",
        type=share,
        metavar="SHARE",
        help="go through the lists that hold this share of the best (default: 0.95)",
    )
    add(
        "--candidates",
        type=whole(1),
        metavar="N",
        help="with --rerank: how many for each query (default: ten times the answers)",
    )


def check_depth(args: argparse.Namespace) -> None:
    """Reject options that do not go together."""
    if args.candidates is not None and args.rerank is None:
        raise UsageError("--candidates says how many to re-rank: it needs --rerank VECTORS")
    if args.probe is not None and args.recall is not None:
        raise UsageError("--probe and --recall are both given: want one of them")


def depth(args: argparse.Namespace, index: Index | ShardedIndex) -> dict[str, Any]:
    """Return the options as arguments of a search."""
    vectors = None if args.rerank is None else load_vectors(args.rerank)
    if vectors is not None and len(vectors) != len(index):
        raise ValueError(f"{args.rerank} has {len(vectors)} vectors, the index has {len(index)}: they must be the same")
    return {"rerank": vectors, "n_candidates": args.candidates, "n_probe": args.probe, "recall": args.recall}


def depth_names(args: argparse.Namespace) -> dict[str, str]:
    """Return what to call these arguments in messages."""
    names = {"n_candidates": "--candidates", "n_probe": "--probe", "recall": "--recall"}
    return {"rerank": str(args.rerank), **names}
