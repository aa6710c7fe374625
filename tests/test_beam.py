"""The beam encoder, held against the NumPy reference and against every code there is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compcodes as cc
from compcodes import _core, reference
from conftest import vectors

pytestmark = pytest.mark.isa

SELECTIONS = ["group", "m-selection", "m-combination"]


def model(seed, M, K, d, selection="group"):
    codebooks = np.random.default_rng(seed).normal(size=(M, K, d)).astype(np.float32)
    if selection != "group":
        codebooks[:] = codebooks[0]
    return codebooks


def beam(codebooks, width, selection="group", eta=1.0):
    return _core.Encoder(codebooks, selection, eta, ("beam", width))


def slack(codebooks, eta):
    """What the Gram matrix in 16 bits may cost."""
    return 1e-3 * eta * (codebooks.astype(float) ** 2).sum(axis=2).max() * len(codebooks)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    M=st.integers(1, 4),
    K=st.integers(2, 20),
    d=st.integers(1, 20),
    width=st.integers(1, 24),
    selection=st.sampled_from(SELECTIONS),
    eta=st.sampled_from([1.0, 6.0]),
)
def test_codes_are_the_references(seed, M, K, d, width, selection, eta):
    K = max(K, M)
    codebooks = model(seed, M, K, d, selection)
    X = M**0.5 * np.random.default_rng(seed + 1).normal(size=(30, d)).astype(np.float32)
    codes = beam(codebooks, width, selection, eta).encode(X)
    want = reference.encode_beam(X, codebooks, width, selection, eta)
    assert codes.max() < K
    if selection == "m-combination":
        assert all(len(set(code)) == M for code in codes.tolist())
    got, wanted = (reference.errors(X, c, codebooks, eta) for c in (codes, want))
    # A near tie may send the beam another way, and then to a better or a worse end.
    assert np.isclose(got, wanted, rtol=0, atol=slack(codebooks, eta)).mean() > 0.8
    assert got.mean() <= wanted.mean() * 1.05 + slack(codebooks, eta)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("eta", [1.0, 4.0])
@pytest.mark.parametrize("K", [5, 6])
def test_a_beam_of_every_beginning_finds_the_best_code(selection, eta, K):
    codebooks, X = model(3, 3, K, 4, selection), vectors(80, 4)
    codes = beam(codebooks, K * K, selection, eta).encode(X)
    every = np.array(list(itertools.product(range(K), repeat=3)), np.uint8)
    if selection == "m-combination":
        every = every[[len(set(code)) == 3 for code in every.tolist()]]
    best = np.min([reference.errors(X, np.tile(code, (len(X), 1)), codebooks, eta) for code in every], axis=0)
    assert (reference.errors(X, codes, codebooks, eta) <= best + slack(codebooks, eta)).all()


def test_a_width_of_one_takes_the_nearest_codeword_of_each_codebook_in_turn():
    codebooks, X = model(0, 4, 16, 8), vectors(300, 8)
    residual, want = X.astype(np.float64), np.zeros((300, 4), np.uint8)
    for m, book in enumerate(codebooks.astype(np.float64)):
        want[:, m] = ((residual[:, None] - book) ** 2).sum(axis=2).argmin(axis=1)
        residual -= book[want[:, m]]
    assert (beam(codebooks, 1).encode(X) == want).all(axis=1).mean() > 0.98  # ties of the Gram matrix in 16 bits


@pytest.mark.parametrize("selection", SELECTIONS)
def test_wider_beams_find_better_codes(selection):
    codebooks, X = model(0, 6, 32, 16, selection), vectors(500, 16)
    losses = [_core.errors(codebooks, X, beam(codebooks, w, selection).encode(X)).mean() for w in (1, 4, 40)]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("eta", [1.0, 5.0])
def test_a_code_depends_on_the_vector_alone(eta):
    X, codebooks = vectors(333, 9), model(1, 5, 24, 9)
    codes = beam(codebooks, 6, eta=eta).encode(X, 1)
    np.testing.assert_array_equal(codes, beam(codebooks, 6, eta=eta).encode(X, 3))
    np.testing.assert_array_equal(codes[20:70], beam(codebooks, 6, eta=eta).encode(X[20:70], 2))


def test_values_beyond_float32_scores_get_some_code():
    for selection in SELECTIONS:
        codebooks = 1e-30 * model(0, 4, 8, 3, selection)
        X = np.full((2, 3), 3e38, np.float32)
        codes = beam(codebooks, 4, selection).encode(X)
        assert codes.max() < 8
        assert selection != "m-combination" or all(len(set(code)) == 4 for code in codes.tolist())


def test_as_encoder_of_a_model(X, tmp_path):
    q = cc.CompositionalCodes(3, 16, encoder=cc.Beam(width=4), loss="reconstruction", max_iter=3).fit(X)
    objective = [entry["objective"] for entry in q.history_]
    assert all(np.diff(objective) <= 0)
    np.testing.assert_array_equal(q.encode(X), beam(q.codebooks_, 4).encode(X))
    q.save(tmp_path / "q.cc")
    again = cc.CompositionalCodes.load(tmp_path / "q.cc")
    np.testing.assert_array_equal(again.encode(X), q.encode(X))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cc.Beam(0), ValueError, "width is 0"),
        (lambda: cc.Beam(1.5), TypeError, "width is 1.5"),
        (lambda: beam(model(0, 2, 4, 3), 5000), ValueError, "width is 5000"),
        (lambda: _core.Encoder(model(0, 2, 4, 3), encoding=("dream", 1)), ValueError, "encoder is"),
    ],
)
def test_errors_name_the_argument(make, error, message):
    with pytest.raises(error, match=message):
        make()
