"""Indexes of faiss, taken over with their codes.

Every quantizer that sums codewords is the same model: product quantization has codewords that are zero outside their
subspace, a rotation before it rotates them back, and residual and local-search quantizers are sums as they are.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compcodes.errors import ArgumentError, ArgumentTypeError, ArgumentValueError
from compcodes.interop._faiss_advice import METRICS, instead, reason

__all__ = ["Taken", "take"]


class Taken(NamedTuple):
    """What a faiss index consists of."""

    codebooks: NDArray[np.float32]  # (M, K, d)
    codes: NDArray[np.uint8]  # (n, M)
    ids: NDArray[np.int64] | None  # (n,)
    metric: str


class _Refused(Exception):
    """Why the codes of a faiss index cannot be taken over."""

    def __init__(self, kind: type[ArgumentError], why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


def take(index: Any) -> Taken:
    """Read codebooks, codes and ids of a trained faiss index.

    Raises
    ------
    TypeError
        It is not a faiss index of a kind whose codes are sums of codewords.
    ValueError
        It has codes of more than 8 bits, a metric other than inner product and L2, or is not trained.
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
        return _taken(index)
    except _Refused as refused:
        raise refused.kind("index", f"is {type(index).__name__}: {refused.why}{instead(index, _is_taken)}") from None


def _is_taken(index: Any) -> bool:
    try:
        _taken(index)
    except _Refused:
        return False
    return True


def _taken(index: Any) -> Taken:
    import faiss

    index = faiss.downcast_index(index)
    if not index.is_trained:
        raise _Refused(ArgumentValueError, "it is not trained: call index.train(X) and index.add(X) first")
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        return _taken(index.index)._replace(ids=faiss.vector_to_array(index.id_map).astype(np.int64))
    if isinstance(index, faiss.IndexPreTransform):
        return _rotated(index, _taken(index.index))
    if index.metric_type not in METRICS:
        raise _Refused(ArgumentValueError, "its metric is another than inner product and L2")
    if isinstance(index, (faiss.IndexPQ, faiss.IndexPQFastScan)):
        codebooks, bits = _product(index.pq)
    elif isinstance(index, (faiss.IndexResidualQuantizer, faiss.IndexResidualQuantizerFastScan)):
        codebooks, bits = _additive(index.rq)
    elif isinstance(index, (faiss.IndexLocalSearchQuantizer, faiss.IndexLocalSearchQuantizerFastScan)):
        codebooks, bits = _additive(index.lsq)
    elif isinstance(index, (faiss.IndexProductResidualQuantizer, faiss.IndexProductResidualQuantizerFastScan)):
        codebooks, bits = _of_subspaces(index.prq)
    elif isinstance(index, (faiss.IndexProductLocalSearchQuantizer, faiss.IndexProductLocalSearchQuantizerFastScan)):
        codebooks, bits = _of_subspaces(index.plsq)
    else:
        raise _Refused(ArgumentTypeError, reason(index))
    if isinstance(index, faiss.IndexFastScan):
        packed = _unblock(index)
    else:
        packed = faiss.vector_to_array(index.codes).reshape(index.ntotal, index.code_size)
    return Taken(codebooks, _unpack(packed, bits), None, METRICS[index.metric_type])


def _unblock(index: Any) -> NDArray[np.uint8]:
    """Rows of bit strings (n, code size) of a FastScan index, whose codes are interleaved in blocks."""
    import faiss

    packer = index.get_CodePacker()
    packed = np.zeros((-(-index.ntotal // packer.nvec) * packer.nvec, packer.code_size), dtype=np.uint8)
    if index.ntotal:
        blocks = np.ascontiguousarray(faiss.rev_swig_ptr(index.codes.get(), index.codes.size()))
        rows = packed.reshape(-1, packer.nvec, packer.code_size)
        for block, to in zip(blocks.reshape(-1, packer.block_size), rows, strict=True):
            packer.unpack_all(faiss.swig_ptr(block), faiss.swig_ptr(to))
    return packed[: index.ntotal]


def _product(pq: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Codebooks of a product quantizer: each centroid in its subspace, zeros elsewhere."""
    import faiss

    centroids = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
    codebooks = np.zeros((pq.M, pq.ksub, pq.d), dtype=np.float32)
    for m, book in enumerate(centroids):
        codebooks[m, :, m * pq.dsub : (m + 1) * pq.dsub] = book
    return codebooks, [pq.nbits] * pq.M


def _additive(quantizer: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Codebooks of an additive quantizer; smaller ones repeat their first codeword."""
    import faiss

    bits = [int(b) for b in faiss.vector_to_array(quantizer.nbits)]
    words = faiss.vector_to_array(quantizer.codebooks).reshape(-1, quantizer.d)
    edges = np.cumsum([0] + [1 << b for b in bits])
    codebooks = np.repeat(words[edges[:-1], None], 1 << max(bits), axis=1)
    for m, (first, last) in enumerate(itertools.pairwise(edges)):
        codebooks[m, : last - first] = words[first:last]
    return codebooks, bits


def _of_subspaces(quantizer: Any) -> tuple[NDArray[np.float32], list[int]]:
    """Codebooks of an additive quantizer for each of some subspaces: zeros in the others."""
    parts = [_additive(quantizer.subquantizer(i)) for i in range(quantizer.nsplits)]
    n_codewords, first, books = max(books.shape[1] for books, _ in parts), 0, []
    for own, _ in parts:
        whole = np.zeros((len(own), n_codewords, quantizer.d), dtype=np.float32)
        whole[:, : own.shape[1], first : first + own.shape[2]] = own
        books.append(whole)
        first += own.shape[2]
    return np.concatenate(books), [bits for _, own in parts for bits in own]


def _rotated(index: Any, taken: Taken) -> Taken:
    """Undo the linear transforms that vectors and queries go through: ⟨A q, c⟩ = ⟨q, Aᵀ c⟩."""
    import faiss

    codebooks = taken.codebooks
    for i in reversed(range(index.chain.size())):
        transform = faiss.downcast_VectorTransform(index.chain.at(i))
        if not isinstance(transform, faiss.LinearTransform):
            raise _Refused(ArgumentTypeError, f"vectors go through a {type(transform).__name__}, which is not linear")
        if transform.have_bias and np.any(faiss.vector_to_array(transform.b)):
            raise _Refused(
                ArgumentValueError, f"vectors go through a {type(transform).__name__} with a bias, not a rotation"
            )
        A = faiss.vector_to_array(transform.A).reshape(transform.d_out, transform.d_in)
        if taken.metric == "l2" and not (A.shape[0] == A.shape[1] and np.allclose(A @ A.T, np.eye(len(A)), atol=1e-3)):
            raise _Refused(
                ArgumentValueError, f"vectors go through a {type(transform).__name__} that changes distances"
            )
        codebooks = codebooks @ A
    return taken._replace(codebooks=np.ascontiguousarray(codebooks, dtype=np.float32))


def _unpack(packed: NDArray[np.uint8], bits: list[int]) -> NDArray[np.uint8]:
    """Codes (n, M) from rows of little-endian bit strings."""
    if max(bits) > 8:
        raise _Refused(ArgumentValueError, f"its codes have {max(bits)} bits: want at most 8")
    if set(bits) == {8}:
        return np.ascontiguousarray(packed[:, : len(bits)])
    single = np.unpackbits(packed, axis=1, bitorder="little", count=sum(bits))
    ends = np.cumsum(bits)
    columns = [
        np.packbits(single[:, e - b : e], axis=1, bitorder="little")[:, 0] for b, e in zip(bits, ends, strict=True)
    ]
    return np.stack(columns, axis=1)
