"""Online learning: batches that come one after another, and what is kept of the earlier ones.

The update needs only two sums over the vectors seen so far, A = B Bᵀ and b = B X (Mairal et al., *Online dictionary
learning for sparse coding*, 2009; Du & Wang propose it for these codes). They are as large for a million vectors as for
a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compcodes.training.shards import Doubles, Floats, Sums
from compcodes.training.trainer import Trainer

__all__ = ["Past", "absorb"]

ROUNDS = 20
"""Updates per batch."""
FORGET = 0.4
"""The fraction of the sums that each batch makes them lose: their codes were chosen for codebooks that no longer exist.
A small batch takes away only as much as it contributes."""


@dataclass(frozen=True)
class Past:
    """The sums of the vectors seen, and the codebooks that belong to them."""

    codebooks: Floats
    A: Doubles
    b: Doubles

    def prior(self, eta: float) -> Sums:
        """Return what the update adds to the sums of a batch.

        For the plain loss these are the sums themselves. The error along a vector is no function of them; in that case
        the present codebooks represent the optimum for what was seen, and A, increased by what the term along adds on
        average, represents how fast the loss rises from there.
        """
        if eta == 1:
            return self.A, self.b
        books, d = len(self.b) // self.codebooks.shape[1], self.codebooks.shape[2]
        A = self.A * (1 + (eta - 1) / d)
        return A, A @ self.codebooks[:books].reshape(-1, d).astype(np.float64)


def absorb(trainer: Trainer, codebooks: Floats, past: Past | None, seen: float) -> tuple[Floats, Past, float]:
    """Continue from `codebooks` with the trainer's vectors, a batch; (codebooks, what to keep, mean loss of the batch).

    `seen` is the number of vectors that the codebooks were trained on if nothing else is kept of them: these are then
    assumed to be like those of the batch.
    """
    codes = trainer.encode(codebooks)
    A, b = trainer.sums(codes)
    eta = trainer.objective.eta
    at_optimum = past is None or eta > 1
    if past is None:
        share = seen / trainer.shards.shape[0]
        books = len(b) // codebooks.shape[1]
        past = Past(codebooks, share * A, share * A @ codebooks[:books].reshape(len(b), -1).astype(np.float64))
    kept = 1 - min(FORGET, np.trace(A) / np.trace(past.A)) if past.A.any() else 0.0
    past = Past(codebooks, kept * past.A, kept * past.b)
    prior, loss = past.prior(eta), trainer.loss(codebooks, codes)
    in_past = np.einsum("ii->i", past.A) >= 1
    # If codebooks represent the optimum of the past, they do so with the pull that held them there.
    share = np.trace(A) / (np.trace(A) + np.trace(past.A)) if at_optimum else 1.0
    for round_ in range(ROUNDS):
        codebooks = trainer.update(codebooks, codes, share * trainer.pull(loss), prior)
        codebooks = trainer.reseeded(codebooks, codes, in_past)
        noisy = trainer.perturbed(codebooks, round_, ROUNDS) if trainer.anneal else codebooks
        codes, _ = trainer.improve(noisy, codes)
        loss = trainer.loss(codebooks, codes)
    A, b = trainer.sums(codes)
    return codebooks, Past(codebooks, past.A + A, past.b + b), loss
