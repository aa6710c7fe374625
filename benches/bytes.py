"""What a byte buys: recall against the bytes of a code, from 2 to 256, beside the quantizers of faiss at equal bytes.

    python benches/bytes.py [--sets glove,sift,source384,patches768] [--bytes 2,4,8,16,32,64,128,256] [--effort low]
                            [--groups 2] [--max-train 5000] [--most 10000] [--tiny] [--save]

By the codes alone; draws docs/images/bytes.svg. Training takes the vectors that are searched, at most `--most` of them,
and as many others are searched too; of a set for training that is apart it takes twice as many. OPQ, and RQ with a beam
of 5, are left out beyond 16 bytes, where training them takes minutes. RaBitQ, scalar quantizers and turbovec have the
sizes that they have. Times are CPU seconds of training, and CPU microseconds of encoding per vector.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import compcodes as cc
from common import Report, choice, parser
from compcodes.cli.parameters import groups
from pictures import figure, keep
from rivals import padded
from sets import SETS, Missing, Set, few, shuffled

SIZES = "2,4,8,16,32,64,128,256"
NAMES = "glove,sift,source384,patches768"
SLOW = 16
"""Bytes up to which quantizers are trained that are slow to train."""
CUTS = [(1, 1), (10, 10), (10, 100)]


@dataclass
class Searched:
    """Vectors to search, and which of them are nearest to some queries."""

    X: np.ndarray
    queries: np.ndarray

    def __post_init__(self):
        self.true = cc.evaluate.ground_truth(self.X, self.queries, 10)[1]

    def found(self, decode):
        """Recall at each of `CUTS` in approximations of the vectors."""
        return self.recall(cc.evaluate.ground_truth(decode(self.X), self.queries, 100)[1])

    def recall(self, ids):
        return [cc.evaluate.recall(ids, self.true, R, P) for R, P in CUTS]


@dataclass
class Fitted:
    """What a method makes of vectors to search, and CPU seconds that it took."""

    decode: Callable[[np.ndarray], np.ndarray]
    fit: float
    encode: float


def ours(data, size, args):
    short = {"n_codewords": 16, "anneal": 2, "max_iter": 1} if args.tiny else {"effort": args.effort}
    q = cc.CompositionalCodes(size, n_groups=args.groups, max_train=args.max_train, n_jobs=1, **short)
    times = timed(lambda: q.fit(data.learn, queries=data.samples), lambda: q.encode(data.base))
    return Fitted(lambda X: q.decode(q.encode(X)), *times)


def of_faiss(index, data):
    learn, base = (padded(X, index.d) for X in (data.learn, data.base))
    times = timed(lambda: index.train(learn), lambda: index.sa_encode(base))

    def decode(X):
        return np.ascontiguousarray(index.sa_decode(index.sa_encode(padded(X, index.d)))[:, : X.shape[1]])

    return Fitted(decode, *times)


def timed(*works):
    """CPU seconds of each work, one after the other."""
    times = [time.process_time()]
    for work in works:
        work()
        times.append(time.process_time())
    return np.diff(times)


def rivals(d, size, tiny):
    """Quantizers of faiss with codes of `size` bytes, by name."""
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(1)
    bits, width = 4 if tiny else 8, -(-d // size) * size
    if size <= min(SLOW, d) and not tiny:  # its rotation trains 8-bit codes whatever is asked
        yield "OPQ", lambda: faiss.index_factory(width, f"OPQ{size},PQ{size}x{bits}")
    if size >= 16:
        parts = size // 8
        wide = -(-d // parts) * parts
        yield "product RQ", lambda: faiss.IndexProductResidualQuantizer(wide, parts, 8, bits)
    if size <= SLOW:

        def residual():
            index = faiss.IndexResidualQuantizer(d, size, bits)
            index.rq.max_beam_size = 5
            return index

        yield "RQ", residual


def own_sizes(d):
    """Scalar quantizers of faiss, whose size follows from the vectors'."""
    try:
        import faiss
    except ImportError:
        return
    kinds = faiss.ScalarQuantizer
    for name, kind in (("SQ4", kinds.QT_4bit), ("SQ6", kinds.QT_6bit)):
        yield name, faiss.IndexScalarQuantizer(d, kind)


def searching(d):
    """Indexes that decode to no vectors worth searching: name, index, bytes, width, and how they are trained.

    Each vector of turbovec has a float32 beside its code.
    """
    try:
        import faiss

        index = faiss.IndexRaBitQ(d, faiss.METRIC_INNER_PRODUCT)
        yield "RaBitQ", index, index.code_size, d, index.train
    except ImportError:
        pass
    try:
        from turbovec import TurboQuantIndex
    except ImportError:
        return
    width = -(-d // 8) * 8
    for bits in (2, 4):
        index = TurboQuantIndex(width, bits)
        yield f"turbovec, {bits} bits", index, width * bits // 8 + 4, width, index.calibrate


def by_search(index, train, data, width, searched):
    """CPU seconds of training and of adding, and what a search of an index finds."""
    learn, base, queries = (padded(X, width) for X in (data.learn, data.base, searched.queries))
    times = timed(lambda: train(learn), lambda: index.add(base))
    return times, searched.recall(index.search(queries, 100)[1])


def main():
    options = parser(__doc__)
    options.add_argument("--sets", default=NAMES)
    options.add_argument("--bytes", default=SIZES)
    options.add_argument("--effort", default="default")
    options.add_argument("--groups", type=groups, default="auto", help="`n_groups` of compcodes")
    options.add_argument("--max-train", type=int, help="`max_train` of compcodes")
    options.add_argument("--most", type=int, default=10_000, help="vectors searched (default: %(default)s)")
    args = options.parse_args()
    sizes = (4, 20) if args.tiny else [int(size) for size in args.bytes.split(",")]
    report, panels = Report("bytes", args.save, "named below"), {}
    for name in ("glove",) if args.tiny else choice(args.sets, SETS):
        try:
            data = SETS[name]()
        except Missing as why:
            report(f"Left out: {name}: {why}.\n")
            continue
        if args.tiny:
            data = few(data)
        apart, rows = data.learn is not data.base and not args.tiny, shuffled(data.base)
        most = args.most if apart else min(args.most, len(rows) // 2)
        base, others = rows[:most], None if apart else rows[most : 2 * most]
        data = Set(data.name, data.learn[: 2 * most] if apart else base, base, data.queries[:1000], data.samples)
        panels[data.name] = table(report, data, others, sizes, args)
    draw(panels, args.save)


def table(report, data, others, sizes, args):
    """Print what each method finds; return the shares of the 10 best, by method and bytes."""
    d, lines = data.base.shape[1], {}
    report(f"## {data.name}: {len(data.learn):,} to train on, {len(data.base):,} × {d} searched\n")
    names = ["method", "bytes", *(f"R{R}@{P}" for R, P in CUTS), "R10@10 of others", "fit, s", "encode, µs"]
    report(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    searched = Searched(data.base, data.queries)
    beside = None if others is None else Searched(others, data.queries)

    def row(name, size, found, new, fit, encode):
        lines.setdefault(name, {})[size] = found[1]
        cells = [*(f"{value:.3f}" for value in found), new, f"{fit:.0f}", f"{encode / len(data.base) * 1e6:.0f}"]
        report(f"| {' | '.join(map(str, [name, size, *cells]))} |")

    def fitted(name, size, own):
        new = "" if beside is None else f"{beside.found(own.decode)[1]:.3f}"
        row(name, size, searched.found(own.decode), new, own.fit, own.encode)

    for size in (size for size in sizes if size <= d):
        fitted("compcodes", size, ours(data, size, args))
        for name, make in rivals(d, size, args.tiny):
            fitted(name, size, of_faiss(make(), data))
    for name, index in own_sizes(d):
        fitted(name, index.sa_code_size(), of_faiss(index, data))
    for name, index, size, width, train in searching(d):
        times, found = by_search(index, train, data, width, searched)
        row(name, size, found, "", *times)
    report("")
    return lines


def draw(panels, save):
    """Draw the share of the 10 best that is found against the bytes of a code, a panel for each set."""
    drawing, axes = figure(len(panels), 3.4, sharey=True)
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    for panel, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, found in lines.items():
            width = 2.4 if name == "compcodes" else 1.2
            line = {"color": colours[name], "linewidth": width, "marker": "o", "markersize": 4}
            panel.plot(list(found), list(found.values()), label=name, **line)
        panel.set_xscale("log", base=2)
        panel.set(title=title, xlabel="bytes per vector", ylim=(0, 1.02))
        panel.xaxis.set_major_formatter("{x:.0f}")
        panel.grid(alpha=0.3)
    most = max(axes, key=lambda panel: len(panel.lines))
    axes[0].set_ylabel("share of the 10 best in the first 10")
    drawing.legend(*most.get_legend_handles_labels(), loc="outside right center")
    keep(drawing, "bytes", save)


if __name__ == "__main__":
    main()
