"""Indexes of faiss, taken over with their codes.

Every quantizer that sums codewords is the same model: product quantization has codewords that are zero outside their
subspace, a rotation before it rotates them back, and residual and local-search quantizers are sums as they are.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Taken", "take"]


class Taken(NamedTuple):
    """What a faiss index consists of."""

    codebooks: NDArray[np.float32]  # (M, K, d)
    codes: NDArray[np.uint8]  # (n, M)
    ids: NDArray[np.int64] | None  # (n,)
    metric: str


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
        raise TypeError(f"index is {type(index).__name__}: want a faiss index (faiss is not installed)") from None
    if not isinstance(index, faiss.Index):
        raise TypeError(f"index is {type(index).__name__}: want a faiss index")
    index = faiss.downcast_index(index)
    if not index.is_trained:
        raise ValueError("the faiss index is not trained")
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        return take(index.index)._replace(ids=faiss.vector_to_array(index.id_map).astype(np.int64))
    if isinstance(index, faiss.IndexPreTransform):
        return _rotated(index, take(index.index))
    metrics = {faiss.METRIC_INNER_PRODUCT: "ip", faiss.METRIC_L2: "l2"}
    if index.metric_type not in metrics:
        raise ValueError("the faiss index has a metric other than inner product and L2")
    if isinstance(index, (faiss.IndexPQ, faiss.IndexPQFastScan)):
        codebooks, bits = _product(index.pq)
    elif isinstance(index, (faiss.IndexResidualQuantizer, faiss.IndexResidualQuantizerFastScan)):
        codebooks, bits = _additive(index.rq)
    elif isinstance(index, (faiss.IndexLocalSearchQuantizer, faiss.IndexLocalSearchQuantizerFastScan)):
        codebooks, bits = _additive(index.lsq)
    else:
        raise TypeError(f"index is {type(index).__name__}: {_advice(index)}")
    if isinstance(index, faiss.IndexFastScan):
        packed = _unblock(index)
    else:
        packed = faiss.vector_to_array(index.codes).reshape(index.ntotal, index.code_size)
    return Taken(codebooks, _unpack(packed, bits), None, metrics[index.metric_type])


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


_WANT = (
    "want IndexPQ, IndexResidualQuantizer or IndexLocalSearchQuantizer, or the FastScan of one, with a rotation or ids "
    "around it or not (see docs/from-faiss.md)"
)


def _advice(index: Any) -> str:
    """Say what to do with an index whose codes are no sums of codewords."""
    import faiss

    anew = "train a model on them, cc.CompositionalCodes().fit(X), and make a new index, cc.Index(q).add(X)"
    if isinstance(index, faiss.IndexFlat):
        return f"it holds whole vectors, X = index.reconstruct_n(): {anew}"
    if isinstance(index, (faiss.IndexHNSW, faiss.IndexNSG)):
        storage: Any = getattr(index, "storage")  # noqa: B009  # which stubs of faiss do not know
        inner = type(faiss.downcast_index(storage)).__name__
        return f"a graph over an {inner}: pass what it holds, faiss.downcast_index(index.storage)"
    if isinstance(index, (faiss.IndexRefine, faiss.IndexRefineFlat)):
        return "pass what it refines, faiss.downcast_index(index.base_index), and the vectors as rerank= of search"
    if isinstance(index, faiss.IndexIVF):
        return (
            "it holds lists: make its vectors whole, index.make_direct_map() and X = index.reconstruct_n() (exact for "
            f"IndexIVFFlat, approximations for others; the original vectors are better), {anew}"
        )
    if isinstance(index, faiss.IndexScalarQuantizer):
        return f"scalar quantization has no codewords; X = index.reconstruct_n() are its vectors: {anew}"
    return _WANT


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


def _rotated(index: Any, taken: Taken) -> Taken:
    """Undo the linear transforms that vectors and queries go through: ⟨A q, c⟩ = ⟨q, Aᵀ c⟩."""
    import faiss

    codebooks = taken.codebooks
    for i in reversed(range(index.chain.size())):
        transform = faiss.downcast_VectorTransform(index.chain.at(i))
        if not isinstance(transform, faiss.LinearTransform):
            raise TypeError(f"the faiss index has a {type(transform).__name__} before it: want linear transforms")
        if transform.have_bias and np.any(faiss.vector_to_array(transform.b)):
            raise ValueError("the faiss index has a transform with a bias before it: want a rotation")
        A = faiss.vector_to_array(transform.A).reshape(transform.d_out, transform.d_in)
        if taken.metric == "l2" and not (A.shape[0] == A.shape[1] and np.allclose(A @ A.T, np.eye(len(A)), atol=1e-3)):
            raise ValueError("the faiss index has a transform before it that changes distances: want a rotation")
        codebooks = codebooks @ A
    return taken._replace(codebooks=np.ascontiguousarray(codebooks, dtype=np.float32))


def _unpack(packed: NDArray[np.uint8], bits: list[int]) -> NDArray[np.uint8]:
    """Codes (n, M) from rows of little-endian bit strings."""
    if max(bits) > 8:
        raise ValueError(f"the faiss index has codes of {max(bits)} bits: want at most 8")
    if set(bits) == {8}:
        return np.ascontiguousarray(packed[:, : len(bits)])
    single = np.unpackbits(packed, axis=1, bitorder="little", count=sum(bits))
    ends = np.cumsum(bits)
    columns = [
        np.packbits(single[:, e - b : e], axis=1, bitorder="little")[:, 0] for b, e in zip(bits, ends, strict=True)
    ]
    return np.stack(columns, axis=1)
