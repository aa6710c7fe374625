"""The conventions of scikit-learn's estimators: parameters by name, and what its tools call. It is not a dependency."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Estimator"]


class Estimator:
    """A transformer of vectors to codes. Parameters are the arguments of `__init__`, kept under their names."""

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn from vectors; `y` is ignored."""
        raise NotImplementedError

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Choose codes for vectors."""
        raise NotImplementedError

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Approximate vectors by their codes."""
        raise NotImplementedError

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> NDArray[np.uint8]:
        """`fit`, then `encode`, as scikit-learn's pipelines call it; `y` is ignored."""
        fitted = self.fit(X, **fit_params) if y is None else self.fit(X, y, **fit_params)
        return fitted.encode(X)

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Another name of `encode`, which scikit-learn's pipelines call."""
        return self.encode(X)

    def inverse_transform(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Another name of `decode`, which scikit-learn's pipelines call."""
        return self.decode(codes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "codebooks_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools ask of an estimator: a transformer that needs no target."""
        from sklearn.utils import Tags, TargetTags, TransformerTags  # it asks, so it is there

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=TransformerTags())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn's tools ask for them."""
        return {name: getattr(self, name) for name in _defaults(type(self)) if hasattr(self, name)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            There is no parameter of that name.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}: want one of {sorted(known)}")
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


def _same(value: object, default: object) -> bool:
    """Whether a parameter is as by default; arrays and objects never are."""
    return value is default or (isinstance(value, (str, int, float)) and value == default)


def _defaults(kind: type) -> dict[str, Any]:
    """Parameters of a class and their defaults; where it passes further ones on by ``**``, those of its base too."""
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
