"""Random shapes, settings and threads: searches beside a full sort, on each of this machine's instruction sets.

    python tests/soak/searches.py [--seconds 240] [--seed 0]

Processes on each instruction set in turn, the second time in tiny chunks, make random indexes, add, remove and merge,
and search with and without filters, for one query or many, on one thread or more; then several threads search while
another adds and removes: each result must be that of a state that the index went through, in their order. Stops at the
first difference. `test_stateful.py` goes through more operations on smaller indexes.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import compcodes as cc
from compcodes import _core

sys.path.append(str(Path(__file__).parents[1]))

from plain import SETTINGS, Plain, best, exact_scores


def random_model(rng, whole):
    m, k, d = (int(rng.choice(of)) for of in ([1, 2, 3, 7, 8, 16, 33], [1, 2, 16, 200, 256, 256], [1, 5, 32, 130]))
    books = rng.normal(size=(m, k, d)) * 0.8 ** np.arange(m)[:, None, None] * rng.choice([1e-15, 1, 1, 1e6])
    books += rng.choice([0, 0, 3])
    centroids = None
    if rng.random() < 0.5:
        centroids = rng.normal(size=(int(rng.choice([1, 2, 9, 300])), d)) * rng.choice([1e-15, 1, 10])
        centroids = (centroids.round() if whole else centroids).astype(np.float32)
    books = (books.round() if whole else books).astype(np.float32)
    return cc.CompositionalCodes.from_codebooks(books, centroids=centroids)


def random_filter(rng, ids):
    """A filter of a random kind, and the mask that it stands for."""
    kind, mask = rng.integers(4), rng.random(len(ids)) < rng.choice([0.9, 0.5, 0.01, 0.0005])
    if kind == 0:
        return mask, mask
    if kind == 1:
        return rng.permutation(np.append(ids[mask], 10**12)), mask
    if kind == 2:
        first, last = np.sort(rng.integers(0, ids.max(initial=0) + 2, 2))
        return range(first, last), (ids >= first) & (ids < last)
    return None, np.ones(len(ids), bool)


def case(seed, counts):
    rng = np.random.default_rng(seed)
    whole = rng.random() < 0.3  # small whole numbers: many equal scores
    model, skew = random_model(rng, whole), rng.choice([1, 1, 4])
    M, K, d = model.codebooks_.shape
    # Their scores are defined to the bit; those with a scale have test_stateful.py.
    setting = SETTINGS[str(rng.choice(["ip", "ip", "cosine", "l2", "l2, norms in a byte"]))]
    index, centroids = cc.Index(model, n_jobs=int(rng.choice([1, 2, 3])), **setting), model.centroids_
    plain = Plain(model.codebooks_, **setting, centroids=centroids)
    everything = {} if centroids is None else {"n_probe": len(centroids)}

    def more(n):
        codes, ids = (rng.random((n, M)) ** skew * K).astype(np.uint8), plain.largest + np.cumsum(rng.integers(1, 4, n))
        return codes, ids, None if centroids is None else rng.integers(len(centroids), size=n)

    def query():
        Q = rng.normal(size=(int(rng.choice([1, 1, 2, 5, 40])), d)).astype(np.float32)
        return Q.round() if whole else Q

    for _ in range(rng.integers(1, 5)):
        step, n = rng.integers(4), int(rng.choice([0, 1, 63, 64, 65, 1000, 20_000]))
        if step < 3:
            codes, ids, lists = more(n)
            other = cc.Index(model, **setting) if step == 2 else index
            other.add_codes(codes, ids, lists=lists)
            if step == 2:
                index.merge(other)
            plain.add(codes, ids, lists=lists)
        else:
            gone = plain.ids[rng.random(len(plain)) < rng.choice([0.01, 0.5, 1])]
            index.remove(gone)
            plain.remove(gone)
        counts["changes"] += 1
        np.testing.assert_array_equal(index.codes, plain.codes)
        np.testing.assert_array_equal(index.ids, plain.ids)
        for _ in range(3):
            (filter, mask), Q, k = random_filter(rng, plain.ids), query(), int(rng.choice([1, 2, 10, 100, 1500]))
            plain.check(index.search(Q, k, filter=filter, **everything), Q, k, mask)
            counts["searches"] += 1
    concurrent(index, plain, more, (query(), int(rng.choice([1, 10, 300]))), counts)


def concurrent(index, plain, more, query, counts):
    """Searches of three threads while this one adds and removes."""
    states, changes = [(plain.codes, plain.ids, plain.lists)], []
    everything = {} if plain.centroids is None else {"n_probe": len(plain.centroids)}
    for _ in range(3):
        codes, ids, lists = more(700)
        ids = ids + 10_000 * len(states)
        new = codes, ids, np.zeros(700, np.int64) if lists is None else lists
        states.append(tuple(np.concatenate(both) for both in zip(states[-1], new, strict=True)))
        changes.append(lambda new=(codes, ids, lists): index.add_codes(new[0], new[1], lists=new[2]))
        gone = np.arange(len(states[-1][1])) % 5 == 0
        changes.append(lambda gone=states[-1][1][gone]: index.remove(gone))
        states.append(tuple(part[~gone] for part in states[-1]))
    Q, k = query
    wants = [
        best(
            exact_scores(plain.metric, Q, plain.books, codes, None if not everything else plain.centroids[lists]),
            ids,
            k,
            np.ones(len(ids), bool),
        )
        for codes, ids, lists in states
    ]
    found, stop = [[] for _ in range(3)], threading.Event()

    def search(found):
        while not stop.is_set():
            found.append(index.search(Q, k, **everything))

    threads = [threading.Thread(target=search, args=(one,)) for one in found]
    for thread in threads:
        thread.start()
    for change in changes:
        time.sleep(0.002)
        change()
    stop.set()
    for thread in threads:
        thread.join()
    for results in found:
        state = 0
        for scores, ids in results:
            fits = (s for s in range(state, len(wants)) if np.array_equal(ids, wants[s][1]))
            state = next((s for s in fits if np.array_equal(scores, wants[s][0])), None)
            assert state is not None, "a search during changes saw a state that never was, or an old one"
        counts["searches during changes"] += len(results)
    counts["changes"] += len(changes)


def work(seconds, seed):
    """Cases until the time is over; prints counts as JSON."""
    counts, end = collections.Counter(), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            case(seed, counts)
        except BaseException:
            print(f"seed {seed} on {_core.isa()}", file=sys.stderr)
            raise
        counts["cases"] += 1
        seed += 1
    print(json.dumps(counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.seconds, args.seed)
        return
    isas, turns = _core.isas(), 2
    for turn in range(turns):
        for i, isa in enumerate(isas):
            seconds, seed = args.seconds / turns / len(isas), args.seed + 1_000_000 * (turn * len(isas) + i)
            command = [sys.executable, __file__, "--worker", "--seconds", str(seconds), "--seed", str(seed)]
            env = {**os.environ, "COMPCODES_ISA": isa, "COMPCODES_CHUNK": "7" if turn else ""}
            counts = json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)
            print(f"{isa}, chunks {'of 7' if turn else 'as ever'}, seed {seed}: {counts}, no difference", flush=True)


if __name__ == "__main__":
    main()
