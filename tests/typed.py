"""What type checkers must see: `make lint` runs mypy and pyright, where an unused `type: ignore` is an error."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import compcodes as cc
from compcodes.quantizers import QuantizerLike


class Theirs:
    """Has what the protocol asks, and no more."""

    codebooks_: NDArray[np.float32] = np.zeros((1, 2, 3), np.float32)

    def encode(self, X: Any) -> NDArray[np.uint8]:
        """Choose codes."""
        return np.zeros((len(X), 1), np.uint8)


theirs: QuantizerLike = Theirs()
ours: QuantizerLike = cc.ProductQuantizer()
cc.Index(theirs, metric="cosine")
cc.Index("model.cc")  # type: ignore[call-overload]
cc.Index(theirs, metric="cosin")  # type: ignore[call-overload]
cc.CompositionalCodes(selection="m-selection", encoder="beam", loss="reconstruction", init="random")
cc.CompositionalCodes(selection="m-select")  # type: ignore[arg-type]
cc.CompositionalCodes(encoder="beams")  # type: ignore[arg-type]
cc.CompositionalCodes(loss="l2")  # type: ignore[arg-type]
cc.CompositionalCodes(init="radom")  # type: ignore[arg-type]
cc.CompositionalCodes(encoder=cc.Beam(3), loss=cc.InnerProduct(2), init=np.zeros((8, 256, 3)))
cc.evaluate.ground_truth([[1.0]], [[1.0]], 1, metric="dot")  # type: ignore[arg-type]

certify: bool = len(theirs.codebooks_) > 0
found = cc.Index(theirs).search([1.0], rerank=[[1.0]], certify=certify)
scores, ids, certified = cc.Index(theirs).search([1.0], rerank=[[1.0]], certify=True)
scores, ids = cc.Index(theirs).search([1.0])
indptr, above_ids, above_scores = cc.Index(theirs).search_above([1.0], 0.5)

numbered, keyed = cc.Index(theirs), cc.Index(theirs, keys=True)
either = cc.Index(theirs, keys=certify)
loaded = cc.Index.load(Path("index.cc"), mmap=certify)
if TYPE_CHECKING:
    from typing_extensions import assert_type

    assert_type(numbered, cc.Index[np.int64])
    assert_type(keyed, cc.Index[np.object_])
    assert_type(numbered.search([1.0])[1], NDArray[np.int64])
    assert_type(numbered.ids, NDArray[np.int64])
    assert_type(keyed.search([1.0], exclude=[["a"]])[1], NDArray[np.object_])
    assert_type(len(found), int)


def user_code(index: cc.Index, names: list[str], X: NDArray[np.float32], certify: bool, rows: bool) -> list[int]:
    """As people write it: an index without a parameter, and arguments that are variables."""
    index.add(X, range(3)).update(X, ids=np.arange(3))
    keyed.add(X, names).remove(names[:1])
    found = index.search(X, 5, rerank=X if rows else None, certify=certify)
    index.search(X, rerank=lambda ids: X[ids], filter=range(3), exclude=[{1}, {2}])
    index.add(X, ["a"], name="b")  # type: ignore[call-arg]
    return [int(i) for i in found[1][0]]
