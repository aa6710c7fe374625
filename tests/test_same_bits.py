"""Every instruction set, number of threads and size of chunk gives the same bits: codes, codebooks, results.

Training also calls numpy's solver, whose bits are those of the BLAS and the processor: they are equal on one machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compcodes import _core

# It forces instruction sets and chunks itself, each in a process that takes long where nothing is vectorised.
pytestmark = pytest.mark.timeout(900)

RUNS = [(isa, chunk, jobs) for isa in _core.isas() for chunk, jobs in (("", 1), ("7", 3))]


def digests(isa, chunk, jobs):
    program = Path(__file__).with_name("digests.py")
    env = {**os.environ, "COMPCODES_ISA": isa, "COMPCODES_CHUNK": chunk}
    run = subprocess.run([sys.executable, program, str(jobs)], env=env, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found.pop("isa") == isa
    return found


@pytest.fixture(scope="module")
def wanted():
    """Those of plain code on one thread."""
    return digests("scalar", "", 1)


@pytest.mark.parametrize(("isa", "chunk", "jobs"), [run for run in RUNS if run != ("scalar", "", 1)])
def test_bits_are_those_of_plain_code(wanted, isa, chunk, jobs):
    found = digests(isa, chunk, jobs)
    assert len(found) > 500
    assert found.keys() == wanted.keys()
    different = [name for name in found if found[name] != wanted[name]]
    assert not different


def test_digests_tell_seeds_apart():
    """A digest that saw nothing of its arrays would be equal everywhere."""
    from digests import clusters, digest

    assert digest(clusters(9, 3)) == digest(clusters(9, 3)) != digest(clusters(9, 3, seed=1))
    flipped = clusters(9, 3)
    flipped.view("u4")[8, 2] ^= 1
    assert digest(clusters(9, 3)) != digest(flipped)
