"""Choosing the parameters of the inner-product loss: those that find most on a sample of the data itself.

No formula gave values that suit both data of equal norms (where the error along x decides) and skewed data (where the
long vectors do). So codebooks are trained for a few iterations on a sample, candidates continue from there by one more,
and the sample is searched. There are as many codewords as in the model: with fewer, a smaller η would be best, and
would be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from compcodes import _core, evaluate
from compcodes.cluster import same_version, share_of_threads
from compcodes.training.losses import InnerProduct
from compcodes.training.shards import Local, Report
from compcodes.training.trainer import Trained, Trainer

__all__ = ["scaled", "tune"]

SAMPLE = 8000
"""Vectors that candidates are trained on and that are searched."""
QUERIES = 4000
"""Queries, from the set's own rows or the sample queries: 1,000 cannot tell η = 4 from 8 on SIFT."""
NEIGHBOURS = 10
ITERATIONS = 4
"""Iterations of the training that candidates continue from. A separate training of five for each took three times as
long and distinguished neighbouring values no better: what candidates have in common is no noise between them."""
ETAS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""1 was never the best for a whole data set, but may seem so by chance where vectors are few or nearly all is found."""
ETA = 4.0
"""Where it cannot be told."""
START = 8.0
"""Where the climb begins, and what the training that candidates go on from is for: one iteration gives another η less
than it is worth, so that of GloVe 4, which finds .02 fewer first at the end, seemed as good."""
POWERS = (0.0, 1.0, 2.0, 3.0, 4.0)
POWER = 3.0
"""Where the climb begins: data sets of unequal norms that were tried ended at 3 or 4."""
DEMANDS = (0.0, 0.5, 0.9)
DEMAND = 0.5
METRICS = (0.0, 0.5, 0.9)
CLEARLY = 1.0
"""How much more a metric must find, in standard errors of the share that is found: smaller differences are noise of few
queries and short training."""
NOTABLY = 0.4
"""The same for another η than the one before: between 2, 4 and 8 of Gowalla, and 8 and 16 of SIFT, chance decided."""
CANDIDATES = 8
"""The approximate number of candidates that are tried, for the progress display."""
COMMON = 3
"""The relative time of the common training, compared with one candidate."""
EQUAL_NORMS = 0.02
"""Standard deviation over mean of the norms below which weights by norm would all be 1."""


def tune(trainer: Trainer, loss: InnerProduct, queries: NDArray[np.float32] | None) -> InnerProduct:
    """Return `loss` with the parameters that are not given chosen for the trainer's data.

    The score of a candidate is the mean of two shares, over sample queries, or rows of the data if there are none: how
    many find the true best first, and how many of the true 10 best are among the first 10 found. The sample is smaller
    than the data, whose 10 best are nearer to a query: the best of the sample resembles them, and without it a smaller
    η would be chosen than suits large sets. Both shares are those of the codes that training ends with and, for a part
    that is larger the fewer vectors there are per codeword, of codes chosen from scratch. The former are too
    optimistic, since nobody finds them again: with 16 bytes they are all but exact whatever the loss. The latter favour
    a smaller η than suits large sets. Each parameter is climbed from a common value, the weights first. The queries
    that are searched differ from those that determine which vectors are wanted.
    """
    if queries is None:
        loss = replace(loss, demand=0.0, metric=0.0)
    elif len(queries) < 2:
        loss = replace(loss, demand=loss.demand or 0.0, metric=loss.metric or 0.0)
    if None not in (loss.eta, loss.weight_power, loss.demand, loss.metric):
        return loss
    trainer.shards.check()  # an error should not name the row of a sample
    if trainer.shards.shape[0] <= trainer.n_codewords:  # exact codes, or too few vectors to learn from
        return InnerProduct(loss.eta or ETA, loss.weight_power or 0.0, loss.demand or 0.0, loss.metric or 0.0)
    sample = Sample(trainer, loss, queries)
    if loss.weight_power is None:
        start = InnerProduct(loss.eta or 2.0, 0.0, loss.demand or 0.0, loss.metric or 0.0)
        power = sample.climb(start, "weight_power", POWERS, POWER) if sample.begin.weight_power else 0.0
        loss = replace(loss, weight_power=power)
    if loss.demand is None:
        loss = replace(loss, demand=sample.climb(loss, "demand", DEMANDS, DEMAND))
    if loss.metric is None:
        loss = replace(loss, metric=sample.climb(loss, "metric", METRICS, 0.0, dict.fromkeys(METRICS[1:], CLEARLY)))
    if loss.eta is None:
        loss = replace(loss, eta=sample.climb(loss, "eta", ETAS, START, dict.fromkeys(ETAS, NOTABLY)))
    if trainer.report is not None:
        trainer.report(1, 1)
    return loss


@dataclass(frozen=True)
class Task:
    """What a candidate is tried on: small, so that it can be sent to a worker."""

    trainer: Trainer
    queries: NDArray[np.float32]
    others: NDArray[np.float32] | None
    true: NDArray[np.int64]
    k: int

    def found(self, loss: InnerProduct, trained: Trained) -> float:
        """Return what a search finds of the nearest neighbours after one more iteration of a training, for `loss`."""
        trainer = self.trainer.with_loss(loss, self.others)
        now = trainer.loss(trained.codebooks, trained.codes)
        codebooks = trainer.updated(trained.codebooks, trained.codes, now)
        own = trainer.improve(codebooks, trained.codes)[0]
        model = _core.Model(codebooks, trainer.selection)
        anew = min(trainer.n_codebooks * trainer.n_codewords / trainer.shards.shape[0], 1)
        total = 0.0
        for codes, share in ((own, 1 - anew), (trainer.encode(codebooks), anew)):
            index = _core.Index(model, "ip", False, False, False)
            index.add_codes(codes)
            ids = np.asarray(index.search(self.queries, self.k, n_jobs=trainer.n_jobs)[1])
            total += share * sum(evaluate.recall(ids, self.true, k, k) for k in (1, self.k)) / 2
        return total


def found_there(version: str, task: Task, loss: InnerProduct, trained: Trained) -> float:
    """Try a candidate on a worker."""
    same_version(version)
    trainer, n_jobs = task.trainer, share_of_threads()
    if n_jobs is not None:
        trainer = replace(trainer, n_jobs=n_jobs, shards=replace(cast(Local, trainer.shards), n_jobs=n_jobs))
    return replace(task, trainer=trainer).found(loss, trained)


class Sample:
    """Some vectors, some queries, and what is found with the losses tried so far.

    If vectors lie on several workers, candidates are tried there, a neighbour or two in advance.
    """

    def __init__(self, trainer: Trainer, loss: InnerProduct, queries: NDArray[np.float32] | None) -> None:
        rng = np.random.default_rng(trainer.seed)
        all_vectors, n = trainer.shards, trainer.shards.shape[0]
        order = rng.choice(n, min(n, SAMPLE + QUERIES), replace=False) if n > SAMPLE else np.arange(n)
        rows = np.sort(order[:SAMPLE])
        self.others: NDArray[np.float32] | None = None
        vectors = all_vectors.sample(rows)
        if queries is not None:
            Q = queries[rng.permutation(len(queries))]
            half = min(QUERIES, (len(Q) + 1) // 2)
            self.queries, self.others = Q[:half], Q[half:]
        else:
            others = order[SAMPLE : SAMPLE + QUERIES] if n >= SAMPLE + QUERIES // 4 else order[:: max(1, n // QUERIES)]
            self.queries = all_vectors.sample(np.sort(others))
        self.k = min(NEIGHBOURS, len(vectors))
        self.true = _core.exact_search(vectors, self.queries, self.k, n_jobs=trainer.n_jobs)[1]
        self.queries = scaled(self.queries, vectors)
        norms = _core.norms(vectors)
        spread = norms.std() / (norms.mean() or 1.0)
        power = (POWER if spread > EQUAL_NORMS else 0.0) if loss.weight_power is None else loss.weight_power
        demand = (0.0 if queries is None else DEMAND) if loss.demand is None else loss.demand
        self.begin = InnerProduct(loss.eta or START, power, demand, loss.metric or 0.0)
        """The values that climbs begin with."""
        shards = Local(vectors, n_jobs=trainer.n_jobs)
        self.trainer = replace(trainer, shards=shards, report=None)
        self.report = trainer.report
        self.common: dict[float | None, Trained] = {}
        self.scores: dict[InnerProduct, float] = {}
        engine = getattr(all_vectors, "engine", None)
        self.engine = engine if engine is not None and len(engine.places()) > 1 else None
        self.task = Task(self.trainer, self.queries, self.others, self.true, self.k)
        self.shared = None if self.engine is None else self.engine.share(self.task)
        self.begun: dict[InnerProduct, Any] = {}

    def trained(self, loss: InnerProduct) -> Trained:
        """Return the training that candidates of a metric continue from."""
        if loss.metric not in self.common:
            anneal, rest = (ITERATIONS, 0) if self.trainer.anneal else (0, ITERATIONS)
            report = None if self.common else self._within()
            trainer = replace(self.trainer, anneal=anneal, max_iter=rest, report=report)
            trainer = trainer.with_loss(replace(self.begin, metric=loss.metric), self.others)
            self.common[loss.metric] = trainer.run("residual")
        return self.common[loss.metric]

    def try_out(self, loss: InnerProduct) -> None:
        """Try a candidate on a worker, if there are any."""
        loss = _whole(loss)
        if self.engine is not None and loss not in self.scores and loss not in self.begun:
            trained = self.trained(loss)
            self.begun[loss] = self.engine.submit(found_there, _core.__version__, self.shared, loss, trained)

    def score(self, loss: InnerProduct) -> float:
        """Return the share of the nearest neighbours that a search finds after a short training."""
        loss = _whole(loss)
        if loss not in self.scores:
            if self.engine is None:
                self.scores[loss] = self.task.found(loss, self.trained(loss))
            else:
                self.try_out(loss)
                self.scores[loss] = self.engine.gather([self.begun.pop(loss)])[0]
            if self.report is not None:  # how many it takes is only known at the end
                self.report(COMMON + min(len(self.scores), CANDIDATES), COMMON + CANDIDATES)
        return self.scores[loss]

    def climb(
        self,
        loss: InnerProduct,
        name: str,
        values: tuple[float, ...],
        start: float,
        margins: Mapping[float, float] | None = None,
    ) -> float:
        """Return the value of a parameter from which neither neighbor is better.

        `margins` say how much more some values must find, in standard errors of what is found without them.
        """

        def changed(at: int) -> InnerProduct:
            change: dict[str, Any] = {name: values[at]}
            return replace(loss, **change)

        def score(at: int) -> float:
            for near in (at, at + 1, at - 1):
                if 0 <= near < len(values):
                    self.try_out(changed(near))
            return self.score(changed(at))

        def is_better(at: int, than: int) -> bool:
            found = score(than)
            error = max(found * (1 - found) / len(self.queries), 0.0) ** 0.5
            return bool(score(at) > found + (margins or {}).get(values[at], 0.0) * error)

        at = values.index(start)
        for step in (1, -1):
            begin = at
            while 0 <= at + step < len(values) and is_better(at + step, at):
                at += step
            if at != begin:
                break
        return values[at]

    def _within(self) -> Report | None:
        """Return progress of the common training as progress of the choice."""
        report = self.report
        return report and (lambda done, total: report(COMMON * done, (COMMON + CANDIDATES) * total))


def _whole(loss: InnerProduct) -> InnerProduct:
    """Return a loss whose parameters are all given."""
    return InnerProduct(loss.eta or 1.0, loss.weight_power or 0.0, loss.demand or 0.0, loss.metric or 0.0)


def scaled(Q: NDArray[np.float32], X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale queries so that float32 holds their products with vectors: by a power of two, which changes no order."""
    largest = float(np.abs(X).max(initial=0)), float(np.abs(Q).max(initial=0))
    if min(largest) == 0:
        return Q
    exponents = [int(np.frexp(value)[1]) for value in largest]
    # Products of about 1, from queries that are not subnormal.
    shift = min(max(-sum(exponents), -100 - exponents[1]), 100 - exponents[1])
    scaled: NDArray[np.float32] = np.ldexp(Q, shift)
    return scaled
