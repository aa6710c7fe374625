"""The command `build`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from compcodes import Index, ShardedIndex
from compcodes.cli import resume
from compcodes.cli.common import (
    Stopwatch,
    UsageError,
    called,
    check_output,
    check_overwriting,
    cluster_of,
    duration,
    load_model,
    load_vectors,
    noted,
    sizes,
    written,
)
from compcodes.cli.parameters import add_column, add_parameter, whole
from compcodes.data import Files, load, load_ids, load_names
from compcodes.data.files import file_of, with_column
from compcodes.data.many import is_many
from compcodes.data.names import names_of
from compcodes.sharded.index import is_sharded

NAME = "build"
SUMMARY = "Build an index: the codes of a database, ready to search."
DETAILS = "Vectors are encoded piece by piece; a build that was killed goes on where it was when it is started again."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("model", help="from: compcodes fit")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("vectors", nargs="?", help="the database's vectors: a file, a folder, or a pattern in quotes")
    source.add_argument("--codes", metavar="FILE", help="their codes instead, from: compcodes encode")
    parser.add_argument("-o", "--output", required=True, metavar="INDEX", help="where to write the index")
    parser.add_argument("--lists", metavar="FILE", help="with --codes, of a model with lists: the list of each vector")
    add_column(parser)
    names = parser.add_mutually_exclusive_group()
    names.add_argument(
        "--ids",
        metavar="FILE",
        help="an integer or a string for each vector, in a file or files of any kind, or of text lines (default: 0, 1, "
        "2, …)",
    )
    names.add_argument("--id-column", metavar="NAME", help="their column in the files of the vectors (.parquet, .h5)")
    parser.add_argument(
        "--shards",
        type=whole(1),
        metavar="N",
        help="write a folder of N index files, one at a time; an interrupted build goes on where it was",
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="with --shards: encode on a Dask cluster")
    add_parameter(
        parser, Index, "metric", help="what makes a vector a good answer, by default what the model was trained for"
    )
    add_parameter(parser, Index, "scale", help="correct the length of approximations, for one more byte each (ip)")
    add_parameter(
        parser,
        Index,
        "residuals",
        help="keep what proves results exact, for five more bytes each (ip, not with --scale)",
    )
    parser.add_argument(
        "--compact-norms",
        action="store_true",
        help="one more byte each instead of five (l2): the results are the same, and take longer to find",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Encode what is not encoded yet, and write the index."""
    for option in ("scale", "residuals"):
        if getattr(args, option) and args.codes is not None:
            raise UsageError(f"--{option} compares codes with vectors: it needs them instead of --codes")
    if args.codes is not None and (args.column or args.id_column):
        raise UsageError("--column and --id-column are of the file of vectors, which --codes takes the place of")
    if args.shards is not None and args.codes is not None:
        raise UsageError("--shards encodes vectors, a shard at a time: give them, and leave out --codes")
    if args.scheduler is not None and args.shards is None:
        raise UsageError("--scheduler encodes shards: it needs --shards N")
    source = file_of(str(args.vectors))
    if args.id_column is not None and not is_many(source):
        args.ids, args.id_column = with_column(source, args.id_column, "--id-column"), None
    check_overwriting({"-o": args.output}, [args.model, args.vectors, args.codes, args.ids, args.lists])
    if args.shards is not None:
        return _sharded(args)
    check_output(args.output)
    model = load_model(args.model, args.jobs)
    ids, called_ids = _ids(args)
    names = {option: f"--{option}" for option in ("metric", "scale", "residuals")}
    names |= {"X": str(args.vectors), "ids": called_ids, "codes": str(args.codes)}
    resumed = 0
    with called(names), Stopwatch() as watch:
        with noted() as notes:
            index: Index[Any] = Index(
                model,
                args.metric,
                args.jobs,
                scale=args.scale,
                residuals=args.residuals,
                exact_norms=not args.compact_norms,
                keys=ids is not None and ids.dtype == object,
            )
        if args.codes is not None:
            lists = None if args.lists is None else load_ids(args.lists).reshape(-1)
            index.add_codes(load(args.codes), ids=ids, lists=lists)
        else:
            X = load_vectors(args.vectors, args.column)
            if ids is not None:  # before the vectors are encoded, and not after
                index._names.given(ids, len(X))
            sources = [args.model] if isinstance(X, Files) else [args.model, source]
            resumed = resume.build(index, X, ids, sources, args.output, args.progress)
    with written(args.output):
        index.save(args.output)
    resume.forget(args.output)
    return _result(args, index, watch, notes, resumed)


def _ids(args: argparse.Namespace) -> tuple[NDArray[Any] | None, str]:
    """Read the names of the vectors, and return what the user calls their source."""
    if args.id_column is not None:  # of many files
        source = file_of(args.vectors)
        return names_of(source, args.id_column, "--id-column"), f"{source}:{args.id_column}"
    return (None if args.ids is None else load_names(args.ids)), str(args.ids)


def _sharded(args: argparse.Namespace) -> dict[str, Any]:
    """Write a folder of shards."""
    if not Path(args.output).is_dir():
        check_output(args.output)
    elif any(Path(args.output).iterdir()) and not is_sharded(args.output):
        raise UsageError(f"-o {args.output}: the folder holds something else than a sharded index")
    model, X = load_model(args.model, args.jobs), load_vectors(args.vectors, args.column)
    names = {option: f"--{option}" for option in ("metric", "scale", "residuals")}
    ids, called_ids = _ids(args)
    names |= {"X": str(args.vectors), "quantizer": args.model, "ids": called_ids, "path": "-o", "keys": "--ids"}
    names |= {"exact_norms": "--compact-norms"}
    given = {"scale": args.scale, "residuals": args.residuals, "exact_norms": not args.compact_norms}
    given["keys"] = ids is not None and ids.dtype == object
    with (
        called(names),
        Stopwatch() as watch,
        cluster_of(args.scheduler) as client,
        noted() as notes,
    ):
        index = ShardedIndex.build(
            args.output,
            model,
            X,
            args.shards,
            args.metric,
            args.jobs,
            ids=ids,
            client=client,
            progress=args.progress,
            **given,
        )
    return _result(args, index, watch, notes) | {"shards": len(index.shards), "version": index.version}


def _result(
    args: argparse.Namespace,
    index: Index[Any] | ShardedIndex,
    watch: Stopwatch,
    notes: dict[str, str],
    resumed: int = 0,
) -> dict[str, Any]:
    list_sizes = None if isinstance(index, ShardedIndex) else index.list_sizes
    return {
        **notes,
        **({"resumed": resumed} if resumed else {}),
        "index": args.output,
        "vectors": len(index),
        **({} if list_sizes is None else {"lists": len(list_sizes)}),
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "bytes": len(index) * index.bytes_per_vector,
        "seconds": watch.seconds,
    }


def show(result: dict[str, Any]) -> None:
    """Print the result for people."""
    if "resumed" in result:
        print(f"went on after {result['resumed']:,} vectors that were encoded before")
    if "lists" in result:
        print(f"in {result['lists']:,} lists")
    print(f"indexed {result['vectors']:,} vectors by {result['metric']} in {duration(result['seconds'])}")
    shards = f" in {result['shards']} shards" if "shards" in result else ""
    print(f"{sizes(result)}, written to {result['index']}{shards}")
