"""The model: vectors to codes of a few bytes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import RandomState, as_numbers, as_vectors
from compcodes._choices import Effort, EncoderName, LossName, Metric, Selection, Start
from compcodes.errors import ArgumentValueError
from compcodes.progress import ProgressLike, staged
from compcodes.quantizers._fitting import Fitted, absorbed, begun, fitted, refuse_unnamed, training_data
from compcodes.quantizers._settings import check, coder
from compcodes.quantizers.quantizer import NotFittedError, Quantizer, as_json
from compcodes.training import encoders, losses, streaming
from compcodes.training.grouping import Groups
from compcodes.training.losses import Objective
from compcodes.training.sources import is_dask_array
from compcodes.training.unit import unit_rows

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CompositionalCodes", "NotFittedError"]


@Quantizer.register
class CompositionalCodes(Quantizer):
    """Vectors as sums of codewords, one from each of M codebooks: M bytes per vector, or half of that.

    The model of *Inner Product Similarity Search using Compositional Codes* (Du & Wang). Parameters are stored as given
    and checked by `fit`.

    Parameters
    ----------
    n_codebooks : int, default 8
        M, 1 to 256: the number of bytes of a code, or of half bytes with at most 16 codewords. More codebooks are more
        accurate, and slower to train.
    n_codewords : int, default 256
        K, 2 to 256: codewords per codebook. 256 uses the whole byte. Up to 16, an index keeps two codes per byte and
        searches them several times as fast on processors without AVX-512 VBMI: 16 codebooks of 16 take 8 bytes.
    selection : {"group", "m-selection", "m-combination"}, default "group"
        The paper's schemes: M different codebooks; or one that all M places share; or a shared one with M distinct
        codewords. With ``n_codebooks=1`` each of them is k-means.
    encoder : {"local-search", "beam", "greedy"} or `LocalSearch`, `Beam` or `Greedy`, default "local-search"
        How codes are chosen. "greedy" is the paper's encoder: each step takes the codebook and codeword that leave the
        smallest loss. "beam" goes through the codebooks in turn and keeps the best ``Beam(width=…)`` partial codes.
        "local-search" improves on a greedy code; ``LocalSearch(rounds=…)`` sets for how long.
    metric : {"ip", "cosine", "l2"}, default "ip"
        The metric of later searches: inner product, cosine, or Euclidean distance. An `Index` of the model uses it, and
        it determines the loss. For "cosine" the lengths of vectors make no difference: `fit` and `encode` see rows
        scaled to length 1 (zero rows are left unchanged), so codes represent directions, and `decode` returns vectors
        of approximately length 1.
    loss : {"inner-product", "reconstruction"} or `InnerProduct` or `Reconstruction` or None, default None
        What training and encoding minimise: the error of inner products with likely queries, or the squared error ‖x −
        x̄‖². By default it is the latter for the metric "l2", and the former for others. Parameters of the former that
        are not given are chosen from the data (see `loss_`).
    init : {"residual", "random"} or (M, K, d) array, default "residual"
        The initial codebooks: residual k-means, random vectors, or an array of your own.
    effort : {"low", "default", "high"}, default "default"
        How much time training and encoding take: determines the rounds of `LocalSearch`, `anneal` and `max_iter` if
        they are not given. Groups of codebooks take half the iterations each, and fewer rounds (see `LocalSearch`).
    anneal : int or None, default None
        Iterations with decreasing noise at the start of training, each on a random part of the data; they lead to
        better codebooks as a rule. Used with local search only, and not when `init` is an array. By default 10, 50 or
        100, by `effort`. With fewer than 32 vectors of any weight per codeword, or at least one bit of a code per
        dimension, noise may be worse than none. By default training is then tried without it too, unless it starts
        with half of the codebooks, and that is kept if codes chosen anew, as in training, lose less; with so few
        vectors, at least a tenth less. Of several groups after a trunk the first decides.
    max_iter : int or None, default None
        The most iterations after that. By default 4, 16 or 32, by `effort`; without annealing 12, 24 or 48. With more
        than 200 vectors of any weight per codeword, and more than 1,024 codewords in all, training starts with half of
        the codebooks, unless there are groups, or `init` or `selection` are not the defaults: two fifths of the
        iterations with noise and, if `max_iter` is not given, three quarters of these are then left out.
    tol : float, default 1e-3
        Training ends when an iteration lowers the objective by less than this fraction of it.
    ridge : float, default 1e-3
        Weight of the pull toward the previous codebooks in the update, as a fraction of the mean use of a codeword.
    shrinkage : float, default 4.0
        How strongly the update pulls codewords to the mean of their codebook, in multiples of the optimum for normally
        distributed data. Without it (0) codebooks overfit the noise of small data, and drift apart in ways that cancel
        out in the sums. From 2 to 8 the loss of other vectors is nearly the same.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None, default 0
        Seed. The same seed and data give the same model, for any number of threads.
    n_jobs : int, optional
        Threads, at most four per core; all cores by default, and negative numbers count back from all (−1).
    n_groups : int or "auto", default "auto"
        Groups of codebooks: a trunk, and groups that approximate what it leaves, each in its own dimensions, which
        `fit` finds by rotating the vectors. Time and memory then grow with the bytes of a code, not with their square.
        "auto" makes groups of about 8 codebooks, smaller ones for fewer than 8,192 vectors, if there are more than 10
        codebooks of 256 codewords, or more than 64 of 16. Up to 16 codebooks stay in one group if vectors are fewer
        than 8,192 or on a cluster, if the encoder is not local search, or if `init` is an array; so do all with
        `partial_fit`. Several groups need the selection "group".
    max_train : int, optional
        The most vectors that `fit` trains on: a random sample of this size, which is copied in its stored type. If rows
        are weighted (by weights of their own, by their norms, or by how queries find them), heavy ones are drawn more
        often, and then count less. By default it trains on all.
    n_lists : int, "auto" or None, default None
        Divide an `Index` of the model into this many lists, of which a search covers the few whose centroids are best
        for the query: `fit` learns the centroids too. A vector is then approximated by the centroid of its list plus
        the codewords, and its code takes no more bytes. "auto" makes √n lists for n vectors. Worth it from about
        100,000 vectors on; see docs/lists.md.
    list_size : int or None, default None
        Instead of `n_lists`: how many vectors a list should hold.

    Attributes
    ----------
    codebooks_ : (M, K, d) float32
        Read-only. With fewer distinct vectors than codewords, the remaining ones repeat others or stay unused.
    history_ : list of dict
        "iteration", "objective" (mean loss of the training vectors, by weight), "seconds" since the beginning, and
        "vectors", how many were trained on; the start is iteration 0. The objective never rises. It refers to the codes
        that training ended with; `encode` starts from scratch and comes close to them, but does not reach them. Each
        later batch of `partial_fit` adds an entry with the objective of that batch, and "vectors" counts all seen.
    metric_ : str or None
        The metric that the model was trained for; None if the model comes from elsewhere, or from a release without
        metrics.
    loss_ : dict
        The loss that was used: "name" and, for "inner-product", the "eta", "weight_power", "demand" and "metric" that
        were given or chosen.
    directions_ : (r, d) float32
        Orthogonal rows A by which errors count as ‖(I + AᵀA) r‖², from a loss with a metric; otherwise r is 0.
    n_groups_ : int
        The number of groups of codebooks.
    n_features_in_ : int
        The length d of the vectors.
    centroids_ : (n_lists, d) float32 or None
        The centroids of the lists, if there are any.

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

    method = "compositional"

    loss_: dict[str, Any]
    directions_: NDArray[np.float32]
    _past: streaming.Past | None = None
    #: With several groups, the dimensions of each.
    _groups: Groups | None = None
    #: Seed and start of local search, which only the Rust crate sets.
    _search: tuple[int, tuple[str, int] | None] = (0, None)

    def __init__(
        self,
        n_codebooks: int = 8,
        n_codewords: int = 256,
        selection: Selection = "group",
        *,
        metric: Metric = "ip",
        encoder: EncoderName | encoders.Encoder = "local-search",
        loss: LossName | losses.Loss | None = None,
        init: Start | NDArray[Any] | list[Any] = "residual",
        effort: Effort = "default",
        anneal: int | None = None,
        max_iter: int | None = None,
        tol: float = 1e-3,
        ridge: float = 1e-3,
        shrinkage: float = 4.0,
        random_state: RandomState = 0,
        n_jobs: int | None = None,
        max_train: int | None = None,
        n_lists: int | Literal["auto"] | None = None,
        list_size: int | None = None,
        n_groups: int | Literal["auto"] = "auto",
    ) -> None:
        self.n_codebooks = n_codebooks
        self.n_codewords = n_codewords
        self.selection = selection
        self.metric = metric
        self.encoder = encoder
        self.loss = loss
        self.init = init
        self.effort = effort
        self.anneal = anneal
        self.max_iter = max_iter
        self.tol = tol
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.max_train = max_train
        self.n_lists = n_lists
        self.list_size = list_size
        self.n_groups = n_groups

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        queries: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        progress: ProgressLike = None,
    ) -> Self:
        """Learn the codebooks.

        Parameters
        ----------
        X : (n, d) array of any real type, `compcodes.data.Files`, dask.array, list of delayed blocks, or Dask column
            Training vectors, in memory or memory-mapped; read a chunk at a time. About 50 · K or more are a good
            number. Blocks stay on the workers of the current `dask.distributed.Client`, which send sums; without a
            client this process reads them. The codebooks are those of the same rows in one array, up to the order in
            which float64 sums are added.
        y : ignored
            Accepted for scikit-learn's pipelines: a label or target for each row of `X`. Weights go by name.
        queries : (nq, d), optional
            Sample queries, some hundreds or more, for "inner-product": it chooses its parameters by them, and gives
            more weight to the vectors that they find. Without them rows of `X` serve for the choice. "reconstruction"
            only checks them.
        sample_weight : (n,), optional
            Weight of each vector in the objective. Rows of weight 0 are as good as absent; so a mask chooses rows.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error. The stages are "choose
            loss", if its parameters are not given, "lists", if there are any, and "fit".

        Returns
        -------
        CompositionalCodes
            Itself. After an error or Ctrl-C the model is unchanged.

        Raises
        ------
        ValueError
            A parameter or argument has a wrong value or shape; NaN or infinity in `X`, with the row.
        TypeError
            An array is not of real numbers; or `y` cannot be a target per row, like queries that were not named.

        Warns
        -----
        LengthWarning
            A few rows of an array, at most one in twenty, are at least 30 times as long as all others.
        """
        check(self)
        self._adopt(fitted(self, X, y, queries, sample_weight, progress))
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        progress: ProgressLike = None,
    ) -> Self:
        """Learn from one batch of a stream.

        The first call is `fit`; it chooses the loss. Each later one continues from the current codebooks, whether they
        come from `fit`, a file or earlier batches: it encodes the batch, and updates the codebooks for it and for its
        sums over earlier batches, whose size does not grow (8·(M·K)² bytes, 32 MB for M = 8). Files and `fit` only keep
        the number of vectors; these are then assumed to have been like those of the next batch.

        Batches should be shuffled, and have about 40 · K vectors or more, above all the first one. The order matters,
        and each batch weighs more than those before: every call forgets two fifths of their sums, or as much as a small
        batch contributes.

        Parameters
        ----------
        X : (n, d) array of any real type
            The batch.
        y : ignored
            As in `fit`.
        sample_weight : (n,), optional
            Weight of each vector.
        progress : callable or True, optional
            As in `fit`.

        Returns
        -------
        CompositionalCodes
            Itself. After an error or Ctrl-C the model is unchanged.

        Raises
        ------
        ValueError, TypeError
            As in `fit`; or n_codebooks, n_codewords or selection have changed since the model was fitted.

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> rng = np.random.default_rng(0)
        >>> q = cc.CompositionalCodes(n_codebooks=2, n_codewords=16)
        >>> for _ in range(3):
        ...     q = q.partial_fit(rng.normal(size=(1000, 8)))
        >>> q.history_[-1]["vectors"]
        3000
        """
        check(self)
        X, weights = training_data(self, X, sample_weight)
        refuse_unnamed(y, X.shape)
        if not hasattr(self, "codebooks_"):
            made, past = begun(self, X, weights, progress)
            self._adopt(made)
            self._past = past
            return self
        codebooks, past, entry = absorbed(self, X, weights, progress)
        divided = self._lists
        self._set(codebooks, self._selection)
        self._lists, self._past = divided, past
        self.history_ = [*self.history_, entry]
        return self

    def _adopt(self, made: Fitted) -> None:
        self._set(made.trained.codebooks, self.selection)
        self._lists, self._groups = made.lists, made.groups
        directions = made.trainer.objective.directions
        self._direct(np.zeros((0, self.n_features_in_), np.float32) if directions is None else directions)
        self._search = 0, None
        self.history_ = made.trained.history
        self.metric_ = self.metric
        self.loss_ = losses.parameters(made.loss)

    @property
    def centroids_(self) -> NDArray[np.float32] | None:
        """A copy of the centroids of the lists, (n_lists, d); None if there are none."""
        self._fitted()
        return None if self._lists is None else self._lists.centroids

    def assign(self, X: ArrayLike, *, progress: ProgressLike = None) -> NDArray[np.int64]:
        """Find the list of each vector.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time.
        progress : callable or True, optional
            As in `fit`.

        Returns
        -------
        (n,) int64
            For each vector, the list whose centroid has the least loss.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            The model has no lists; or `X` has a wrong shape or dtype, or holds NaN or infinity (with the row).

        Examples
        --------
        >>> import numpy as np, compcodes as cc
        >>> X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
        >>> q = cc.CompositionalCodes(n_codebooks=2, n_codewords=32, n_lists=20, effort="low").fit(X)
        >>> lists = q.assign(X)
        >>> codes = q.encode(X, lists=lists)
        >>> q.decode(codes, lists).shape
        (2000, 16)
        """
        X = as_vectors(X, "X", self._fitted().shape[2])
        if self._lists is None:
            raise ValueError("the model has no lists: fit it with n_lists")
        return self._lists.assign(self._seen(X), self.n_jobs, staged(progress, "assign"))[0]

    def encode(
        self, X: ArrayLike, *, lists: ArrayLike | None = None, progress: ProgressLike = None
    ) -> NDArray[np.uint8]:
        """Choose codes for vectors.

        Parameters
        ----------
        X : (n, d) array of any real type
            Vectors; read a chunk at a time. For a `dask.array` the codes are one too, with blocks (rows, M), and are
            computed on demand, each task on one thread.
        lists : (n,) int, optional
            For a model with lists: the list of each vector; by default as `assign` finds. The code approximates the
            residual from the centroid.
        progress : callable or True, optional
            Called as ``progress(stage, done, total)``; True shows a bar on standard error.

        Returns
        -------
        (n, M) uint8

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            `X` has a wrong shape or dtype, or holds NaN or infinity (with the row); or the model has no such lists.
        """
        if is_dask_array(X):
            if lists is not None:
                raise ArgumentValueError("lists", "cannot be given for a dask array: each block finds its own")
            return super().encode(X, progress=progress)
        X = as_vectors(X, "X", self._fitted().shape[2])
        places = self._assigned(X) if lists is None else self._places(lists, len(X))
        target = self._target(self._seen(X), places)
        return self._encoder().encode(target, self.n_jobs, staged(progress, "encode"))

    def _seen(self, X: NDArray[Any]) -> NDArray[Any]:
        return unit_rows(X) if self.metric_ == "cosine" else X

    @property
    def n_groups_(self) -> int:
        """The number of groups of codebooks, including a trunk."""
        self._fitted()
        return 1 if self._groups is None else len(self._groups.sizes) + (self._groups.trunk > 0)

    @classmethod
    def from_codebooks(
        cls,
        codebooks: ArrayLike,
        selection: Selection = "group",
        *,
        centroids: ArrayLike | None = None,
        by_residual: bool = True,
    ) -> CompositionalCodes:
        """Make a fitted model of codebooks (M, K, d) trained elsewhere, and of the centroids (n_lists, d) of lists.

        With ``by_residual=False`` codes encode whole vectors: the lists of vectors and queries are chosen by the
        centroids, but approximations do not start from them.

        Raises
        ------
        ValueError
            They have a wrong shape, or hold NaN or infinity; or `by_residual` is False without `centroids`.
        TypeError
            They are not of real numbers.
        """
        if centroids is None and not by_residual:
            raise ArgumentValueError("by_residual", "is False, and there are no centroids of lists: give centroids")
        given = as_numbers("codebooks", codebooks)
        if given.ndim != 3:
            raise ArgumentValueError("codebooks", f"has shape {given.shape}: want (M, K, d)")
        with np.errstate(over="ignore"):  # values that float32 cannot hold become infinite, and are rejected as such
            codebooks = np.array(given, dtype=np.float32, order="C")
        _core.check_codebooks(codebooks, selection)
        made = cls._restored(codebooks, selection, {})
        if centroids is not None:
            rows = np.array(as_vectors(centroids, "centroids", codebooks.shape[2]), dtype=np.float32, order="C")
            made._lists, made.n_lists = _core.Lists(rows, by_residual=bool(by_residual)), len(rows)
        return made

    @classmethod
    def _restored(cls, codebooks: NDArray[np.float32], selection: str, stored: dict[str, Any]) -> Self:
        self = super()._restored(codebooks, selection, stored)
        self.selection = cast(Selection, selection)
        if not isinstance(self.encoder, str):
            self.encoder = encoders.as_encoder(self.encoder)
        if self.loss is not None and not isinstance(self.loss, str):
            self.loss = losses.as_loss(self.loss)
        try:
            self.loss_ = losses.parameters(losses.as_loss(stored.get("fitted_loss", "reconstruction")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the model's {error}") from None
        self._direct(np.zeros((0, codebooks.shape[2]), np.float32))
        return self

    def _follow(self, model: _core.Model) -> None:
        if model.directions is not None:
            self._direct(model.directions)
        if coder(self).steps() != model.encoding:
            self.encoder = encoders.of(*model.encoding)
        if (self.loss_.get("eta") or 1.0) != model.eta:
            self.loss_ = losses.parameters(losses.InnerProduct(eta=model.eta))
        self.metric_ = model.metric
        self._groups = None if model.groups is None else Groups(*model.groups)
        self._search = model.seed, model.start

    def _recipe(self) -> dict[str, Any]:
        seed, start = self._search
        return {
            "eta": self.loss_.get("eta") or 1.0,
            "encoding": coder(self).steps(),
            "seed": seed,
            "start": start,
            "directions": self.directions_,
            "metric": self.metric_,
            "groups": None if self._groups is None else self._groups.parts(),
        }

    def _parameters(self) -> str:
        params = {name: value for name, value in self.get_params().items() if name != "n_jobs"}
        if not isinstance(self.encoder, str):
            params["encoder"] = encoders.parameters(encoders.as_encoder(self.encoder))
        if self.loss is not None and not isinstance(self.loss, str):
            params["loss"] = losses.parameters(losses.as_loss(self.loss))
        for name in ("n_lists", "list_size"):
            if params[name] is None:  # as written by releases without lists
                del params[name]
        return as_json(params | {"history": self.history_, "fitted_loss": self.loss_})

    def __setstate__(self, state: dict[str, Any]) -> None:
        since = {"metric": "ip", "effort": "default", "n_lists": None, "list_size": None, "n_groups": "auto"}
        super().__setstate__({**since, **state})  # pickles of releases without these attributes

    def _set(self, codebooks: NDArray[np.float32], selection: str = "group") -> None:
        self._past = self._lists = self._groups = None
        super()._set(codebooks, selection)

    def _direct(self, directions: NDArray[np.float32]) -> None:
        directions.flags.writeable = False
        self.directions_ = directions

    def _encoder(self) -> encoders.Coder:
        """Return the encoder of the codebooks, prepared once."""
        codebooks = self._fitted()
        settings = encoder, eta, selection, (seed, start) = (
            coder(self),
            self.loss_.get("eta") or 1.0,
            self._selection,
            self._search,
        )
        objective = Objective(eta, self.directions_)
        return self._prepared(
            (codebooks, self.directions_),
            settings,
            lambda: encoder.build(
                codebooks,
                selection,
                objective,
                seed,
                self.n_jobs,
                start,
                None if self._groups is None else self._groups.parts(),
            ),
        )
