"""Files are written whole or not at all, whatever else happens, and what is read is checked."""

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import compcodes as cc
from compcodes.data import files

SOAK = Path(__file__).parent / "soak"


def python(code, *arguments):
    """Run a script in a process of its own, which it may crash."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture
def index(quantizer, X):
    return cc.Index(quantizer).add(X)


WRITTEN_IN_PLACE = """
import sys, threading
import compcodes as cc

path = sys.argv[1]
good = open(path, "rb").read()
stop = threading.Event()

def write():
    with open(path, "r+b") as file:
        while not stop.is_set():
            for content in (good, good[: len(good) // 2], b"x" * len(good), good):
                file.seek(0)
                file.truncate(0)
                for first in range(0, len(content), 4096):
                    file.write(content[first : first + 4096])
                    file.flush()

writer = threading.Thread(target=write)
writer.start()
loaded = refused = 0
try:
    for _ in range(400):
        try:
            index = cc.Index.load(path)
            assert len(index) == 200_000
            loaded += 1
        except ValueError as error:
            assert path in str(error)
            refused += 1
finally:
    stop.set()
    writer.join()
print(refused)
"""


def test_a_file_written_in_place_meanwhile_is_an_error_at_worst(tmp_path):
    path = tmp_path / "index.cc"
    quantizer = cc.CompositionalCodes.from_codebooks(np.random.default_rng(0).normal(size=(2, 4, 3)))
    cc.Index(quantizer).add_codes(np.zeros((200_000, 2), np.uint8)).save(path)
    done = python(WRITTEN_IN_PLACE, path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "no load met a write"


FULL = """
import resource, signal, sys
import numpy as np
import compcodes as cc
from compcodes.data import files

kind, path = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
quantizer = cc.CompositionalCodes.from_codebooks(np.ones((2, 4, 3)))
index = cc.Index(quantizer).add_codes(np.zeros((100_000, 2), np.uint8))
array = np.zeros(100_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    index.save(path) if kind == "index" else files.save(path, array)
except OSError as error:
    print(error.errno, error.filename)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size")
@pytest.mark.parametrize("kind", ["index", "array"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, kind):
    path = tmp_path / "out.npy"
    path.write_bytes(b"old")
    done = python(FULL, kind, path)
    assert done.stdout.split() == [str(errno.EFBIG), str(path)], done.stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_arrays_replace_whole_files_and_respect_links_and_modes(tmp_path):
    path, link = tmp_path / "x.npy", tmp_path / "link.npy"
    files.save(path, np.arange(6).reshape(2, 3))
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    path.chmod(0o600)
    link.symlink_to(path)
    files.save(link, np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(np.load(path), np.arange(6.0).reshape(2, 3))
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError) as error:
        files.save(tmp_path / "nowhere" / "x.npy", [1])
    assert error.value.filename == str(tmp_path / "nowhere" / "x.npy")
    assert sorted(os.listdir(tmp_path)) == ["link.npy", "x.npy"]


def test_what_killed_saves_left_is_in_nobodys_way(index, tmp_path):
    # The first release named its parts by process and count, and a later process may have the same number.
    left = [tmp_path / f".compcodes-{os.getpid()}-{count}.part" for count in range(200)]
    for path in left:
        path.write_bytes(b"of another process")
    for _ in range(3):
        index.save(tmp_path / "index.cc")
    assert len(cc.Index.load(tmp_path / "index.cc")) == len(index)
    assert {path.read_bytes() for path in left} == {b"of another process"}
    assert len(os.listdir(tmp_path)) == 201


def test_pickling_takes_no_files(index, Q, monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", None)
    monkeypatch.setattr(cc.Index, "save", None)
    thawed = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(thawed.search(Q, 5)[1], index.search(Q, 5)[1])
    with pytest.raises(ValueError, match="<bytes>: damaged"):
        pickle.loads(pickle.dumps(index).replace(b"codebooks", b"codebookz"))


@pytest.mark.parametrize("settings", [{}, {"metric": "l2"}, {"metric": "cosine"}, {"scale": True}, {"residuals": True}])
def test_damage_of_a_mapped_file_is_found_before_it_is_saved_or_changed(quantizer, X, Q, tmp_path, settings):
    path = tmp_path / "index.cc"
    cc.Index(quantizer, **settings).add(X).save(path)
    content = bytearray(path.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] = 200  # a code, of 16 codewords
    path.write_bytes(content)
    mapped = cc.Index.load(path, mmap=True)
    assert mapped.search(Q, 3)[1].shape == (len(Q), 3)
    for use in (
        lambda: mapped.add(X[:5]),
        lambda: mapped.remove([3]),
        lambda: mapped.save(tmp_path / "copy.cc"),
        lambda: pickle.dumps(mapped),
        lambda: cc.Index(quantizer, **settings).merge(mapped),
    ):
        with pytest.raises(ValueError, match="damaged|beyond the 16"):
            use()
    assert len(mapped) == len(X)
    assert os.listdir(tmp_path) == ["index.cc"]


def test_a_model_of_parameters_that_differ_from_its_recipe_follows_the_recipe(quantizer):
    from compcodes import _core

    for encoding, eta in [(("greedy", 0), 1.0), (("beam", 3), 2.5), (("local-search", 4), 1.0)]:
        codebooks = quantizer.codebooks_
        model = _core.Model(codebooks, encoding=encoding, eta=eta, parameters=quantizer._parameters())
        loaded = cc.Quantizer._restore(_core.Model.from_bytes(model.to_bytes()), "model")
        again = loaded._model()
        assert (again.encoding, again.eta, again.seed, again.start) == (encoding, eta, 0, None)


@pytest.mark.parametrize(
    "parameters", ['{"method": "other"}', '{"method": 3}', '{"encoder": {"name": "beam", "depth": 1}}', '{"loss": 5}']
)
def test_parameters_that_make_no_model_are_errors_of_the_file(quantizer, tmp_path, parameters):
    from compcodes import _core

    _core.Model(quantizer.codebooks_, parameters=parameters).save(str(tmp_path / "model.cc"))
    with pytest.raises(ValueError, match=r"model\.cc: "):
        cc.Quantizer.load(tmp_path / "model.cc")


@pytest.mark.parametrize(("script", "count"), [("fuzz_files.py", 60), ("kill_saves.py", 4)])
def test_a_short_soak(script, count):
    command = [sys.executable, SOAK / script, "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
