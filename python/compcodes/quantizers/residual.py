"""Residual quantization (Chen et al., *Approximate Nearest Neighbor Search by Residual Vector Quantization*, 2010)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import RandomState, as_seed, check_jobs, check_range
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers._training import Floats, Report, history, lengths_differ, seeds, training_sample, within
from compcodes.quantizers.quantizer import Quantizer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ResidualQuantizer"]


@Quantizer.register
class ResidualQuantizer(Quantizer):
    """Each codebook by k-means of the residuals of the earlier codebooks; codes by beam search.

    Parameters
    ----------
    n_codebooks : int, default 8
        M, 1 to 64: the number of bytes of a code.
    n_codewords : int, default 256
        K, 2 to 256.
    beam : int, default 5
        Width of the beam, in training and encoding: how many partial codes are kept.
    max_iter : int, default 25
        The most iterations of k-means per codebook.
    random_state, n_jobs
        As in `ProductQuantizer`.

    Attributes
    ----------
    codebooks_ : (M, K, d) float32
        Read-only.
    history_ : list of dict
        "iteration" and "objective": the mean squared error of the training vectors with one codebook, two, and so on.
    n_features_in_ : int
        The length d of the vectors.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> q = cc.ResidualQuantizer(n_codebooks=4, n_codewords=32).fit(X)
    >>> scores, ids = cc.Index(q).add(X).search(X[:2], k=5)
    """

    method = "residual"

    def __init__(
        self,
        n_codebooks: int = 8,
        n_codewords: int = 256,
        beam: int = 5,
        max_iter: int = 25,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_codebooks = n_codebooks
        self.n_codewords = n_codewords
        self.beam = beam
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: object = None, *, progress: ProgressLike = None) -> Self:
        """Learn the codebooks.

        Parameters
        ----------
        X : (n, d) array of any real type
            Training vectors. If there are more than 256 · K, a random sample is used.
        y : ignored
            Accepted for scikit-learn's pipelines.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        ResidualQuantizer
            Itself. After an error or Ctrl-C the model is unchanged.

        Raises
        ------
        ValueError
            A parameter or argument has a wrong value or shape; NaN or infinity in a training vector, with the row.
        TypeError
            An array is not of real numbers.
        """
        check_range("n_codebooks", self.n_codebooks, 1, 64)
        check_range("n_codewords", self.n_codewords, 2, 256)
        check_range("beam", self.beam, 1, 4096)
        check_range("max_iter", self.max_iter, 1)
        check_jobs(self.n_jobs)
        seed = as_seed(self.random_state)
        sample = training_sample(X, self.n_codewords, seed)
        report = staged(progress, "fit")
        codebooks = np.zeros((0, self.n_codewords, sample.shape[1]), np.float32)
        residual, objectives = sample, []
        for m, own_seed in enumerate(seeds(seed, self.n_codebooks)):
            stages = within(report, m, self.n_codebooks)
            book, _ = _core.kmeans(residual, self.n_codewords, self.max_iter, own_seed, self.n_jobs, stages)
            codebooks = np.concatenate([codebooks, book[None]])
            codes = self._core_encoder(codebooks).encode(sample, self.n_jobs)
            residual = sample - _core.decode(codebooks, codes, self.n_jobs)
            objectives.append(float(np.einsum("ij,ij->", residual, residual, dtype=np.float64)) / len(sample))
        self._set(codebooks)
        self._lengths_differ = lengths_differ(sample)
        self.history_ = history(objectives)
        return self

    def _core_encoder(self, codebooks: Floats) -> _core.Encoder:
        return _core.Encoder(codebooks, "group", 1.0, ("beam", self.beam), 0, self.n_jobs)

    def _encode(self, X: NDArray[Any], report: Report | None) -> NDArray[np.uint8]:
        codebooks = self._fitted()
        encoder = self._prepared((codebooks,), self.beam, lambda: self._core_encoder(codebooks))
        return encoder.encode(X, self.n_jobs, report)

    def _recipe(self) -> dict[str, Any]:
        return {"encoding": ("beam", int(self.beam))}

    def _follow(self, model: _core.Model) -> None:
        name, width = model.encoding
        if name != "beam":
            raise ValueError(f"the model's encoder is {name!r}: want 'beam'")
        self.beam = width
