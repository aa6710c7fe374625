"""The documentation's examples run; the commands, files and pictures that it names exist."""

import importlib
import inspect
import re
import shlex
import sys
import types
import zlib
from pathlib import Path

import numpy as np
import pytest

from compcodes import cli
from compcodes.training import tuning
from compcodes.training.effort import EFFORTS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not {"measured", "generated"} & {*page.parts}]
PAGES = [README, ROOT / "CONTRIBUTING.md", *WRITTEN]


FENCE = re.compile(r"(?:^<!-- needs: (.*?) -->\n)?^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page):
    """The blocks of Python and of commands, in order: (what it needs, language, content)."""
    return FENCE.findall(page.read_text())


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


WITH_EXAMPLES = [page for page in PAGES if blocks(page)]


def missing(needs):
    """Of what is needed what is not here: modules, names in them, or NAME(parameter), with commas between."""
    for need in filter(None, (need.strip() for need in needs.split(","))):
        name, _, parameter = need.rstrip(")").partition("(")
        parts = name.split(".")
        thing = None
        for n in range(len(parts), 0, -1):
            try:
                thing = importlib.import_module(".".join(parts[:n]))
            except ImportError:
                continue
            break
        try:
            for attribute in parts[n:] if thing is not None else [None]:
                thing = getattr(thing, attribute) if attribute else thing.absent
            if parameter and parameter not in inspect.signature(thing).parameters:
                return need
        except AttributeError:
            return need
    return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of other libraries
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=names(WITH_EXAMPLES))
def test_examples_run(page, tmp_path, monkeypatch):
    """In order, each going on from those before; on fewer vectors. Of commands, compcodes' own."""
    if page.name == "index.md":
        assert {code for _, _, code in blocks(page)} <= {code for _, _, code in blocks(README)}  # run there
        return
    for need in re.findall(r"<!-- page needs: (.*?) -->", page.read_text()):
        if missing(need):
            pytest.skip(f"needs {missing(need)}")
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch)
    train_briefly(monkeypatch)
    namespace = {"__name__": "__main__"}
    for needs, language, code in blocks(page):
        if missing(needs):
            continue
        if language == "sh":
            for line in code.replace("\\\n", " ").splitlines():
                if line.startswith("compcodes "):
                    assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
        else:
            code = code.replace("size=(20_000, ", "size=(2_000, ")
            exec(compile(code, str(page), "exec"), namespace)


def train_briefly(monkeypatch):
    """Train as the examples say, but choose the loss on smaller samples, and with fewer iterations."""
    for name, value in {"SAMPLE": 600, "QUERIES": 50, "ITERATIONS": 1}.items():
        monkeypatch.setattr(tuning, name, value)
    few = EFFORTS["low"]._replace(anneal=5, max_iter=2, noiseless=5)
    for name in EFFORTS:
        monkeypatch.setitem(EFFORTS, name, few)


def stand_in(monkeypatch):
    """Put stand-ins in the place of what needs weights from elsewhere, and of `datasets` where it is not installed."""

    class SentenceTransformer:
        """The mean of what the words of a text are in the embedded vectors, or at random."""

        def __init__(self, name):
            self.known = {}

        def encode(self, texts):
            rows = [np.mean([self.word(word) for word in text.split()], axis=0) for text in texts]
            return np.array(rows, np.float32)

        def word(self, word):
            if word not in self.known:
                self.known[word] = np.random.default_rng(zlib.crc32(word.encode())).normal(size=24)
            return self.known[word]

    class Dataset(dict):
        from_dict = classmethod(lambda cls, columns: cls(columns))

        def map(self, function, batched, batch_size, remove_columns):
            assert batched
            n = len(next(iter(self.values())))
            slices = (slice(start, start + batch_size) for start in range(0, n, batch_size))
            parts = [function({name: column[rows] for name, column in self.items()}) for rows in slices]
            new = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            return Dataset({name: column for name, column in self.items() if name not in remove_columns} | new)

    stand_ins = {"sentence_transformers": SentenceTransformer}
    if missing("datasets"):
        stand_ins["datasets"] = Dataset
    for module, kind in stand_ins.items():
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{kind.__name__: kind}))


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)`?", README.read_text()))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_what_a_page_names_exists(page):
    text = page.read_text()
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    missing += [name for name in re.findall(r"(?:benches|docs)/\w+\.py", text) if not (ROOT / name).exists()]
    assert missing == []
