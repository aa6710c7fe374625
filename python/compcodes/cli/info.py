"""Say what is in a file: a model, an index, or vectors.

Of models and indexes every byte is checked.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from compcodes import Index
from compcodes.cli.common import amount, load_model
from compcodes.data import load
from compcodes.data.files import is_vector_file

NAME = "info"

_HEADER_LIMIT = 100_000_000  # that of safetensors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", help="a model, an index, or a file of vectors")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Open the file and describe it."""
    if is_vector_file(args.file):
        X = load(args.file)
        return {
            "file": args.file,
            "kind": "vectors",
            "vectors": len(X),
            "dimension": X.shape[1],
            "type": str(X.dtype),
            "bytes": X.nbytes,
        }
    if _is_index(args.file):
        index = Index.load(args.file, n_jobs=args.jobs)
        content = {"kind": "index", "vectors": len(index), "bytes_per_vector": index.bytes_per_vector}
        model = index.quantizer
    else:
        content = {"kind": "model"}
        model = load_model(args.file, args.jobs)
    M, K, d = model.codebooks_.shape
    result = {"file": args.file, **content, "dimension": d, "codebooks": M, "codewords": K}
    result |= {name: getattr(model, name) for name in ("selection", "encoder", "loss")}
    if model.history_:
        last = model.history_[-1]
        result |= {"iterations": last["iteration"], "objective": last["objective"]}
    return {**result, "bytes": os.path.getsize(args.file)}


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    for name, value in result.items():
        text = amount(value) if name == "bytes" else value
        if isinstance(text, (int, float)):
            text = f"{text:,}" if isinstance(text, int) else f"{text:.6g}"
        print(f"{name.replace('_', ' '):<18}{text}")


def _is_index(path: str) -> bool:
    """Look at the header (safetensors: its length in 8 bytes, then JSON); what is broken is no index."""
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, _HEADER_LIMIT))
    try:
        return bool(json.loads(json.loads(header)["__metadata__"]["compcodes"])["kind"] == "index")
    except (ValueError, KeyError, TypeError):
        return False
