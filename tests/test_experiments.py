"""The paper's experiments, in small: that they measure what they say, and write what they found."""

import csv
import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import compcodes as cc
from compcodes import evaluate
from experiments import EXPERIMENTS, Lab, Report, classification, datasets, errors, netflix, partition, times
from experiments.__main__ import main
from experiments.report import Table


@pytest.fixture(autouse=True)
def _without_data(monkeypatch):
    monkeypatch.delenv("COMPCODES_DATA", raising=False)


@pytest.fixture(scope="module")
def lab():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COMPCODES_DATA", raising=False)
        quick = Lab(quick=True)
        assert quick.datasets
        return quick


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_writes_what_it_found(lab, name, tmp_path):
    report = EXPERIMENTS[name].run(lab)
    assert report.name == name
    assert report.tables and report.claims
    written = report.write(tmp_path)
    assert {path.suffix for path in written} == {".md", ".csv"} | ({".svg"} if report.figures else set())
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    for path in written:
        if path.suffix == ".svg":
            ElementTree.parse(path)
            assert f"]({path.name})" in text
    for table in report.tables:
        with (tmp_path / f"{name}-{table.name}.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header == table.header
        assert len(rows) == len(table.rows)
        assert table.markdown() in text


def test_without_data_the_embedded_words_stand_in_and_it_says_so(lab):
    assert {dataset.name for dataset in lab.datasets} == {"GloVe"}
    assert [dataset.stands_for for dataset in lab.datasets] == ["SIFT1M", "Netflix"]
    assert "standing in for SIFT1M" in lab.datasets[0].description


def test_recall_curves_are_those_of_the_method(lab):
    dataset = lab.datasets[0]
    report = EXPERIMENTS["curves"].run(lab)
    rows = {(row["method"], row["bits"]): row for row in report.tables[0].dictionaries()}
    q = cc.ProductQuantizer(8, n_codewords=16, max_iter=2).fit(dataset.learn)
    ids = cc.Index(q).add(dataset.base).search(dataset.queries, 1000)[1]
    true = evaluate.ground_truth(dataset.base, dataset.queries, 100)[1]
    assert rows["PQ", 64]["10 NN, recall@100"] == evaluate.recall(ids, true, 10, 100)
    assert rows["PQ", 64]["1 NN, recall@500"] == evaluate.recall(ids, true, 1, 500)


def test_errors_stand_beside_those_of_the_paper(lab):
    dataset = lab.datasets[0]
    table = errors.run(lab).tables[0]
    rows = {tuple(row[:2]): row for row in table.rows}
    q = cc.ProductQuantizer(8, n_codewords=16, max_iter=2).fit(dataset.learn)
    decoded = q.decode(q.encode(dataset.base))
    assert rows["PQ", 64][2] == pytest.approx(evaluate.vector_error(dataset.base, decoded))
    assert rows["PQ", 64][6:] == pytest.approx([2.319e4, 2.319 / 1.626, 8.915e2, 8.915 / 2.148])
    assert rows["CC", 64][3] == rows["CC", 64][5] == 1


def test_the_paper_prints_the_smallest_error_for_its_own_method():
    for printed in (errors.PRINTED, classification.PRINTED):
        for values in printed.values():
            assert min(values, key=lambda name: values[name][0]) == "CC"


def test_models_are_trained_once(lab):
    assert lab.contestant(lab.datasets[0], "PQ", 64) is lab.contestant(lab.datasets[0], "PQ", 64)


def test_sums_of_codewords():
    codebooks = np.arange(12, dtype="f4").reshape(2, 3, 2)
    want = {(a, b): codebooks[0][a] + codebooks[1][b] for a in range(3) for b in range(3)}
    assert np.array_equal(partition.sums(codebooks, "group"), [want[a, b] for a in range(3) for b in range(3)])
    shared = np.repeat(codebooks[:1], 2, axis=0)
    assert len(partition.sums(shared, "m-selection")) == 6
    assert np.array_equal(
        partition.sums(shared, "m-combination"), [shared[0][a] + shared[0][b] for a, b in ((0, 1), (0, 2), (1, 2))]
    )


def test_cells_are_what_is_nearest():
    points = np.random.default_rng(0).uniform(size=(7, 2))
    cells = partition._cells(points, np.zeros(2), np.ones(2))

    def area(corners):
        return (
            abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True)))
            / 2
        )

    assert sum(map(area, cells)) == pytest.approx(1)
    for own, corners in zip(points, cells, strict=True):
        middle = np.mean(corners, axis=0)
        assert np.argmin(((points - middle) ** 2).sum(axis=1)) == np.flatnonzero((points == own).all(axis=1))[0]


def test_the_exponent_of_a_power():
    assert times.exponent((1, 2, 4, 8), [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2)


def test_claims_are_judged_by_the_figures():
    report = Report("name", "title", "")
    report.expect_order("order", [("a", 3.0), ("b", 2.0)], falling=True)
    report.expect_order("order", [("a", 1.0), ("b", 2.0)], falling=True)
    report.expect_best("best", {"CC": 1.0, "PQ": 2.0}, "CC", largest=False)
    report.expect_best("best", {"CC": 1.0, "PQ": 2.0}, "CC", largest=True)
    report.expect_best("nothing to compare", {"CC": 1.0}, "CC", largest=True)
    assert [holds for _, holds, _ in report.claims] == [True, False, True, False]
    assert "| order: a ≥ b | **no** | a 1, b 2 |" in report.markdown()


def test_a_table_rounds_for_people_only():
    table = Table("name", "Caption.", ["a", "b"], [[1 / 3, None], [123456.7, 20000]])
    assert table.markdown() == "Caption.\n\n| a | b |\n|---|---|\n| 0.3333 |  |\n| 123,457 | 20,000 |"
    assert table.dictionaries()[0] == {"a": 1 / 3, "b": None}


def write_vecs(path, X):
    heads = np.full((len(X), 1), X.shape[1], "<i4").view("u1").reshape(len(X), 4)
    body = X.view("u1").reshape(len(X), -1)
    np.concatenate([heads, body], axis=1).tofile(path)


def test_the_papers_own_files_are_used_where_they_are(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "sift").mkdir()
    for part, n in (("base", 40), ("learn", 30), ("query", 5)):
        write_vecs(tmp_path / "sift" / f"sift_{part}.fvecs", rng.normal(size=(n, 8)).astype("<f4"))
        write_vecs(tmp_path / f"bigann_{part}.bvecs", rng.integers(0, 255, (n, 8)).astype("u1"))
    np.save(tmp_path / "models.npy", rng.normal(size=(25, 6)))
    np.save(tmp_path / "model_queries.npy", rng.normal(size=(4, 6)))
    found = {dataset.name: dataset for dataset in datasets.datasets(tmp_path)}
    assert list(found) == ["SIFT1M", "SIFT1B", "LM1M"]
    assert all(dataset.is_papers_own for dataset in found.values())
    assert [len(part) for part in (found["SIFT1M"].base, found["SIFT1M"].learn, found["SIFT1M"].queries)] == [40, 30, 5]
    assert found["SIFT1B"].base.dtype == np.uint8
    assert "standing in" not in found["LM1M"].description
    assert [len(d.base) for d in datasets.datasets(tmp_path, limit=10)] == [10, 10, 10]


def test_data_of_the_environment_stand_in(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("sift", "gowalla128"):
        (tmp_path / name).mkdir()
    for part in ("base", "learn", "query"):
        np.save(tmp_path / "sift" / f"{part}.npy", rng.integers(0, 255, (30, 8)).astype("u1"))
    for part in ("items", "users"):
        np.save(tmp_path / "gowalla128" / f"{part}.npy", rng.normal(size=(30, 8)).astype("f2"))
    monkeypatch.setenv("COMPCODES_DATA", str(tmp_path))
    found = datasets.datasets(None)
    assert [dataset.stands_for for dataset in found] == ["SIFT1M", "Netflix", "LM1M"]
    assert found[1].sample is not None


def test_a_folder_without_the_papers_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="none of the paper's files"):
        datasets.datasets(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        datasets.datasets(tmp_path / "none")


def test_ratings_become_principal_components(tmp_path):
    rng = np.random.default_rng(0)
    ratings = np.where(rng.random((60, 9)) < 0.6, rng.integers(1, 6, (60, 9)), 0)
    (tmp_path / "netflix").mkdir()
    for movie in range(9):
        lines = [f"{100 + user},{ratings[user, movie]},2005-01-01" for user in range(60) if ratings[user, movie]]
        (tmp_path / "netflix" / f"mv_{movie:07}.txt").write_text("\n".join([f"{movie + 1}:", *lines]) + "\n")
    users = netflix.load_netflix(tmp_path, dim=4)
    centered = ratings - ratings.mean(axis=0)
    values = np.linalg.svd(centered, compute_uv=False)[:4]
    np.testing.assert_allclose(np.linalg.norm(users, axis=0), values, rtol=1e-4)
    assert np.array_equal(netflix.load_netflix(tmp_path), users)  # from the file that was kept
    assert datasets.datasets(tmp_path)[0].name == "Netflix"


def test_a_line_that_is_no_rating(tmp_path):
    (tmp_path / "netflix").mkdir()
    (tmp_path / "netflix" / "mv_1.txt").write_text("1:\n7,3,2005\nseven,3,2005\n")
    with pytest.raises(ValueError, match="line 3 is neither a movie nor a rating: 'seven,3,2005'"):
        netflix.load_netflix(tmp_path)


def test_images_of_the_paper(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "holidays.npy", rng.normal(size=(30, 8)))
    np.save(tmp_path / "holidays_ids.npy", np.array([100000 + i // 3 * 100 + i % 3 for i in range(30)]))
    np.save(tmp_path / "ukbench.npy", rng.normal(size=(40, 8)))
    report = classification.run(Lab(folder=tmp_path, quick=True, bits=(16,)))
    assert [table.name for table in report.tables] == ["holidays", "ukbench"]
    first = report.tables[1].rows[0]
    assert first[0] == "raw vectors"
    assert 1 <= first[5] <= 4  # each image finds itself


def test_without_scikit_learn_it_says_so(lab, monkeypatch):
    for name in ("sklearn", "sklearn.datasets", "sklearn.linear_model"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    report = classification.run(lab)
    assert "pip install scikit-learn" in report.skipped[0]
    assert "Not done: " in report.markdown()


def test_compressed_training_data_are_read_in_batches(lab, monkeypatch):
    pytest.importorskip("sklearn")
    sizes = []
    decode = cc.Quantizer.decode_batches

    def watched(self, codes, batch_size=1024):
        for batch in decode(self, codes, batch_size):
            sizes.append(len(batch))
            yield batch

    monkeypatch.setattr(cc.Quantizer, "decode_batches", watched)
    report = classification.run(lab)
    table = next(table for table in report.tables if table.name == "accuracy")
    assert table.rows[0][0] == "raw vectors"
    assert {"decoded codes of CC", "decoded codes of PQ"} <= {row[0] for row in table.rows}
    assert 256 in sizes


@pytest.fixture
def run(capsys):
    """Run the command: its exit code, standard output and standard error."""
    return lambda *argv: (main([str(word) for word in argv]), *capsys.readouterr())


def test_the_command_lists_and_runs(run, tmp_path):
    found = json.loads(run("--list", "--json")[1])
    assert list(found["experiments"]) == list(EXPERIMENTS)
    code, out, _ = run("--list")
    assert code == 0
    assert "bigann_{base,learn,query}.bvecs" in out
    folder, page = tmp_path / "out", tmp_path / "page.md"
    found = json.loads(run("partition", "--quick", "--out", folder, "--page", page, "--json")[1])
    assert found["experiments"][0]["claims"]
    text = page.read_text(encoding="utf-8")
    assert "](out/partition-regions.svg)" in text
    assert "standing in for SIFT1M" in text
    code, out, _ = run("schemes", "--quick", "--bits", "16", "--out", folder)
    assert code == 0
    assert "| group M-selection | 16 |" in out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--quick"], 2, "name an experiment, or all"),
        (["nothing"], 2, "nothing: there is no such experiment, want one of partition, "),
        (["schemes", "--bits", "12"], 2, "--bits 12: want a multiple of 8"),
        (["schemes", "--data", "none"], 1, "none: no such folder"),
        (["schemes", "--data", "."], 1, ".: none of the paper's files are in it"),
    ],
)
def test_errors_are_one_line(run, monkeypatch, tmp_path, argv, code, message):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*argv)
    assert (found, out) == (code, "")
    assert err.startswith(f"compcodes: error: {message}")
    assert err.count("\n") == 1
