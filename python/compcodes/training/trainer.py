"""Training: codebooks given codes and codes given codebooks, alternating until the objective settles.

The steps are those of the compiled core and the solver, and vectors are only accessed as `Shards`; this module combines
the steps. The Rust crate's loop consists of the same steps, and a test checks that it yields the same codebooks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compcodes import _core
from compcodes._arrays import as_codes, as_vectors, as_weights
from compcodes.errors import ArgumentValueError
from compcodes.training import losses, solver
from compcodes.training.encoders import Encoder, Greedy, Pass
from compcodes.training.losses import Objective
from compcodes.training.shards import Codes, Doubles, Floats, Local, Moments, Report, Shards, Sums

__all__ = ["Trained", "Trainer", "normal_equations"]


def normal_equations(
    X: ArrayLike,
    codes: ArrayLike,
    n_codewords: int = 256,
    *,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Sums:
    """Assemble the linear system A D = b whose solution is the best codebooks for given codes.

    With B the (M·K, n) matrix of which codewords each vector uses, A = B Bᵀ and b = (X Bᵀ)ᵀ (Du & Wang,
    "Update the dictionary"). Both are sums over vectors: those of shards add up to those of the whole.

    Parameters
    ----------
    X : (n, d) real
        Vectors; read a chunk at a time.
    codes : (n, M) uint8
        Their codes.
    n_codewords : int
        K; every code is below it.
    sample_weight : (n,), optional
        Weight of each vector, 1 by default.
    n_jobs : int, optional
        Threads, all cores by default. The result does not depend on it.

    Returns
    -------
    A : (M·K, M·K) float64
        How often two codewords are used together, by weight.
    b : (M·K, d) float64
        For each codeword, the sum of the vectors that use it, by weight.

    Raises
    ------
    ValueError
        Shapes that do not match, a code that is not below K, a row of `X` that is not finite, a negative weight.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.array([[1.0], [2.0], [4.0]], dtype=np.float32)
    >>> A, b = cc.normal_equations(X, np.array([[0], [1], [1]], dtype=np.uint8), n_codewords=2)
    >>> A.tolist(), b.tolist()
    ([[1.0, 0.0], [0.0, 2.0]], [[1.0], [6.0]])
    """
    X = as_vectors(X, "X")
    codes = as_codes(codes, np.shape(codes)[1] if np.ndim(codes) == 2 else -1)
    weights = None if sample_weight is None else as_weights(sample_weight, len(X))
    return _core.normal_equations(X, codes, n_codewords, weights, n_jobs)


EXACT = 1e-12
"""Share of the variance below which a loss is considered rounding."""
ANEW = 2**35
"""The number of the pass that chooses codes anew, which no other pass has."""


@dataclass(frozen=True)
class Trained:
    """The result of training."""

    codebooks: Floats
    codes: Codes
    history: list[dict[str, Any]]
    noiseless: bool = False
    """Whether training without noise was tried too, and was better."""


@dataclass
class Trainer:
    """One training run over `shards` of vectors: its parameters, and the steps that share them.

    `passes` is the number of passes over the vectors that progress is measured by, if it is not that of `run`.
    `max_iter_halves` replaces `max_iter` after a start in halves; without it there is none. `max_iter_noiseless`
    replaces it in a second training, without noise, where noise is doubtful; without it there is none.
    """

    shards: Shards
    n_codebooks: int
    n_codewords: int
    selection: str
    max_iter: int
    tol: float
    ridge: float
    seed: int
    shrinkage: float = 0.0
    encoder: Encoder = field(default_factory=Greedy)
    objective: Objective = field(default_factory=Objective)
    anneal: int = 0
    n_jobs: int | None = None
    report: Report | None = None
    passes: int | None = None
    max_iter_halves: int | None = None
    max_iter_noiseless: int | None = None
    _pass: int = field(default=0, init=False)

    def with_loss(self, loss: losses.Loss, queries: Floats | None = None, directions: Floats | None = None) -> Trainer:
        """Return the same trainer for another loss, including the weights of rows that it determines.

        Its metric is that of the queries, or that of `directions` if these are given.
        """
        if not isinstance(loss, losses.InnerProduct):
            return replace(self, objective=Objective())
        if queries is not None and len(queries) == 0:
            queries = None
        if queries is not None and loss.metric:
            directions = losses.directions(queries, loss.metric)
            directions = directions if len(directions) else None
        objective = Objective(loss.eta or 1.0, directions)
        return replace(self, objective=objective, shards=self.shards.weighted(loss, objective, queries, self.seed))

    def best(self, init: str | Floats) -> Trained:
        """Train from `init`; if noise is doubtful, without it too; keep that if codes chosen anew lose less.

        See `doubtful` and `wins` in `train/noiseless.rs`.
        """
        if self.max_iter_noiseless is None or not self.anneal or self._halves(init) is not None:
            return self.run(init)
        if not _core.doubtful(self._weighing(), self.shards.shape[1], self.n_codebooks, self.n_codewords):
            return self.run(init)
        passes = self.anneal + self.max_iter + 2, self.max_iter_noiseless + 2
        report = self.report

        def told(before: int, own: int) -> Report | None:
            return report and (lambda done, total: report(before * total + own * done, sum(passes) * total))

        started = time.perf_counter()
        first = replace(self, report=told(0, passes[0])).run(init)
        lost = self._anew(first)
        if lost <= EXACT * self.variance:
            if report is not None:
                report(1, 1)
            return first
        before = time.perf_counter() - started
        second = replace(self.without_noise(), report=told(passes[0], passes[1])).run(init)
        if not _core.noiseless_wins(self._weighing(), self.n_codewords, self._anew(second), lost):
            return first
        history = [{**entry, "seconds": before + entry["seconds"]} for entry in second.history]
        return replace(second, history=history, noiseless=True)

    def without_noise(self) -> Trainer:
        """Return the trainer for the second training."""
        assert self.max_iter_noiseless is not None
        return replace(self, anneal=0, max_iter=self.max_iter_noiseless, max_iter_noiseless=None)

    def _anew(self, trained: Trained) -> float:
        """Return the mean loss of codes that are chosen from scratch."""
        seed = _core.pass_seed(self.seed, ANEW)
        coder = Pass(trained.codebooks, self.selection, self.objective, self.encoder.for_training(), seed)
        return self.loss(trained.codebooks, self.shards.encode(coder, None))

    def run(self, init: str | Floats) -> Trained:
        """Train once from `init`: "residual", "random", or codebooks (M, K, d)."""
        history: list[dict[str, Any]] = []
        started = time.perf_counter()

        def record(objective: float) -> None:
            seconds, n = time.perf_counter() - started, self.shards.shape[0]
            history.append({"iteration": len(history), "objective": objective, "seconds": seconds, "vectors": n})

        first, most = self._iterations(init)
        self.passes = self.passes or self.anneal - first + most + 2
        codebooks = self.start(init) if isinstance(init, str) else init
        coder = self.coder(codebooks)
        if self._halves(init):  # iterations with noise will improve the codes of their parts
            coder = replace(coder, encoder=Greedy())
        codes = self.shards.encode(coder, self.within())
        partial = False
        # With no more vectors than codewords the start is exact, and nothing is left to learn.
        exact = self.loss(codebooks, codes) <= EXACT * self.variance
        for iteration in range(self.anneal if exact else first, self.anneal):
            part = self.shards.part(codes, self.n_codewords, self.seed, iteration)
            if part is None:
                codebooks, codes = self.annealed(codebooks, codes, iteration)
                continue
            trainer = replace(self, shards=part.shards)
            trainer._pass = self._pass
            codebooks, own = trainer.annealed(codebooks, part.codes, iteration)
            codes, partial, self._pass = self.shards.put(codes, part, own), True, trainer._pass
        if partial:  # some codes are for codebooks of long ago
            codes = self.shards.renewed(self.coder(codebooks), codes, self.within())
        now = self.loss(codebooks, codes)
        record(now)
        for _ in range(0 if exact else most):
            better = self.updated(codebooks, codes, now)
            better_codes, after = self.improve(better, codes)
            # The pull of codewords to their mean can cost more than new codes gain: what remains would be overfitting.
            if after > now:
                break
            codebooks, codes, before, now = better, better_codes, now, after
            record(now)
            if before - now <= self.tol * before:
                break
        if self.report is not None:
            self.report(1, 1)
        return Trained(codebooks, codes, history)

    def start(self, init: str = "residual") -> Floats:
        """Return codebooks (M, K, d) to start from: by residual k-means, in halves, or of random vectors."""
        if self._halves(init):
            return self._in_halves()
        sizes = self.n_codebooks, self.n_codewords, self.selection, self.seed
        drawn = _core.sample_rows(*self.shards.shape, self.shards.weights, self.n_codewords, self.seed)
        sample = self.shards.sample(drawn)
        if init == "random":
            return _finite(_core.random_vectors(sample, *sizes))
        return _finite(_core.residual_kmeans(sample, *sizes, self.n_jobs, directions=self.objective.directions))

    def _halves(self, init: str | Floats) -> tuple[int, int, int] | None:
        """Return the parameters of a start in halves, if there are enough vectors for it: see `train/halves.rs`."""
        if self.max_iter_halves is None or not isinstance(init, str) or init != "residual":
            return None
        if self.selection != "group" or self.anneal < 2:
            return None
        return _core.halves(self._weighing(), self.n_codebooks, self.n_codewords, self.anneal)

    def _weighing(self) -> int:
        """Return the number of vectors that have any weight."""
        weights = self.shards.weights
        return self.shards.shape[0] if weights is None else int(np.count_nonzero(weights))

    def _iterations(self, init: str | Floats) -> tuple[int, int]:
        """Return the first iteration with noise, and the most iterations without."""
        halves = self._halves(init)
        return (0, self.max_iter) if halves is None else (halves[0], self.max_iter_halves or 0)

    def _in_halves(self) -> Floats:
        """Return codebooks whose first half is trained on a sample, and the other on what that leaves."""
        halves = self._halves("residual")
        assert halves is not None
        anneal, max_iter, number = halves
        (n, d), M = self.shards.shape, self.n_codebooks
        rows, weights = _core.halves_sample(n, d, self.shards.weights, self.n_codewords, self.seed)
        X, plain = self.shards.sample(rows), Objective(directions=self.objective.directions)

        def half(n_codebooks: int, seed: int) -> Floats:
            own = replace(
                self,
                shards=Local(X, weights, self.n_jobs),
                n_codebooks=n_codebooks,
                objective=plain,
                anneal=anneal,
                max_iter=max_iter,
                max_iter_halves=None,
                passes=None,
                tol=0.0,
                seed=seed,
                report=None,
            )
            return own.run("residual").codebooks

        first = half(M - M // 2, self.seed)
        coder = Pass(first, self.selection, plain, self.encoder.for_training(), _core.pass_seed(self.seed, number))
        codes = coder.build(self.n_jobs).encode(X, self.n_jobs)
        with np.errstate(over="ignore"):
            X = _finite(X - _core.decode(first, codes, self.n_jobs))
        return np.concatenate([first, half(M // 2, (self.seed + 1) % 2**64)])

    def annealed(self, codebooks: Floats, codes: Codes, iteration: int) -> tuple[Floats, Codes]:
        """Return codebooks for `codes`, and codes for these codebooks with noise."""
        codebooks = self.updated(codebooks, codes, self.loss(codebooks, codes))
        return codebooks, self.improve(self.perturbed(codebooks, iteration, self.anneal), codes)[0]

    def updated(self, codebooks: Floats, codes: Codes, objective: float) -> Floats:
        """Return better codebooks for `codes`, whose mean loss is `objective`; none of their codewords is unused."""
        return self.reseeded(self.update(codebooks, codes, self.pull(objective)), codes)

    def encode(self, codebooks: Floats) -> Codes:
        """Choose codes."""
        return self.shards.encode(self.coder(codebooks), self.within())

    def improve(self, codebooks: Floats, codes: Codes) -> tuple[Codes, float]:
        """Return improved codes where possible, and the mean loss."""
        codes, loss = self.shards.improve(self.coder(codebooks), codes, self.within())
        return codes, loss / self.moments.weight

    def loss(self, codebooks: Floats, codes: Codes) -> float:
        """Return the mean loss, by weight."""
        return self.shards.loss(self.objective, codebooks, codes) / self.moments.weight

    def perturbed(self, codebooks: Floats, iteration: int, iterations: int) -> Floats:
        """Return codebooks with noise to encode with: less in each iteration, and none in the last.

        Codes that are best for the present codebooks hold these in place; noise lets both move on to a better optimum
        (Martinez et al., *LSQ++*, 2018, there "SR-D"). The objective may rise in the process, so this is part of the
        start.
        """
        deviation = self.moments.deviation
        return _finite(_core.perturbed(codebooks, deviation, self.selection, self.seed, iteration, iterations))

    @cached_property
    def moments(self) -> Moments:
        """Return sums of weights, mean and spread of the vectors."""
        return self.shards.moments(None)

    @cached_property
    def variance(self) -> float:
        """Return the mean loss of approximating all vectors by their mean, ignoring η."""
        directions = self.objective.directions
        return (self.moments if directions is None else self.shards.moments(directions)).variance

    def pull(self, objective: float) -> float:
        """Return the weight of the pull of codewords to the mean of their codebook, in the unit of A's diagonal."""
        return _core.pull(self.shrinkage, self.n_codebooks, objective, self.variance, self.moments.mean_weight)

    def coder(self, codebooks: Floats) -> Pass:
        """Return the encoder of the next pass; each pass has random numbers of its own."""
        seed = _core.pass_seed(self.seed, self._pass)
        return Pass(codebooks, self.selection, self.objective, self.encoder.for_training(), seed)

    def update(self, previous: Floats, codes: Codes, pull: float = 0.0, past: Sums | None = None) -> Floats:
        """Return the best codebooks (M, K, d) for `codes`; better ones, for a loss that has no closed form.

        `pull` is the weight of a pull of codewords to the mean of their codebook, `past` the sums of vectors seen
        before.
        """
        M, K, d = previous.shape
        eta, directions = self.objective.eta, self.objective.directions if self.objective.eta > 1 else None
        if directions is not None:
            previous = _core.stretch(previous, directions)
        books = 1 if self.selection != "group" else M
        start = previous[:books].reshape(-1, d).astype(np.float64)
        if eta == 1:
            A, b = self.sums(codes)
            if past is not None:
                A += past[0]
                b += past[1]
            b += pull * _means(np.einsum("ii->i", A), start, K)
            A.reshape(-1)[:: len(A) + 1] += pull
            unknowns = solver.solve(A, b, start, self.ridge, self.n_jobs)
        else:
            unknowns = self._descend(codes, start, pull, past, directions)
        with np.errstate(over="ignore"):
            codebooks = unknowns.astype(np.float32).reshape(-1, K, d)
        codebooks = np.ascontiguousarray(np.broadcast_to(_finite(codebooks), (M, K, d)))
        return codebooks if directions is None else _core.stretch(codebooks, directions, back=True)

    def _descend(
        self, codes: Codes, start: Doubles, pull: float, past: Sums | None, directions: Floats | None
    ) -> Doubles:
        """Return better unknowns than `start`, (M·K, d) or (K, d), for the inner-product loss; also stretched."""
        K, d, eta = self.n_codewords, start.shape[1], self.objective.eta
        uses, b = self.shards.sides(codes, K, self.selection != "group", directions)
        if not getattr(self.shards, "base", None):
            b *= eta  # uuᵀx = x: the right side for the inner-product loss is η times that of the plain one
        diagonal = uses * (1 + (eta - 1) / d)  # the term along x adds approximately that share
        if past is not None:
            b += past[1] if directions is None else past[1] + (past[1] @ directions.T) @ directions
            uses, diagonal = uses + np.einsum("ii->i", past[0]), diagonal + np.einsum("ii->i", past[0])
        b += pull * _means(uses, start, K)
        # Weights and codewords of any magnitude then fit float32. Powers of two: nothing is rounded.
        scale = 2.0 ** -max(np.floor(np.log2(uses.mean() or 1.0)), -1000.0)
        # A batch may have another magnitude than the codebooks that training continues from.
        means = np.abs(b).max(axis=1) / np.maximum(uses, 1)
        size = 2.0 ** np.floor(np.log2(max(np.abs(start).max(), means.max()) or 1.0))
        before = None if past is None else (past[0] * scale).astype(np.float32)

        def apply(P: Doubles) -> Doubles:
            image = self.shards.apply(codes, K, P, eta - 1, directions)
            image += pull * P
            image *= scale
            if before is not None:
                image += _core.multiply(before, P, self.n_jobs)
            return image

        ridge = self.ridge * scale * ((uses.mean() + pull) or 1.0)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is rejected by the caller
            found = solver.descend(apply, b * (scale / size), start / size, (diagonal + pull) * scale, ridge)
            unknowns: Doubles = size * found
        return unknowns

    def sums(self, codes: Codes) -> Sums:
        """Return the two sides of the normal equations; those of one codebook if the M are one."""
        M, K = self.n_codebooks, self.n_codewords
        A, b = self.shards.equations(codes, K)
        if self.selection != "group":
            # It is used as often as all M places together use it.
            A, b = A.reshape(M, K, M, K).sum(axis=(0, 2)), b.reshape(M, K, -1).sum(axis=0)
        return A, b

    def reseeded(self, codebooks: Floats, codes: Codes, kept: Doubles | None = None) -> Floats:
        """Return codebooks in which unused codewords make the worst vectors exact.

        Codewords with a positive number in `kept`, (M·K,) or (K,), count as used.
        """
        uses = self.shards.uses(codes, self.n_codewords, self.selection)
        if kept is not None:
            uses[kept > 0] += 1
        unused = int((uses == 0).sum())
        if unused == 0:
            return codebooks
        _, vectors, worst = self.shards.worst(self.objective, codebooks, codes, unused)
        return _core.reseed(codebooks, uses, vectors, worst, self.selection)

    def within(self) -> Report | None:
        """Return progress of the next pass over the vectors as progress of the whole."""
        report, done_before = self.report, self._pass
        passes = self.passes or self.anneal + self.max_iter + 2
        self._pass += 1
        if report is None:
            return None
        return lambda done, total: report(done_before * total + done, passes * total)


def _finite(codebooks: Floats) -> Floats:
    """Reject vectors whose codebooks float32 cannot hold."""
    if not np.isfinite(codebooks).all():
        raise _too_large()
    return codebooks


def _too_large() -> ArgumentValueError:
    return ArgumentValueError("X", "holds values too large for training in float32: scale it down")


def _means(uses: Doubles, start: Doubles, K: int) -> Doubles:
    """Return the mean codeword of each codebook, by use, in place of each of its codewords."""
    uses, books = uses.reshape(-1, K, 1), start.reshape(-1, K, start.shape[1])
    total = uses.sum(axis=1, keepdims=True)
    means = (uses * books).sum(axis=1, keepdims=True) / np.where(total > 0, total, 1)
    return np.broadcast_to(means, books.shape).reshape(start.shape)
