"""The habits of scikit-learn's estimators, which is no dependency: parameters by name, and what its tools call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Estimator"]


class Estimator:
    """A transformer of vectors to codes. Parameters are the arguments of `__init__`, kept under their names."""

    def fit(self, X: ArrayLike) -> Self:
        """Learn from vectors."""
        raise NotImplementedError

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Choose codes for vectors."""
        raise NotImplementedError

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Approximate vectors by their codes."""
        raise NotImplementedError

    def fit_transform(self, X: ArrayLike, y: object = None, **fit_params: Any) -> NDArray[np.uint8]:
        """`fit`, then `encode`, as scikit-learn's pipelines call it; `y` is not looked at."""
        return self.fit(X, **fit_params).encode(X)

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
        names = type(self).__init__.__annotations__.keys() - {"return"}
        return {name: value for name, value in vars(self).items() if name in names}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            There is no parameter of that name.
        """
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"there is no parameter {name!r}: want one of {sorted(self.get_params())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = vars(type(self)())
        shown = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if name in ("n_codebooks", "n_codewords", "selection", "n_bits") or not _same(value, default[name])
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _same(value: object, default: object) -> bool:
    """Whether a parameter is as by default; arrays and objects never are."""
    return value is default or (isinstance(value, (str, int, float)) and value == default)
