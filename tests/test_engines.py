"""The recipes of docs/billions.md for engines other than Dask, run as they stand there, where these are installed."""

import re
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc

pytestmark = pytest.mark.filterwarnings("ignore")  # of the engines, about themselves
RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 8)).astype(np.float32)


def recipe(word):
    """The block of the page that has this word in it."""
    page = (Path(__file__).parent.parent / "docs" / "billions.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if word in block]
    return block


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = cc.CompositionalCodes(2, 16, effort="low", max_iter=1, anneal=0).fit(X)
    made.save(tmp_path / "model.cc")
    return made


def test_ray_data_maps_batches(model, tmp_path):
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", runtime_env={"working_dir": None})
    try:
        dataset = data.from_items([{"id": i, "vector": row} for i, row in enumerate(X)]).repartition(3)
        text = recipe("map_batches").replace('"model.cc"', repr(str(tmp_path / "model.cc")))
        text = text.replace("dataset.map_batches", "codes = dataset.map_batches").replace(
            "concurrency=8", "concurrency=2"
        )
        names = {"np": np, "cc": cc, "dataset": dataset}
        exec(text, names)
        rows = {row["id"]: row["code"] for row in names["codes"].take_all()}
    finally:
        ray.shutdown()
    np.testing.assert_array_equal([rows[i] for i in range(len(X))], model.encode(X))


def test_spark_maps_frames(model, tmp_path):
    sql = pytest.importorskip("pyspark.sql")
    pd = pytest.importorskip("pandas")
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = pd.DataFrame({"id": range(len(X)), "vector": list(X.astype(float))})
        table = session.createDataFrame(
            [(int(i), [float(x) for x in row]) for i, row in zip(frame["id"], frame["vector"], strict=True)],
            "id long, vector array<float>",
        ).repartition(3)
        text = recipe("mapInPandas").replace('"model.cc"', repr(str(tmp_path / "model.cc")))
        text = text.replace("table.mapInPandas", "codes = table.mapInPandas")
        names = {"np": np, "pd": pd, "cc": cc, "table": table}
        exec(text, names)
        rows = {row["id"]: np.frombuffer(row["code"], np.uint8) for row in names["codes"].collect()}
    finally:
        session.stop()
    np.testing.assert_array_equal([rows[i] for i in range(len(X))], model.encode(X))
