"""Groups of codebooks: with more than about ten, some are a trunk, and others approximate what the trunk leaves.

The equations of one group of M codebooks have (M·K)² numbers, and its search reads as many. With groups, whose
dimensions are different ones, time and memory grow with the bytes of a code. The cost is what codebooks of different
groups cannot represent jointly. Most of that is recovered by a trunk: the first codebooks, about 8, use all dimensions,
and the groups approximate the residual. With 32 bytes that found .025 to .05 more of the 10 best than groups alone, on
each of six data sets.

How the dimensions are split matters too. For normal data it is best to distribute principal components so that each
group has as much information as its codebooks can hold. If vectors lie in clusters, components that separate these
belong together. No rule could tell which is the case, so a few splits are tried: see `splitting.best_split`.

The trunk leaves less of the vectors that it was trained on than of others. If there are few, groups are trained on what
a trunk leaves of vectors it has not seen as well: see `_unseen`.

The trunk and each group are trained like small models, for the squared error. Then the groups are trained jointly if an
error along x counts more than others: that error is the sum of the groups' own, see `rust/core/src/encode/grouped.rs`.
If there is one group after the trunk, both have all dimensions, and the equations of all their codebooks are solved.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from compcodes import _core, evaluate
from compcodes.errors import ArgumentValueError
from compcodes.training import encoders
from compcodes.training.grouping import CODEWORDS, TOGETHER, Groups
from compcodes.training.heap import release
from compcodes.training.joint import Joint
from compcodes.training.losses import Objective
from compcodes.training.rest import Rest
from compcodes.training.shards import Codes, Doubles, Floats, Local
from compcodes.training.splitting import best_split
from compcodes.training.trainer import Trained, Trainer
from compcodes.training.tuning import scaled

__all__ = ["ETA", "POWER", "GroupTrainer", "check_norms"]

ETA = 4.0
"""How much an error along x counts before anything is known about it."""
ETAS = (2.0, 4.0, 8.0)
"""The candidates for how much an error along x counts, if not given. 16 was never the best for a whole data set."""
POWER = 3.0
"""Power of the norm that vectors are weighted by, if not given. On the data sets that were tried, 2, 3 or 4 was best,
and 3 nearly as good throughout; 2 found .02 to .04 fewer first of Gowalla and patches."""
LONGEST = float(np.finfo(np.float32).max) / 8
"""The largest norm of a vector."""
SEARCHED = 4000
"""Vectors that are searched to choose η."""
QUERIES = 2000
"""Queries for that search."""
REFINED = 2
"""Iterations over all groups for the loss along x, or over trunk and group together. Of 10,000 functions in 16 bytes
the latter find .855 first instead of .822, and .897 of 10 instead of .883; further ones find no more."""

FEW = 16, 64
"""Vectors per codeword between which groups are trained on what a trunk leaves of unseen vectors too. With 100 (SIFT,
source code) that found only .002 more of the 10 best of others, and with 12 .003."""
UNSEEN = 0.5
"""The weight of a vector that the trunk has not seen, of which there are half as many. Between .05 and 1 it hardly
matters for such vectors; at 1 fewer of those trained on are found."""


@dataclass(frozen=True)
class GroupTrainer:
    """Trains a model in groups, with the parameters of `whole`, whose vectors are in this process."""

    whole: Trainer
    n_groups: int
    """The number of groups; the trunk counts as one."""
    eta: float | None = 1.0
    """How much an error along x counts; None to choose it, by these queries or by rows."""
    queries: Floats | None = None

    def run(self, init: str) -> tuple[Trained, Groups, float]:
        """Train from `init`, "residual" or "random", and return η too; codes are not needed, and left out."""
        started = time.perf_counter()
        whole, share = self.whole, -(-self.whole.n_codebooks // self.n_groups)
        assert isinstance(whole.shards, Local)
        size = max(share, min(CODEWORDS // whole.n_codewords, whole.n_codebooks // 2))
        size = min(size, whole.n_codebooks - self.n_groups + 1, TOGETHER)
        report = whole.report
        own = replace(
            whole,
            n_codebooks=size,
            objective=Objective(directions=whole.objective.directions),
            report=report and (lambda done, total: report(4 * done, 10 * total)),
        )
        trunk = own.best(init)
        own.report = report and (lambda done, total: report(4 * total + done, 10 * total))
        unseen = self._unseen(own, init)
        others = replace(
            whole,
            n_codebooks=whole.n_codebooks - size,
            seed=(whole.seed + self.n_groups) % 2**64,
            report=report and (lambda done, total: report(total + done, 2 * total)),
        )
        found = self._found(trunk.codebooks, whole.shards)
        rest = Rest(whole.shards, trunk.codebooks, found)
        after = _AfterTrunk(others, self.n_groups - 1, self.eta, self.queries, rest, unseen)
        trained, groups, eta = after.run(init, started)
        codebooks, codes = np.concatenate([trunk.codebooks, trained.codebooks]), trained.codes
        trained, groups = replace(trained, codebooks=codebooks, codes=None), replace(groups, trunk=size)
        if self.n_groups == 2:
            trained = self._together(trained, np.concatenate([found, codes], axis=1), groups, eta, started)
        if report is not None:
            report(1, 1)
        return trained, groups, eta

    def _together(self, trained: Trained, codes: Codes, groups: Groups, eta: float, started: float) -> Trained:
        """Improve the codebooks of a trunk and the only group after it by the equations of all of them."""
        shards = cast(Local, self.whole.shards)
        if shards.base is not None:
            shards = replace(shards, base=replace(shards.base, eta=eta))
        whole = replace(self.whole, shards=shards, objective=replace(self.whole.objective, eta=eta))
        codebooks, objective = trained.codebooks, whole.loss(trained.codebooks, codes)
        history = [{**trained.history[0], "objective": objective}]  # not added up by groups, which rounds differently
        for iteration in range(REFINED if objective > 0 else 0):
            release()
            better = whole.updated(codebooks, codes, objective)
            seed = _core.pass_seed(whole.seed, 2**34 + iteration)  # a pass number that nothing else has
            coder = whole.encoder.for_training().build(
                better, "group", whole.objective, seed, whole.n_jobs, None, groups.parts()
            )
            codes, _, losses = coder.improve(shards.target, codes, whole.n_jobs)
            loss = shards.total(losses) / whole.moments.weight
            if not loss < objective:
                break
            codebooks, objective = better, loss
            seconds = time.perf_counter() - started
            history.append(
                {"iteration": len(history), "objective": objective, "seconds": seconds, "vectors": shards.shape[0]}
            )
        return replace(trained, codebooks=codebooks, history=history)

    def _unseen(self, own: Trainer, init: str) -> Rest | None:
        """Return what a trunk leaves of half of the vectors that is trained on the other half, if there are few.

        Of 10,000 patches a trunk of 8 bytes leaves .087 of their squared norm, and .21 of others. Groups that have seen
        only the former find .920 of the 10 best of the others with 64 bytes, groups that have seen both .940; of source
        code in 32 bytes .835 and .847. Of the vectors that were trained on .983 and .979, and .916 and .922. With half
        of the noisy iterations for this trunk, training takes a fifth longer.
        """
        shards = cast(Local, self.whole.shards)
        n, weights = shards.shape[0], shards.weights
        if not FEW[0] <= n / own.n_codewords < FEW[1]:
            return None
        order = np.random.default_rng(own.seed).permutation(n)
        seen, others = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        if weights is not None and not (weights[seen].any() and weights[others].any()):
            return None
        trunk = replace(own, shards=shards.of(seen), anneal=own.anneal // 2).best(init)
        vectors = shards.of(others)
        return Rest(vectors, trunk.codebooks, self._found(trunk.codebooks, vectors))

    def _found(self, codebooks: Floats, vectors: Local) -> Codes:
        """Return the codes of the trunk that the first sweep of encoding finds: see `encode/grouped.rs`.

        Of 10,000 patches it finds four in ten of those that training ends with, after all its noise. Groups that are
        trained on what the latter leave found fewer of the 10 nearest in 64 bytes: .977 in place of .984 among the
        vectors trained on, and .876 in place of .921 among others.
        """
        release()
        whole = self.whole
        coder = _core.Encoder.of_trunk(
            codebooks,
            whole.n_codebooks,
            self.eta or ETA,
            whole.encoder.steps(),
            whole.n_jobs,
            whole.objective.directions,
        )
        return coder.encode(vectors.target, whole.n_jobs)


def check_norms(vectors: Local, rows: NDArray[np.int64] | None) -> None:
    """Reject vectors that a rotation, or a step of another group's codebooks, could bring beyond float32.

    `rows` are their places in the array that an error is about, if they are a sample of it.
    """
    norms = _core.norms(vectors.X, None, vectors.n_jobs)
    row = int(norms.argmax())
    if norms[row] > LONGEST:
        row = row if rows is None else int(rows[row])
        message = f"row {row} holds values too large for groups of codebooks in float32: scale it down"
        raise ArgumentValueError("X", message)


@dataclass
class _AfterTrunk:
    """Trains the groups after a trunk, with the parameters of `whole`, on the residuals of its vectors."""

    whole: Trainer
    n_groups: int
    eta: float | None
    queries: Floats | None
    rest: Rest
    unseen: Rest | None = None

    def run(self, init: str, started: float) -> tuple[Trained, Groups, float]:
        """Train from `init`, and return η too."""
        history: list[dict[str, Any]] = []

        def record(objective: float) -> None:
            seconds, n = time.perf_counter() - started, self.rest.shape[0]
            history.append({"iteration": len(history), "objective": objective, "seconds": seconds, "vectors": n})

        whole = self.whole
        groups, words, codes = best_split(whole, self.rest, self.n_groups), [], []
        noiseless = False
        for group in range(self.n_groups):
            release()
            trainer = self._with_unseen(self._trainer(groups, group), self._axes(groups, group))
            if group == 0:  # the others are like it
                trained = trainer.best(init)
                noiseless = trained.noiseless
            else:
                trained = (trainer.without_noise() if noiseless else trainer).run(init)
            words.append(trained.codebooks)
            codes.append(trained.codes[: self.rest.shape[0]])
        eta = self.eta or self._chosen(groups, words, codes)
        whole = self.whole = self._weighing(eta)
        state, best = _State.of(self, groups, words, codes), words
        record(state.loss())
        refined = self.n_groups > 1 and whole.objective.eta > 1 and history[0]["objective"] > 0
        for iteration in range(REFINED if refined else 0):
            self._update(state)
            self._improve(state, iteration)
            self._tell(self.n_groups * (self._passes + iteration + 1), 0, 1)
            if not state.loss() < history[-1]["objective"]:
                break
            best = state.words
            record(state.loss())
        return Trained(self._assembled(groups, best), np.concatenate(state.codes, axis=1), history), groups, eta

    def _weighing(self, eta: float) -> Trainer:
        """Return the whole with a loss where an error along x counts η times."""
        return replace(self.whole, objective=replace(self.whole.objective, eta=eta))

    def _chosen(self, groups: Groups, words: list[Floats], codes: list[Any]) -> float:
        """Return the η that finds most of some vectors after a step for it: see `tune`, which is for one group.

        Their codes are chosen from scratch for this. The codes that the step was for are better than an index gets.
        """
        whole, vectors = self.whole, self.rest.vectors
        n = len(vectors.X)
        order = np.random.default_rng(whole.seed).permutation(n)
        others = min(QUERIES, n // 5)
        rows = np.sort(order[others : others + SEARCHED])
        X, Q = (np.asarray(vectors.X[np.sort(part)], np.float32) for part in (rows, order[: others or 1]))
        if self.queries is not None:
            Q = self.queries[np.random.default_rng(whole.seed).permutation(len(self.queries))[:QUERIES]]
        k, Q = min(10, len(X)), scaled(Q, X)
        true = _core.exact_search(X, Q, k, n_jobs=whole.n_jobs)[1]
        rest = self.rest.of(rows)
        rest = replace(rest, vectors=replace(rest.vectors, X=X, weights=None))
        trunk = rest.codebooks
        parts = replace(groups, trunk=len(trunk)).parts()

        def found(eta: float) -> float:
            trainer = replace(self, whole=replace(self._weighing(eta), report=None), rest=rest)
            state = _State.of(trainer, groups, words, [own[rows] for own in codes])
            trainer._update(state)
            codebooks = np.concatenate([trunk, self._assembled(groups, state.words)])
            encoder, seed = whole.encoder.for_training(), _core.pass_seed(whole.seed, 2**33)
            coder = encoder.build(codebooks, "group", trainer.whole.objective, seed, whole.n_jobs, None, parts)
            anew = coder.encode(rest.vectors.target, whole.n_jobs)
            del coder  # the tables of all groups
            approximations = _core.decode(codebooks, anew, whole.n_jobs)
            if rest.vectors.base is not None:
                approximations += rest.vectors.base.rows[rest.vectors.base.places]
            ids = _core.exact_search(approximations, Q, k, n_jobs=whole.n_jobs)[1]
            return sum(evaluate.recall(ids, true, R, R) for R in (1, k))

        return max(ETAS, key=found)

    @property
    def _weights(self) -> Doubles | None:
        return self.rest.vectors.weights

    @property
    def _passes(self) -> int:
        """The number of passes of a group over the vectors."""
        return self.whole.anneal + self.whole.max_iter + 2

    def _tell(self, passes: int, done: int, total: int) -> None:
        """Report this many passes, plus a part of another one."""
        whole = self.n_groups * (self._passes + REFINED)
        if self.whole.report is not None:
            self.whole.report(passes * total + done, whole * total)

    def _part(self, groups: Groups, group: int) -> Floats:
        """Return what the codebooks of a group should add up to, (n, d_g)."""
        return self.rest.rotated(self._axes(groups, group))

    def _axes(self, groups: Groups, group: int | None = None) -> Floats:
        """Return the axes whose products with a vector are its coordinates in a group, or in all groups."""
        return groups.axes(group, self.whole.objective.directions)

    def _trainer(self, groups: Groups, group: int) -> Trainer:
        whole, passes = self.whole, self._passes
        shards = Local(self._part(groups, group), self._weights, whole.n_jobs)

        def told(done: int, total: int) -> None:
            self._tell(group * passes, passes * done, total)

        seed = (whole.seed + group) % 2**64
        return replace(
            whole,
            shards=shards,
            n_codebooks=groups.members[group],
            objective=Objective(),
            seed=seed,
            report=whole.report and told,
        )

    def _with_unseen(self, trainer: Trainer, axes: Floats) -> Trainer:
        """Return the trainer of a group for vectors that the trunk has not seen, too; they come last."""
        if self.unseen is None:
            return trainer
        shards = cast(Local, trainer.shards)
        parts = shards.X, self.unseen.rotated(axes)
        given = self._weights, self.unseen.vectors.weights
        weights = [np.ones(len(X)) if own is None else own for X, own in zip(parts, given, strict=True)]
        X, weight = np.concatenate(parts), np.concatenate([weights[0], UNSEEN * weights[1]])
        return replace(trainer, shards=replace(shards, X=X, weights=weight))

    def _update(self, state: _State) -> None:
        """Improve the codebooks of all groups for the present codes."""
        release()
        whole = self.whole
        pulls = [self._trainer(state.groups, group).pull(state.error(group)) for group in range(self.n_groups)]
        joint = Joint(
            state.rows,
            state.norms,
            state.codes,
            [state.groups.columns(group) for group in range(self.n_groups)],
            self._weights,
            whole.objective.eta - 1,
            whole.n_jobs,
        )
        state.words = joint.update(state.words, pulls, whole.ridge)

    def _improve(self, state: _State, iteration: int) -> None:
        """Improve the codes of one group after the other, given what the others leave along the vectors."""
        whole = self.whole
        for group in range(self.n_groups):
            state.measure(group, state.part(group))
        for group in range(self.n_groups):
            release()
            X = state.part(group)
            # Pass numbers that training has not used.
            seed = _core.pass_seed(whole.seed, 2**32 + iteration * self.n_groups + group)
            coder = _core.Encoder(state.words[group], "group", whole.objective.eta, self._steps(), seed, whole.n_jobs)
            along = np.stack([state.norms, state.along_others(group)], axis=1)
            given = self.rest.given(self._axes(state.groups, group))
            target = _core.Target(X, given, np.arange(len(X)), along)
            state.codes[group] = coder.improve(target, state.codes[group], whole.n_jobs)[0]
            state.measure(group, X)

    def _steps(self) -> tuple[str, int]:
        """Return the encoder steps of a pass over the groups."""
        name, effort = self.whole.encoder.for_training().steps()
        return name, effort // 2 if name == encoders.LocalSearch.name else effort

    def _assembled(self, groups: Groups, words: list[Floats]) -> Floats:
        """Return codebooks (M, K, d) in the space of the vectors."""
        d = len(groups.basis)
        codebooks = np.empty((self.whole.n_codebooks, self.whole.n_codewords, d), np.float32)
        for group, own in enumerate(words):
            axes = groups.basis[:, groups.columns(group)].T.astype(np.float64)
            for place, book in zip(codebooks[groups.places(group)], own, strict=True):
                place[:] = book @ axes
        directions = self.whole.objective.directions
        return codebooks if directions is None else _core.stretch(codebooks, directions, back=True)


@dataclass
class _State:
    """Codebooks and codes of each group, and the errors that they leave in each vector."""

    trainer: _AfterTrunk
    groups: Groups
    words: list[Floats]
    codes: list[Any]
    norms: Doubles
    along: Doubles
    squares: Doubles

    @classmethod
    def of(cls, trainer: _AfterTrunk, groups: Groups, words: list[Floats], codes: list[Any]) -> _State:
        whole = trainer.whole
        norms = _core.norms(trainer.rest.vectors.X, whole.objective.directions, whole.n_jobs)
        sizes = len(words), len(norms)
        state = cls(trainer, groups, words, codes, norms, np.zeros(sizes), np.zeros(sizes))
        for group in range(len(words)):
            state.measure(group, state.part(group))
        return state

    def part(self, group: int) -> Floats:
        """Return the vectors in the dimensions of a group, (n, d_g)."""
        trainer = self.trainer
        return _core.rotated(trainer.rest.vectors.X, trainer._axes(self.groups, group), trainer.whole.n_jobs)

    def rows(self, rows: slice, *, rest: bool) -> Floats:
        """Return rows of the vectors in the dimensions of the groups, or what codewords should add up to there."""
        trainer = self.trainer
        X = trainer.rest.rows(rows) if rest else np.asarray(trainer.rest.vectors.X[rows])
        return _core.rotated(X, trainer._axes(self.groups), trainer.whole.n_jobs)

    def measure(self, group: int, X: Floats) -> None:
        """Record the errors of a group, and their part along its vectors `X`."""
        trainer = self.trainer
        errors = trainer._part(self.groups, group)
        errors -= _core.decode(self.words[group], self.codes[group], trainer.whole.n_jobs)
        self.along[group] = np.einsum("ij,ij->i", errors, X, dtype=np.float64)
        self.squares[group] = np.einsum("ij,ij->i", errors, errors, dtype=np.float64)

    def along_others(self, group: int) -> Doubles:
        """Return ⟨e, x⟩ over the other groups, for each vector."""
        along: Doubles = self.along.sum(axis=0) - self.along[group]
        return along

    def error(self, group: int) -> float:
        """Return the mean squared error of a group, by weight."""
        return float(np.average(self.squares[group], weights=self.trainer._weights))

    def loss(self) -> float:
        """Return the mean loss of the whole, by weight."""
        beta = self.trainer.whole.objective.eta - 1
        shares = np.divide(self.along.sum(axis=0), self.norms, out=np.zeros_like(self.norms), where=self.norms > 0)
        return float(np.average(self.squares.sum(axis=0) + beta * shares**2, weights=self.trainer._weights))
