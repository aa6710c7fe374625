"""Parameters are kept as given and checked by `fit`; codebooks of elsewhere, and numbers of any magnitude."""

from typing import get_args

import numpy as np
import pytest

import compcodes as cc
from compcodes import _choices, _core

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 40)).astype(np.float32)
CHOICES = {
    "effort": _choices.Effort,
    "encoder": _choices.EncoderName,
    "loss": _choices.LossName,
    "init": _choices.Start,
    "selection": _choices.Selection,
    "metric": _choices.Metric,
}


@pytest.mark.parametrize("name", list(CHOICES))
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_fit_names_the_argument_and_its_choices(name, call):
    model = cc.CompositionalCodes(2, 4, **{name: "lo"})
    assert model.get_params()[name] == "lo"  # as scikit-learn asks: stored as given, and checked by fit
    with pytest.raises(ValueError, match=f"^{name} is 'lo': want one of ") as refused:
        getattr(model, call)(X)
    assert all(repr(choice) in str(refused.value) for choice in get_args(CHOICES[name]))
    assert not hasattr(model, "codebooks_")


@pytest.mark.parametrize(
    ("codebooks", "error", "message"),
    [
        ("x", TypeError, "has dtype <U1: want real numbers"),
        (None, TypeError, "has dtype object|is None"),
        ([], ValueError, r"has shape \(0,\): want \(M, K, d\)"),
        (np.zeros((3, 4)), ValueError, r"has shape \(3, 4\): want \(M, K, d\)"),
        (np.zeros((1, 1, 1, 1)), ValueError, r"has shape \(1, 1, 1, 1\): want"),
        ([[[1, 2], [3]]], ValueError, "row 0 row 1 has shape .* want rows of one length"),
        (np.full((2, 4, 3), "a", dtype=object), TypeError, "has dtype object: want real numbers"),
        (np.zeros((2, 4, 3), complex), TypeError, "has dtype complex128: want real numbers"),
        (np.full((2, 4, 3), np.nan), ValueError, r"\[0, 0\] holds NaN or an infinity"),
        (np.full((2, 4, 3), 1e39), ValueError, r"\[0, 0\] holds NaN or an infinity"),
        (np.zeros((2, 257, 3)), ValueError, r"have shape \(2, 257, 3\): want 1 to 256 codebooks of 1 to 256 codewords"),
        (np.zeros((257, 4, 3)), ValueError, r"have shape \(257, 4, 3\)"),
        (np.zeros((0, 4, 3)), ValueError, r"have shape \(0, 4, 3\)"),
        (np.zeros((2, 0, 3)), ValueError, r"have shape \(2, 0, 3\)"),
        (np.zeros((2, 4, 0)), ValueError, r"have shape \(2, 4, 0\)"),
    ],
)
def test_codebooks_of_elsewhere_are_looked_at(codebooks, error, message):
    with pytest.raises(error, match=f"^codebooks ?({message})"):
        cc.CompositionalCodes.from_codebooks(codebooks)


def test_one_codeword_is_a_codebook():
    model = cc.CompositionalCodes.from_codebooks(np.ones((2, 1, 3)))
    assert model.encode(X[:2, :3]).tolist() == [[0, 0], [0, 0]]
    assert model.decode([[0, 0]]).tolist() == [[2, 2, 2]]


def test_values_too_large_for_groups_are_named():
    huge = X / np.abs(X).max() * np.float32(3e38)
    model = cc.CompositionalCodes(18, 4, n_groups=3, effort="low", max_iter=1, anneal=1)
    with pytest.raises(ValueError, match=r"X row \d+ holds values too large for groups of codebooks .*: scale it down"):
        model.fit(huge)
    longest = int(np.linalg.norm(huge.astype(np.float64), axis=1).argmax())
    d = X.shape[1]
    basis = np.linalg.qr(np.column_stack([huge[longest] / 3e38, np.eye(d)[:, 1:]]))[0].astype(np.float32)
    with pytest.raises(ValueError, match=r"X row \d+ holds values too large for groups of codebooks .*: scale it down"):
        _core.rotated(huge, np.ascontiguousarray(basis))


@pytest.mark.parametrize("loss", ["reconstruction", cc.InnerProduct(eta=4.0, weight_power=0.0)])
@pytest.mark.parametrize(("first", "then"), [(1e-44, 1e-44), (1e-44, 1.0), (1e-30, 1e6)])
def test_a_batch_may_be_of_another_magnitude_than_the_one_before(loss, first, then):
    model = cc.CompositionalCodes(2, 8, loss=loss, max_iter=2, anneal=2).fit((X * first).astype(np.float32))
    model.partial_fit((X * then).astype(np.float32))
    assert np.isfinite(model.codebooks_).all() and np.isfinite(model.history_[-1]["objective"])
    if first != then:  # the codebooks have come to stand for the new batch: zeros would cost η‖x‖²
        batch = (X * then).astype(np.float32).astype(np.float64)
        nothing = getattr(loss, "eta", 1.0) * (batch**2).sum(axis=1).mean()
        assert 0 < model.history_[-1]["objective"] < 0.99 * nothing
