"""A stress run of the search: random shapes and settings, held to the bit against a full sort of float32 scores.

    python benches/stress.py [--minutes 10] [--seed 0]

Processes on each of this machine's instruction sets in turn make random indexes, add, remove and merge, and search with
and without filters, for one query or many, on one thread or more; then several threads search while another adds and
removes: each result must be that of a state the index went through, in their order. Stops at the first difference.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np

import compcodes as cc
from compcodes import _core

METRICS = ["ip", "ip", "cosine", "l2"]


def tables(Q, codebooks):
    """Lookup tables as they are defined, (nq, M, K): products added in order, in spans of 64 dimensions."""
    total = np.zeros((len(Q), *codebooks.shape[:2]), np.float32)
    for first in range(0, Q.shape[1], 64):
        partial = np.zeros_like(total)
        for j in range(first, min(first + 64, Q.shape[1])):
            partial += Q[:, None, None, j] * codebooks[None, :, :, j]
        total += partial
    return total


def squared_norms(Q):
    """Sums in float64, in order."""
    return np.cumsum(Q.astype(np.float64) ** 2, axis=1)[:, -1]


def in_lanes(terms):
    """Sums over the last axis in float64: in eight lanes in turn, which are added in pairs."""
    terms = np.pad(terms, [(0, 0), (0, -terms.shape[1] % 8)])
    terms = terms.reshape(len(terms), terms.shape[1] // 8, 8)
    a, b, c, d, e, f, g, h = np.cumsum(terms, axis=1)[:, -1].T
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def full_sort(index, Q, codes, ids, mask, k):
    """What a search must return, all scores sorted: inner products are added in float32 in the order m = 0 … M−1,
    distances and cosines are those of the decoded vectors in float64, rounded to float32."""
    if index.metric == "ip":
        entries = tables(Q, index.quantizer.codebooks_)
        scores = np.zeros((len(Q), len(codes)), np.float32)
        for m in range(codes.shape[1]):
            scores += entries[:, m, codes[:, m]]
    else:
        X, wide = index.quantizer.decode(codes).astype(np.float64), Q.astype(np.float64)
        if index.metric == "l2":
            scores = [-in_lanes((q - X) ** 2) for q in wide]
        else:
            squares = squared_norms(Q)[:, None] * in_lanes(X * X)
            products = np.array([in_lanes(q * X) for q in wide]).reshape(squares.shape)
            scores = np.divide(products, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0).clip(-1, 1)
        scores = np.array(scores).reshape(len(Q), len(codes)).astype(np.float32)
    best = np.full((len(Q), k), -np.inf, np.float32), np.full((len(Q), k), -1, np.int64)
    at = np.flatnonzero(mask)
    for query, row in enumerate(scores[:, at]):
        order = np.argsort(-row, kind="stable")[:k]
        best[0][query, : len(order)], best[1][query, : len(order)] = row[order], ids[at[order]]
    return best


def same(got, want):
    return np.array_equal(got[1], want[1]) and (got[0] + 0).tobytes() == (want[0] + 0).tobytes()


def random_model(rng, whole):
    m, k, d = (int(rng.choice(of)) for of in ([1, 2, 3, 7, 8, 16, 33], [1, 2, 16, 200, 256, 256], [1, 5, 32, 130]))
    books = rng.normal(size=(m, k, d)) * 0.8 ** np.arange(m)[:, None, None] * rng.choice([1e-15, 1, 1, 1e6])
    books += rng.choice([0, 0, 3])
    return cc.CompositionalCodes.from_codebooks((books.round() if whole else books).astype(np.float32))


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
    index = cc.Index(model, str(rng.choice(METRICS)), n_jobs=int(rng.choice([1, 2, 3])))
    codes, ids = np.zeros((0, M), np.uint8), np.zeros(0, np.int64)

    def more(n):
        first = ids.max(initial=-1) + 1
        return (rng.random((n, M)) ** skew * K).astype(np.uint8), first + np.cumsum(rng.integers(1, 4, n))

    def query():
        Q = rng.normal(size=(int(rng.choice([1, 1, 2, 5, 40])), d)).astype(np.float32)
        return Q.round() if whole else Q

    def fails(what):
        sys.exit(f"seed {seed}: {what} differs: {index!r} on {_core.isa()}")

    for _ in range(rng.integers(1, 5)):
        step, n = rng.integers(4), int(rng.choice([0, 1, 63, 64, 65, 1000, 20_000]))
        if step < 3:
            new = more(n)
            index = index.merge(cc.Index(model, index.metric).add_codes(*new)) if step == 2 else index.add_codes(*new)
            codes, ids = np.concatenate([codes, new[0]]), np.concatenate([ids, new[1]])
        else:
            gone = rng.random(len(ids)) < rng.choice([0.01, 0.5, 1])
            index.remove(ids[gone])
            codes, ids = codes[~gone], ids[~gone]
        counts["changes"] += 1
        if not (np.array_equal(index.codes, codes) and np.array_equal(index.ids, ids)):
            fails("what is stored")
        for _ in range(3):
            (filter, mask), Q, k = random_filter(rng, ids), query(), int(rng.choice([1, 2, 10, 100, 1500]))
            counts["searches"] += 1
            if not same(index.search(Q, k, filter=filter), full_sort(index, Q, codes, ids, mask, k)):
                fails(f"a search of {len(Q)} for {k} with filter {type(filter).__name__}")
    if index.metric == "ip":
        concurrent(index, codes, ids, more, (query(), int(rng.choice([1, 10, 300]))), counts, fails)


def concurrent(index, codes, ids, more, query, counts, fails):
    """Searches of three threads while this one adds and removes."""
    states, changes = [(codes, ids)], []
    for _ in range(3):
        new = more(700)
        new = new[0], new[1] + 10_000 * len(states)
        states.append(tuple(np.concatenate(pair) for pair in zip(states[-1], new, strict=True)))
        changes.append(lambda new=new: index.add_codes(*new))
        gone = np.arange(len(states[-1][1])) % 5 == 0
        changes.append(lambda gone=states[-1][1][gone]: index.remove(gone))
        states.append(tuple(part[~gone] for part in states[-1]))
    Q, k = query
    wants = [full_sort(index, Q, *state, np.ones(len(state[0]), bool), k) for state in states]
    found, stop = [[] for _ in range(3)], threading.Event()

    def search(found):
        while not stop.is_set():
            found.append(index.search(Q, k))

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
        for got in results:
            state = next((s for s in range(state, len(wants)) if same(got, wants[s])), None)
            if state is None:
                fails("a search during changes")
        counts["searches during changes"] += len(results)
    counts["changes"] += len(changes)


def work(seconds, seed):
    """Cases until the time is over; prints counts as JSON."""
    counts, end = collections.Counter(), time.monotonic() + seconds
    while time.monotonic() < end:
        case(seed, counts)
        counts["cases"] += 1
        seed += 1
    print(json.dumps(counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=float, metavar="SECONDS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.seed)
        return
    isas, turns = _core.isas(), 3
    totals = {isa: collections.Counter() for isa in isas}
    for turn in range(turns):
        for i, isa in enumerate(isas):
            seconds, seed = args.minutes * 60 / turns / len(isas), args.seed + 1_000_000 * (turn * len(isas) + i)
            command = [sys.executable, __file__, "--worker", str(seconds), "--seed", str(seed)]
            chunk = {"COMPCODES_CHUNK": "7"} if turn == 1 else {}
            run = subprocess.run(
                command, env={**os.environ, "COMPCODES_ISA": isa, **chunk}, stdout=subprocess.PIPE, check=True
            )
            totals[isa].update(json.loads(run.stdout))
            print(f"turn {turn + 1}, {isa}: {dict(totals[isa])}, no difference", flush=True)


if __name__ == "__main__":
    main()
