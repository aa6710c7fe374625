"""What a type checker must see: run by `make lint`, where an unused `type: ignore` is an error."""

from typing import Any

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
cc.Index("model.cc")  # type: ignore[arg-type]
cc.Index(theirs, metric="cosin")  # type: ignore[arg-type]
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
