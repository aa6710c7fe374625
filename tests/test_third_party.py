"""Quantizers that others write, and subclasses: what an index takes, keeps, and gives back."""

import copy
import pickle

import numpy as np
import pytest

import compcodes as cc
from compcodes import quantizers


class Rounding:
    """Codewords that are rows of what it was fitted to, in each of two halves of the dimensions."""

    def fit(self, X):
        half = X.shape[1] // 2
        self.codebooks_ = np.zeros((2, 16, X.shape[1]), np.float32)
        self.codebooks_[0, :, :half], self.codebooks_[1, :, half:] = X[:16, :half], X[:16, half:]
        return self

    def encode(self, X):
        parts = (((X[:, None, own] - book[None, :, own]) ** 2).sum(axis=2) for own, book in self._halves(X.shape[1]))
        return np.stack([part.argmin(axis=1) for part in parts], axis=1).astype(np.uint8)

    def _halves(self, d):
        return zip((slice(d // 2), slice(d // 2, d)), self.codebooks_, strict=True)


class Derived(Rounding, cc.Quantizer):
    """The same with this package's base class, of which it sets nothing but the codebooks."""


class Mine(cc.CompositionalCodes):
    def __init__(self, n_codebooks=4, n_codewords=16, note="none", **others):
        super().__init__(n_codebooks, n_codewords, **others)
        self.note = note


class Shelf(cc.Index):
    pass


@pytest.fixture(params=[Rounding, Derived])
def theirs(request, X):
    return request.param().fit(X)


@pytest.fixture(scope="module")
def mine(X):
    return Mine(2, 8, note="hello", anneal=1, max_iter=1, loss="reconstruction").fit(X)


def test_an_index_takes_it_and_scores_are_those_of_its_sums(theirs, X, Q):
    index = cc.Index(theirs).add(X)
    np.testing.assert_array_equal(index.codes, theirs.encode(X))
    sums = sum(book[column] for book, column in zip(theirs.codebooks_, index.codes.T, strict=True))
    np.testing.assert_array_equal(index.quantizer.decode(index.codes), sums)
    scores, ids = index.search(Q, 5)
    np.testing.assert_allclose(scores, np.sort(Q @ sums.T, axis=1)[:, :-6:-1], rtol=1e-4)
    assert np.isfinite(index.quantizer.score(X))
    assert (index.reconstruct(ids[0]) == sums[ids[0]]).all()


def test_codebooks_of_another_number_type_are_taken(X):
    theirs = Rounding().fit(X)
    theirs.codebooks_ = theirs.codebooks_.astype(np.float64)
    np.testing.assert_array_equal(cc.Index(theirs).add(X).codes, theirs.encode(X))


def test_fitting_it_anew_does_not_change_the_index(theirs, X):
    index = cc.Index(theirs)
    codes = theirs.encode(X)
    theirs.fit(X[::-1])
    assert (theirs.encode(X) != codes).any()
    np.testing.assert_array_equal(index.add(X).codes, codes)


def test_codebooks_changed_in_place_are_noticed(X):
    theirs = Rounding().fit(X)
    index = cc.Index(theirs)
    theirs.codebooks_[0, 0, 0] += 1
    with pytest.raises(ValueError, match="quantizer has other codebooks_"):
        index.add(X)
    assert len(index) == 0


def test_a_loaded_index_encodes_by_what_load_is_given(theirs, X, tmp_path):
    cc.Index(theirs).add(X).save(tmp_path / "i.cc")
    given = cc.Index.load(tmp_path / "i.cc", quantizer=theirs).add(X[:50])
    np.testing.assert_array_equal(given.codes[-50:], theirs.encode(X[:50]))
    bare = cc.Index.load(tmp_path / "i.cc")
    assert type(bare.quantizer) is cc.CompositionalCodes
    by_search = cc.CompositionalCodes.from_codebooks(theirs.codebooks_).encode(X[:50])
    np.testing.assert_array_equal(bare.add(X[:50]).codes[-50:], by_search)
    with pytest.raises(ValueError, match=r"quantizer has other codebooks_ than the index in .*i\.cc"):
        cc.Index.load(tmp_path / "i.cc", quantizer=type(theirs)().fit(X[5:]))


def test_copies_and_pickles_of_an_index_keep_it(theirs, X):
    index = cc.Index(theirs).add(X)
    for again in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        np.testing.assert_array_equal(again.add(X[:50]).codes[-50:], theirs.encode(X[:50]))


def test_it_is_told_of_threads_and_asked_for_progress_where_it_can(X):
    class Talking(Rounding):
        n_jobs = 7

        def encode(self, X, progress=None):
            progress("whatever", self.n_jobs, 10)
            return super().encode(X)

    calls = []
    cc.Index(Talking().fit(X), n_jobs=3).add(X, progress=lambda *call: calls.append(call))
    assert calls == [("encode", 3, 10)]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"codebooks_": np.zeros((2, 3))}, ValueError, r"quantizer.codebooks_ has shape \(2, 3\)"),
        ({"codebooks_": np.full((2, 16, 12), np.nan)}, ValueError, "quantizer.codebooks_ row 0 holds NaN"),
        ({"codebooks_": None}, ValueError, r"quantizer.codebooks_ has shape \(\)"),
        ({"encode": 3}, TypeError, "quantizer is .*: want a fitted CompositionalCodes or another object"),
        ({"encode": lambda X: X[:, :3]}, ValueError, r"quantizer.encode gave shape \(1500, 3\): want \(1500, 2\)"),
        ({"encode": lambda X: X[:, :2]}, TypeError, "codes have dtype float32"),
        ({"encode": lambda X: np.full((len(X), 2), 16)}, ValueError, "16"),
    ],
)
def test_what_is_wrong_with_it_is_named(X, change, kind, message):
    theirs = Rounding().fit(X)
    vars(theirs).update(change)
    with pytest.raises(kind, match=message):
        cc.Index(theirs).add(X)


@pytest.mark.parametrize("nothing", [cc.CompositionalCodes, "model.cc", None, np.zeros((2, 3, 4))])
def test_what_is_no_quantizer(nothing):
    with pytest.raises(TypeError, match="quantizer is "):
        cc.Index(nothing)


def test_before_fit_it_is_not_fitted():
    for kind in (Rounding, Derived, cc.ProductQuantizer):
        with pytest.raises(cc.NotFittedError, match="fit"):
            cc.Index(kind())


def test_a_subclass_does_not_change_what_load_returns(quantizer, mine, tmp_path):
    for model in (quantizer, mine):
        model.save(tmp_path / "q.cc")
        for kind in (cc.Quantizer, cc.CompositionalCodes):
            assert type(kind.load(tmp_path / "q.cc")) is cc.CompositionalCodes


def test_a_subclass_loads_itself(mine, X, tmp_path):
    mine.save(tmp_path / "q.cc")
    again = Mine.load(tmp_path / "q.cc")
    assert type(again) is Mine and again.note == "hello"
    np.testing.assert_array_equal(again.encode(X), mine.encode(X))
    with pytest.raises(ValueError, match="holds a CompositionalCodes, not a ProductQuantizer"):
        cc.ProductQuantizer.load(tmp_path / "q.cc")
    derived = Derived().fit(X)
    derived.save(tmp_path / "derived.cc")
    with pytest.raises(ValueError, match="holds a CompositionalCodes, not a Derived"):
        Derived.load(tmp_path / "derived.cc")


def test_copies_of_subclasses_are_of_the_class(mine, X):
    for again in (copy.copy(mine), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert type(again) is Mine and again.get_params() == mine.get_params()
    index = Shelf(mine).add(X)
    for again in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        assert type(again) is Shelf and type(again.quantizer) is Mine
        np.testing.assert_array_equal(again.codes, index.codes)


def test_a_registered_class_is_what_load_returns(monkeypatch, X, tmp_path):
    monkeypatch.setattr(cc.Quantizer, "_kinds", dict(cc.Quantizer._kinds))

    @cc.Quantizer.register
    class Own(Derived):
        method = "own"

    Own().fit(X).save(tmp_path / "q.cc")
    assert type(cc.Quantizer.load(tmp_path / "q.cc")) is Own
    with pytest.raises(ValueError, match="method 'own' of Mine is that of Own"):
        cc.Quantizer.register(type("Mine", (Derived,), {"method": "own"}))
    with pytest.raises(ValueError, match="Derived has no method"):
        cc.Quantizer.register(Derived)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="method 'own', which is not registered"):
        cc.Quantizer.load(tmp_path / "q.cc")


@pytest.mark.parametrize("kind", [cc.CompositionalCodes, cc.ProductQuantizer, cc.ResidualQuantizer, Mine])
def test_the_model_that_an_index_hands_out_is_a_copy(kind, X):
    X = X[:300]
    index = cc.Index(kind(2, 8, max_iter=1).fit(X))
    codes = copy.deepcopy(index).add(X).codes
    handed = index.quantizer
    assert type(handed) is kind
    handed.fit(X[::-1] * 2)
    if isinstance(handed, cc.CompositionalCodes):
        index.quantizer.set_params(encoder="greedy").loss_["eta"] = 99.0
    np.testing.assert_array_equal(index.add(X).codes, codes)
    np.testing.assert_array_equal(index.quantizer.encode(X), codes)


def test_what_encoding_needs_is_prepared_once_for_all_copies(quantizer, X):
    index = cc.Index(quantizer)
    index.quantizer.encode(X[:1])
    assert index.quantizer._encoder() is index.quantizer._encoder() is index._quantizer._encoder()


def test_every_method_is_registered():
    made = [getattr(quantizers, name) for name in quantizers.__all__]
    kinds = {kind for kind in made if isinstance(kind, type) and issubclass(kind, cc.Quantizer)} - {cc.Quantizer}
    registered = {kind for kind in cc.Quantizer._kinds.values() if kind.__module__.startswith("compcodes.")}
    assert registered == kinds  # others register theirs, those of the documentation too
