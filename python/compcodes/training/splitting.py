"""Which of several ways to split the dimensions into groups is best: each is tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compcodes import _core
from compcodes.training import encoders
from compcodes.training.grouping import Groups, splits
from compcodes.training.losses import Objective
from compcodes.training.rest import Rest
from compcodes.training.shards import Doubles, Floats, Local
from compcodes.training.trainer import Trainer

__all__ = ["best_split"]

TRIED = 8000
"""Vectors that splits are tried on; a quarter of them are only used to measure the result."""
CODEWORDS_TRIED = 64
"""The most codewords per codebook in these trials: this many need no more vectors."""
SAMPLE = 50_000
"""The most vectors that the rotation is learned from."""


def best_split(whole: Trainer, rest: Rest, n_groups: int) -> Groups:
    """Return the split with the least squared error after a short training, over training vectors and others.

    If there are few vectors, an index holds the training vectors themselves, so their error counts too. There are as
    many of them per codeword as in the whole.
    """
    n_codewords, directions = min(whole.n_codewords, CODEWORDS_TRIED), whole.objective.directions
    covariance = _covariance(rest, directions, whole.seed)
    candidates = splits(covariance, whole.n_codebooks, whole.n_codewords, n_groups)
    drawn, drawn_weights = rest.drawn(TRIED, whole.seed)
    n = len(drawn)
    if n < 8 or len(candidates) == 1:
        return candidates[0]
    kept = np.flatnonzero(np.arange(n) % 4)
    most = max(rest.shape[0] * n_codewords // whole.n_codewords, 4 * n_codewords)
    rows = kept[np.linspace(0, len(kept), min(most, len(kept)), endpoint=False).astype(int)], np.arange(0, n, 4)
    X = [rest.rows(drawn[part]) for part in rows]
    weights = [None if drawn_weights is None else drawn_weights[part] for part in rows]
    if any(part is not None and not part.any() for part in weights):
        return candidates[0]

    def error(groups: Groups) -> float:
        total = 0.0
        for group in range(n_groups):
            parts = [_core.rotated(part, groups.axes(group, directions), whole.n_jobs) for part in X]
            trainer = replace(
                whole,
                shards=Local(parts[0], weights[0], whole.n_jobs),
                n_codebooks=groups.members[group],
                n_codewords=n_codewords,
                objective=Objective(),
                encoder=encoders.Beam(2),
                anneal=0,
                max_iter=1,
                report=None,
            )
            words = trainer.run("residual").codebooks
            coder = trainer.encoder.build(words, "group", Objective(), 0, whole.n_jobs)
            for part, by in zip(parts, weights, strict=True):
                left = part - _core.decode(words, coder.encode(part, whole.n_jobs), whole.n_jobs)
                total += np.average(np.einsum("ij,ij->i", left, left, dtype=np.float64), weights=by)
        return total

    return min(candidates, key=error)


def _covariance(rest: Rest, directions: Floats | None, seed: int) -> Doubles:
    """Return second moments about the mean, by weight, of vectors stretched by directions."""
    d = rest.shape[1]
    drawn, drawn_weights = rest.drawn(SAMPLE, seed)
    total, mean, square = 0.0, np.zeros(d), np.zeros((d, d))
    step = max((1 << 22) // d, 1)
    for first in range(0, len(drawn), step):
        rows = slice(first, first + step)
        part = rest.rows(drawn[rows]).astype(np.float64)
        weights = np.ones(len(part)) if drawn_weights is None else drawn_weights[rows]
        total += weights.sum()
        mean += weights @ part
        square += (part * weights[:, None]).T @ part
    mean /= total or 1.0
    covariance: Doubles = square / (total or 1.0) - np.outer(mean, mean)
    if directions is not None:
        stretch = np.eye(d) + directions.T.astype(np.float64) @ directions
        covariance = stretch @ covariance @ stretch
    return covariance
