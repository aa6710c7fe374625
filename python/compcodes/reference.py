"""The whole method in readable NumPy: the documentation of the algorithm, and the oracle of the tests.

Each function is one step of *Inner Product Similarity Search using Compositional Codes* (Du & Wang), under
the name that the Rust core gives it. Nothing here is fast; everything here is short. Notation:

==========================  ===========================  ====================================================
paper                       here                         shape and type
==========================  ===========================  ====================================================
X = [x_1 … x_N]             ``X``, one vector a row      (n, d) any real type, computed in float64
D = [C_1 … C_M]             ``codebooks``                (M, K, d); ``codebooks[m, k]`` is a codeword
y_n, the ones of b_n        ``codes``                    (n, M) uint8; ``codes[i, m]`` is a row of codebook m
similarity table            ``tables``                   (nq, M, K) float32
==========================  ===========================  ====================================================

The three schemes differ in constraints only (Property 1). *Group M-selection* has M codebooks. *M-selection*
adds C_1 = … = C_M: here, M equal codebooks. *M-combination* adds that the M codewords of a vector are
distinct. k-means is M = 1 in each of them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._choices import Selection

__all__ = [
    "decode",
    "encode_beam",
    "encode_greedy",
    "errors",
    "fit",
    "normal_equations",
    "search",
    "settle",
    "solve",
    "tables",
    "unit_vectors",
    "update",
    "update_along",
]

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.uint8]


def decode(codes: Codes, codebooks: NDArray[Any]) -> Floats:
    """Sum the codewords that each code names: x̄_n = C_1[y_n1] + … + C_M[y_nM].

    Returns
    -------
    (n, d) float64
    """
    total = np.zeros((len(codes), codebooks.shape[2]))
    for m, codebook in enumerate(codebooks):
        total += codebook[codes[:, m]]
    return total


def errors(X: ArrayLike, codes: Codes, codebooks: NDArray[Any], eta: float = 1.0) -> Floats:
    """Loss ‖r_n‖² + (η − 1)⟨r_n, u_n⟩² of each row, (n,) float64, with r_n = x_n − x̄_n and u_n = x_n/‖x_n‖.

    With η = 1 this is the squared error, whose sum is the paper's objective (Equation 3). A larger η counts the
    error along x_n more, which is what changes inner products with the queries that look for x_n. For a loss with a
    metric pass vectors and codebooks in its basis, times I + AᵀA with A the `directions_` of a model.
    """
    X = np.asarray(X, np.float64)
    residual = X - decode(codes, codebooks)
    along = (residual * unit_vectors(X)).sum(axis=1)
    return np.asarray((residual**2).sum(axis=1) + (eta - 1) * along**2)


def unit_vectors(X: ArrayLike) -> Floats:
    """Return u_n = x_n/‖x_n‖, (n, d); zero for a zero vector, which has no direction."""
    X = np.asarray(X, np.float64)
    norms = np.sqrt((X**2).sum(axis=1, keepdims=True))
    unit: Floats = np.divide(X, norms, out=np.zeros_like(X), where=norms > 0)
    return unit


def encode_greedy(X: ArrayLike, codebooks: NDArray[Any], selection: Selection = "group", eta: float = 1.0) -> Codes:
    """Choose the codewords of each vector one by one, best first ("Update the group M-selection").

    Each of the M steps looks at every codeword of every codebook that this vector has not used yet and takes
    the one that leaves the smallest loss. So the order of the codebooks is the vector's own. Ties go to the
    lower codebook, then to the lower codeword; with M equal codebooks (M-selection) codebook m is thus used
    in step m.

    Parameters
    ----------
    X : (n, d)
    codebooks : (M, K, d)
        M equal codebooks where `selection` is not ``"group"``.
    selection : {"group", "m-selection", "m-combination"}
        ``"m-combination"`` takes no codeword twice for one vector, and needs K ≥ M.

    Returns
    -------
    (n, M) uint8
    """
    M, K, d = codebooks.shape
    D = codebooks.reshape(M * K, d).astype(np.float64)
    residual = np.array(X, np.float64)
    P = unit_vectors(X) @ D.T  # how long each codeword is along each vector
    along = (residual * unit_vectors(X)).sum(axis=1, keepdims=True)
    rows = np.arange(len(residual))
    codes = np.zeros((len(residual), M), np.uint8)
    free = np.ones((len(residual), M, K), bool)
    for _ in range(M):
        # ‖r − c‖² = ‖r‖² − 2⟨r, c⟩ + ‖c‖²; the first term is the same for every codeword. Likewise along x.
        score = (D**2).sum(axis=1) - 2 * residual @ D.T + (eta - 1) * (P**2 - 2 * along * P)
        best = np.where(free.reshape(-1, M * K), score, np.inf).argmin(axis=1)
        m, k = best // K, best % K
        codes[rows, m] = k
        residual -= D[best]
        along -= P[rows, best][:, None]
        free[rows, m] = False
        if selection == "m-combination":
            free[rows, :, k] = False
    return codes


def encode_beam(
    X: ArrayLike, codebooks: NDArray[Any], width: int, selection: Selection = "group", eta: float = 1.0
) -> Codes:
    """Choose the codewords in the order of the codebooks, keeping the `width` best partial codes.

    The loss of a partial code is that of the sum of its codewords. With equal codebooks the same codewords in another
    order are the same partial code. A width of K^(M−1) or more tries every code.

    Returns
    -------
    (n, M) uint8
    """
    X = np.asarray(X, np.float64)
    M, K, _ = codebooks.shape
    codes = np.zeros((len(X), M), np.uint8)
    for x, code in zip(X, codes, strict=True):
        beam: list[tuple[int, ...]] = [()]
        for m in range(M):
            longer = [(*start, k) for start in beam for k in range(K)]
            if selection == "m-combination":
                longer = [start for start in longer if start[-1] not in start[:-1]]
            if selection != "group":
                longer = list({tuple(sorted(start)): start for start in reversed(longer)}.values())
            ahead = np.array(longer, np.uint8)
            losses = errors(np.broadcast_to(x, (len(ahead), len(x))), ahead, codebooks[: m + 1], eta)
            beam = [longer[i] for i in np.argsort(losses, kind="stable")[:width]]
        code[:] = beam[0]
    return codes


def settle(
    X: ArrayLike, codes: Codes, codebooks: NDArray[Any], selection: Selection = "group", eta: float = 1.0
) -> Codes:
    """Improve codes one codeword at a time until no single change lowers the loss (iterated conditional modes).

    Local search does this, changes a few codewords at random, does it again, and keeps the better code of the
    two, for a number of rounds.
    """
    codes = codes.copy()
    K = codebooks.shape[1]
    changed = True
    while changed:
        changed = False
        for m in range(codes.shape[1]):
            trials = np.repeat(codes[None], K, axis=0)
            trials[:, :, m] = np.arange(K)[:, None]
            loss = np.stack([errors(X, trial, codebooks, eta) for trial in trials])
            if selection == "m-combination":
                others = np.delete(codes, m, axis=1)
                loss[(others[None] == np.arange(K)[:, None, None]).any(axis=2)] = np.inf
            best, rows = loss.argmin(axis=0), np.arange(len(codes))
            better = loss[best, rows] < loss[codes[:, m], rows] - 1e-9
            codes[better, m] = best[better]
            changed |= bool(better.any())
    return codes


def normal_equations(
    X: ArrayLike, codes: Codes, n_codewords: int, sample_weight: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Assemble both sides of D·BBᵀ = XBᵀ ("Update the dictionary").

    Row n of Bᵀ has a one at m·K + y_nm for each m. With weights w, A = BWBᵀ and b = BWX. Both are sums over
    the vectors: those of two shards of the data add up to those of the whole.

    Returns
    -------
    A : (M·K, M·K) float64
        How often codewords occur together. Its rank is at most M·K − M + 1, because the columns of each
        codebook add up to the same vector.
    b : (M·K, d) float64
        For each codeword, the sum of the vectors that use it.
    """
    X = np.asarray(X, np.float64)
    n, M = codes.shape
    Bt = np.zeros((n, M * n_codewords))
    Bt[np.arange(n)[:, None], np.arange(M) * n_codewords + codes] = 1
    weighted = Bt if sample_weight is None else Bt * np.asarray(sample_weight, np.float64)[:, None]
    return weighted.T @ Bt, weighted.T @ X


def solve(A: Floats, b: Floats, previous: NDArray[Any], ridge: float) -> Floats:
    """Minimise the objective over the codebooks, plus λ‖D − D_previous‖².

    The paper's D = XBᵀ(BBᵀ)⁻¹ does not exist as it stands: BBᵀ is singular (see `normal_equations`). The
    proximal term makes the solution unique, leaves unused codewords where they are, and can never raise the
    objective, because D_previous itself has no penalty. A ridge toward zero would shrink the codewords that
    few vectors use.

    Parameters
    ----------
    A, b
        From `normal_equations`.
    previous : (M, K, d) or (K, d)
    ridge : float
        λ > 0, in the unit of A's diagonal (vectors per codeword).

    Returns
    -------
    Codebooks in the shape of `previous`, float64.
    """
    D = previous.reshape(b.shape).astype(np.float64)
    # (A + λI) D = b + λ D_previous, written for the step D − D_previous to lose no digits.
    step = np.linalg.solve(A + ridge * np.eye(len(A)), b - A @ D)
    return (D + step).reshape(previous.shape)


def update(
    X: ArrayLike,
    codes: Codes,
    codebooks: Floats,
    selection: Selection = "group",
    ridge: float = 1e-3,
    sample_weight: ArrayLike | None = None,
) -> Floats:
    """Assemble and solve; with one shared codebook the M blocks of unknowns are one: their equations add."""
    M, K, d = codebooks.shape
    A, b = normal_equations(X, codes, K, sample_weight)
    if selection == "group":
        return solve(A, b, codebooks, ridge)
    A, b = A.reshape(M, K, M, K).sum(axis=(0, 2)), b.reshape(M, K, d).sum(axis=0)
    return np.broadcast_to(solve(A, b, codebooks[0], ridge), codebooks.shape)


def update_along(
    X: ArrayLike,
    codes: Codes,
    codebooks: Floats,
    eta: float,
    ridge: float = 1e-3,
    sample_weight: ArrayLike | None = None,
) -> Floats:
    """Minimise Σ w(‖r‖² + (η − 1)⟨r, u⟩²) + λ‖D − D_previous‖² over different codebooks ("group").

    The second term ties all dimensions together: M·K·d unknowns at once, solved densely here, and by conjugate
    gradients without a matrix in the core.
    """
    X = np.asarray(X, np.float64)
    (M, K, d), n = codebooks.shape, len(X)
    weights = np.ones(n) if sample_weight is None else np.asarray(sample_weight, np.float64)
    H, g = ridge * np.eye(M * K * d), np.zeros(M * K * d)
    for x, u, code, w in zip(X, unit_vectors(X), codes, weights, strict=True):
        metric = w * (np.eye(d) + (eta - 1) * np.outer(u, u))
        b = np.zeros(M * K)
        b[np.arange(M) * K + code] = 1
        H += np.kron(np.outer(b, b), metric)
        g += np.kron(b, metric @ (x - b @ codebooks.reshape(M * K, d)))
    return codebooks + np.linalg.solve(H, g).reshape(M, K, d)


def fit(
    X: ArrayLike,
    n_codebooks: int,
    n_codewords: int,
    selection: Selection = "group",
    max_iter: int = 10,
    ridge: float = 1e-3,
    seed: int = 0,
) -> tuple[Floats, Codes, list[float]]:
    """Alternate: codes for the codebooks (`encode_greedy`), codebooks for the codes (`update`).

    The start is a sample: codebook m is K vectors drawn from what the codebooks before it left over (for a
    shared codebook, from X/M).

    Returns
    -------
    codebooks : (M, K, d) float64
    codes : (n, M) uint8
    objective : list of float
        Sum of squared errors after each iteration. It never rises.
    """
    X = np.asarray(X, np.float64)
    codebooks = _start(X, n_codebooks, n_codewords, selection, np.random.default_rng(seed))
    codes = encode_greedy(X, codebooks, selection)
    objective = []
    for _ in range(max_iter):
        codebooks = update(X, codes, codebooks, selection, ridge)
        # The greedy code can be worse than the one a row has: then the row keeps what it has.
        greedy = encode_greedy(X, codebooks, selection)
        better = errors(X, greedy, codebooks) < errors(X, codes, codebooks)
        codes = np.where(better[:, None], greedy, codes)
        objective.append(float(errors(X, codes, codebooks).sum()))
    return codebooks, codes, objective


def _start(X: Floats, M: int, K: int, selection: Selection, rng: np.random.Generator) -> Floats:
    """Codebooks sampled from the data."""
    if selection != "group":
        return np.broadcast_to(rng.choice(X, K, replace=len(X) < K) / M, (M, K, X.shape[1]))
    codebooks = np.zeros((M, K, X.shape[1]))
    residual = X
    for m in range(M):
        codebooks[m] = rng.choice(residual, K, replace=len(X) < K)
        nearest = encode_greedy(residual, codebooks[m : m + 1])
        residual = residual - decode(nearest, codebooks[m : m + 1])
    return codebooks


def tables(Q: ArrayLike, codebooks: NDArray[Any]) -> NDArray[np.float32]:
    """Inner products of queries and codewords, ⟨q, c_mk⟩: (nq, M, K) float32.

    They are all that a search needs to know of a query: ⟨q, x̄_n⟩ = Σ_m ⟨q, c_m[y_nm]⟩.
    """
    products: Floats = np.einsum("qd,mkd->qmk", np.asarray(Q, np.float64), codebooks.astype(np.float64))
    return products.astype(np.float32)


def search(tables: NDArray[np.float32], codes: Codes, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find the k largest table sums of each query ("Search with Compositional Codes").

    This is the contract of every scan in the package, to the bit: float32 sums in the order m = 0 … M−1, best
    first, ties to the lower position.

    Returns
    -------
    scores : (nq, k) float32
        Padded with −inf where k exceeds the number of codes.
    positions : (nq, k) int64
        Rows of `codes`, padded with −1.
    """
    scores = np.full((len(tables), k), -np.inf, np.float32)
    positions = np.full((len(tables), k), -1, np.int64)
    for q, table in enumerate(tables):
        sums = np.zeros(len(codes), np.float32)
        for m in range(codes.shape[1]):
            sums += table[m, codes[:, m]]
        best = np.argsort(-sums, kind="stable")[:k]
        scores[q, : len(best)] = sums[best]
        positions[q, : len(best)] = best
    return scores, positions
