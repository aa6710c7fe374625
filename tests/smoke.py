"""A wheel's first steps, run by the interpreter of a fresh environment: `python -I tests/smoke.py`."""

import importlib.metadata
import importlib.util
import tempfile

import numpy as np

import compcodes as cc

words, vectors = cc.data.glove()
q = cc.CompositionalCodes(n_codebooks=4, n_codewords=64, anneal=2, max_iter=2).fit(vectors[:5000])
index = cc.Index(q).add(vectors)
with tempfile.TemporaryDirectory() as folder:
    index.save(f"{folder}/index.cc")
    index = cc.Index.load(f"{folder}/index.cc")
_, ids = index.search(vectors[:5], k=10, rerank=vectors)
assert ids.shape == (5, 10) and len(index) == len(words) == 20_000
assert np.isin(ids, np.arange(20_000)).all()
# What is for a clone alone is not in the wheel; licences and the list of what was compiled in are.
files = [str(file) for file in importlib.metadata.files("compcodes") or []]
assert importlib.util.find_spec("experiments") is None and not any("experiments" in file for file in files)
assert {"LICENSE-APACHE", "LICENSE-MIT", "NOTICE"} <= {file.rpartition("/")[2] for file in files}
assert "Repository" in str(importlib.metadata.metadata("compcodes").get_all("Project-URL"))
print(f"compcodes {cc.__version__} works on {cc._core.isa()}")
