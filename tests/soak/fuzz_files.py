"""Damage files in every way and use what loads: all may fail with an error, nothing may crash.

    python tests/soak/fuzz_files.py --count 10000

Bits are flipped, files cut and lengthened, and headers and tensors forged with the right checksums. The files are used
in processes of their own, so that a crash is seen; the file that did it is kept.
"""

import argparse
import collections
import copy
import json
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np

import compcodes as cc

ITEM = {"F32": 4, "U8": 1, "I64": 8, "U32": 4}
"""Bytes of a number of each type."""
BATCH = 250
"""Files that one process tries."""
TEXTS = ["", "0", "-1", "1", "2", "5", "65", "1e9", "nan", "inf", "true", "false", str(2**32), str(2**64 - 1), "[]"]
TEXTS += ["ip", "cosine", "l2", "group", "m-selection", "m-combination", "greedy", "beam", "free", "signs", "subspaces"]
NAMES = ["codes", "ids", "levels", "biases", "codebooks", "directions", "basis", "other"]
NAMES += ["centroids", "lists", "positions", "bonuses", "shares", "reach", "keys", "key_ends"]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, -1e38, 3e19, np.nan, np.inf, -np.inf]


METRICS = [("ip", {}), ("l2", {}), ("cosine", {}), ("ip", {"scale": True}), ("ip", {"residuals": True})]


def originals():
    """The files to damage: one of each kind, small, of this version and of those before."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4)).astype(np.float32)
    codebooks = rng.normal(size=(3, 4, 4))
    models = [cc.CompositionalCodes.from_codebooks(codebooks)]
    models += [cc.CompositionalCodes.from_codebooks(codebooks[[0, 0, 0]], "m-combination")]
    models += [cc.CompositionalCodes.from_codebooks(codebooks).set_params(encoder=cc.Beam(width=2))]
    models += [cc.CompositionalCodes.from_codebooks(codebooks, centroids=rng.normal(size=(5, 4)))]
    models += [cc.CompositionalCodes(2, 4, n_lists=6, effort="low").fit(X)]
    models += [cc.CompositionalCodes(2, 4, n_groups=2, n_lists=3, metric="l2", effort="low").fit(X)]
    models += [cc.CompositionalCodes(2, 20, effort="low").fit(X, sample_weight=np.arange(1, 71))]  # codes of a byte
    models += [cc.OptimizedProductQuantizer(2, 4, max_iter=1).fit(X), cc.RandomHyperplaneHash(8).fit(X)]
    keys = ["", "\0", "é", 7, b"\xff", ("a", 1), *map(str, range(64))]
    for model in models:
        for metric, settings in METRICS:
            index = cc.Index(model, metric, **settings).add(X)
            yield index._core.to_bytes()
            index.remove([3])
            yield index._core.to_bytes()
        yield cc.Index(model, keys=True).add(X, keys)._core.to_bytes()
    for path in sorted((Path(__file__).parents[1] / "data").glob("v*/*.cc")):
        yield path.read_bytes()


def parts(content):
    """Header, and the tensors as (name, dtype, shape, bytes)."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata, body = header.pop("__metadata__"), content[8 + length :]
    tensors = [
        [name, info["dtype"], info["shape"], bytearray(body[slice(*info["data_offsets"])])]
        for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    ]
    return metadata, tensors


def sealed(metadata, tensors):
    """Put a file together, with checksums that are right."""
    sums = {name: zlib.crc32(content) for name, _, _, content in tensors}
    if "version" in metadata:  # of the first version: the object in its only entry
        ours = {**metadata, "crc32": sums}
        ours.pop("checksum", None)
        described = sorted(f"{name} {dtype} {shape}" for name, dtype, shape, _ in tensors)
        text = json.dumps([sorted(map(list, ours.items())), described], separators=(",", ":"), sort_keys=True)
        metadata = {"compcodes": json.dumps({**ours, "checksum": zlib.crc32(text.encode())})}
    else:
        old = [name for name in metadata if name == "checksum" or name.startswith("crc32.")]
        metadata = {name: text for name, text in metadata.items() if name not in old}
        metadata |= {f"crc32.{name}": str(number) for name, number in sums.items()}
        lines = [f"{name}={metadata[name]}\n" for name in sorted(metadata, key=str.encode)]
        lines += sorted(" ".join([name, dtype, *map(str, shape)]) + "\n" for name, dtype, shape, _ in tensors)
        metadata["checksum"] = str(zlib.crc32("".join(lines).encode()))
    header, end = {"__metadata__": metadata}, 0
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end := end + len(content)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) - 8 & 63)
    return len(text).to_bytes(8, "little") + text + b"".join(content for *_, content in tensors)


def forged(content, rng):
    """Change what the file says, and seal it again."""
    metadata, tensors = parts(content)
    if json.loads(metadata["compcodes"])["version"] == 1:
        metadata = json.loads(metadata["compcodes"])
    for _ in range(rng.integers(1, 4)):
        way = rng.integers(8)
        name, dtype, shape, numbers = tensor = tensors[rng.integers(len(tensors))]
        if way == 0:
            entry = rng.choice(sorted(metadata))
            if entry not in ("compcodes", "version"):
                text = str(rng.choice(TEXTS))
                metadata[entry] = text if isinstance(metadata[entry], str) else rng.choice([0, 1, -1, 2**40]).item()
        elif way == 1:
            entry = rng.choice(sorted(metadata))
            if entry not in ("compcodes", "version"):
                del metadata[entry]
        elif way == 2 and len(numbers) and dtype == "F32":
            values = np.frombuffer(numbers, np.float32)
            values[rng.integers(len(values), size=rng.integers(1, 4))] = rng.choice(FLOATS)
        elif way == 3 and len(numbers):
            values = np.frombuffer(numbers, np.uint8)
            values[rng.integers(len(values), size=rng.integers(1, 9))] = rng.integers(256)
        elif way == 4 and len(numbers) and dtype == "F32":
            np.frombuffer(numbers, np.float32)[:] *= np.float32(rng.choice([-1, 0, 1e-30, 1e18, 1e30]))
        elif way == 5:
            tensor[2] = [int(size) for size in rng.permutation(shape)]
        elif way == 6:
            tensor[2] = [int(rng.integers(0, 3)) if rng.integers(2) else size for size in shape]
            tensor[3] = (numbers + numbers)[: int(np.prod(tensor[2])) * ITEM[dtype]]
        elif way == 7:
            if rng.integers(2):
                tensors.remove(tensor)
            else:
                tensor[0] = str(rng.choice(NAMES))
            if not tensors:
                tensors.append([name, dtype, shape, numbers])
    return sealed(metadata, list({tensor[0]: tensor for tensor in tensors}.values()))


def damaged(content, rng):
    way = rng.integers(5)
    if way == 0:
        return content[: rng.integers(len(content))]
    if way == 1:
        at = rng.integers(len(content))
        return content[:at] + rng.bytes(rng.integers(1, 70)) + content[at:]
    if way == 2:
        changed = bytearray(content)
        for _ in range(rng.integers(1, 9)):
            changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
        return bytes(changed)
    return forged(content, rng)


def attempt(path, folder, mmap):
    try:
        return use(path, folder, mmap)
    except (ValueError, OSError):
        return "refused"


def use(path, folder, mmap):
    """Do all that one does with an index; return how far that went."""
    rng = np.random.default_rng(1)
    try:
        index = cc.Index.load(path, mmap=mmap)
    except (ValueError, OSError):
        cc.Quantizer.load(path)
        return "a model"
    M, _, d = index.quantizer.codebooks_.shape
    Q = rng.normal(size=(3, d)).astype(np.float32)
    steps = {
        "search": lambda: index.search(Q, 5),
        "filter": lambda: index.search(Q, 5, filter=index.ids[3:40] if index.has_keys else range(3, 40)),
        "codes": lambda: index.codes,
        "reconstruct": lambda: index.reconstruct(index.ids[:5]),
        "add": lambda: index.add(Q, ["new", b"new", 10**30] if index.has_keys else None),
        "add codes": lambda: index.add_codes(
            np.zeros((2, M), np.uint8),
            ["newer", "newest"] if index.has_keys else None,
            lists=None if index.list_sizes is None else [0, 0],
        ),
        "update": lambda: index.update(Q[:1], index.ids[:1]),
        "some lists": lambda: index.search(Q, 5, n_probe=None if index.list_sizes is None else 2),
        "merge": lambda: copy.deepcopy(index).merge(index),
        "remove": lambda: index.remove(index.ids[::2]),
        "search again": lambda: index.search(Q, 5),
        "pickle": lambda: pickle.loads(pickle.dumps(index)),
        "save": lambda: index.save(folder / "saved.cc"),
    }
    failed = [name for name, step in steps.items() if not succeeds(step)]
    if (folder / "saved.cc").exists():
        again = cc.Index.load(folder / "saved.cc")  # what was saved loads
        assert len(again) == len(index)
        (folder / "saved.cc").unlink()
    return f"{failed[0]} fails" if failed else "all works"


def succeeds(step):
    """Whether a step does its work; else with an error that a caller expects."""
    try:
        step()
    except (ValueError, OSError):
        return False
    return True


def work(folder, seed, first, count):
    """Try files `first` to `first + count`; what is tried is in "tried.cc"."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kinds, outcomes = pickle.loads((folder.parent / "originals").read_bytes()), collections.Counter()
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, number])
        path = folder / "tried.cc"
        path.write_bytes(damaged(kinds[rng.integers(len(kinds))], rng))
        (folder / "number").write_text(str(number))
        outcomes.update(attempt(path, folder, mmap) for mmap in (False, True))
    print(json.dumps(outcomes))


def check_that_forging_works(folder, kinds):
    """A file that is taken apart and sealed again must load: else all forged ones would fail by their checksums."""
    path = folder / "sealed.cc"
    for content in kinds:
        metadata, tensors = parts(content)
        ours = json.loads(metadata["compcodes"])
        path.write_bytes(sealed(ours if ours["version"] == 1 else metadata, tensors))
        cc.Quantizer.load(path)


def all_of(folder, seed, count):
    """Try `count` files, some at a time: what came of them, and how many ended a process."""
    kinds = list(originals())
    check_that_forging_works(folder, kinds)
    (folder / "originals").write_bytes(pickle.dumps(kinds))
    outcomes, failed = collections.Counter(), 0
    for first in range(0, count, BATCH):
        some = folder / "some"
        some.mkdir()
        command = [sys.executable, __file__, "--seed", str(seed), "--work", str(some), str(first)]
        done = subprocess.run([*command, str(min(BATCH, count - first))], capture_output=True, text=True, timeout=3600)
        if done.returncode == 0:
            outcomes += collections.Counter(json.loads(done.stdout.splitlines()[-1]))
        else:
            failed += 1
            number = (some / "number").read_text()
            kept = Path(tempfile.gettempdir()) / f"compcodes-fuzz-{seed}-{number}.cc"
            kept.write_bytes((some / "tried.cc").read_bytes())
            print(f"file {number}, kept as {kept}: exit {done.returncode}\n{done.stderr[-3000:]}", file=sys.stderr)
        shutil.rmtree(some)
    return outcomes, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="files to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(Path(args.work[0]), args.seed, int(args.work[1]), int(args.work[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        outcomes, failed = all_of(Path(folder), args.seed, args.count)
    print(f"{args.count} files, each read and mapped: {dict(outcomes.most_common())}; {failed} crashes")
    sys.exit(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", cc.MetricWarning)
    main()
