"""What others offer at equal bytes: quantizers of faiss, and ScaNN. One thread each."""

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sets import Missing


@dataclass
class Coded:
    """A database in codes: process seconds that it took, and the approximations or what a search of them found."""

    label: str
    fit: float
    encode: float | None = None
    decoded: np.ndarray | None = None
    ids: np.ndarray | None = None


def faiss_quantizer(kind):
    def run(data, bytes_, tiny, k):
        index, took = trained(kind, data, bytes_, tiny)
        base = padded(data.base, index.d)
        begin = time.process_time()
        codes = index.sa_encode(base)
        encoded = time.process_time() - begin
        return Coded(kind, took, encoded, index.sa_decode(codes)[:, : data.base.shape[1]])

    return run


@lru_cache(maxsize=1)
def trained(kind, data, bytes_, tiny):
    """A quantizer of faiss trained on `data.learn`, and the seconds that it took."""
    try:
        import faiss
    except ImportError:
        raise Missing("faiss is not installed") from None
    faiss.omp_set_num_threads(1)
    width = -(-data.learn.shape[1] // bytes_) * bytes_
    bits = 4 if tiny else 8
    halves = (2, bytes_ // 2)  # product-additive: two subspaces, half of the bytes each

    def residual(beam):
        index = faiss.IndexResidualQuantizer(width, bytes_, bits)
        index.rq.max_beam_size = beam
        return index

    makers = {
        "faiss PQ": lambda: faiss.IndexPQ(width, bytes_, bits),
        "faiss OPQ": lambda: faiss.index_factory(width, f"OPQ{bytes_},PQ{bytes_}x{bits}"),
        "faiss RQ, beam 5": lambda: residual(5),
        "faiss RQ, beam 30": lambda: residual(30),
        "faiss product RQ": lambda: faiss.IndexProductResidualQuantizer(width, *halves, bits),
        "faiss LSQ": lambda: faiss.IndexLocalSearchQuantizer(width, bytes_, bits),
        "faiss product LSQ": lambda: faiss.IndexProductLocalSearchQuantizer(width, *halves, bits),
    }
    index = makers[kind]()
    begin = time.process_time()
    index.train(padded(data.learn, width))
    return index, time.process_time() - begin


def padded(X, width):
    return np.ascontiguousarray(np.pad(X, ((0, 0), (0, width - X.shape[1]))))


THRESHOLDS = (None, 0.1, 0.2, 0.3, 0.4, 0.6)
"""Anisotropic thresholds of ScaNN that are tried; None is its plain loss."""


def scann(data, bytes_, tiny, k):
    """Asymmetric hashing of 4 bits, no tree, no re-ranking; it trains on the database itself.

    Vectors are scaled to a mean norm of 1, for the threshold is an absolute number. The best threshold is reported: the
    one with the largest share of the true 10 among the first 100.
    """
    try:
        from scann import scann_ops_pybind
    except ImportError:
        raise Missing("scann is not installed") from None
    from compcodes.evaluate import ground_truth, recall

    blocks = 2 * bytes_
    width = -(-data.base.shape[1] // blocks) * blocks
    scale = 1 / np.linalg.norm(data.base, axis=1).mean()
    base, queries = padded(data.base * scale, width), padded(data.queries, width)
    true = ground_truth(data.base, data.queries, 10, n_jobs=1)[1]
    tried = []
    for threshold in THRESHOLDS[:2] if tiny else THRESHOLDS:
        begin = time.process_time()
        builder = scann_ops_pybind.builder(base, k, "dot_product").set_n_training_threads(1)
        shaped = np.nan if threshold is None else threshold
        searcher = builder.score_ah(width // blocks, anisotropic_quantization_threshold=shaped).build()
        took = time.process_time() - begin
        ids = np.asarray(searcher.search_batched(queries)[0], np.int64)
        chosen = "plain loss" if threshold is None else f"threshold {threshold:g}"
        tried.append((recall(ids, true, 10, 100), Coded(f"ScaNN, {chosen}", took, ids=ids)))
    return max(tried, key=lambda one: one[0])[1]


KINDS = ("PQ", "OPQ", "RQ, beam 5", "RQ, beam 30", "product RQ", "product LSQ", "LSQ")
RIVALS = {f"faiss {kind}": faiss_quantizer(f"faiss {kind}") for kind in KINDS} | {"ScaNN": scann}
