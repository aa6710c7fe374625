"""The module for ann-benchmarks and VIBE, in a folder laid out as theirs."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from compcodes import evaluate

SOURCE = Path(__file__).parents[1] / "examples" / "ann-benchmarks"


@pytest.fixture
def module(tmp_path, monkeypatch):
    own = tmp_path / "ann_benchmarks" / "algorithms" / "compcodes"
    own.mkdir(parents=True)
    shutil.copy(SOURCE / "module.py", own)
    base = own.parent / "base"
    base.mkdir()
    (base / "module.py").write_text("class BaseANN:\n    def get_batch_results(self):\n        return self.res\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("ann_benchmarks.algorithms.compcodes.module")
    for name in [name for name in sys.modules if name.startswith("ann_benchmarks")]:
        del sys.modules[name]


@pytest.mark.parametrize(("metric", "name"), [("angular", "cosine"), ("euclidean", "l2"), ("ip", "ip")])
def test_it_runs_as_the_harness_runs_it(module, X, Q, metric, name):
    X = X[:300]
    algorithm = module.Compcodes(metric, 2, 0, "low")
    algorithm.fit(X)
    true = evaluate.ground_truth(X, Q, 5, metric=name)[1]
    recalls = []
    for candidates in (5, 50, 300):
        algorithm.set_query_arguments(candidates)
        assert str(candidates) in algorithm.name
        found = np.stack([algorithm.query(q, 5) for q in Q])
        recalls.append(evaluate.recall(found, true, 5, 5))
        algorithm.batch_query(Q, 5)
        np.testing.assert_array_equal(algorithm.get_batch_results(), found)
    assert recalls[0] <= recalls[1] <= recalls[2] == 1


def test_it_refuses_what_it_cannot_measure(module):
    with pytest.raises(NotImplementedError, match="'jaccard'"):
        module.Compcodes("jaccard", 8)


def test_the_configuration_names_what_the_module_has(module):
    text = (SOURCE / "config.yml").read_text()
    assert "constructor: Compcodes\n" in text and "module: ann_benchmarks.algorithms.compcodes\n" in text
