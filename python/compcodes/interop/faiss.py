"""Indexes of faiss, taken over with their codes.

Every quantizer that sums codewords is the same model: product quantization has codewords that are zero outside their
subspace, a rotation in front of it rotates them back, and residual and local-search quantizers are sums already. An
inverted file divides vectors by centroids, as lists do here.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compcodes import _core
from compcodes._warn import warn
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.interop._faiss_advice import METRICS, Refused, instead, reason
from compcodes.interop._faiss_lists import Lists, inverted, unblocked
from compcodes.quantizers.compositional import CompositionalCodes

__all__ = ["Taken", "model_of", "put", "take"]


RECALL = 0.95
"""The recall of a search that specifies neither `recall` nor `n_probe`."""


class Taken(NamedTuple):
    """What a faiss index consists of."""

    codebooks: NDArray[np.float32]  # (M, K, d)
    codes: NDArray[np.uint8]  # (n, M)
    ids: NDArray[np.int64] | None  # (n,)
    metric: str
    lists: Lists | None = None


def take(index: Any) -> Taken:
    """Read codebooks, codes and ids of a trained faiss index.

    Raises
    ------
    TypeError
        It is not a faiss index of a kind whose codes are sums of codewords.
    ValueError
        It has codes of more than 8 bits, a metric other than inner product and L2, or is not trained.

    Warns
    -----
    UserWarning
        faiss chooses the lists of queries by another metric than that of the index.
    """
    try:
        import faiss
    except ImportError:
        raise ArgumentTypeError(
            "index", f"is {type(index).__name__}: want a faiss index (faiss is not installed)"
        ) from None
    if isinstance(index, faiss.IndexBinary):
        raise ArgumentTypeError(
            "index",
            f"is {type(index).__name__}: it holds bits, not codes of vectors; where there are vectors X, make "
            "bits of them with cc.RandomHyperplaneHash(n_bits), or fit a model, cc.CompositionalCodes().fit(X)",
        )
    if not isinstance(index, faiss.Index):
        raise ArgumentTypeError("index", f"is {type(index).__name__}: want a faiss index")
    index = faiss.downcast_index(index)
    try:
        taken = _taken(index)
        _check_ids(taken.ids)
    except Refused as refused:
        raise refused.kind("index", f"is {type(index).__name__}: {refused.why}{instead(index, _is_taken)}") from None
    if taken.lists is not None and taken.lists.metric != taken.metric:
        warn(_other_lists(taken.metric, taken.lists.metric), UserWarning)
    return taken


def _other_lists(metric: str, coarse: str | None) -> str:
    """Describe what differs if a coarse quantizer has a different metric than its index."""
    own = "another metric" if coarse is None else f"the metric {coarse!r}"
    return (
        f"the coarse quantizer of the faiss index has {own}, the index itself {metric!r}: here lists are chosen by "
        f"{metric!r}, so a search of some of the lists goes through other ones than faiss does; a search of all lists, "
        "n_probe=index.nlist, finds the same"
    )


def model_of(taken: Taken) -> CompositionalCodes:
    """Make a model of codebooks and lists; it searches as many lists as the index did by default."""
    made = _model_of(taken)
    if taken.metric == "l2":  # what an index of the model adopts
        made.metric_ = taken.metric
    return made


def _model_of(taken: Taken) -> CompositionalCodes:
    if taken.lists is None:
        return CompositionalCodes.from_codebooks(taken.codebooks)
    centroids, of_each, by_residual, n_probe, _ = taken.lists
    made = CompositionalCodes.from_codebooks(taken.codebooks, centroids=centroids, by_residual=by_residual)
    n, n_lists = len(of_each), len(centroids)
    shares = (np.bincount(of_each, minlength=n_lists) / n).astype(np.float32) if n else None
    reach = np.array([[n_probe, RECALL]])
    made._lists = _core.Lists(centroids, 1.0, None, shares, reach, by_residual)
    return made


def put(taken: Taken, index: Any) -> None:
    """Add the codes to an empty `Index` of their model."""
    codes, ids = taken.codes, taken.ids
    if taken.lists is None:
        index.add_codes(codes, ids)
        return
    places = taken.lists.of_each
    free = () if ids is None else np.flatnonzero(ids != np.arange(len(codes)))[:1]
    if ids is not None and len(free):
        # The lists do not tell in which order vectors with ids of their own were added. So `rerank` shall ask for
        # `rerank_ids`, as it does where vectors are added after another one, here of a free id, was removed.
        index.add_codes(codes[[0, 0]], [*free, ids[0]], lists=places[[0, 0]]).remove(free)
        codes, ids, places = codes[1:], ids[1:], places[1:]
    index.add_codes(codes, ids, lists=places)


def _check_ids(ids: NDArray[np.int64] | None) -> None:
    """Reject ids that faiss accepts but an index here does not."""
    if ids is None or not len(ids):
        return
    if ids.min() < 0:
        raise Refused(ArgumentValueError, f"its ids hold {ids.min()}: want none below 0")
    ordered = np.sort(ids)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise Refused(ArgumentValueError, f"its ids hold {twice[0]} twice")


def _is_taken(index: Any) -> bool:
    try:
        _taken(index)
    except Refused:
        return False
    return True


def _taken(index: Any) -> Taken:
    import faiss

    index = faiss.downcast_index(index)
    if not index.is_trained:
        raise Refused(ArgumentValueError, "it is not trained: call index.train(X) and index.add(X) first")
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        return _named(_taken(index.index), faiss.vector_to_array(index.id_map).astype(np.int64))
    if isinstance(index, faiss.IndexPreTransform):
        return _rotated(index, _taken(index.index))
    if index.metric_type not in METRICS:
        raise Refused(ArgumentValueError, "its metric is another than inner product and L2")
    codebooks, bits = _quantizer(index)
    metric = METRICS[index.metric_type]
    if isinstance(index, faiss.IndexIVF):
        packed, ids, lists = inverted(index)
        return Taken(codebooks, _unpack(packed, bits), ids, metric, lists)
    if _is_fast(index):
        blocks = faiss.rev_swig_ptr(index.codes.get(), index.codes.size()) if index.ntotal else np.zeros(0, np.uint8)
        packed = unblocked(blocks, index, index.ntotal)
    else:
        packed = faiss.vector_to_array(index.codes).reshape(index.ntotal, index.code_size)
    return Taken(codebooks, _unpack(packed, bits), None, metric)


def _is_fast(index: Any) -> bool:
    import faiss

    return isinstance(index, faiss.IndexFastScan)


def _named(taken: Taken, names: NDArray[np.int64]) -> Taken:
    """Replace the ids of the index within an IDMap by those of the IDMap."""
    within = np.arange(len(taken.codes)) if taken.ids is None else taken.ids
    if len(within) and not 0 <= within.min() <= within.max() < len(names):
        raise Refused(ArgumentValueError, f"it names {len(names)} vectors, and the index within has others")
    return taken._replace(ids=names[within])


def _quantizer(index: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Return codebooks (M, K, d), and the number of bits of each code."""
    import faiss

    if isinstance(index, faiss.IndexIVFPQR):
        raise Refused(ArgumentTypeError, reason(index))
    if _is(index, "PQ"):
        return _product(index.pq)
    if _is(index, "ResidualQuantizer"):
        return _additive(index.rq)
    if _is(index, "LocalSearchQuantizer"):
        return _additive(index.lsq)
    if _is(index, "ProductResidualQuantizer"):
        return _of_subspaces(index.prq)
    if _is(index, "ProductLocalSearchQuantizer"):
        return _of_subspaces(index.plsq)
    raise Refused(ArgumentTypeError, reason(index))


def _is(index: Any, kind: str) -> bool:
    """Return whether an index is of some kind of quantizer: flat, in lists, or the FastScan of one of these."""
    import faiss

    names = (f"Index{lists}{kind}{fast}" for lists in ("", "IVF") for fast in ("", "FastScan"))
    return isinstance(index, tuple(getattr(faiss, name) for name in names))


def _product(pq: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Return codebooks of a product quantizer: each centroid in its subspace, zeros elsewhere."""
    import faiss

    centroids = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
    codebooks = np.zeros((pq.M, pq.ksub, pq.d), dtype=np.float32)
    for m, book in enumerate(centroids):
        codebooks[m, :, m * pq.dsub : (m + 1) * pq.dsub] = book
    return codebooks, [pq.nbits] * pq.M


def _additive(quantizer: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Return codebooks of an additive quantizer; smaller ones repeat their first codeword."""
    import faiss

    bits = [int(b) for b in faiss.vector_to_array(quantizer.nbits)]
    words = faiss.vector_to_array(quantizer.codebooks).reshape(-1, quantizer.d)
    edges = np.cumsum([0] + [1 << b for b in bits])
    codebooks = np.repeat(words[edges[:-1], None], 1 << max(bits), axis=1)
    for m, (first, last) in enumerate(itertools.pairwise(edges)):
        codebooks[m, : last - first] = words[first:last]
    return codebooks, bits


def _of_subspaces(quantizer: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Return codebooks of an additive quantizer per subspace: zeros in the others."""
    parts = [_additive(quantizer.subquantizer(i)) for i in range(quantizer.nsplits)]
    n_codewords, first, books = max(books.shape[1] for books, _ in parts), 0, []
    for own, _ in parts:
        whole = np.zeros((len(own), n_codewords, quantizer.d), dtype=np.float32)
        whole[:, : own.shape[1], first : first + own.shape[2]] = own
        books.append(whole)
        first += own.shape[2]
    return np.concatenate(books), [bits for _, own in parts for bits in own]


def _rotated(index: Any, taken: Taken) -> Taken:
    """Undo the linear transforms of vectors and queries: ⟨A q, c⟩ = ⟨q, Aᵀ c⟩."""
    import faiss

    codebooks, centroids = taken.codebooks, None if taken.lists is None else taken.lists.centroids
    for i in reversed(range(index.chain.size())):
        transform = faiss.downcast_VectorTransform(index.chain.at(i))
        if not isinstance(transform, faiss.LinearTransform):
            raise Refused(ArgumentTypeError, f"vectors go through a {type(transform).__name__}, which is not linear")
        if transform.have_bias and np.any(faiss.vector_to_array(transform.b)):
            raise Refused(
                ArgumentValueError, f"vectors go through a {type(transform).__name__} with a bias, not a rotation"
            )
        A = faiss.vector_to_array(transform.A).reshape(transform.d_out, transform.d_in)
        if taken.metric == "l2" and not (A.shape[0] == A.shape[1] and np.allclose(A @ A.T, np.eye(len(A)), atol=1e-3)):
            raise Refused(ArgumentValueError, f"vectors go through a {type(transform).__name__} that changes distances")
        codebooks = codebooks @ A
        centroids = None if centroids is None else centroids @ A
    lists = taken.lists
    if lists is not None and centroids is not None:
        lists = lists._replace(centroids=np.ascontiguousarray(centroids, dtype=np.float32))
    return taken._replace(codebooks=np.ascontiguousarray(codebooks, dtype=np.float32), lists=lists)


def _unpack(packed: NDArray[np.uint8], bits: list[int]) -> NDArray[np.uint8]:
    """Return codes (n, M) from rows of little-endian bit strings."""
    if max(bits) > 8:
        raise Refused(ArgumentValueError, f"its codes have {max(bits)} bits: want at most 8")
    if set(bits) == {8}:
        return np.ascontiguousarray(packed[:, : len(bits)])
    single = np.unpackbits(packed, axis=1, bitorder="little", count=sum(bits))
    ends = np.cumsum(bits)
    columns = [
        np.packbits(single[:, e - b : e], axis=1, bitorder="little")[:, 0] for b, e in zip(bits, ends, strict=True)
    ]
    return np.stack(columns, axis=1)
