"""The compiled steps against the NumPy reference."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import compcodes as cc
from compcodes import _core, reference
from compcodes.training import solver
from conftest import vectors

pytestmark = pytest.mark.isa

SELECTIONS = ["group", "m-selection", "m-combination"]


def is_far(codebooks, selection):
    """Whether the encoder centers: float32 scores would be noise (see `normalise` in encode/mod.rs)."""
    means = codebooks.mean(axis=1, dtype=np.float64)
    spread = ((codebooks - means[:, None].astype(np.float32)) ** 2).sum(axis=2).mean()
    return (means.sum(axis=0) ** 2).sum() > 900 * spread


def random_model(seed, M, K, d, selection):
    rng = np.random.default_rng(seed)
    codebooks = rng.normal(size=(M, K, d)).astype(np.float32)
    if selection != "group":
        codebooks[:] = codebooks[0]
    return codebooks


def assert_greedy(x, code, codebooks, selection):
    """Fail unless each codeword leaves the smallest loss given those before it, as far as float32 scores can tell."""
    M, K, _ = codebooks.shape
    words, residual, free = codebooks.astype(np.float64), x.astype(np.float64), np.ones((M, K), bool)
    slack = 1e-5 * (np.abs(x).max(initial=0) + M * np.abs(words).max()) ** 2 * len(x)
    for _ in range(M):
        losses = np.where(free, ((residual - words) ** 2).sum(axis=2), np.inf)
        own = losses[np.arange(M), code]
        m = int(own.argmin())
        assert own[m] <= losses.min() + slack
        residual, free[m] = residual - words[m, code[m]], False
        if selection == "m-combination":
            free[:, code[m]] = False


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 130),
    M=st.integers(1, 6),
    K=st.integers(2, 40),
    d=st.integers(1, 70),
    selection=st.sampled_from(SELECTIONS),
)
def test_greedy_codes_are_greedy(seed, n, M, K, d, selection):
    K = max(K, M)
    codebooks = random_model(seed, M, K, d, selection)
    assume(not is_far(codebooks, selection))
    X = np.random.default_rng(seed + 1).normal(size=(n, d)).astype(np.float32) * M**0.5
    codes = _core.Encoder(codebooks, selection).encode(X)
    for x, code in zip(X, codes, strict=True):
        assert_greedy(x, code, codebooks, selection)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_greedy_is_exact_where_float32_is(selection):
    """With small integers all scores are exact, and so are ties."""
    rng = np.random.default_rng(5)
    codebooks = rng.integers(-4, 5, size=(3, 16, 5)).astype(np.float32)
    if selection != "group":
        codebooks[:] = codebooks[0]
    X = rng.integers(-9, 10, size=(500, 5)).astype(np.float32)
    codes = _core.Encoder(codebooks, selection).encode(X)
    np.testing.assert_array_equal(codes, reference.encode_greedy(X, codebooks, selection))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 300),
    M=st.integers(1, 5),
    K=st.integers(2, 20),
    d=st.integers(1, 80),
)
def test_normal_equations_errors_and_decode_are_the_references(seed, n, M, K, d):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    codes = rng.integers(K, size=(n, M)).astype(np.uint8)
    codebooks = random_model(seed, M, K, d, "group")
    weights = rng.random(n)
    for weight in (None, weights):
        A, b = _core.normal_equations(X, codes, K, weight)
        want_A, want_b = reference.normal_equations(X, codes, K, weight)
        np.testing.assert_allclose(A, want_A, rtol=1e-12)
        np.testing.assert_allclose(b, want_b, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(_core.decode(codebooks, codes), reference.decode(codes, codebooks), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        _core.errors(codebooks, X, codes), reference.errors(X, codes, codebooks), rtol=1e-4, atol=1e-5
    )


def test_normal_equations_of_shards_add_up():
    X, codes = vectors(1000, 9), np.random.default_rng(0).integers(7, size=(1000, 3)).astype(np.uint8)
    whole = cc.normal_equations(X, codes, 7)
    parts = [cc.normal_equations(X[s], codes[s], 7) for s in (slice(0, 300), slice(300, None))]
    for i in range(2):
        np.testing.assert_allclose(parts[0][i] + parts[1][i], whole[i], rtol=1e-10)


def test_the_solution_is_stationary_and_near_the_previous_codebooks():
    rng = np.random.default_rng(0)
    X, codes = vectors(400, 6), rng.integers(5, size=(400, 3)).astype(np.uint8)
    codes[codes == 4] = 0  # codeword 4 is unused, and A singular
    A, b = cc.normal_equations(X, codes, 5)
    previous = rng.normal(size=b.shape)
    solution = solver.solve(A.copy(), b, previous, 1e-3)
    ridge = 1e-3 * np.trace(A) / len(A)
    np.testing.assert_allclose(A @ solution + ridge * (solution - previous), b, atol=1e-8)
    np.testing.assert_allclose(solution, reference.solve(A, b, previous, ridge), atol=1e-8)
    unused = np.diag(A) == 0
    np.testing.assert_array_equal(solution[unused], previous[unused])


def test_improve_keeps_the_better_code_of_each_row():
    X, codebooks = vectors(300, 8), random_model(0, 4, 16, 8, "group")
    encoder = _core.Encoder(codebooks)
    greedy = encoder.encode(X)
    rng = np.random.default_rng(0)
    old = np.where(rng.random((300, 1)) < 0.5, greedy, rng.integers(16, size=greedy.shape)).astype(np.uint8)
    codes, before, after = encoder.improve(X, old)
    np.testing.assert_array_equal(before, _core.errors(codebooks, X, old))
    np.testing.assert_array_equal(after, _core.errors(codebooks, X, codes))
    np.testing.assert_array_equal(after, np.minimum(before, _core.errors(codebooks, X, greedy)))


def test_a_far_origin_costs_no_accuracy():
    """Float32 scores of vectors far from the origin would be noise, were the codebooks not centered there."""
    X, codebooks = vectors(300, 8), random_model(0, 4, 16, 8, "group")
    codebooks -= codebooks.mean(axis=1, keepdims=True)
    near = _core.Encoder(codebooks).encode(X)
    for offset in (2.0**8, 2.0**13):
        far = _core.Encoder(codebooks + offset).encode(X + 4 * offset)
        assert (near == far).all(axis=1).mean() > 0.95


@pytest.mark.parametrize("scale", [2.0**-120, 2.0**-60, 2.0**60, 2.0**100])
def test_magnitude_changes_nothing(scale):
    X, codebooks = vectors(200, 6), random_model(0, 3, 16, 6, "group")
    near = _core.Encoder(codebooks).encode(X)
    scaled = _core.Encoder((codebooks * scale).astype(np.float32)).encode((X * scale).astype(np.float32))
    np.testing.assert_array_equal(near, scaled)


def test_vectors_beyond_all_codewords_still_get_codes():
    codebooks = random_model(0, 3, 16, 4, "group")
    X = np.full((3, 4), 3e38, dtype=np.float32)
    codes = _core.Encoder(codebooks).encode(X)
    assert (codes == codes[0]).all()
    np.testing.assert_allclose(_core.errors(codebooks, X, codes), (X.astype(np.float64) ** 2).sum(axis=1), rtol=1e-6)


def test_reseeding_places_unused_codewords_where_they_make_a_vector_exact():
    X = vectors(200, 5)
    codebooks = random_model(0, 2, 8, 5, "group")
    codes = np.random.default_rng(1).integers(6, size=(200, 2)).astype(np.uint8)  # 6 and 7 are unused
    errors = _core.errors(codebooks, X, codes)
    uses = _core.uses(codes, 8, "group")
    np.testing.assert_array_equal(uses, np.concatenate([np.bincount(column, minlength=8) for column in codes.T]))
    largest, worst, theirs = _core.worst(X, codes, errors, 4)
    np.testing.assert_array_equal(largest, -np.sort(-errors)[:4])
    moved = _core.reseed(codebooks, uses, worst, theirs)
    np.testing.assert_array_equal(moved[:, :6], codebooks[:, :6])
    worst = np.argsort(-errors)[:4]
    for row, (m, k) in zip(worst, [(0, 6), (0, 7), (1, 6), (1, 7)], strict=True):
        code = codes[row].copy()
        code[m] = k
        np.testing.assert_allclose(reference.decode(code[None], moved)[0], X[row], rtol=1e-5, atol=1e-5)


def test_exact_search_is_a_full_sort():
    X, Q = vectors(3000, 9), vectors(70, 9, seed=2)
    scores, rows = _core.exact_search(X, Q, 25)
    exact = Q.astype(np.float64) @ X.T
    np.testing.assert_allclose(scores, -np.sort(-exact, axis=1)[:, :25], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(exact, rows, axis=1), scores, rtol=1e-5)
