"""Recall curves as a picture; needs matplotlib (``pip install 'compcodes[plot]'``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from compcodes.evaluate import recall_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["recall_figure"]


def recall_figure(
    results: Mapping[str, ArrayLike], true_ids: ArrayLike, R: tuple[int, ...] = (1, 10, 100), title: str = ""
) -> Figure:
    """Draw recall@P over P, one panel for each R and one curve for each result.

    Parameters
    ----------
    results : mapping of str to (nq, P) int
        Found ids by name, best first; at least as many columns as the largest R to be of use.
    true_ids : (nq, ≥ max(R)) int
        From `compcodes.evaluate.ground_truth`.
    R : tuple of int
        How many of the true best are sought.

    Returns
    -------
    matplotlib Figure
        Write it with ``figure.savefig("recall.png")``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("drawing needs matplotlib; run: pip install 'compcodes[plot]'") from None

    figure = Figure(figsize=(4.2 * len(R), 3.6), layout="constrained")
    panels = figure.subplots(1, len(R), sharey=True, squeeze=False)[0]
    for panel, r in zip(panels, R, strict=True):
        for name, ids in results.items():
            curve = recall_curve(ids, true_ids, R=r)
            panel.plot(range(1, len(curve) + 1), curve, label=name, clip_on=False)
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("P, number of vectors found")
        panel.set_title(f"the true best {r}" if r > 1 else "the true best")
        panel.set_ylim(0, 1.02)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share that is found, recall@P")
    if len(results) > 1:
        panels[0].legend(loc="lower right")
    figure.suptitle(title)
    return figure
