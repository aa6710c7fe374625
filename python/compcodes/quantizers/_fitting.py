"""How `CompositionalCodes` is trained: on a whole set of vectors, or on a batch of a stream."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import (
    as_queries,
    as_seed,
    as_vectors,
    as_weights,
    check_features,
    check_rows,
)
from compcodes.cluster import again
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers._lengths import warn_of_lengths
from compcodes.quantizers._settings import coder, count_groups, count_lists, initial, iterations, loss_of
from compcodes.training import losses, streaming
from compcodes.training.divided import Divided, Whole, based
from compcodes.training.effort import EFFORTS
from compcodes.training.grouping import Groups, alone
from compcodes.training.groups import ETA, POWER, GroupTrainer, check_norms
from compcodes.training.lists import train_lists
from compcodes.training.shards import Local, Report, Shards, drawn_rows
from compcodes.training.sources import spread_of
from compcodes.training.trainer import Trained, Trainer
from compcodes.training.tuning import tune
from compcodes.training.unit import unit, unit_rows

if TYPE_CHECKING:
    from compcodes.quantizers.compositional import CompositionalCodes

__all__ = ["Batch", "Fitted", "absorbed", "begun", "fitted", "refuse_unnamed", "training_data"]


class Fitted(NamedTuple):
    """The result of training."""

    trainer: Trainer
    trained: Trained
    loss: losses.Loss
    lists: _core.Lists | None
    groups: Groups | None


class Batch(NamedTuple):
    """The result of a further batch of a stream."""

    codebooks: NDArray[np.float32]
    past: streaming.Past
    entry: dict[str, Any]
    """For the history."""


def fitted(
    model: CompositionalCodes,
    X: Any,
    y: object,
    queries: ArrayLike | None,
    sample_weight: ArrayLike | None,
    progress: ProgressLike,
) -> Fitted:
    """Train as requested from `fit`; the parameters are checked."""
    spread = spread_of(X, model.metric == "cosine", model.n_jobs)
    shards: Shards
    if spread is None:
        X, weights = training_data(model, X, sample_weight)
        shards = Local(X, n_jobs=model.n_jobs)
    else:
        shards = spread
        weights = None if sample_weight is None else as_weights(sample_weight, shards.shape[0])
    refuse_unnamed(y, shards.shape)
    if queries is not None:
        queries = as_queries(queries, shards.shape[1], "queries")
        if len(queries) == 0:
            raise ArgumentValueError("queries", f"has shape {queries.shape}: want at least one, or None")
        check_rows("queries", queries)
        queries = unit(queries) if model.metric == "cosine" else queries
    if weights is not None:
        weights = weights / weights.max()  # tiny ones would vanish in products
    return again(lambda: train(model, shards, queries, weights, model.max_train, progress))


def begun(
    model: CompositionalCodes, X: NDArray[Any], weights: NDArray[np.float64] | None, progress: ProgressLike
) -> tuple[Fitted, streaming.Past]:
    """Train on the first batch of a stream; its sums are kept for the next ones."""
    made = train(model, Local(X, n_jobs=model.n_jobs), None, weights, None, progress, streamed=True)
    return made, streaming.Past(made.trained.codebooks, *made.trainer.sums(made.trained.codes))


def absorbed(
    model: CompositionalCodes, X: NDArray[Any], weights: NDArray[np.float64] | None, progress: ProgressLike
) -> Batch:
    """Continue the training of a fitted model with a batch."""
    codebooks = model.codebooks_
    if model._groups is not None:
        raise ArgumentValueError("n_groups", f"is {model.n_groups_} in the model: want 1 for partial_fit, or fit")
    for name, have in [
        ("n_codebooks", codebooks.shape[0]),
        ("n_codewords", codebooks.shape[1]),
        ("selection", model._selection),
        ("metric", model.metric_ or "ip"),
    ]:
        if getattr(model, name) != have:
            raise ArgumentValueError(
                name, f"is {getattr(model, name)!r}, the model has {have!r}: want the same, or fit anew"
            )
    check_features(X, codebooks.shape[2], type(model).__name__)
    last = model.history_[-1] if model.history_ else {}
    iteration, seen = last.get("iteration", -1) + 1, last.get("vectors", 0)
    seed = (as_seed(model.random_state) + iteration) % 2**64
    plain, weights, _ = weighing(Local(X, n_jobs=model.n_jobs), weights)
    shards = cast(Local, plain.with_weights(weights))
    if model._lists is not None and model._lists.by_residual:
        shards = based(shards, model._lists, model._lists.assign(shards.X, model.n_jobs)[0])
    trainer = trainer_of(model, shards, seed, staged(progress, "fit"), passes=streaming.ROUNDS + 1)
    directions = model.directions_ if len(model.directions_) else None
    trainer = trainer.with_loss(losses.as_loss(model.loss_), directions=directions)
    past = model._past if model._past is not None and model._past.codebooks is codebooks else None  # or replaced
    start = time.perf_counter()
    codebooks, past, objective = streaming.absorb(trainer, codebooks, past, seen)
    entry = {
        "iteration": iteration,
        "objective": objective,
        "seconds": last.get("seconds", 0.0) + time.perf_counter() - start,
        "vectors": seen + shards.shape[0],
    }
    return Batch(codebooks, past, entry)


def training_data(
    model: CompositionalCodes, X: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Check an array of training vectors and the weights of its rows."""
    vectors = as_vectors(X, "X")
    if len(vectors) == 0:
        raise ArgumentValueError("X", f"has shape {vectors.shape}: training needs at least one vector")
    vectors = unit_rows(vectors) if model.metric == "cosine" else vectors
    return vectors, None if sample_weight is None else as_weights(sample_weight, len(vectors))


def trainer_of(
    model: CompositionalCodes,
    shards: Shards,
    seed: int,
    report: Report | None,
    passes: int | None = None,
    n_groups: int = 1,
) -> Trainer:
    """Return the training loop with the model's parameters, for the squared error."""
    encoder, effort = coder(model), EFFORTS[model.effort]
    if n_groups > 1:
        effort = effort.of_group()
    anneal, max_iter = iterations(model, effort)
    # A trunk that started in halves left .9 % more loss after its group was trained: 16 bytes found .01 fewer first.
    of_halves = None if n_groups > 1 else max_iter // 4 if model.max_iter is None else max_iter
    noiseless = effort.noiseless if model.max_iter is None else max_iter
    return Trainer(
        shards,
        n_codebooks=model.n_codebooks,
        n_codewords=model.n_codewords,
        selection=model.selection,
        max_iter=max_iter,
        tol=model.tol,
        ridge=model.ridge,
        shrinkage=model.shrinkage,
        seed=seed,
        encoder=encoder,
        anneal=anneal,
        n_jobs=model.n_jobs,
        report=report,
        passes=passes,
        max_iter_halves=of_halves,
        max_iter_noiseless=noiseless if model.anneal is None else None,
    )


def train(
    model: CompositionalCodes,
    plain: Shards,
    queries: NDArray[np.float32] | None,
    weights: NDArray[np.float64] | None,
    max_train: int | None,
    progress: ProgressLike,
    *,
    streamed: bool = False,
) -> Fitted:
    """Choose the loss, divide the vectors into lists, and train codebooks, as far as the parameters request it."""
    if isinstance(plain, Local):
        warn_of_lengths(plain.X, weights, model.n_jobs)
    plain, weights, rows = weighing(plain, weights)
    loss, seed = losses.as_loss(loss_of(model)), as_seed(model.random_state)
    eta: float | None = 1.0
    n, d = plain.shape
    init = initial(model, d)
    n_groups = count_groups(model, d, n, joint=streamed or not isinstance(plain, Local))
    if n_groups > 1 and streamed:
        raise ArgumentValueError("n_groups", "is more than one: want 1 for partial_fit, or fit")
    if n_groups > 1 and not isinstance(init, str):
        raise ArgumentValueError("init", f"is an array, for {n_groups} groups: want one of a name, or n_groups=1")
    if n_groups > 1 and not isinstance(plain, Local):
        raise ArgumentValueError(
            "X", f"is not in this process: want a sample of it that is, to train {n_groups} groups of codebooks"
        )
    if isinstance(loss, losses.InnerProduct):
        report = staged(progress, "choose loss")
        tuner, eta = trainer_of(model, plain, seed, report, n_groups=n_groups), loss.eta
        if n_groups > 1:  # the best parameters for the queries are chosen for one of them
            tuner = replace(tuner, n_codebooks=alone(model.n_codebooks, model.n_codewords))
            power = POWER if loss.weight_power is None else loss.weight_power
            loss = replace(loss, eta=eta or ETA, weight_power=power)
        loss = tune(tuner, loss, queries)
    shards, made = plain.with_weights(weights), None
    if model.n_lists is not None or model.list_size is not None:
        # Weights that are alike, as those of a stream's first batch may be, draw no other rows than none do.
        weighted = plain if weights is None or (weights == weights[0]).all() else shards
        divided = Whole(weighted) if isinstance(weighted, Local) else cast(Divided, weighted)
        count, along = count_lists(model, shards.shape[0]), getattr(loss, "eta", None) or 1.0
        report = staged(progress, "lists")
        made, shards = train_lists(divided, count, along, model.metric, queries, seed, model.n_jobs, report)
        shards = shards.with_weights(weights)
        if report is not None:
            report(1, 1)
    trainer = trainer_of(model, shards, seed, staged(progress, "fit"), n_groups=n_groups).with_loss(loss, queries)
    if isinstance(loss, losses.InnerProduct) and trainer.objective.directions is None:
        loss = replace(loss, metric=0.0)  # queries that are alike in all directions, or all zero
    drawn = drawn_rows(trainer.shards.shape[0], trainer.shards.weights, max_train, seed) if n_groups > 1 else None
    trainer = replace(trainer, shards=trainer.shards.sampled(max_train, seed))
    if n_groups > 1:
        if drawn is not None:
            rows = drawn[0] if rows is None else rows[drawn[0]]
        check_norms(cast(Local, trainer.shards), rows)
    if n_groups == 1:
        return Fitted(trainer, trainer.best(init), loss, made, None)
    trained, groups, eta = GroupTrainer(trainer, n_groups, eta, queries).run(cast(str, init))
    if isinstance(loss, losses.InnerProduct):
        loss = replace(loss, eta=eta)
    trainer = replace(trainer, objective=replace(trainer.objective, eta=eta))
    return Fitted(trainer, trained, loss, made, groups)


def weighing(
    shards: Shards, weights: NDArray[np.float64] | None
) -> tuple[Shards, NDArray[np.float64] | None, NDArray[np.int64] | None]:
    """Return the vectors that have any weight, their weights, and their rows; weights of 1, and all rows, as None."""
    if weights is None or (weights == 1).all():
        return shards, None, None
    if weights.all():
        return shards, weights, None
    shards.check()  # an error should name the row among all of them
    rows = np.flatnonzero(weights)
    weights = weights[rows]
    return shards.only(rows), None if (weights == 1).all() else weights, rows


def refuse_unnamed(y: object, vectors: tuple[int, int]) -> None:
    """Reject what cannot be targets of the rows of `X`: the second argument of `fit` was once `queries`."""
    if y is None:
        return
    try:
        shape = np.asarray(y).shape
    except ValueError:  # a ragged list
        return
    if not shape or shape[0] != vectors[0] or shape[1:] == vectors[1:]:
        raise ArgumentTypeError(
            "y",
            f"has shape {shape} beside X of shape {vectors}: want nothing or targets, which are ignored; queries and "
            "weights are given by name, fit(X, queries=…, sample_weight=…)",
        )
