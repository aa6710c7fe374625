"""The command `info`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compcodes import ShardedIndex
from compcodes.cli.common import amount, load_index, load_model, load_vectors, loss_text
from compcodes.data import load_queries
from compcodes.data.files import check_regular, file_of, is_vector_file, open_array
from compcodes.data.many import is_many, paths_of
from compcodes.sharded.index import is_sharded

NAME = "info"
SUMMARY = "Say what is in a file: a model, an index, vectors, or ids."
DETAILS = "Of models and indexes every byte is checked."

_HEADER_LIMIT = 100_000_000  # that of safetensors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file", help="a model, an index, the folder of a sharded one, a file of vectors or ids, or a folder of vectors"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Open the file and describe it."""
    if is_sharded(args.file):
        return _sharded(ShardedIndex.open(args.file, args.jobs).verify())
    if is_many(args.file):
        return {"file": args.file, **_describe_many(args.file)}
    if is_vector_file(args.file):
        return {"file": args.file, **_describe(args.file)}
    check_regular(args.file)
    header = _header(args.file)
    settings = header.get("settings", {})
    if settings.get("kind") == "index":
        index = load_index(args.file, args.jobs)
        content = {"kind": "index", "vectors": len(index), "metric": index.metric, "keys": index.has_keys}
        content |= {"scale": settings.get("scale") in ("true", True), "bytes_per_vector": index.bytes_per_vector}
        model = index.quantizer
        if index.list_sizes is not None:
            content |= lists(index.list_sizes) | {"drift": index.drift}
    else:
        content = {"kind": "model"}
        model = load_model(args.file, args.jobs)
    if model._lists is not None:
        content.setdefault("lists", len(model._lists))
    M, K, d = model.codebooks_.shape
    result = {"file": args.file, **content, "dimension": d, "codebooks": M, "codewords": K}
    groups = getattr(model, "n_groups_", 1)
    if groups > 1:
        result["groups"] = groups
    # A parameter may be an object with parameters of its own.
    shown = [name for name in ("selection", "encoder", "loss") if hasattr(model, name)]
    result |= {"method": model.method, **{name: str(getattr(model, name)) for name in shown}}
    if hasattr(model, "loss_"):
        result["loss"] = loss_text(model.loss_)
    if model.metric_ is not None:
        result["trained_for"] = model.metric_
    if model.history_:
        last = model.history_[-1]
        result |= {"iterations": last["iteration"], "objective": last["objective"]}
    begin, end = header["codebooks"]["data_offsets"]
    return {**result, "bytes": os.path.getsize(args.file), "codebooks_bytes": end - begin}


def _sharded(index: ShardedIndex) -> dict[str, Any]:
    """Describe a folder of shards."""
    M, K, d = index.quantizer.codebooks_.shape
    sizes = index.list_sizes
    return {
        "file": str(index.path),
        "kind": "sharded index",
        "vectors": len(index),
        "shards": len(index.shards),
        "removed": sum(shard.n_removed for shard in index.shards),
        "version": index.version,
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "dimension": d,
        "codebooks": M,
        "codewords": K,
        **({} if sizes is None else lists(sizes)),
        "fingerprint": index.fingerprint[:12],
        "bytes": sum(shard.bytes for shard in index.shards),
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    histogram = result.pop("list_sizes", None)
    for name, value in result.items():
        text = amount(value) if name in ("bytes", "codebooks_bytes") else value
        if isinstance(text, bool):
            text = "yes" if text else "no"
        if isinstance(text, (int, float)):
            text = f"{text:,}" if isinstance(text, int) else f"{text:.6g}"
        label = "codebook bytes" if name == "codebooks_bytes" else name.replace("_", " ")
        print(f"{label:<18}{text}")
    if histogram:
        print("vectors in a list:")
        most = max(count for _, _, count in histogram)
        for low, high, count in histogram:
            bar = "█" * round(40 * count / most)
            print(f"{low:>10,} to {high:<10,}{count:>8,} lists  {bar}")


def lists(sizes: NDArray[np.int64]) -> dict[str, Any]:
    """Describe lists: how many, how large, and a histogram of (least, most, lists) by size."""
    edges = np.unique(np.linspace(sizes.min(), sizes.max() + 1, 11).round().astype(int))
    counts, _ = np.histogram(sizes, edges)
    histogram = [[int(a), int(b) - 1, int(n)] for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    largest = float(sizes.max() / sizes.mean()) if sizes.any() else 1.0
    return {"lists": len(sizes), "largest_over_mean": largest, "list_sizes": histogram}


def _describe(path: str) -> dict[str, Any]:
    """Describe the array in a file: several vectors, one, or ids."""
    array = open_array(path)
    if array.dtype.kind in "US":
        return {"kind": "ids", "ids": array.size, "type": str(array.dtype), "bytes": array.nbytes}
    if array.ndim == 1 and array.dtype.kind in "iu":
        content: dict[str, Any] = {"kind": "ids", "ids": len(array)}
        if len(array):
            content |= {"smallest": int(array.min()), "largest": int(array.max())}
    else:
        array = load_queries(path)
        content = {"kind": "vectors", "vectors": len(array), "dimension": array.shape[1]}
    return {**content, "type": str(array.dtype), "bytes": array.nbytes}


def _describe_many(path: str) -> dict[str, Any]:
    """Describe the vectors in many files."""
    vectors = load_vectors(path)
    n, d = vectors.shape
    content = {"kind": "vectors", "files": len(paths_of(file_of(path))), "vectors": n, "dimension": d}
    return {**content, "type": str(vectors.dtype), "bytes": n * d * vectors.dtype.itemsize}


def _header(path: str) -> dict[str, Any]:
    """Read the header (safetensors: its length in 8 bytes, then JSON); it is empty for a broken file."""
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(min(length, _HEADER_LIMIT))
    try:
        header = json.loads(text)
        metadata = header["__metadata__"]
        ours = json.loads(metadata["compcodes"])  # in the first version of the format it holds all others
        return {**header, "settings": ours if ours["version"] == 1 else metadata}
    except (ValueError, KeyError, TypeError):
        return {}
