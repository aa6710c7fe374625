"""The reference itself, held against brute force and the paper's properties."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compcodes import reference


@st.composite
def problems(draw):
    """Small vectors, codebooks and random codes."""
    n, M, K, d = (draw(st.integers(1, high)) for high in (12, 3, 5, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=(n, d)), rng.normal(size=(M, K, d)), rng.integers(K, size=(n, M), dtype=np.uint8)


def best_errors(X, codebooks, codes):
    """Smallest squared error of each row over a list of codes."""
    return np.min([reference.errors(X, np.tile(np.uint8(code), (len(X), 1)), codebooks) for code in codes], axis=0)


@given(problems())
def test_decode_sums_the_codewords_of_a_code(problem):
    _, codebooks, codes = problem
    expected = [sum(codebooks[m, k] for m, k in enumerate(code)) for code in codes]
    np.testing.assert_allclose(reference.decode(codes, codebooks), expected, atol=1e-12)


@given(problems())
def test_greedy_takes_what_is_nearest_to_the_residual_and_never_beats_the_best_code(problem):
    X, codebooks, _ = problem
    M, K, _ = codebooks.shape
    greedy = reference.errors(X, reference.encode_greedy(X, codebooks), codebooks)
    assert np.all(greedy >= best_errors(X, codebooks, itertools.product(range(K), repeat=M)) - 1e-9)
    # One step at a time, as the paper says it: nearest codeword of any codebook that is left.
    for x, error in zip(X, greedy, strict=True):
        residual, left = x, set(range(M))
        while left:
            m, k = min(
                itertools.product(sorted(left), range(K)),
                key=lambda mk: ((residual - codebooks[mk]) ** 2).sum(),
            )
            residual = residual - codebooks[m, k]
            left.remove(m)
        assert error == pytest.approx((residual**2).sum())


@given(problems())
def test_one_codebook_is_nearest_codeword(problem):
    X, codebooks, _ = problem
    nearest = ((X[:, None] - codebooks[0]) ** 2).sum(axis=2).argmin(axis=1)
    for selection in ("group", "m-selection", "m-combination"):
        assert np.array_equal(reference.encode_greedy(X, codebooks[:1], selection)[:, 0], nearest)


def test_greedy_takes_the_best_codebook_first():
    # Taking codebook 0 first would choose 1.0 from it, and then nothing that reaches 3.
    codebooks = np.array([[[0.0], [1.0]], [[3.0], [9.0]]])
    assert reference.encode_greedy([[3.1]], codebooks).tolist() == [[0, 0]]


def test_ties_go_to_the_lower_codebook_and_codeword():
    assert reference.encode_greedy([[1.0]], np.full((3, 4, 1), 0.5)).tolist() == [[0, 0, 0]]


@given(problems(), st.integers(0, 3))
def test_m_combination_is_distinct_and_m_selection_fills_in_order(problem, extra):
    X, codebooks, _ = problem
    M = len(codebooks)
    rng = np.random.default_rng(extra)
    shared = np.broadcast_to(rng.normal(size=(M + extra, X.shape[1])), (M, M + extra, X.shape[1]))
    combination = reference.encode_greedy(X, shared, "m-combination")
    assert all(len(set(code)) == M for code in combination.tolist())
    selection = reference.encode_greedy(X, shared, "m-selection")
    assert np.array_equal(selection[:, 0], reference.encode_greedy(X, shared[:1])[:, 0])
    best = best_errors(X, shared, itertools.combinations(range(M + extra), M))
    assert np.all(reference.errors(X, combination, shared) >= best - 1e-9)


@given(problems(), st.booleans())
def test_normal_equations_are_the_dense_products(problem, weigh):
    X, codebooks, codes = problem
    (M, K, _), n = codebooks.shape, len(X)
    weight = np.linspace(0.5, 2, n) if weigh else np.ones(n)
    B = np.zeros((M * K, n))
    for i, m in itertools.product(range(n), range(M)):
        B[m * K + codes[i, m], i] = 1
    A, b = reference.normal_equations(X, codes, K, weight if weigh else None)
    np.testing.assert_allclose(A, B * weight @ B.T, atol=1e-12)
    np.testing.assert_allclose(b, B * weight @ X, atol=1e-12)
    assert np.linalg.matrix_rank(A) <= M * K - M + 1


@given(problems())
def test_normal_equations_of_shards_add_up(problem):
    X, codebooks, codes = problem
    K, half = codebooks.shape[1], len(X) // 2
    whole = reference.normal_equations(X, codes, K)
    parts = [reference.normal_equations(X[rows], codes[rows], K) for rows in (slice(half), slice(half, None))]
    for total, left, right in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(total, left + right, atol=1e-12)


@given(problems(), st.sampled_from([1e-6, 1e-2, 1.0]))
def test_solve_is_stationary_lowers_the_objective_and_leaves_unused_codewords(problem, ridge):
    X, codebooks, codes = problem
    M, K, d = codebooks.shape
    A, b = reference.normal_equations(X, codes, K)
    D = reference.solve(A, b, codebooks, ridge)
    flat, before = D.reshape(M * K, d), codebooks.reshape(M * K, d)
    np.testing.assert_allclose(A @ flat - b + ridge * (flat - before), 0, atol=1e-8)
    assert reference.errors(X, codes, D).sum() <= reference.errors(X, codes, codebooks).sum() + 1e-9
    np.testing.assert_array_equal(flat[np.diag(A) == 0], before[np.diag(A) == 0])


@pytest.mark.parametrize("selection", ["group", "m-selection", "m-combination"])
@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_the_objective_of_fit_never_rises(selection, seed):
    X = np.random.default_rng(seed).normal(size=(60, 3))
    codebooks, codes, objective = reference.fit(X, 2, 4, selection, seed=seed)
    assert np.all(np.diff(objective) <= 1e-9 * objective[0])
    assert objective[-1] == pytest.approx(reference.errors(X, codes, codebooks).sum())
    if selection != "group":
        assert np.array_equal(codebooks[0], codebooks[1])


def test_fit_of_one_vector_is_exact():
    codebooks, codes, objective = reference.fit([[3.0, 4.0]], 2, 4)
    assert objective[-1] == pytest.approx(0)
    np.testing.assert_allclose(reference.decode(codes, codebooks), [[3, 4]])


@given(problems(), st.integers(1, 15))
def test_search_is_the_sorted_inner_products_with_the_decoded_vectors(problem, k):
    X, codebooks, codes = problem
    found, n = min(k, len(codes)), len(X)
    scores, positions = reference.search(reference.tables(X, codebooks), codes, k)
    assert scores.shape == positions.shape == (n, k)
    assert np.all(positions[:, found:] == -1)
    assert np.all(np.isneginf(scores[:, found:]))
    exact = X @ reference.decode(codes, codebooks).T
    np.testing.assert_allclose(scores[:, :found], -np.sort(-exact, axis=1)[:, :found], rtol=1e-4, atol=1e-5)
    picked = np.take_along_axis(exact, positions[:, :found], axis=1)
    np.testing.assert_allclose(scores[:, :found], picked, rtol=1e-4, atol=1e-5)


def test_search_gives_ties_to_the_lower_position():
    codes = np.array([[0], [1], [0], [1]], np.uint8)
    _, positions = reference.search(np.array([[[1.0, 2.0]]], np.float32), codes, 4)
    assert positions.tolist() == [[1, 3, 0, 2]]


def test_search_adds_in_float32_in_the_order_of_the_codebooks():
    big, table = np.float32(2**24), np.zeros((1, 3, 1), np.float32)
    table[0, :, 0] = big, 1, -big  # (2²⁴ + 1) − 2²⁴ is 0 in float32
    scores, _ = reference.search(table, np.zeros((1, 3), np.uint8), 1)
    assert scores.tolist() == [[0.0]]
