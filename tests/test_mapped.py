"""Pages of memory maps are given back, and nothing of what they hold is lost."""

import sys
from pathlib import Path

import numpy as np
import pytest

from compcodes.data.mapped import release


def resident(path):
    """Bytes of a file that are mapped and in memory of this process."""
    total, is_own = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_own = line.endswith(str(path))
        elif is_own and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).integers(0, 255, (4096, 1024), np.uint8))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("view", [lambda X: X, lambda X: X[5:], lambda X: np.asarray(X)[:, 3:], lambda X: X.T])
def test_pages_of_a_map_are_released(file, view):
    X = np.load(file, mmap_mode="r")
    want = np.array(X)
    assert resident(file) > 3 << 20
    assert release(view(X))
    assert resident(file) == 0
    np.testing.assert_array_equal(X, want)


def test_what_was_written_stays(file):
    X = np.load(file, mmap_mode="c")
    X[7] = 9
    assert not release(X)
    assert (X[7] == 9).all()


def test_other_arrays_are_left_alone():
    assert not release(np.zeros((2, 2)))
    assert not release([[1.0]])
