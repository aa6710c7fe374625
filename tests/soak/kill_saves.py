"""Kill processes while they save, and let two of the same number save into one folder.

    python tests/soak/kill_saves.py --count 200

After each kill the file is a whole old or new one, and what is left of killed saves is in nobody's way. Processes in
two containers have equal numbers; where `unshare` may be used, the two here do as well.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import compcodes as cc


def index(seed, n):
    """An index that tells by its content who wrote it."""
    rng = np.random.default_rng(seed)
    codebooks = rng.normal(size=(8, 256, 4))
    codes = rng.integers(256, size=(n, 8), dtype=np.uint8)
    if seed == 0:
        return cc.Index(cc.CompositionalCodes.from_codebooks(codebooks)).add_codes(codes)
    # The other one has lists.
    model = cc.CompositionalCodes.from_codebooks(codebooks, centroids=rng.normal(size=(50, 4)))
    return cc.Index(model).add_codes(codes, lists=rng.integers(50, size=n))


def save_forever(path, indexes):
    while True:
        for one in indexes:
            one.save(path)


def kill_one(path, make):
    """Fork a process that saves two indexes in turn, and kill it at some moment."""
    child = os.fork()
    if child == 0:
        try:
            save_forever(path, [make(0), make(1)])
        finally:
            os._exit(1)
    started = time.monotonic()
    while not path.exists() and time.monotonic() < started + 60:
        time.sleep(0.001)
    time.sleep(random.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the saving process ended by itself: {status}"


def kill(folder, count):
    # This process uses no thread of the package before it forks the last time.
    def make(seed):
        return index(seed, 30_000 + 5_000 * seed)

    wanted = []
    for seed in (0, 1):
        path = folder / f"whole-{seed}.cc"
        subprocess.run([sys.executable, __file__, "--save", str(path), str(seed)], check=True)
        wanted.append(path.read_bytes())
        path.unlink()
    path, whole = folder / "index.cc", [0, 0]
    for number in range(count):
        if number % 2 == 0:
            path.unlink(missing_ok=True)
        kill_one(path, make)
        whole[wanted.index(path.read_bytes())] += 1
    left = list(folder.glob(".compcodes-*.part"))
    assert set(folder.iterdir()) == {path, *left}, "files of unknown names are left"
    make(1).save(path)
    assert path.read_bytes() == wanted[1]
    times = f"the first index {whole[0]} times, the second {whole[1]}"
    print(f"{count} saves killed: the file was {times}; {len(left)} parts are left")


def meet(folder, count):
    """Two processes save into one folder, each to a name of its own and to one of both."""
    separate = ["unshare", "--pid", "--fork"]
    try:
        subprocess.run([*separate, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        separate = []
        reason = getattr(error, "stderr", None) or str(error)
        reason = reason.decode(errors="replace").strip() if isinstance(reason, bytes) else reason
        print(f"NOT TRIED: processes of equal numbers, for which unshare is needed ({reason})", file=sys.stderr)
    command = [*separate, sys.executable, __file__, "--meet", str(folder), str(count)]
    both = [subprocess.Popen([*command, seed], stdout=subprocess.PIPE, text=True) for seed in "01"]
    numbers = [process.communicate(timeout=3600)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert not separate or numbers[0] == numbers[1]
    contents = [(folder / f"own-{seed}.cc").read_bytes() for seed in (0, 1)]
    assert (folder / "shared.cc").read_bytes() in contents
    assert len(list(folder.iterdir())) == 3, "parts are left"
    kind = "equal" if separate else "different, so that nothing is shown about equal ones"
    print(f"two processes, numbers {' and '.join(numbers)} ({kind}), saved {count} times each into one folder")


def meet_as(folder, count, seed):
    print(os.getpid())
    own, mine = folder / f"own-{seed}.cc", index(seed, 2000)
    mine.save(own)
    content = own.read_bytes()
    for _ in range(count):
        mine.save(folder / "shared.cc")
        mine.save(own)
        assert own.read_bytes() == content, "another process's index is under this one's name"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="saves to kill")
    parser.add_argument("--save", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--meet", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.save:
        index(int(args.save[1]), 30_000 + 5_000 * int(args.save[1])).save(args.save[0])
        return
    if args.meet:
        meet_as(Path(args.meet[0]), int(args.meet[1]), int(args.meet[2]))
        return
    random.seed(0)
    for part in (kill, meet):
        folder = Path(tempfile.mkdtemp())
        try:
            part(folder, args.count)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
