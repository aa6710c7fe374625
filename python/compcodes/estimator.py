"""The conventions of scikit-learn's estimators: parameters by name, and the methods its tools call. No dependency."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes._arrays import as_vectors, check_features
from compcodes.errors import ArgumentValueError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Estimator"]

_CONTAINERS = ("default", "pandas", "polars")


class Estimator:
    """A transformer of vectors to codes. Parameters are the arguments of `__init__`, stored under their names."""

    codebooks_: NDArray[np.float32]

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from vectors; `y` is ignored."""
        raise NotImplementedError

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Choose codes for vectors."""
        raise NotImplementedError

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Approximate vectors by their codes."""
        raise NotImplementedError

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> Any:
        """`fit`, then `transform`, as scikit-learn's pipelines call it; `y` is ignored."""
        fitted = self.fit(X, **fit_params) if y is None else self.fit(X, y, **fit_params)
        return fitted.transform(X)

    def transform(self, X: ArrayLike) -> Any:
        """`encode`, as scikit-learn's pipelines call it.

        Returns
        -------
        (n, M) uint8
            A data frame of pandas or polars if `set_output` or scikit-learn's configuration requests one.
        """
        index = getattr(X, "index", None)
        expected = getattr(self, "n_features_in_", None)
        if expected is not None:
            X = as_vectors(X, "X")
            check_features(X, expected, type(self).__name__)
        return self._contained(self.encode(X), None if callable(index) else index)  # a list has a method of that name

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return column names for codes, for scikit-learn's tools: the class name in lower case, and a number."""
        name, width = type(self).__name__.lower(), len(self.codebooks_)
        return np.array([f"{name}{m}" for m in range(width)], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` returns, as in scikit-learn: "default", "pandas", "polars", or None for no change.

        Raises
        ------
        ValueError
            It is none of these.
        """
        if transform not in (None, *_CONTAINERS):
            raise ArgumentValueError("transform", f"is {transform!r}: want one of {', '.join(_CONTAINERS)}")
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _contained(self, codes: NDArray[np.uint8], index: Any) -> Any:
        kind = getattr(self, "_sklearn_output_config", {}).get("transform")
        if kind is None and "sklearn" in sys.modules:
            kind = sys.modules["sklearn"].get_config()["transform_output"]
        if kind not in ("pandas", "polars"):
            return codes
        names = self.get_feature_names_out().tolist()
        frames = importlib.import_module(kind)
        if kind == "polars":
            return frames.DataFrame(codes, schema=names, orient="row")
        return frames.DataFrame(codes, columns=names, index=index, copy=False)

    def inverse_transform(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Return `decode`, under the name that scikit-learn's pipelines call."""
        return self.decode(codes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "codebooks_")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of an estimator: a transformer that needs no target."""
        from sklearn.utils import Tags, TargetTags, TransformerTags  # only scikit-learn calls this, so it is installed

        transformer = TransformerTags(preserves_dtype=[])
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=transformer)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn's tools request them."""
        return {name: getattr(self, name) for name in _defaults(type(self)) if hasattr(self, name)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``encoder__rounds`` is the parameter `rounds` of the object that is `encoder`.

        Raises
        ------
        ValueError
            There is no parameter of that name.
        """
        known, wanted = self.get_params(), dict[str, Any]()
        for name, value in sorted(params.items(), key=lambda item: "__" in item[0]):  # objects before their parts
            own, is_part, part = name.partition("__")
            if own not in known:
                raise ArgumentValueError(
                    name, f"cannot be set: there is no parameter {own!r}: want one of {sorted(known)}"
                )
            wanted[own] = _with(wanted.get(own, known[own]), name, part, value) if is_part else value
        for name, value in wanted.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = _defaults(type(self))
        shown = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if name in ("n_codebooks", "n_codewords", "selection", "n_bits") or not _same(value, default[name])
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _with(whole: Any, name: str, part: str, value: Any) -> Any:
    """Return an object with another value of one of its parameters."""
    parts = [field.name for field in fields(whole)] if is_dataclass(whole) else []
    if part not in parts:
        has = f"has {parts}" if parts else "has no parameters"
        raise ArgumentValueError(name, f"cannot be set: {name.partition('__')[0]} is {whole!r}, which {has}")
    return replace(whole, **{part: value})


def _same(value: object, default: object) -> bool:
    """Whether a parameter has its default value; arrays and objects never do."""
    return value is default or (isinstance(value, (str, int, float)) and value == default)


def _defaults(kind: type) -> dict[str, Any]:
    """Return parameters of a class and their defaults, including those of its base if it passes others on by ``**``."""
    found: dict[str, Any] = {}
    for cls in kind.__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
        named = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        found |= {p.name: p.default for p in named if p.name not in found}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return found
