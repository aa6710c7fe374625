"""Local search and the inner-product loss, held against the NumPy reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compcodes import _core, reference
from compcodes.training.losses import Objective
from compcodes.training.shards import Local
from compcodes.training.trainer import Trainer
from conftest import vectors

pytestmark = pytest.mark.isa

SELECTIONS = ["group", "m-selection", "m-combination"]


def model(seed, M, K, d, selection="group"):
    codebooks = np.random.default_rng(seed).normal(size=(M, K, d)).astype(np.float32)
    if selection != "group":
        codebooks[:] = codebooks[0]
    return codebooks


def search(codebooks, selection="group", eta=1.0, rounds=8, seed=0):
    return _core.Encoder(codebooks, selection, eta, ("local-search", rounds), seed)


PROBLEM = {
    "seed": st.integers(0, 2**32),
    "M": st.integers(1, 6),
    "K": st.integers(2, 40),
    "d": st.integers(1, 40),
    "selection": st.sampled_from(SELECTIONS),
    "eta": st.sampled_from([1.0, 3.0, 20.0]),
}


@settings(max_examples=30, deadline=None)
@given(**PROBLEM)
def test_no_single_change_improves_a_code(seed, M, K, d, selection, eta):
    K = max(K, M)
    codebooks = model(seed, M, K, d, selection)
    X = vectors(60, d, seed=seed % 1000)
    codes = search(codebooks, selection, eta).encode(X)
    assert codes.max() < K
    if selection == "m-combination":
        assert all(len(set(code)) == M for code in codes.tolist())
    found = reference.errors(X, codes, codebooks, eta)
    changed = np.repeat(codes[None], M * K, axis=0)
    for change, (m, k) in zip(changed, np.ndindex(M, K), strict=True):
        change[:, m] = k
    losses = np.stack([reference.errors(X, change, codebooks, eta) for change in changed])
    if selection == "m-combination":
        losses[[[len(set(code)) < M for code in change.tolist()] for change in changed]] = np.inf
    # Scores are whole steps: of a 40,000th of what M - 1 Gram entries, or the scores of a vector, may come to.
    largest = np.sqrt((codebooks.astype(float) ** 2).sum(axis=2).max())
    slack = 2e-4 * eta * M**2 * largest * max(largest, np.linalg.norm(X, axis=1).max())
    assert (found <= losses.min(axis=0) + slack).all()
    greedy = reference.encode_greedy(X, codebooks, selection, eta)
    assert (found <= reference.errors(X, greedy, codebooks, eta) + slack).all()


@settings(max_examples=30, deadline=None)
@given(**PROBLEM)
def test_greedy_under_the_inner_product_loss_is_the_references(seed, M, K, d, selection, eta):
    K = max(K, M)
    codebooks = model(seed, M, K, d, selection)
    X = vectors(60, d, seed=seed % 1000)
    codes = _core.Encoder(codebooks, selection, eta).encode(X)
    want = reference.encode_greedy(X, codebooks, selection, eta)
    got = _core.errors(codebooks, X, codes, eta)
    np.testing.assert_allclose(got, reference.errors(X, codes, codebooks, eta), rtol=1e-4, atol=1e-5)
    if selection != "group":  # the sum is the same in any order, and equal steps may come in any
        codes, want = np.sort(codes, axis=1), np.sort(want, axis=1)
    assert (codes == want).all(axis=1).mean() > 0.9  # ties of float32


def test_more_rounds_find_better_codes_and_improve_goes_on():
    X, codebooks = vectors(400, 16), model(0, 6, 32, 16)
    losses = [_core.errors(codebooks, X, search(codebooks, rounds=r).encode(X)) for r in (0, 4, 32)]
    assert losses[0].mean() > losses[1].mean() > losses[2].mean()
    codes = search(codebooks, rounds=4).encode(X)
    again, before, after = search(codebooks, rounds=4, seed=1).improve(X, codes)
    np.testing.assert_array_equal(before, losses[1])
    np.testing.assert_array_equal(after, _core.errors(codebooks, X, again))
    assert (after <= before).all()
    assert after.mean() < before.mean()


@pytest.mark.parametrize("eta", [1.0, 5.0])
def test_a_code_depends_on_the_vector_and_the_seed_alone(eta):
    X, codebooks = vectors(333, 9), model(1, 5, 24, 9)
    codes = search(codebooks, eta=eta).encode(X, 1)
    np.testing.assert_array_equal(codes, search(codebooks, eta=eta).encode(X, 3))
    np.testing.assert_array_equal(codes[20:70], search(codebooks, eta=eta).encode(X[20:70], 2))
    assert (codes != search(codebooks, eta=eta, seed=9).encode(X)).any()


@pytest.mark.parametrize("weigh", [False, True])
def test_descending_reaches_the_dense_solution(weigh):
    rng = np.random.default_rng(3)
    X, codes = vectors(200, 4), rng.integers(5, size=(200, 2)).astype(np.uint8)
    weights = rng.random(200) if weigh else None
    A = reference.normal_equations(X, codes, 5, weights)[0]
    codebooks = model(2, 2, 5, 4)
    best = reference.update_along(X, codes, codebooks.astype(float), 6.0, 1e-3 * np.trace(A) / len(A), weights)

    def objective(books):
        return np.average(reference.errors(X, codes, books, 6.0), weights=weights)

    trainer = Trainer(Local(X, weights), 2, 5, "group", 1, 0.0, 1e-3, 0, objective=Objective(6.0))
    last = objective(codebooks)
    for _ in range(12):
        codebooks = trainer.update(codebooks, codes)
        assert objective(codebooks) <= last * (1 + 1e-6)
        last = objective(codebooks)
    assert last <= objective(best) * (1 + 1e-3)


def test_the_zero_vector_has_a_loss_and_a_code():
    codebooks = model(0, 3, 8, 5)
    X = np.zeros((2, 5), np.float32)
    codes = search(codebooks, eta=4.0).encode(X)
    np.testing.assert_allclose(
        _core.errors(codebooks, X, codes, 4.0), reference.errors(X, codes, codebooks, 4.0), rtol=1e-5
    )


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("eta", [1.0, 6.0])
def test_no_code_is_worse_than_greedy_however_short_or_long_the_vector(selection, eta):
    rng = np.random.default_rng(5)
    codebooks = model(4, 4, 40, 12, selection)
    codebooks *= np.exp(2 * rng.normal(size=(1, 40, 1))).astype(np.float32)  # codewords of very different lengths
    X = vectors(600, 12) * np.logspace(-6, 6, 600, dtype=np.float32)[:, None]
    greedy = _core.errors(codebooks, X, _core.Encoder(codebooks, selection, eta).encode(X), eta)
    found = _core.errors(codebooks, X, search(codebooks, selection, eta, rounds=32).encode(X), eta)
    assert (found <= greedy).all()
    assert (found < 0.999 * greedy).any()


@pytest.mark.parametrize("encoder", ["greedy", "beam", "local-search"])
@pytest.mark.parametrize("K", [16, 33, 256])
def test_codes_name_codewords_however_far_the_lengths_are_apart(encoder, K):
    X = vectors(300, 4)
    X *= (np.logspace(-37, 37, 300) / np.linalg.norm(X, axis=1)).astype(np.float32)[:, None]
    codebooks = model(0, 2, K, 4)
    for scale in (1e-18, 1.0, 1e18):
        coder = _core.Encoder((codebooks * scale).astype(np.float32), "group", 2.0, (encoder, 4))
        assert coder.encode(X).max() < K


@pytest.mark.parametrize("encoder", ["greedy", "beam", "local-search"])
def test_codewords_of_a_combination_differ_however_large_scores_are(encoder):
    codebooks = model(3, 3, 8, 4, "m-combination") * np.float32(1e19)
    X = np.concatenate([vectors(20, 4) * np.float32(scale) for scale in (1e-19, 1.0, 1e18, 3e19, 1e30)])
    for eta in (1.0, 4.0):
        codes = _core.Encoder(codebooks, "m-combination", eta, (encoder, 4)).encode(X)
        assert all(len(set(code)) == 3 for code in codes.tolist())
