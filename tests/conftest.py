import numpy as np
import pytest

import compcodes as cc


def vectors(n, d, seed=0):
    """Vectors with structure: a few clusters, and noise."""
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(20, d))
    return (centers[rng.integers(20, size=n)] + rng.normal(size=(n, d))).astype(np.float32)


@pytest.fixture(scope="session")
def X():
    return vectors(1500, 12)


@pytest.fixture(scope="session")
def Q():
    return vectors(40, 12, seed=1)


@pytest.fixture(scope="session")
def quantizer(X):
    return cc.CompositionalCodes(n_codebooks=4, n_codewords=16, max_iter=5).fit(X)
