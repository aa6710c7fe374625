"""This version beside an earlier one, in one run: what is slower now, what is faster, and what is found.

    git worktree add ../before a6f663f && (cd ../before && make .venv/.built)
    COMPCODES_DATA=… python benches/before.py --before ../before [--sections calls,fits] [--tiny] [--save]

The earlier package is imported from its checkout, with its compiled core, by a second process of this interpreter. The
two processes take turns, so that a machine's mood meets both, and a time is the least of its turns: CPU time, on one
thread. COMPCODES_ISA selects the instruction set of both.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from common import Report, choice, parser, sift
from sets import SETS, Missing, few

SECTIONS = ("calls", "fits")
SEEDS = 3
FITS: dict[str, tuple[str, bool, dict]] = {
    "SIFT, 100,000": ("sift", False, {}),
    "Gowalla": ("gowalla", False, {}),
    "Gowalla, with queries": ("gowalla", True, {}),
    "the words of the demo": ("glove", False, {}),
}
SMALL = {"1 × 1,024": (1, 1024), "100 × 768": (100, 768), "3 × 2": (3, 2)}


def calls(tiny):
    """Short works by name; each returns how many rows, queries or calls it did."""
    import compcodes as cc
    from compcodes import _core

    rows, n = (500, 3000) if tiny else (4000, 1_000_000)
    X = np.asarray(sift("learn", 3000 if tiny else 20_000), np.float32)
    some, Q = X[:rows].copy(), X[::40][:64].copy()
    rng = np.random.default_rng(0)

    def of(M, K, encoder, loss="reconstruction"):
        words = rng.normal(size=(M, K, X.shape[1])).astype(np.float32) * (X.std() / M)
        init = words + X[rng.integers(len(X), size=(M, K))] / M
        q = cc.CompositionalCodes(M, K, encoder=encoder, loss=loss, init=init, max_iter=0, n_jobs=1)
        return q.fit(X[:200])

    along = cc.InnerProduct(eta=4.0, weight_power=0.0)
    found = {}
    for name, model in {
        "encode, greedy, 8 bytes": of(8, 256, "greedy"),
        "encode, beam of 16, 8 bytes": of(8, 256, cc.Beam(16)),
        "encode, 128 rounds, 8 bytes": of(8, 256, "local-search"),
        "encode, 128 rounds, 8 bytes, inner products": of(8, 256, "local-search", along),
        "encode, 128 rounds, 16 bytes": of(16, 256, "local-search"),
        "encode, 128 rounds, 16 × 16": of(16, 16, "local-search"),
    }.items():
        count = rows if "greedy" in name else rows // 10
        found[name] = lambda model=model, count=count: model.encode(some[:count]) is None or count
    q = of(8, 256, "greedy")
    codes = q.encode(X)
    many = codes[rng.integers(len(X), size=n)]
    more = rng.integers(256, size=(n, 16), dtype=np.uint8)
    found["decode"] = lambda: q.decode(codes) is None or len(codes)
    found["normal equations, 8 × 256"] = lambda: cc.normal_equations(X, codes, n_jobs=1) is None or len(X)
    indexes = {
        "8 bytes": cc.Index(q, n_jobs=1).add_codes(many),
        "16 bytes": cc.Index(of(16, 256, "greedy"), n_jobs=1).add_codes(more),
        "8 bytes, l2": cc.Index(q, metric="l2", n_jobs=1).add_codes(many),
        "8 bytes, cosine": cc.Index(q, metric="cosine", n_jobs=1).add_codes(many),
    }
    for name, index in indexes.items():
        found[f"search, {name}, 1 query"] = lambda index=index: index.search(Q[:1], k=100) is None or 1
        found[f"search, {name}, 64 queries"] = lambda index=index: index.search(Q, k=100) is None or 64
    index, even = indexes["8 bytes"], np.arange(n) % 2 == 0
    found["search, filter of half, 1 query"] = lambda: index.search(Q[:1], k=100, filter=even) is None or 1
    found["search, k = 1,000, 1 query"] = lambda: index.search(Q[:1], k=1000) is None or 1
    short = cc.Index(q, n_jobs=1).add_codes(many[:1000])
    found["search, 1,000 codes, 1 query"] = lambda: len([short.search(Q[:1]) for _ in range(50)])
    found["exact search, 64 queries"] = lambda: _core.exact_search(X, Q, 10, n_jobs=1) is None or 64
    found["add codes"] = lambda: len(cc.Index(q, n_jobs=1).add_codes(many))
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "index.cc")
    found["save"] = lambda: index.save(path) is None and n
    found["load"] = lambda: len(cc.Index.load(path, n_jobs=1))
    found[""] = lambda: folder.cleanup() or 1
    return found


def fits(tiny):
    """Trainings by name and seed; each returns what an index of its model finds."""
    import compcodes as cc

    def trained(name, given, params, seed):
        data = few(SETS[name]()) if tiny else SETS[name]()
        queries = data.samples if given else None
        begin = time.process_time()
        q = cc.CompositionalCodes(random_state=seed, n_jobs=1, **params).fit(data.learn, queries=queries)
        seconds = time.process_time() - begin
        base = data.base[:200_000]
        index = cc.Index(q).add(base)
        true = cc.evaluate.ground_truth(base, data.queries, k=100)[1]
        ids = index.search(data.queries, k=200)[1]
        shares = ((1, 1), (10, 10), (10, 100), (100, 200))
        return seconds, [cc.evaluate.recall(ids, true, R=R, P=P) for R, P in shares]

    def small(shape, seed):
        X = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        begin = time.process_time()
        cc.CompositionalCodes(n_jobs=1).fit(X)
        return time.process_time() - begin, []

    return {
        **{name: lambda seed, values=values: trained(*values, seed) for name, values in FITS.items()},
        **{name: lambda seed, shape=shape: small(shape, seed) for name, shape in SMALL.items()},
    }


def serve(tiny):
    """Do what the parent asks for, a line each, and answer by a line."""
    works = {}
    for line in sys.stdin:
        section, name, argument = json.loads(line)
        if section not in works:
            works[section] = {"calls": calls, "fits": fits}[section](tiny)
        if name is None:
            answer = list(works[section])
        elif section == "calls":
            begin = time.process_time()
            count = works[section][name]()
            answer = (time.process_time() - begin) / count
        else:
            try:
                answer = works[section][name](argument)
            except Missing as missing:
                answer = str(missing)
        print("@" + json.dumps(answer), flush=True)


class Version:
    """A process that imports one version."""

    def __init__(self, path, tiny):
        here = Path(__file__).parent
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(path).resolve() / "python"), str(here)])
        command = [sys.executable, __file__, "--serve", *(["--tiny"] if tiny else [])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, section, name=None, argument=None):
        self.process.stdin.write(json.dumps([section, name, argument]) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise SystemExit(f"the process ended in {name!r}")


def compare_calls(report, before, now, tiny):
    report("## Calls: least CPU time for one row, query or call\n")
    rows = []
    names = [name for name in now("calls") if name and name in before("calls")]
    for name in names:
        times = np.full(2, np.inf)
        begin, turns = time.perf_counter(), 0
        while turns < 3 or (time.perf_counter() - begin < 4 and not tiny):
            times = np.minimum(times, [before("calls", name), now("calls", name)])
            turns += 1
        rows.append([name, *(f"{t * 1e6:,.4g}" for t in times), f"{times[1] / times[0]:.2f}", turns])
        print(rows[-1], file=sys.stderr, flush=True)
    before("calls", ""), now("calls", "")
    report.table(["", "before, µs", "now, µs", "now / before", "turns"], rows)


def compare_fits(report, before, now, tiny, seeds, names):
    report("## Training with the default parameters: CPU s, and what is found\n")
    rows = []
    for name in names:
        count = seeds if name in FITS else 1
        found = {before: [], now: []}
        for seed in range(count):
            for version, own in found.items():  # in turns
                own.append(version("fits", name, seed))
        if isinstance(found[now][0], str):
            report(f"Left out: {name}: {found[now][0]}.\n")
            continue
        seconds = [np.mean([own[0] for own in found[version]]) for version in (before, now)]
        recalls = [np.mean([own[1] for own in found[version]], axis=0) for version in (before, now)]
        texts = [" / ".join(f"{value:.3f}" for value in values) for values in recalls]
        rows.append([name, *(f"{s:,.3g}" for s in seconds), f"{seconds[0] / seconds[1]:.1f}", *texts])
        print(rows[-1], file=sys.stderr, flush=True)
    report.table(
        ["", "before, s", "now, s", "× as fast", "found before: R1@1 / R10@10 / R10@100 / R100@200", "now"], rows
    )


def main():
    options = parser(__doc__)
    options.add_argument("--before", help="the earlier version: a checkout in which the package is built")
    options.add_argument("--sections", default=",".join(SECTIONS))
    options.add_argument("--fits", default=";".join([*FITS, *SMALL]), help="which trainings, separated by ;")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--serve", action="store_true", help="for the processes that this starts")
    args = options.parse_args()
    if args.serve:
        serve(args.tiny)
        return
    sections, names = choice(args.sections, SECTIONS), choice(args.fits, [*FITS, *SMALL], ";")
    report = Report(f"before-{'-'.join(sections)}", args.save)
    root = Path(__file__).parents[1]
    before, now = (Version(path, args.tiny) for path in (args.before or root, root))
    if "calls" in sections:
        compare_calls(report, before, now, args.tiny)
    if "fits" in sections:
        compare_fits(report, before, now, args.tiny, 1 if args.tiny else args.seeds, names)


if __name__ == "__main__":
    main()
