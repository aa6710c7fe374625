"""Recall against the bytes of a code, from 4 to 256, beside the quantizers of faiss at equal bytes.

    python benches/bytes.py [--sets source384,patches] [--bytes 4,8,16,32,64,128,256] [--effort low] [--most 10000]
                            [--tiny] [--save]

By the codes alone. At most 20,000 vectors are searched, or `--most`; training takes these, or twice as many of a set
that is apart. RaBitQ, scalar quantizers and turbovec have the sizes that they have. Times are CPU seconds of training,
and CPU microseconds of encoding per vector.
"""

import time

import numpy as np

import compcodes as cc
from common import Report, choice, parser
from rivals import padded
from sets import SETS, Missing, few, shuffled

MOST = 20_000
SIZES = "4,8,16,32,64,128,256"
NAMES = "source384,patches,glove,sift"


def searched(data, decoded):
    """R1@1 and R10@10 of a search of the approximations."""
    true = cc.evaluate.ground_truth(data.base, data.queries, 10)[1]
    ids = cc.evaluate.ground_truth(decoded, data.queries, 10)[1]
    return [cc.evaluate.recall(ids, true, R, R) for R in (1, 10)]


def ours(data, size, args):
    short = {"n_codewords": 16, "anneal": 2, "max_iter": 1} if args.tiny else {"effort": args.effort}
    q = cc.CompositionalCodes(size, n_jobs=1, **short)
    begin = time.process_time()
    q.fit(data.learn, queries=data.samples)
    fitted = time.process_time()
    codes = q.encode(data.base)
    encoded = time.process_time()
    return q.decode(codes), fitted - begin, (encoded - fitted) / len(codes) * 1e6


def of_faiss(index, data):
    learn, base = (padded(X, index.d) for X in (data.learn, data.base))
    begin = time.process_time()
    index.train(learn)
    fitted = time.process_time()
    codes = index.sa_encode(base)
    encoded = time.process_time()
    decoded = index.sa_decode(codes)[:, : data.base.shape[1]]
    return np.ascontiguousarray(decoded), fitted - begin, (encoded - fitted) / len(codes) * 1e6


def rivals(d, size, tiny):
    """Quantizers of faiss with codes of `size` bytes, by name."""
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(1)
    bits, width = 4 if tiny else 8, -(-d // size) * size
    if size <= d and not tiny:  # its rotation trains 8-bit codes whatever is asked
        yield "faiss OPQ", lambda: faiss.index_factory(width, f"OPQ{size},PQ{size}x{bits}")
    if size >= 16:
        parts = size // 8
        wide = -(-d // parts) * parts
        yield "faiss PRQ, 8 bytes a part", lambda: faiss.IndexProductResidualQuantizer(wide, parts, 8, bits)
    if size <= 16:  # training takes a quarter of an hour beyond

        def residual():
            index = faiss.IndexResidualQuantizer(d, size, bits)
            index.rq.max_beam_size = 5
            return index

        yield "faiss RQ, beam 5", residual


def own_sizes(d):
    """Quantizers of faiss whose size follows from the vectors'."""
    try:
        import faiss
    except ImportError:
        return
    kinds = faiss.ScalarQuantizer
    for name, kind in (("SQ4", kinds.QT_4bit), ("SQ6", kinds.QT_6bit)):
        yield f"faiss {name}", lambda kind=kind: faiss.IndexScalarQuantizer(d, kind)
    yield "faiss RaBitQ", lambda: faiss.IndexRaBitQ(d, faiss.METRIC_INNER_PRODUCT)


def searching(index, train, data, width):
    """What the search of an index finds that decodes to no vectors worth searching, and its times."""
    learn, base, queries = (padded(X, width) for X in (data.learn, data.base, data.queries))
    begin = time.process_time()
    train(learn)
    fitted = time.process_time()
    index.add(base)
    encoded = time.process_time()
    true = cc.evaluate.ground_truth(data.base, data.queries, 10)[1]
    ids = index.search(queries, 10)[1]
    found = [cc.evaluate.recall(ids, true, R, R) for R in (1, 10)]
    return found, fitted - begin, (encoded - fitted) / len(data.base) * 1e6


def turbovec(d):
    """Its indexes, by bits per dimension; each vector has a float32 beside its code."""
    try:
        from turbovec import TurboQuantIndex
    except ImportError:
        return
    width = -(-d // 8) * 8
    for bits in (2, 4):
        yield f"turbovec, {bits} bits", TurboQuantIndex(width, bits), width


def row(report, name, size, found, fit, encode):
    cells = [name, size, *(f"{value:.3f}" for value in found), f"{fit:.0f}", f"{encode:.0f}"]
    report(f"| {' | '.join(map(str, cells))} |")


def main():
    options = parser(__doc__)
    options.add_argument("--sets", default=NAMES)
    options.add_argument("--bytes", default=SIZES)
    options.add_argument("--effort", default="default")
    options.add_argument("--most", type=int, default=MOST, help="vectors searched (default: %(default)s)")
    args = options.parse_args()
    sizes = (4, 20) if args.tiny else [int(size) for size in args.bytes.split(",")]
    report = Report("bytes", args.save, "named below")
    for name in ("glove",) if args.tiny else choice(args.sets, SETS):
        try:
            data = SETS[name]()
        except Missing as why:
            report(f"Left out: {name}: {why}.\n")
            continue
        if args.tiny:
            data = few(data)
        else:
            base = shuffled(data.base)[: args.most]
            learn = base if data.learn is data.base else data.learn[: 2 * args.most]
            data = type(data)(data.name, learn, base, data.queries[:1000], data.samples)
        d = data.base.shape[1]
        report(f"## {data.name}: {len(data.learn):,} to train on, {len(data.base):,} × {d} searched\n")
        report("| method | bytes | R1@1 | R10@10 | fit, s | encode, µs |\n|---|---|---|---|---|---|")
        for size in sizes:
            decoded, fit, encode = ours(data, size, args)
            row(report, f"compcodes, effort {args.effort}", size, searched(data, decoded), fit, encode)
            for label, make in rivals(d, size, args.tiny):
                decoded, fit, encode = of_faiss(make(), data)
                row(report, label, size, searched(data, decoded), fit, encode)
        for label, make in own_sizes(d):
            index = make()
            if "RaBitQ" in label:
                row(report, label, index.code_size, *searching(index, index.train, data, d))
                continue
            decoded, fit, encode = of_faiss(index, data)
            row(report, label, index.sa_code_size(), searched(data, decoded), fit, encode)
        for label, index, width in turbovec(d):
            size = width * index.bit_width // 8 + 4
            row(report, label, size, *searching(index, index.calibrate, data, width))
        report("")


if __name__ == "__main__":
    main()
