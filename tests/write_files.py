"""Write one file of each kind, and what they hold, with the code at hand.

    python tests/write_files.py tests/data/v2

Run once for each version of the format, by the last code that writes it. `test_formats.py` then holds every later
release to reading them.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

import compcodes as cc

SIZES = {"n_codebooks": 2, "n_codewords": 4}
SHORT = SIZES | {"max_iter": 2, "anneal": 2}


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
    yield "groups", cc.CompositionalCodes(**SHORT, n_groups=2, loss=cc.InnerProduct(eta=2.0, weight_power=0.0)).fit(X)
    yield "from-codebooks", cc.CompositionalCodes.from_codebooks(X[:8].reshape(2, 4, 4))
    yield "product", cc.ProductQuantizer(**SIZES, max_iter=2).fit(X)
    yield "optimized-product", cc.OptimizedProductQuantizer(**SIZES, max_iter=2).fit(X)
    yield "cartesian-kmeans", cc.CartesianKMeans(**SIZES, max_iter=2).fit(X)
    yield "residual", cc.ResidualQuantizer(**SIZES, max_iter=2, beam=3).fit(X)
    yield "random-hyperplanes", cc.RandomHyperplaneHash(n_bits=8).fit(X)


def indexes(quantizer, X):
    """Each metric and setting; with ids, emptied, and never filled."""
    settings = {
        "ip": {},
        "cosine": {"metric": "cosine"},
        "l2": {"metric": "l2"},
        "l2-levels": {"metric": "l2", "exact_norms": False},
        "scale": {"scale": True},
        "residuals": {"residuals": True},
    }
    for name, options in settings.items():
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
    }


def describe_index(index, Q):
    scores, ids = index.search(Q, 5)
    return {
        "metric": index.metric,
        "bytes_per_vector": index.bytes_per_vector,
        "codes": index.codes.tobytes().hex(),
        "ids": index.ids.tolist(),
        "found": ids.tolist(),
        "scores": [[str(score) for score in row] for row in scores],
    }


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(70, 4)) * [3, 2, 1, 1]).astype(np.float32)
    Q = rng.normal(size=(3, 4)).astype(np.float32)
    expected = {}

    made = dict(models(X, Q))
    for name, quantizer in made.items():
        quantizer.save(folder / f"model-{name}.cc")
        expected[f"model-{name}.cc"] = describe_model(quantizer, X)
    for name, index in indexes(made["local-search"], X):
        index.save(folder / f"index-{name}.cc")
        expected[f"index-{name}.cc"] = describe_index(index, Q)
    lines = [f"{json.dumps(name)}: {json.dumps(content)}" for name, content in sorted(expected.items())]
    head = json.dumps({"version": cc.__version__, "X": X.tolist(), "Q": Q.tolist()})
    (folder / "expected.json").write_text(head[:-1] + ', "files": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(Path(sys.argv[1]))
