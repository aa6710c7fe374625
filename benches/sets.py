"""Real vectors that accuracy is measured on: those of COMPCODES_DATA, and some that installed packages hold.

Nothing is fetched. A set that cannot be had raises `Missing`, which says what it would take.
"""

import ast
import os
import re
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import compcodes as cc


class Missing(Exception):
    """Why a set or a method is left out."""


@dataclass(frozen=True, eq=False)
class Set:
    """Vectors to train on, to search and to search for; `samples` are other queries of the same kind."""

    name: str
    learn: np.ndarray
    base: np.ndarray
    queries: np.ndarray
    samples: np.ndarray | None = None


def sift():
    """Image descriptors of equal norms; base and queries come from other photographs than the training set."""
    base, queries = stored("sift/base.npy", slice(200_000)), stored("sift/query.npy", slice(2000))
    return Set("SIFT", stored("sift/learn.npy"), base, queries)


def gowalla():
    """Factors of places and of users: skewed norms, and queries unlike the items."""
    items = stored("gowalla128/items.npy")
    users = stored("gowalla128/users.npy")
    return Set("Gowalla", items, items, users[-2000:], users[:8000])


def stored(path, rows=slice(None)):
    folder = os.environ.get("COMPCODES_DATA")
    if not folder or not Path(folder, path).exists():
        raise Missing(f"COMPCODES_DATA names no folder with {path}")
    return np.load(Path(folder, path), mmap_mode="r")[rows].astype(np.float32)


def glove():
    """Word vectors."""
    words = shuffled(cc.data.glove()[1].astype(np.float32))
    rest = words[1000:]
    return Set("GloVe", rest, rest, words[:1000])


def texts():
    """Word vectors again, searched by texts, the functions of Python's standard library: each the mean of its words.

    The means are alike, and few words answer them.
    """
    words, vectors = cc.data.glove()
    vectors, place = vectors.astype(np.float32), {word: i for i, word in enumerate(words)}
    found = ([place[word] for word in re.findall("[a-z]{2,}", text.lower()) if word in place] for text in functions())
    means = shuffled(np.stack([vectors[rows].mean(axis=0) for rows in found if len(rows) >= 8]))
    return Set("GloVe, searched by texts", vectors, vectors, means[:2000], means[2000:10_000])


def narrow():
    """Word vectors again; queries are words in 12 of the 100 dimensions, in a random basis, and a little noise."""
    words = shuffled(cc.data.glove()[1].astype(np.float32))
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(words.shape[1], 12)))[0]
    queries = (words @ basis @ basis.T + 0.1 * rng.normal(size=words.shape)).astype(np.float32)
    return Set("GloVe, narrow queries", words, words, queries[:2000], queries[2000:10_000])


def source():
    """Functions of Python's standard library by the words in them: see `factors`."""
    return factors("source code", 96)


def source384():
    """The same in as many numbers as a small text embedding has."""
    return factors("source code in 384 factors", 384)


def factors(name, count):
    """Functions of Python's standard library by the words in them, factored: functions are items, words are queries.

    The truncated singular value decomposition of the matrix of functions and words, weighted by tf-idf. The inner
    product of a function's and a word's factors is the weight of the word there, smoothed: a recommender's model.
    """
    try:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise Missing("scikit-learn is not installed") from None
    weights = TfidfVectorizer(token_pattern="[A-Za-z]{3,}", min_df=3, sublinear_tf=True, dtype=np.float32)
    matrix = weights.fit_transform(functions())
    factors = TruncatedSVD(count, algorithm="randomized", n_iter=4, random_state=0)
    items = factors.fit_transform(matrix).astype(np.float32)
    words = shuffled(factors.components_.T.astype(np.float32) * 10)  # of the size of the items, for readable errors
    return Set(name, items, items, words[:2000], words[2000:10_000])


def functions(limit=40_000):
    """Texts of functions of the standard library, the same ones on every call."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = set()
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            text = path.read_text("utf-8")
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue  # some are there to be refused
        lines = text.splitlines()
        found = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno > 2]
        texts.update("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found)
    chosen = sorted(texts)
    return [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))[:limit]]


def patches():
    """Patches of 8 by 8 pixels of two photographs: see `windows`."""
    return windows("patches", 8, 3)


def patches768():
    """The same of 16 by 16 pixels."""
    return windows("patches of 768 numbers", 16, 4)


def windows(name, size, step):
    """Patches of two photographs, without their mean colour; queries are from the right of them."""
    try:
        from sklearn.datasets import load_sample_images

        images = load_sample_images().images
    except ImportError:
        raise Missing("scikit-learn and Pillow are not both installed") from None
    left, right = [], []
    for image in images:
        found = np.lib.stride_tricks.sliding_window_view(image.astype(np.float32), (size, size, 3))[::step, :, 0]
        cut = image.shape[1] * 3 // 4
        for part, chosen in ((left, found[:, : cut - size : step]), (right, found[:, cut::step])):
            rows = chosen.reshape(-1, size * size, 3)
            part.append((rows - rows.mean(axis=1, keepdims=True)).reshape(-1, 3 * size * size))
    base = np.concatenate(left)
    return Set(name, base, base, shuffled(np.concatenate(right))[:2000])


def shuffled(rows):
    return rows[np.random.default_rng(0).permutation(len(rows))]


SETS = {
    set_.__name__: cache(set_) for set_ in (sift, gowalla, glove, texts, narrow, source, source384, patches, patches768)
}


def few(whole):
    """A set small enough for a run in seconds."""
    samples = None if whole.samples is None else whole.samples[:200]
    return Set(whole.name, whole.learn[:2500], whole.base[:2500], whole.queries[:100], samples)
