"""What to call for a faiss index whose codes cannot be taken over: one sentence that works at the first attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from compcodes.errors import ArgumentError

__all__ = ["METRICS", "Refused", "instead", "reason"]

#: The values of faiss' METRIC_INNER_PRODUCT and METRIC_L2.
METRICS = {0: "ip", 1: "l2"}


class Refused(Exception):
    """Why the codes of a faiss index cannot be taken over."""

    def __init__(self, kind: type[ArgumentError], why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


def reason(index: Any) -> str:
    """Say why there are no codes to take over."""
    import faiss

    if isinstance(index, faiss.IndexFlat):
        return "it holds vectors, not codes"
    if isinstance(index, (faiss.IndexScalarQuantizer, faiss.IndexIVFScalarQuantizer)):
        return "its codes are no codewords"
    if isinstance(index, (faiss.IndexHNSW, faiss.IndexNSG)):
        return f"a graph over an {type(_storage(index)).__name__}, and graphs have no counterpart"
    if isinstance(index, faiss.IndexRefine):
        return "two indexes in one"
    if isinstance(index, faiss.IndexIVFFlat):
        return "it holds vectors in lists, not codes"
    if isinstance(index, faiss.IndexIVFPQR):
        return "its codes are refined by those of a second product quantizer"
    return "its codes are no sums of codewords"


def instead(index: Any, is_taken: Callable[[Any], bool]) -> str:
    """Say what to call instead, for a trained index; `is_taken` tells which indexes have codes to take over."""
    import faiss

    if not index.is_trained:
        return ""
    if isinstance(index, (faiss.IndexHNSW, faiss.IndexNSG)) and is_taken(_storage(index)):
        return ": call new = cc.Index.from_faiss(faiss.downcast_index(index.storage))"
    if isinstance(index, faiss.IndexRefine) and is_taken(index.base_index):
        return (
            ": call new = cc.Index.from_faiss(faiss.downcast_index(index.base_index)), and give the vectors as rerank= "
            "of search"
        )
    held = _held(index, "index")
    settings = ["n_codebooks=8"]
    if index.metric_type in METRICS:
        settings += [] if METRICS[index.metric_type] == "ip" else ['metric="l2"']
        metric = ""
    else:
        metric = ', with metric="ip", "cosine" or "l2"'
    settings += [] if held.n_lists is None else [f"n_lists={held.n_lists}"]
    own = "" if held.ids != "ids" else " and the ids that you gave them"
    ids = "" if held.ids is None else f", ids={held.ids}"
    make = f"q = cc.CompositionalCodes({', '.join(settings)}).fit(X); new = cc.Index(q).add(X{ids}){metric}"
    if held.vectors is None:
        return f"; fit a model on the original vectors X{own}: {make}"
    if held.exact:
        return f"; fit a model on them: X = {held.vectors}; {make}"
    return (
        "; fit a model on the original vectors X, or, where they are lost, on approximations: "
        f"X = {held.vectors}; {make}"
    )


class _Held(NamedTuple):
    """The vectors of an index, and their ids, as Python expressions; "ids" are those that only the user has."""

    vectors: str | None
    exact: bool
    ids: str | None = None
    n_lists: int | None = None


def _held(index: Any, name: str) -> _Held:
    import faiss

    index = faiss.downcast_index(index)
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        inner = _held(index.index, f"faiss.downcast_index({name}.index)")
        return inner._replace(ids=f"faiss.vector_to_array({name}.id_map)")
    if isinstance(index, faiss.IndexPreTransform):
        inner = _held(index.index, name)
        # It undoes its transforms itself, as far as they can be undone.
        vectors = f"{name}.reconstruct_n()" if _reconstructs(index) else None
        return _Held(vectors, False, None if inner.ids != "ids" else "ids", inner.n_lists)
    if isinstance(index, (faiss.IndexHNSW, faiss.IndexNSG)):
        return _held(_storage(index), f"faiss.downcast_index({name}.storage)")
    if isinstance(index, faiss.IndexRefine):
        inner = _held(index.refine_index, f"faiss.downcast_index({name}.refine_index)")
        return inner._replace(n_lists=_held(index.base_index, name).n_lists)
    exact = isinstance(index, (faiss.IndexFlat, faiss.IndexIVFFlat))
    n_lists, ids = None, None
    if isinstance(index, faiss.IndexIVF):
        n_lists = min(int(index.nlist), index.ntotal or int(index.nlist))
        ids = None if _numbered(index) else "ids"
    return _Held(f"{name}.reconstruct_n()" if _reconstructs(index) else None, exact, ids, n_lists)


def _storage(index: Any) -> Any:
    import faiss

    storage: Any = getattr(index, "storage")  # noqa: B009  # which stubs of faiss do not know
    return faiss.downcast_index(storage)


def _reconstructs(index: Any) -> bool:
    """Return whether `reconstruct_n` returns all vectors, at least one, in their order."""
    import faiss

    inner = index
    while isinstance(inner, faiss.IndexPreTransform):
        inner = faiss.downcast_index(inner.index)
    in_lists = isinstance(inner, faiss.IndexIVF)
    if not index.ntotal or (in_lists and not _numbered(inner)):
        return False
    try:
        # For many kinds without an implementation, `reconstruct_n` ends the process: it throws in a thread of its own.
        if in_lists:
            index.reconstruct_n(0, 1)
        else:
            index.reconstruct(0)
    except RuntimeError:
        return False
    return True


def _numbered(index: Any) -> bool:
    """Return whether ids in the lists are 0, 1, 2, … without a gap."""
    import faiss

    lists = index.invlists
    own = [
        np.array(faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i)))
        for i in range(index.nlist)
        if lists.list_size(i)
    ]
    ids = np.sort(np.concatenate([*own, np.zeros(0, np.int64)]))
    return bool((ids == np.arange(len(ids))).all())
