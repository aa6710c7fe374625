"""The module for ann-benchmarks and VIBE, in a folder laid out as theirs."""

import importlib
import inspect
import itertools
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from compcodes import evaluate

SOURCE = Path(__file__).parents[1] / "examples" / "ann-benchmarks"


# By the name of its package: our files for it, and the key of the image to run in.
HARNESSES = {
    "ann_benchmarks": (SOURCE / "config.yml", SOURCE / "Dockerfile", "docker_tag"),
    "vibe": (SOURCE / "vibe" / "config.yml", SOURCE / "vibe" / "image.def", "singularity_image"),
}


@pytest.fixture(params=HARNESSES)
def module(request, tmp_path, monkeypatch):
    own = tmp_path / request.param / "algorithms" / "compcodes"
    own.mkdir(parents=True)
    shutil.copy(SOURCE / "module.py", own)
    base = own.parent / "base"
    base.mkdir()
    (base / "module.py").write_text("class BaseANN:\n    def get_batch_results(self):\n        return self.res\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(f"{request.param}.algorithms.compcodes.module")
    for name in [name for name in sys.modules if name.partition(".")[0] == request.param]:
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


def test_lists_are_looked_into(module, X, Q):
    algorithm = module.Compcodes("angular", 4, 16, "low")
    algorithm.fit(X)
    true = evaluate.ground_truth(X, Q, 5, metric="cosine")[1]
    recalls = []
    for n_probe in (1, 3, 16):
        algorithm.set_query_arguments(20, n_probe)
        found = np.stack([algorithm.query(q, 5) for q in Q])
        recalls.append(evaluate.recall(found, true, 5, 5))
        want = algorithm._index.search(Q, 5, rerank=X, n_candidates=20, n_probe=n_probe)[1]
        np.testing.assert_array_equal(found, want)
    assert recalls[0] < recalls[1] <= recalls[2]


def test_the_configuration_fits_the_module(module):
    yaml = pytest.importorskip("yaml")
    package = module.__name__.partition(".")[0]
    config, image, key = HARNESSES[package]
    ((kind, metrics),) = yaml.safe_load(config.read_text()).items()
    (entry,) = metrics["any"]
    assert (kind, entry["name"], entry["module"]) == ("float", "compcodes", f"{package}.algorithms.compcodes")
    assert entry[key] and "pip" in image.read_text()
    constructor = getattr(module, entry["constructor"])
    of_constructor = inspect.signature(constructor)
    of_query = inspect.signature(constructor("ip", 8).set_query_arguments)
    in_lists = set()
    for group in entry["run_groups"].values():
        built = passed(group["args"], of_constructor, ["ip"])
        asked = passed(group["query_args"], of_query)
        assert all(isinstance(value, int) for each in asked for value in each.values())
        (has_lists,) = {each.get("n_lists", 0) > 0 for each in built}
        assert {"n_probe" in each for each in asked} == {has_lists}
        in_lists.add(has_lists)
    assert entry["base_args"] == ["@metric"] and in_lists == {True, False}


def passed(spec, signature, first=()):
    """What a group passes by position, as both harnesses do: each combination, by the names of the parameters."""
    values = list(spec.values()) if isinstance(spec, dict) else spec
    found = [dict(signature.bind(*first, *each).arguments) for each in itertools.product(*values)]
    if isinstance(spec, dict):
        assert list(found[0])[len(first) :] == list(spec)
    return found
