"""Write one file of each kind, and what they hold, with the code at hand.

    python tests/write_files.py tests/data/v2
    python tests/write_files.py tests/data/v3

Run once for each version of the format, by the last code that writes it. `test_formats.py` then holds every later
release to reading them. A file says version 3 where it holds what version 2 did not know: lists, keys, groups, or codes
of half a byte.
"""

import json
import sys
import uuid
import warnings
from pathlib import Path

import numpy as np

import compcodes as cc

SIZES = {"n_codebooks": 2, "n_codewords": 18}
SHORT = SIZES | {"max_iter": 2, "anneal": 2}
HALVES = SHORT | {"n_codebooks": 3, "n_codewords": 16}
SETTINGS = {
    "ip": {"metric": "ip"},
    "cosine": {"metric": "cosine"},
    "l2": {"metric": "l2"},
    "l2-levels": {"metric": "l2", "exact_norms": False},
    "scale": {"metric": "ip", "scale": True},
    "residuals": {"metric": "ip", "residuals": True},
}


def second(X, Q):
    """What version 2 knew: each method, loss, encoder and selection; each metric and setting, ids, and no vectors."""
    made = dict(models(X, Q))
    yield from made.items()
    yield from indexes(made["local-search"], X)


def third(X, Q):
    """What came with version 3, with each metric and setting."""
    beam = {"encoder": cc.Beam(width=3)}
    loss = cc.InnerProduct(eta=2.0, weight_power=1.0)
    lists = cc.CompositionalCodes(**SHORT, **beam, n_lists=5, loss=loss).fit(X, queries=Q)
    groups = cc.CompositionalCodes(**SHORT, n_groups=2, loss=cc.InnerProduct(eta=2.0, weight_power=0.0)).fit(X)
    both = cc.CompositionalCodes(**HALVES, **beam, list_size=20, metric="cosine").fit(X)
    yield from {"lists": lists, "groups": groups, "lists-halves": both}.items()
    yield "lists-groups", cc.CompositionalCodes(**SHORT, n_groups=2, n_lists=3, metric="l2").fit(X)
    halves = cc.CompositionalCodes(**HALVES, **beam).fit(X)
    for kind, quantizer in {"halves": halves, "lists": lists}.items():
        yield from ((f"{kind}-{name}", index) for name, index in indexes(quantizer, X))
    for name, options in SETTINGS.items():
        yield f"lists-halves-{name}", cc.Index(both, **options).add(X)
    keys = ["tea", "", "\0", 7, -(10**20), b"\xff", uuid.UUID(int=5), ("a", 1), *map(str, range(len(X) - 8))]
    for name, options in SETTINGS.items():
        yield f"keys-{name}", cc.Index(lists if name == "l2" else halves, **options, keys=True).add(X, keys)
    index = cc.Index(halves, keys=True).add(X, keys)
    index.remove(["tea", 7])
    yield "keys-removed", index.add(X[:1], ["cup"])


def models(X, Q):
    """Each method, loss, encoder and selection, by name."""
    yield "local-search", cc.CompositionalCodes(**SHORT).fit(X)
    yield "rounds", cc.CompositionalCodes(**SHORT, encoder=cc.LocalSearch(rounds=2), loss="reconstruction").fit(X)
    yield "beam", cc.CompositionalCodes(**SHORT, encoder=cc.Beam(width=3), loss="reconstruction").fit(X)
    yield "greedy", cc.CompositionalCodes(**SHORT, encoder="greedy", loss=cc.InnerProduct(eta=3.0)).fit(X)
    loss = cc.InnerProduct(eta=2.0, weight_power=0.5, demand=0.25, metric=0.5)
    yield "queries", cc.CompositionalCodes(**SHORT, loss=loss).fit(X, queries=Q * [4, 1, 1, 1])
    for selection in ("m-selection", "m-combination"):
        yield selection, cc.CompositionalCodes(**SHORT, selection=selection).fit(X)
    yield "weighted", cc.CompositionalCodes(**SHORT, metric="l2").fit(X, sample_weight=np.arange(1, len(X) + 1))
    yield "cosine", cc.CompositionalCodes(**SHORT, metric="cosine").fit(X)
    yield "halves", cc.CompositionalCodes(**HALVES).fit(X)
    yield "from-codebooks", cc.CompositionalCodes.from_codebooks(X[:8].reshape(2, 4, 4))
    yield "product", cc.ProductQuantizer(**SIZES, max_iter=2).fit(X)
    yield "optimized-product", cc.OptimizedProductQuantizer(**SIZES, max_iter=2).fit(X)
    yield "cartesian-kmeans", cc.CartesianKMeans(**SIZES, max_iter=2).fit(X)
    yield "residual", cc.ResidualQuantizer(**SIZES, max_iter=2, beam=3).fit(X)
    yield "random-hyperplanes", cc.RandomHyperplaneHash(n_bits=8).fit(X)


def indexes(quantizer, X):
    """Each metric and setting; with ids, emptied, and never filled."""
    for name, options in SETTINGS.items():
        index = cc.Index(quantizer, **options).add(X)
        yield name, index
        index.remove([0, 5, 69])
        yield f"{name}-ids", index.add(X[:2], ids=[1000, 500])
        index.remove(index.ids)
        yield f"{name}-emptied", index
    yield "new", cc.Index(quantizer)


def describe_model(quantizer, X):
    return {
        "class": type(quantizer).__name__,
        "parameters": {name: repr(value) for name, value in quantizer.get_params().items()},
        "loss": getattr(quantizer, "loss_", None),
        "iterations": len(quantizer.history_),
        "codebooks": quantizer.codebooks_.tobytes().hex() if quantizer.codebooks_.size < 1000 else None,
        "codes": quantizer.encode(X).tobytes().hex(),
        **({} if quantizer._lists is None else {"lists": quantizer.assign(X).tolist()}),
    }


def describe_index(index, X, Q):
    found = {
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "codes": index.codes.tobytes().hex(),
        "ids": [*map(as_text, index.ids)],
    }
    if index.list_sizes is not None:
        found["lists"] = index.lists.tolist()
    for name, options in searches(index, X).items():
        scores, ids = index.search(Q, 5, **options)
        found["found" + name] = [[*map(as_text, row)] for row in ids]
        found["scores" + name] = [[str(score) for score in row] for row in scores]
    return found


def searches(index, X):
    """Options of searches, by name: of all, of some, and of all lists, with exact scores of vectors 0, 1, 2, …"""
    found = {"": {}, " of some": {"filter": index.ids[::3]}}
    if len(index):
        rows = {"rerank": X[np.arange(len(index)) % len(X)], "rerank_ids": index.ids, "n_candidates": 20}
        found[" exactly"] = rows | ({} if index.list_sizes is None else {"n_probe": len(index.list_sizes)})
    return found


def as_text(name):
    """An id as it is; a key as Python writes it."""
    return int(name) if isinstance(name, np.integer) else repr(name)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(70, 4)) * [3, 2, 1, 1]).astype(np.float32)
    Q = rng.normal(size=(3, 4)).astype(np.float32)
    expected = {}

    for name, thing in {"v2": second, "v3": third}[folder.name](X, Q):
        kind = "index" if isinstance(thing, cc.Index) else "model"
        path = folder / f"{kind}-{name}.cc"
        thing.save(path)
        expected[path.name] = describe_index(thing, X, Q) if kind == "index" else describe_model(thing, X)
    lines = [f"{json.dumps(name)}: {json.dumps(content)}" for name, content in sorted(expected.items())]
    head = json.dumps({"version": cc.__version__, "X": X.tolist(), "Q": Q.tolist()})
    (folder / "expected.json").write_text(head[:-1] + ', "files": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", cc.MetricWarning)
    main(Path(sys.argv[1]))
