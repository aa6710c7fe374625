"""The parameters of `CompositionalCodes`: how they are checked, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from compcodes._arrays import as_count, as_numbers, check_jobs, check_range
from compcodes._choices import Effort, Metric, Selection, Start, check_choice
from compcodes.errors import ArgumentTypeError, ArgumentValueError
from compcodes.training import encoders, losses
from compcodes.training.effort import EFFORTS
from compcodes.training.effort import Effort as Efforts
from compcodes.training.grouping import TOGETHER, grouped
from compcodes.training.lists import ListSizes
from compcodes.training.tuning import CANDIDATES, ITERATIONS, SAMPLE

if TYPE_CHECKING:
    from compcodes.quantizers.compositional import CompositionalCodes

__all__ = ["anneals", "check", "coder", "count_groups", "count_lists", "initial", "iterations", "loss_of", "stages"]

PART = 200
"""The approximate number of vectors per codeword that an iteration with noise trains on."""


def check(model: CompositionalCodes) -> None:
    """Reject parameters that are out of range, or that exclude one another."""
    for name, low, high in [
        ("n_codebooks", 1, 256),
        ("n_codewords", 2, 256),
        ("anneal", 0, None),
        ("max_iter", 0, None),
    ]:
        if getattr(model, name) is not None or low > 0:
            check_range(name, getattr(model, name), low, high)
    check_choice("effort", model.effort, Effort)
    if model.n_groups != "auto":
        as_count("n_groups", model.n_groups)
    if model.max_train is not None:
        as_count("max_train", model.max_train)
    if model.list_size is not None:
        as_count("list_size", model.list_size)
        if model.n_lists is not None:
            raise ArgumentValueError("list_size", "and n_lists are both given: want one of them")
    if model.n_lists is not None and not (isinstance(model.n_lists, str) and model.n_lists == "auto"):
        if isinstance(model.n_lists, str):
            raise ArgumentValueError("n_lists", f"is {model.n_lists!r}: want a number, 'auto' or None")
        check_range("n_lists", model.n_lists, 1, 2**20)
    check_jobs(model.n_jobs)
    check_choice("metric", model.metric, Metric)
    check_choice("selection", model.selection, Selection)
    if isinstance(model.init, str):
        check_choice("init", model.init, Start)
    for name, positive in [("tol", False), ("ridge", True), ("shrinkage", False)]:
        value = getattr(model, name)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError(name, f"is {value!r}: want a number")
        if not (np.isfinite(value) and (value > 0 or (value == 0 and not positive))):
            raise ArgumentValueError(
                name, f"is {value}: want a finite number {'above' if positive else 'of at least'} 0"
            )
    if model.shrinkage > 1e9:
        raise ArgumentValueError("shrinkage", f"is {model.shrinkage}: want at most 1e9")
    if model.selection == "m-combination" and model.n_codewords < model.n_codebooks:
        raise ArgumentValueError(
            "n_codewords", f"is {model.n_codewords}: m-combination chooses {model.n_codebooks} different codewords"
        )


def initial(model: CompositionalCodes, dim: int) -> str | NDArray[np.float32]:
    """Return the name of the start, or the codebooks (M, K, d) that training starts from."""
    if isinstance(model.init, str):
        return model.init
    codebooks = np.array(as_numbers("init", model.init), dtype=np.float32, order="C")
    if not np.isfinite(codebooks).all():
        raise ArgumentValueError("init", "holds NaN, an infinity or a value beyond float32")
    want = (model.n_codebooks, model.n_codewords, dim)
    if codebooks.shape != want:
        raise ArgumentValueError("init", f"has shape {codebooks.shape}: want {want}")
    return codebooks


def count_groups(model: CompositionalCodes, dim: int, n: int, *, joint: bool) -> int:
    """Return the number of groups of codebooks for vectors of `dim` numbers, trained on at most `n` of them.

    `joint` says that several cannot be trained, so that there should be one if possible.
    """
    n = n if model.max_train is None else min(n, model.max_train)
    if model.selection != "group" and model.n_groups == "auto" and model.n_codebooks <= TOGETHER:
        return 1
    # One group is dear for local search alone, and the paper's method is one with its greedy encoder.
    joint = joint or not isinstance(model.init, str) or coder(model).name != encoders.LocalSearch.name
    count = grouped(model.n_groups, model.n_codebooks, model.n_codewords, dim, n, joint=joint)
    if count > 1 and model.selection != "group":
        raise ArgumentValueError("selection", f"is {model.selection!r}, in {count} groups: want 'group'")
    return count


def count_lists(model: CompositionalCodes, n: int) -> int:
    """Return the number of lists for `n` vectors."""
    count = ListSizes(model.n_lists, model.list_size).of(n)
    if count > n:
        raise ArgumentValueError("n_lists", f"is {count}: want at most {n}, the number of vectors to train on")
    return count


def coder(model: CompositionalCodes) -> encoders.Encoder:
    """Return the encoder with its parameters."""
    if model.encoder == encoders.LocalSearch.name:
        return encoders.LocalSearch(EFFORTS[model.effort].rounds)
    return encoders.as_encoder(model.encoder)


def loss_of(model: CompositionalCodes) -> str | losses.Loss:
    """Return the requested loss, or that of the metric."""
    if model.loss is None:
        return "reconstruction" if model.metric == "l2" else "inner-product"
    return model.loss


def anneals(model: CompositionalCodes, effort: Efforts | None = None) -> int:
    """Return the number of iterations with noise."""
    if not coder(model).anneals or not isinstance(model.init, str):
        return 0
    return (effort or EFFORTS[model.effort]).anneal if model.anneal is None else model.anneal


def iterations(model: CompositionalCodes, effort: Efforts) -> tuple[int, int]:
    """Return the number of iterations with noise, and the most that follow them."""
    anneal = anneals(model, effort)
    return anneal, (effort.max_iter if anneal else effort.noiseless) if model.max_iter is None else model.max_iter


def stages(model: CompositionalCodes, n: int) -> dict[str, float]:
    """Return the stages of `fit` for `n` vectors, and the approximate relative time of each."""
    anneal, rest = iterations(model, EFFORTS[model.effort])
    passes = anneal * min(n, PART * model.n_codewords) + (rest + 2) * n
    named = losses.as_loss(loss_of(model))
    if not isinstance(named, losses.InnerProduct) or None not in (named.eta, named.weight_power):
        return {"fit": passes}
    return {"choose loss": (2 * CANDIDATES + ITERATIONS + 2) * min(n, SAMPLE), "fit": passes}
