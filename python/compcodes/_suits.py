"""Whether a model suits the metric of an index."""

from __future__ import annotations

from compcodes.quantizers.quantizer import Quantizer

__all__ = ["MetricWarning", "other_metric", "suits"]


class MetricWarning(UserWarning):
    """An index measures something other than what its model was trained for: it finds less than it could."""


def suits(quantizer: Quantizer, metric: str) -> bool:
    """Whether training the model for this metric would have given the same model."""
    trained = quantizer.metric_
    if trained is None:  # it reconstructs vectors
        return not (metric == "cosine" and quantizer._lengths_differ)
    if trained == metric:
        return True
    if "cosine" in (trained, metric):
        return False
    # Between inner products and distances, the loss makes the difference.
    return getattr(quantizer, "loss_", {}).get("name") == ("reconstruction" if metric == "l2" else "inner-product")


def other_metric(quantizer: Quantizer, metric: str) -> str:
    """Describe what is lost if the index has a different metric than its model."""
    if quantizer.metric_ is None:
        return (
            "the model was trained on vectors of different lengths, the index measures 'cosine' and will find less "
            "than it could: scale vectors to length 1 before fit and add, or use CompositionalCodes(metric='cosine')"
        )
    why = " (its codes are of directions, and do not keep lengths)" if quantizer.metric_ == "cosine" else ""
    return (
        f"the model was trained for the metric {quantizer.metric_!r}{why}, the index measures {metric!r} and will find "
        f"less than it could: fit the model with metric={metric!r}"
    )
