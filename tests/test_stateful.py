"""An index beside its plain model, through random sequences of everything that can be done with it.

`COMPCODES_SOAK=SECONDS` goes on for so long with new seeds (`make soak`).
"""

import collections
import copy
import itertools
import os
import pickle
import tempfile
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import compcodes as cc
from keyed import Keyed
from plain import SETTINGS, Plain, tables

# Filters may be of ids that were removed.
pytestmark = [pytest.mark.isa, pytest.mark.filterwarnings("ignore::compcodes.FilterWarning")]

COUNTS: collections.Counter[str] = collections.Counter()
SOAK = float(os.environ.get("COMPCODES_SOAK", "0"))

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0, 1, 2, 31, 64, 65, 150])


def models() -> list[cc.CompositionalCodes]:
    """Ordinary codebooks; small whole numbers, of which many sums are equal; and some with codewords 0 and near 0."""
    rng = np.random.default_rng(0)
    ordinary = rng.normal(size=(5, 13, 6)) * 0.8 ** np.arange(5)[:, None, None]  # codes of half a byte
    whole = rng.integers(-2, 3, size=(3, 40, 4))
    short = rng.normal(size=(3, 201, 5)) * np.array([1e-3, 1, 4])[:, None, None]
    short[:, 0] = 0
    return [cc.CompositionalCodes.from_codebooks(books.astype(np.float32)) for books in (ordinary, whole, short)]


def divided(models) -> list[cc.CompositionalCodes]:
    """The same codebooks, with centroids: some are the same, some far away, of some there is but one."""
    rng = np.random.default_rng(1)
    made = []
    for n_lists, model in zip((7, 5, 1), models, strict=True):
        centroids = rng.normal(size=(n_lists, model.codebooks_.shape[2])).round(1 if n_lists == 7 else 0) * 2
        centroids[-1] = centroids[0]
        made.append(cc.CompositionalCodes.from_codebooks(model.codebooks_, centroids=centroids.astype(np.float32)))
    return made


FLAT = models()
MODELS = {"flat": FLAT, "lists": divided(FLAT)}
# With keys: of an index with lists, and of two without.
MODELS["keys"] = [MODELS["lists"][0], *FLAT[1:]]


class Machine(RuleBasedStateMachine):
    """Rules of a state machine: each changes the index and its model alike, or asks both."""

    setting: str
    kind: str

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "index.cc")
        self.other_path = os.path.join(self.folder.name, "other.cc")

    def teardown(self):
        self.folder.cleanup()

    @initialize(model=st.sampled_from(range(len(FLAT))), jobs=st.sampled_from([1, 2, None]))
    def begin(self, model, jobs):
        self.quantizer, self.settings = MODELS[self.kind][model], SETTINGS[self.setting]
        self.centroids = self.quantizer.centroids_
        self.all = {} if self.centroids is None else {"n_probe": len(self.centroids)}
        self.index = self.new_index(n_jobs=jobs)
        self.plain = self.new_plain()
        self.whole = model == 1

    # -- data

    def new_index(self, **options):
        make = Keyed.new if self.kind == "keys" else cc.Index
        return make(self.quantizer, **options, **self.settings)

    def new_plain(self):
        return Plain(self.quantizer.codebooks_, **self.settings, centroids=self.centroids)

    def encoded(self, X):
        """Codes and lists as the quantizer finds them."""
        if self.centroids is None:
            return self.quantizer.encode(X), None
        lists = self.quantizer.assign(X)
        return self.quantizer.encode(X, lists=lists), lists

    def vectors(self, rng, n):
        X = rng.normal(size=(n, self.quantizer.codebooks_.shape[2])) * rng.choice([0.5, 1, 3])
        return (X.round() if self.whole else X).astype(np.float32)

    def random_codes(self, rng, n):
        M, K, _ = self.quantizer.codebooks_.shape
        return (rng.random((n, M)) ** rng.choice([1, 1, 4]) * K).astype(np.uint8)

    def free_ids(self, rng, n):
        """Ids that were never used, in no order, with gaps."""
        ids = self.plain.largest + 1 + rng.choice(4 * n + 5, n, replace=False)
        return rng.permutation(ids)

    def filled(self, rng, n, given):
        """Another index with the same settings, and its model."""
        index, plain = self.new_index(), self.new_plain()
        X, ids = self.vectors(rng, n), self.free_ids(rng, n) if given else None
        index.add(X, ids)
        codes, lists = self.encoded(X)
        plain.add(codes, ids, X, lists)
        return index, plain

    def some(self, rng, share):
        return self.plain.ids[rng.random(len(self.plain)) < share]

    def query(self, rng):
        return self.vectors(rng, int(rng.choice([1, 1, 2, 9])))

    def filter(self, rng):
        """A filter of a random kind, and the mask that it stands for."""
        ids = self.plain.ids
        mask = rng.random(len(ids)) < rng.choice([1, 0.9, 0.5, 0.05, 0])
        first, last = np.sort(rng.integers(0, self.plain.largest + 3, 2)).tolist()
        step = int(rng.choice([1, 2, 7]))
        return [
            (None, np.ones(len(ids), bool)),
            (mask, mask),
            (rng.permutation(np.append(ids[mask], [self.plain.largest + 5, 10**12])), mask),
            (range(first, last, step)[:: rng.choice([1, -1])], np.isin(ids, np.arange(first, last, step))),
        ][rng.integers(4)]

    # -- changes

    @rule(seed=seeds, n=sizes, given=st.booleans())
    def add(self, seed, n, given):
        rng = np.random.default_rng(seed)
        X, ids = self.vectors(rng, n), None
        if given:
            ids = self.free_ids(rng, n)
        assert self.index.add(X, ids) is self.index
        codes, lists = self.encoded(X)
        self.plain.add(codes, ids, X, lists)
        COUNTS["add"] += 1

    @rule(seed=seeds, n=sizes, given=st.booleans())
    def add_codes(self, seed, n, given):
        rng = np.random.default_rng(seed)
        codes, ids = self.random_codes(rng, n), None
        if given:
            ids = self.free_ids(rng, n)
        if self.setting == "ip, residuals":
            self.refused(ValueError, lambda: self.index.add_codes(codes, ids))
        elif self.centroids is None:
            self.index.add_codes(codes, ids)
            self.plain.add(codes, ids)
        else:
            lists = rng.integers(len(self.centroids), size=n)
            self.refused(ValueError, lambda: self.index.add_codes(codes, ids))
            self.index.add_codes(codes, ids, lists=lists)
            self.plain.add(codes, ids, lists=lists)
        COUNTS["add codes"] += 1

    @rule(seed=seeds, share=st.sampled_from([0, 0.02, 0.3, 0.9, 1]))
    def remove(self, seed, share):
        rng = np.random.default_rng(seed)
        gone = rng.permutation(self.some(rng, share))
        assert self.index.remove(gone) == len(gone)
        self.plain.remove(gone)
        COUNTS["remove"] += 1

    @rule()
    def remove_the_last(self):
        """The largest id: an automatic one after that must not be it again."""
        gone = self.plain.ids[-1:]
        assert self.index.remove(gone) == len(gone)
        self.plain.remove(gone)
        COUNTS["remove"] += 1

    @rule(seed=seeds, share=st.sampled_from([0, 0.02, 0.3, 1]), scale=st.sampled_from([1, 1, 20]))
    def update(self, seed, share, scale):
        rng = np.random.default_rng(seed)
        ids = rng.permutation(self.some(rng, share))
        X = self.vectors(rng, len(ids)) * np.float32(scale)
        assert self.index.update(X, ids) is self.index
        codes, lists = self.encoded(X)
        self.plain.update(codes, ids, X, lists)
        COUNTS["update"] += 1

    @rule()
    def reset(self):
        assert self.index.reset() is self.index
        self.plain.remove(self.plain.ids)
        COUNTS["reset"] += 1

    @rule(seed=seeds, n=sizes, given=st.booleans())
    def merge(self, seed, n, given):
        given = given or self.kind == "keys"  # which are never chosen for others
        other, plain = self.filled(np.random.default_rng(seed), n, given)
        assert self.index.merge(other) is self.index
        self.plain.merge(plain, given)
        assert len(other) == n
        COUNTS["merge"] += 1

    # -- copies

    def goes_on_with(self, index):
        """Search the old one and its copy alike, change the old one, and go on with the copy."""
        Q = self.query(np.random.default_rng(len(self.plain)))
        for one, other in zip(self.index.search(Q, 9), index.search(Q, 9), strict=True):
            assert one.tobytes() == other.tobytes()
        self.index.remove(self.plain.ids)
        self.index = index
        COUNTS["copies"] += 1

    @rule(mmap=st.booleans(), other=st.booleans())
    def save_and_load(self, mmap, other):
        """Also over the file that the index is mapped from."""
        path = self.other_path if other else self.path
        self.index.save(path)
        loaded = cc.Index.load(path, mmap=mmap)
        self.goes_on_with(self.index.around(loaded) if self.kind == "keys" else loaded)
        COUNTS["save and load"] += 1

    @rule(how=st.sampled_from([copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))]))
    def copied(self, how):
        self.goes_on_with(how(self.index))

    # -- searches

    @rule(seed=seeds, k=st.sampled_from([1, 3, 10, 200]))
    def search(self, seed, k):
        rng = np.random.default_rng(seed)
        Q, (filter, mask) = self.query(rng), self.filter(rng)
        self.plain.check(self.index.search(Q, k, filter=filter, **self.all), Q, k, mask)
        COUNTS["search"] += 1

    @rule(seed=seeds, k=st.sampled_from([1, 3, 30]), n_probe=st.sampled_from([1, 2, 4, None]))
    def search_some_lists(self, seed, k, n_probe):
        """The best of the lists that are best for a query, and of more where these hold fewer than k."""
        if self.centroids is None:
            return
        rng = np.random.default_rng(seed)
        Q, (filter, mask) = self.query(rng), self.filter(rng)
        found = self.index.search(Q, k, filter=filter, n_probe=n_probe)
        if n_probe is None:  # as many as there are, or eight
            n_probe = min(8, len(self.centroids))
        sizes = np.bincount(self.plain.lists[mask], minlength=len(self.centroids))
        for row, q in enumerate(Q):
            one = [part[row : row + 1] for part in found]
            assert (one[1][0] >= 0).sum() == min(k, mask.sum())
            if self.settings["metric"] != "ip":
                continue
            order = np.argsort(-tables(q[None], self.centroids[None])[0, 0], kind="stable")
            enough = np.searchsorted(np.cumsum(sizes[order]), k) + 1
            chosen = order[: max(n_probe, enough)]
            self.plain.check(one, q[None], k, mask & np.isin(self.plain.lists, chosen))
        COUNTS["search some lists"] += 1

    def by_rank(self, rng):
        """The vectors in the index's order, where that is known to be theirs, in any order, or by a callable."""
        ids, X = self.plain.ids, self.plain.X
        order = rng.permutation(len(ids))
        if rng.random() < 0.3:
            position = {int(identity): at for at, identity in enumerate(ids)}
            return {"rerank": lambda wanted: X[[position[int(identity)] for identity in wanted]]}
        if self.plain.is_mixed:
            self.refused(ValueError, lambda: self.index.search(X[:1], 1, rerank=X))
        elif rng.random() < 0.5:
            return {"rerank": X}
        others = self.plain.largest + 1 + np.arange(3)  # of no account
        return {
            "rerank": np.concatenate([X[order], X[:3]])[: len(X) + 3],
            "rerank_ids": np.append(ids[order], others[: min(3, len(X))]),
        }

    @rule(seed=seeds, k=st.sampled_from([1, 5]), candidates=st.sampled_from([5, 20, 10_000]))
    def rerank(self, seed, k, candidates):
        rng = np.random.default_rng(seed)
        Q, (filter, _) = self.query(rng), self.filter(rng)
        shortlist = self.index.search(Q, candidates, filter=filter, **self.all)[1]
        asked = {"filter": filter, "n_candidates": candidates, **self.all}
        found = self.index.search(Q, k, **asked, **self.by_rank(rng))
        self.plain.check_reranked(found, Q, k, shortlist)
        COUNTS["rerank"] += 1

    @rule(seed=seeds, k=st.sampled_from([1, 5]), candidates=st.sampled_from([5, 20, 10_000]))
    def certify(self, seed, k, candidates):
        rng = np.random.default_rng(seed)
        Q, (filter, mask) = self.query(rng), self.filter(rng)
        asked = {"filter": filter, "n_candidates": candidates, "certify": True, **self.by_rank(rng)}
        if self.setting != "ip, residuals":
            self.refused(ValueError, lambda: self.index.search(Q, k, **asked))
            return
        scores, ids, certified = self.index.search(Q, k, **asked)
        assert certified.all() or candidates < len(self.plain)
        proven = np.where(mask, self.plain.ids, -1)[None].repeat(len(Q), axis=0)
        found = scores[certified], ids[certified]
        self.plain.check_reranked(found, Q[certified], k, proven[certified])
        COUNTS["certify"] += 1

    @rule(seed=seeds)
    def reconstruct(self, seed):
        rng = np.random.default_rng(seed)
        ids = rng.permutation(self.some(rng, 0.3))
        position = {int(identity): at for at, identity in enumerate(self.plain.ids)}
        at = [position[int(identity)] for identity in ids]
        want = self.plain.decode(self.plain.codes[at], self.plain.lists[at])
        np.testing.assert_allclose(self.index.reconstruct(ids), want, rtol=1e-5, atol=1e-5)
        COUNTS["reconstruct"] += 1

    # -- errors

    def refused(self, error, work):
        """After an error all is as it was."""
        before = self.state()
        with pytest.raises(error):
            work()
        for one, other in zip(before, self.state(), strict=True):
            np.testing.assert_array_equal(one, other)
        COUNTS["refused"] += 1

    def state(self):
        Q = self.query(np.random.default_rng(7))
        return self.index.codes, self.index.ids, *self.index.search(Q, 12), self.index.bytes_per_vector

    @rule(seed=seeds, which=st.integers(0, 9))
    def an_error(self, seed, which):
        rng, index = np.random.default_rng(seed), self.index
        K = self.quantizer.codebooks_.shape[1]
        X, codes = self.vectors(rng, 5), self.random_codes(rng, 5)
        if which < 2:
            X[3, 0] = np.nan if which else np.inf
            self.refused(ValueError, lambda: index.add(X))
        elif which == 2:
            self.refused(ValueError, lambda: index.add(X, self.plain.largest + np.array([1, 2, 3, 4, 1])))
        elif which == 3 and (len(self.plain) or self.kind != "keys"):
            taken = self.plain.ids[-1] if len(self.plain) else -1
            self.refused(ValueError, lambda: index.add(X, np.append(self.free_ids(rng, 4), taken)))
        elif which == 4:
            codes[2, 1] = K
            lists = None if self.centroids is None else np.zeros(5, int)
            self.refused(ValueError, lambda: index.add_codes(codes, lists=lists))
        elif which == 5:
            self.refused(ValueError, lambda: index.remove(np.append(self.some(rng, 0.5), self.plain.largest + 1)))
        elif which == 6:
            other = cc.Index(self.quantizer, "l2" if self.settings["metric"] == "ip" else "ip").add(X)
            self.refused(ValueError, lambda: index.merge(other))
        elif which == 7 and len(self.plain):
            other = cc.Index(self.quantizer, **self.settings).add(X[:1], self.plain.ids[:1])
            self.refused(ValueError, lambda: index.merge(other))
        elif which == 8:
            self.refused(OSError, lambda: index.save(os.path.join(self.folder.name, "nowhere", "index.cc")))
        else:
            self.refused(ValueError, lambda: index.search(X, 3, filter=np.ones(len(self.plain) + 1, bool)))

    # -- always

    @invariant()
    def what_is_stored(self):
        if hasattr(self, "plain"):
            assert len(self.index) == len(self.plain)
            np.testing.assert_array_equal(self.index.ids, self.plain.ids)
            np.testing.assert_array_equal(self.index.codes, self.plain.codes)
            if self.centroids is not None:
                np.testing.assert_array_equal(self.index.lists, self.plain.lists)
                sizes = np.bincount(self.plain.lists, minlength=len(self.centroids))
                np.testing.assert_array_equal(self.index.list_sizes, sizes)
            COUNTS["steps"] += 1


def run(setting, kind, examples, steps, seed=None):
    """Run `examples` sequences of `steps`: always the same ones, or those of a seed."""
    machine = type(f"Machine of {setting}", (Machine,), {"setting": setting, "kind": kind})
    if seed is not None:
        with_seed(seed)(machine)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=seed is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", MODELS)
def test_an_index_is_its_plain_model(setting, kind):
    before = COUNTS["steps"]
    run(setting, kind, {"flat": 40, "lists": 25, "keys": 8}[kind], 50)
    assert COUNTS["steps"] - before > {"flat": 1500, "lists": 900, "keys": 250}[kind]


@pytest.mark.skipif(not SOAK, reason="COMPCODES_SOAK=SECONDS runs it: make soak")
@pytest.mark.timeout(SOAK + 600)
def test_soak(capsys):
    end, first = time.monotonic() + SOAK, time.time_ns()
    for turn in itertools.count(first):
        if time.monotonic() >= end:
            break
        for setting, kind in itertools.product(SETTINGS, MODELS):
            run(setting, kind, 10, 60, turn)
    with capsys.disabled():
        print(f"\nseeds {first} to {turn - 1}: {dict(COUNTS)}, no difference")
