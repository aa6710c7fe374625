"""What time buys: training and encoding by `effort`, in one group or two, and the encoders on the same codebooks.

    python benches/effort.py [--sets glove,sift] [--tiny] [--save]

For the second table the model is trained with its defaults; then only the encoder changes. Process CPU time of one
thread.
"""

import itertools
import time

from threadpoolctl import threadpool_limits

import compcodes as cc
from accuracy import CUTS, effort
from common import Report, choice, parser
from compcodes import _core
from compcodes.training.effort import EFFORTS
from sets import SETS, Missing, few

ROUNDS = (0, 4, 8, 16, 32, 64, 128, 256)
WIDTHS = (1, 4, 16, 64)
BYTES = 8


def encoders():
    yield cc.Greedy()
    yield from (cc.Beam(width=width) for width in WIDTHS)
    yield from (cc.LocalSearch(rounds=rounds) for rounds in ROUNDS)


def timed(work):
    """What `work` returns, and the CPU seconds that it takes."""
    begin = time.process_time()
    return work(), time.process_time() - begin


def found(q, codes, queries, true):
    ids = cc.evaluate.ground_truth(q.decode(codes), queries, 200, n_jobs=1)[1]
    return [f"{cc.evaluate.recall(ids, true, R, P):.3f}" for R, P in CUTS]


def by_effort(data, tiny):
    """A row of the table for each word for the effort, with the codebooks in a trunk and a group and together."""
    base = data.base[:50_000]
    true = cc.evaluate.ground_truth(base, data.queries, 100, n_jobs=1)[1]
    for word, n_groups in itertools.product(EFFORTS, (2, 1)):
        q = cc.CompositionalCodes(BYTES, n_jobs=1, n_groups=n_groups, effort=word, **effort(tiny))
        _, fit = timed(lambda q=q: q.fit(data.learn))
        codes, encode = timed(lambda q=q: q.encode(base))
        yield [word, n_groups, f"{fit:.0f}", f"{encode / len(base) * 1e6:.0f}", *found(q, codes, data.queries, true)]


def measure(q, data):
    """A row of the table for each encoder."""
    base = data.base[:50_000]
    true = cc.evaluate.ground_truth(base, data.queries, 100, n_jobs=1)[1]
    weights = None
    if q.loss_["weight_power"]:
        weights = _core.weights_by_norm(_core.norms(base), q.loss_["weight_power"])
    for encoder in encoders():
        q.set_params(encoder=encoder)
        q.encode(base[:1])  # prepares the encoder
        codes, took = timed(lambda: q.encode(base))
        errors = _core.errors(q.codebooks_, base, codes, q.loss_["eta"], 1)
        loss = errors.mean() if weights is None else (weights * errors).mean()
        yield [repr(encoder), f"{loss:.5g}", *found(q, codes, data.queries, true), f"{took / len(base) * 1e6:.1f}"]


def main():
    options = parser(__doc__)
    options.add_argument("--sets", default="glove,sift", help="of " + ",".join(SETS) + " (default: %(default)s)")
    args = options.parse_args()
    report = Report("effort", args.save, "named below")
    with threadpool_limits(1):
        for name in ["glove"] if args.tiny else choice(args.sets, SETS):
            try:
                data = few(SETS[name]()) if args.tiny else SETS[name]()
            except Missing as why:
                report(f"Left out: {name}: {why}.\n")
                continue
            report(f"## {data.name}: {min(len(data.base), 50_000):,} vectors in {BYTES} bytes, one thread\n")
            heads = ["effort", "groups", "fit, s", "encode, µs", *(f"R{R}@{P}" for R, P in CUTS)]
            report.table(heads, list(by_effort(data, args.tiny)))
            q = cc.CompositionalCodes(BYTES, n_jobs=1, **effort(args.tiny)).fit(data.learn)
            report(f"Loss: {q.loss_}\n")
            heads = ["encoder", "loss", *(f"R{R}@{P}" for R, P in CUTS), "µs per vector"]
            report.table(heads, list(measure(q, data)))


if __name__ == "__main__":
    main()
