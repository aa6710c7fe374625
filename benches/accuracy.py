"""How many of the true best inner products are found, at equal bytes: compcodes with its defaults and its rivals.

    python benches/accuracy.py                                  # every set that is there, 8 and 16 bytes; takes hours
    python benches/accuracy.py --sets glove,gowalla --bytes 8 --methods 'compcodes,faiss LSQ'
    python benches/accuracy.py --tiny                           # in seconds, only to see that it runs

Times are process CPU times of one thread each. Approximations of faiss are searched exactly after decoding.
"""

import time

from threadpoolctl import threadpool_limits

import compcodes as cc
from common import Report, choice, parser
from equal import encoding, training
from rivals import RIVALS, Coded
from sets import SETS, Missing, few

CUTS = [(1, 1), (10, 10), (10, 100), (100, 200)]


def ours(name, use_queries=False, **params):
    def run(data, bytes_, tiny, k):
        if use_queries and data.samples is None:
            raise Missing("the set has no sample queries")
        q = cc.CompositionalCodes(bytes_, n_jobs=1, **effort(tiny), **params)
        begin = time.process_time()
        q.fit(data.learn, queries=data.samples if use_queries else None)
        fitted = time.process_time()
        codes = q.encode(data.base)
        encoded = time.process_time()
        chosen = ", ".join(f"{key} {value:g}" for key, value in q.loss_.items() if isinstance(value, (int, float)))
        label = f"{name} ({chosen})" if chosen else name
        return Coded(label, fitted - begin, encoded - fitted, q.decode(codes))

    return run


def effort(tiny):
    return {"n_codewords": 16, "anneal": 3, "max_iter": 2} if tiny else {}


OURS: dict[str, dict] = {
    "compcodes": {},
    "compcodes, with queries": {"use_queries": True},
    "compcodes, no metric": {"use_queries": True, "loss": cc.InnerProduct(metric=0)},
    "compcodes, reconstruction": {"loss": "reconstruction"},
    "compcodes, the paper's": {"loss": "reconstruction", "encoder": "greedy", "init": "random"},
}
METHODS = {name: ours(name, **params) for name, params in OURS.items()} | RIVALS
SECTIONS = ("table", "training", "encoding")


def table(report, data, bytes_, methods, tiny):
    k = min(200, len(data.base))
    true = cc.evaluate.ground_truth(data.base, data.queries, 100)[1]
    n, d = data.base.shape
    report(f"## {data.name}: {n:,} vectors of {d} numbers in {bytes_} bytes, {len(data.queries):,} queries\n")
    heads = [*(f"R{R}@{P}" for R, P in CUTS), "MSE", "fit, s", "encode, µs"]
    report(f"| method | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    left_out = []
    for name in methods:
        try:
            coded = METHODS[name](data, bytes_, tiny, k)
        except Missing as why:
            left_out.append(f"{name}: {why}.")
            continue
        ids, mse, encode = coded.ids, "–", "–"
        if coded.decoded is not None:
            ids = cc.evaluate.ground_truth(coded.decoded, data.queries, k)[1]
            mse = f"{((data.base - coded.decoded) ** 2).sum(axis=1).mean():.5g}"
        if coded.encode is not None:
            encode = f"{coded.encode / n * 1e6:.0f}"
        recalls = " | ".join(f"{cc.evaluate.recall(ids, true, R, P):.3f}" for R, P in CUTS)
        report(f"| {coded.label} | {recalls} | {mse} | {coded.fit:.0f} | {encode} |")
    report("\n" + "".join(f"Left out: {line}\n" for line in left_out))


def main():
    options = parser(__doc__)
    options.add_argument("--bytes", default="8,16", help="bytes per vector, separated by commas (default: %(default)s)")
    options.add_argument("--sets", default=",".join(SETS), help="of %(default)s")
    options.add_argument("--methods", help="names as the table shows them, separated by semicolons")
    options.add_argument("--sections", default=",".join(SECTIONS), help="of %(default)s")
    args = options.parse_args()
    names, sections = choice(args.sets, SETS), choice(args.sections, SECTIONS)
    methods = choice(args.methods, METHODS, ";") if args.methods else list(METHODS)
    if args.tiny:
        methods.remove("faiss OPQ")  # its rotation trains 8-bit codes whatever is asked, and warns 1,000 times
        names = ["glove"]
    report = Report("accuracy", args.save, "named below")
    with threadpool_limits(1):
        for name in names:
            try:
                data = few(SETS[name]()) if args.tiny else SETS[name]()
            except Missing as why:
                report(f"Left out: {name}: {why}.\n")
                continue
            for bytes_ in map(int, args.bytes.split(",")):
                if "table" in sections:
                    table(report, data, bytes_, methods, args.tiny)
                if name == ("glove" if args.tiny else "sift"):
                    for section, run in (("training", training), ("encoding", encoding)):
                        if section in sections:
                            run(report, data, bytes_, args.tiny, effort(args.tiny))


if __name__ == "__main__":
    main()
