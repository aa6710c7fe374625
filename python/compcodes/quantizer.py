"""The model: vectors to codes of a few bytes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core, encoders, losses
from compcodes._arrays import as_numbers, as_queries, as_vectors, as_weights, check_jobs, check_range
from compcodes.base import NotFittedError, Quantizer, as_json, as_seed
from compcodes.progress import ProgressLike, staged
from compcodes.training import Report, Trainer
from compcodes.tuning import tune

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CompositionalCodes", "NotFittedError"]

_CHOICES = {
    "selection": ("group", "m-selection", "m-combination"),
    "init": ("residual", "random"),
}


class CompositionalCodes(Quantizer):
    """Vectors as sums of codewords, one from each of M codebooks: M bytes a vector.

    The model of *Inner Product Similarity Search using Compositional Codes* (Du & Wang). Parameters are kept as
    given and checked by `fit`.

    Parameters
    ----------
    n_codebooks : int, default 8
        M, 1 to 64: the bytes of a code. More are more accurate, and slower to train.
    n_codewords : int, default 256
        K, 2 to 256: codewords of a codebook. 256 uses the whole byte.
    selection : {"group", "m-selection", "m-combination"}, default "group"
        The paper's schemes: M different codebooks; or one that all M places share; or that with M distinct
        codewords. With ``n_codebooks=1`` each of them is k-means.
    encoder : {"local-search", "beam", "greedy"} or `LocalSearch`, `Beam` or `Greedy`, default "local-search"
        How codes are chosen. "greedy" is the paper's: at each step the codebook and codeword that leave the
        smallest loss. "beam" goes through the codebooks in turn and keeps the best ``Beam(width=…)`` beginnings of a
        code. "local-search" improves on a greedy code; ``LocalSearch(rounds=…)`` says how long.
    loss : {"inner-product", "reconstruction"} or `InnerProduct` or `Reconstruction`, default "inner-product"
        What training and encoding make small: the error that inner products with likely queries suffer, or the
        squared error ‖x − x̄‖². Parameters of the first are chosen from the data (see `loss_`) where they are not
        given.
    init : {"residual", "random"} or (M, K, d) array, default "residual"
        The start: residual k-means; random vectors; or codebooks of your own.
    anneal : int, default 25
        Iterations with decreasing noise that belong to the start; they find better codebooks, on small data and
        large. Used with local search only, and not from codebooks of your own.
    max_iter : int, default 25
        The most iterations after that.
    tol : float, default 1e-3
        Training ends when an iteration lowers the objective by less than this share of it.
    ridge : float, default 1e-3
        Weight of the pull toward the previous codebooks in the update, as a share of the mean use of a codeword.
    random_state : int, numpy.random.Generator or None, default 0
        Seed. The same seed and data give the same model, for any number of threads.
    n_jobs : int, optional
        Threads, at most four a core; all cores by default, negative numbers count from there (−1 is all). The linear
        solve follows numpy's own settings.

    Attributes
    ----------
    codebooks_ : (M, K, d) float32
        Read-only. With fewer distinct vectors than codewords, those left over repeat others or stay unused.
    history_ : list of dict
        "iteration", "objective" (mean loss of the training vectors, by weight) and "seconds" since the
        beginning; the start is iteration 0. The objective never rises. It is that of the codes that training ended
        with; `encode` starts anew and comes near them, not to them.
    loss_ : dict
        The loss that was used: "name" and, for "inner-product", the "eta" and "weight_power" that were given or
        chosen.
    n_features_in_ : int
        d.

    Examples
    --------
    >>> import numpy as np, compcodes as cc
    >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    >>> q = cc.CompositionalCodes(n_codebooks=4, n_codewords=32).fit(X)
    >>> codes = q.encode(X)
    >>> codes.shape, codes.dtype
    ((2000, 4), dtype('uint8'))
    >>> q.decode(codes).shape
    (2000, 16)
    """

    loss_: dict[str, Any]

    def __init__(
        self,
        n_codebooks: int = 8,
        n_codewords: int = 256,
        selection: str = "group",
        *,
        encoder: str | encoders.Encoder = "local-search",
        loss: str | losses.Loss = "inner-product",
        init: str | ArrayLike = "residual",
        anneal: int = 25,
        max_iter: int = 25,
        tol: float = 1e-3,
        ridge: float = 1e-3,
        random_state: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_codebooks = n_codebooks
        self.n_codewords = n_codewords
        self.selection = selection
        self.encoder = encoder
        self.loss = loss
        self.init = init
        self.anneal = anneal
        self.max_iter = max_iter
        self.tol = tol
        self.ridge = ridge
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: ArrayLike,
        queries: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        progress: ProgressLike = None,
    ) -> Self:
        """Learn the codebooks.

        Parameters
        ----------
        X : (n, d) array of any real type
            Training vectors, in memory or memory-mapped; read a chunk at a time. Some 50 · K or more are a good
            number.
        queries : (nq, d), optional
            Sample queries, which "inner-product" chooses its parameters by; without them rows of `X` serve.
            "reconstruction" only checks them.
        sample_weight : (n,), optional
            Weight of each vector in the objective.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        CompositionalCodes
            Itself. After an error or Ctrl-C the model is as it was before.

        Raises
        ------
        ValueError
            A parameter or argument has a wrong value or shape; NaN or infinity in `X`, with the row.
        TypeError
            An array is not of real numbers.
        """
        X = as_vectors(X, "X")
        if len(X) == 0:
            raise ValueError(f"X has shape {X.shape}: training needs at least one vector")
        self._check()
        if queries is not None:
            queries = as_queries(queries, X.shape[1], "queries")
        weights = None if sample_weight is None else as_weights(sample_weight, len(X))
        loss = losses.as_loss(self.loss)
        if isinstance(loss, losses.InnerProduct):
            loss = tune(self._trainer(X), loss, queries)
        trainer = self._trainer(X, report=staged(progress, "fit")).with_loss(loss, weights)
        trained = trainer.run(self._init_for(X.shape[1]))
        self._set(trained.codebooks, trainer.selection)
        self.history_ = trained.history
        self.loss_ = losses.parameters(loss)
        return self

    def _trainer(self, X: NDArray[Any], report: Report | None = None) -> Trainer:
        encoder = encoders.as_encoder(self.encoder)
        own = not isinstance(self.init, str)
        return Trainer(
            X,
            n_codebooks=self.n_codebooks,
            n_codewords=self.n_codewords,
            selection=self.selection,
            max_iter=self.max_iter,
            tol=self.tol,
            ridge=self.ridge,
            seed=as_seed(self.random_state),
            encoder=encoder.training_steps(),
            anneal=self.anneal if encoder.anneals and not own else 0,
            n_jobs=self.n_jobs,
            report=report,
        )

    def _encode(self, X: NDArray[Any], report: Report | None) -> NDArray[np.uint8]:
        return self._encoder().encode(X, self.n_jobs, report)

    @classmethod
    def from_codebooks(cls, codebooks: ArrayLike, selection: str = "group") -> CompositionalCodes:
        """Make a fitted model of codebooks (M, K, d) that were trained elsewhere.

        Raises
        ------
        ValueError
            They have another shape, or hold NaN or infinity.
        """
        codebooks = np.array(codebooks, dtype=np.float32, order="C")
        if codebooks.ndim != 3:
            raise ValueError(f"codebooks has shape {codebooks.shape}: want (M, K, d)")
        _core.Encoder(codebooks, selection, 1)
        return cls._restored(codebooks, selection, {})

    @classmethod
    def _restored(cls, codebooks: NDArray[np.float32], selection: str, stored: dict[str, Any]) -> Self:
        self = super()._restored(codebooks, selection, stored)
        self.selection = selection
        self.loss_ = stored.get("fitted_loss", losses.parameters(losses.Reconstruction()))
        return self

    def _parameters(self) -> str:
        params = {name: value for name, value in self.get_params().items() if name != "n_jobs"}
        if not isinstance(self.encoder, str):
            params["encoder"] = encoders.parameters(encoders.as_encoder(self.encoder))
        if not isinstance(self.loss, str):
            params["loss"] = losses.parameters(losses.as_loss(self.loss))
        return as_json(params | {"history": self.history_, "fitted_loss": self.loss_})

    def _check(self) -> None:
        for name, low, high in [
            ("n_codebooks", 1, 64),
            ("n_codewords", 2, 256),
            ("anneal", 0, None),
            ("max_iter", 0, None),
        ]:
            check_range(name, getattr(self, name), low, high)
        check_jobs(self.n_jobs)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not (isinstance(value, str) and value in choices) and (name != "init" or isinstance(value, str)):
                raise ValueError(f"{name} is {value!r}: want one of {', '.join(map(repr, choices))}")
        for name, positive in [("tol", False), ("ridge", True)]:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{name} is {value!r}: want a number")
            if not (np.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                raise ValueError(f"{name} is {value}: want a finite number {'above' if positive else 'of at least'} 0")
        if self.selection == "m-combination" and self.n_codewords < self.n_codebooks:
            raise ValueError(
                f"n_codewords is {self.n_codewords}: m-combination chooses {self.n_codebooks} different codewords"
            )

    def _init_for(self, dim: int) -> str | NDArray[np.float32]:
        if isinstance(self.init, str):
            return self.init
        codebooks = np.array(as_numbers("init", self.init), dtype=np.float32, order="C")
        if not np.isfinite(codebooks).all():
            raise ValueError("init holds NaN, an infinity or a value beyond float32")
        want = (self.n_codebooks, self.n_codewords, dim)
        if codebooks.shape != want:
            raise ValueError(f"init has shape {codebooks.shape}: want {want}")
        return codebooks

    def _encoder(self) -> _core.Encoder:
        """Return the encoder of the codebooks, prepared once."""
        codebooks = self._fitted()
        made_for = (encoders.as_encoder(self.encoder), self.loss_.get("eta") or 1.0, self._selection)
        cached: tuple[Any, Any, _core.Encoder] | None = getattr(self, "_cache", None)
        if cached is None or cached[0] is not codebooks or cached[1] != made_for:
            encoder, eta, selection = made_for
            core = _core.Encoder(codebooks, selection, eta, encoder.steps(), 0, self.n_jobs)
            cached = self._cache = (codebooks, made_for, core)
        return cached[2]
