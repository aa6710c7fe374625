"""What training minimises: the losses, and how their parameters follow from the data."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compcodes.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["InnerProduct", "Loss", "Objective", "Reconstruction", "as_loss", "directions", "parameters"]


@dataclass(frozen=True)
class Reconstruction:
    """The squared error ‖x − x̄‖², for Euclidean distances and for decoding."""


@dataclass(frozen=True, eq=False)
class Objective:
    """How an error counts, in the form the core takes: a loss whose parameters have been chosen.

    ‖L r‖² + (η − 1)⟨L r, u⟩², where u is the direction of L x and L = I + AᵀA with the orthogonal rows A, `directions`
    (r, d); without them L is I.
    """

    eta: float = 1.0
    directions: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class InnerProduct:
    """‖r‖² + (η − 1)⟨r, x/‖x‖⟩² with r = x − x̄, rows weighted by a power of ‖x‖.

    A search looks for vectors that point in the direction of the query, so an error along x changes the scores that
    decide it, while an error across x mostly changes those of queries that do not want x. And if norms differ, most
    queries find the long vectors. If queries keep to some directions, errors in others change no score: with a metric,
    x and r are taken in the basis that makes queries alike in all directions.

    Parameters
    ----------
    eta : float, optional
        How much more an error along x counts, at least 1. By default it is chosen by `fit`.
    weight_power : float, optional
        Rows are weighted by ‖x‖ to this power, at least 0. By default it is chosen by `fit`.
    demand : float, optional
        Share of the weights, 0 to 1, that follows how often sample queries find a row, by 1/rank, instead of ‖x‖. By
        default it is chosen by `fit` if queries are given; otherwise it is not used.
    metric : float, optional
        Share, 0 to 1, of the metric given by the second moment of sample queries: an error r counts as rᵀ W r, where
        this share of W is E q qᵀ (scaled to a mean eigenvalue of 1), and the rest is the identity. The 32 directions of
        W that count most are kept, and the others count alike; no error is stretched more than a hundredfold. By
        default it is chosen by `fit` if queries are given; otherwise it is not used.
    """

    eta: float | None = None
    weight_power: float | None = None
    demand: float | None = None
    metric: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in [("eta", 1, np.inf), ("weight_power", 0, np.inf), ("demand", 0, 1), ("metric", 0, 1)]:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, type(None))):
                raise ArgumentTypeError(name, f"is {value!r}: want a number, or None")
            if value is not None and not low <= value <= min(high, sys.float_info.max):
                limits = f"{low} to {high}" if np.isfinite(high) else f"a finite number of at least {low}"
                raise ArgumentValueError(name, f"is {value}: want {limits}, or None")


Loss: TypeAlias = Reconstruction | InnerProduct

_NAMED: dict[str, type[Reconstruction] | type[InnerProduct]] = {
    "reconstruction": Reconstruction,
    "inner-product": InnerProduct,
}


def as_loss(loss: Any) -> Loss:
    """Return a loss given as an object, by name, or as returned by `parameters`."""
    if isinstance(loss, (Reconstruction, InnerProduct)):
        return loss
    given = dict(loss) if isinstance(loss, dict) else {"name": loss}
    name = given.pop("name", None)
    if not isinstance(name, str) or name not in _NAMED:
        raise ArgumentValueError(
            "loss", f"is {name!r}: want one of {', '.join(map(repr, _NAMED))}, or an object of those"
        )
    try:
        return _NAMED[name](**given)
    except TypeError as error:
        raise ArgumentValueError("loss", f"{name!r}: {error}") from None


def parameters(loss: Loss) -> dict[str, Any]:
    """Return name and parameters, in the form stored in files."""
    name = next(name for name, kind in _NAMED.items() if isinstance(loss, kind))
    return {"name": name, **asdict(loss)}


DIRECTIONS = 32
"""The most directions that are stretched: the largest; the others count by their mean in W."""
STRETCH = 100.0
"""The largest factor."""


def directions(queries: NDArray[np.float32], metric: float) -> NDArray[np.float32]:
    """Return A (r, d), orthogonal rows, for which (I + AᵀA)² is proportional to W of the queries (nq, d)."""
    d = queries.shape[1]
    Q = queries.astype(np.float64)
    Q /= np.abs(Q).max() or 1.0
    values, vectors = np.linalg.eigh(Q.T @ Q)
    values = (1 - metric) + metric * values.clip(0) / (values.mean() or 1.0)
    count = min(DIRECTIONS, d - 1)
    largest, rest = values[d - count :], values[: d - count].mean()
    stretch = np.sqrt(largest / (max(rest, largest.max(initial=0.0) / STRETCH**2) or 1.0))
    kept = stretch > 1.01
    rows: NDArray[np.float64] = np.sqrt(stretch[kept, None] - 1) * vectors.T[d - count :][kept]
    return rows.astype(np.float32)
