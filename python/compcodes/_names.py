"""What identifies the vectors of an index: ids, or keys instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compcodes import _core
from compcodes._arrays import as_ids, size_of
from compcodes._keys import as_key, as_keys, key_array
from compcodes.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Names"]

_LARGEST = 2**63 - 1
"""The largest possible id."""


class Names(NamedTuple):
    """The names that an index accepts and returns, on their way to the core and back."""

    keyed: bool

    def given(self, names: ArrayLike, n: int, argument: str = "ids") -> NDArray[np.int64] | list[str]:
        """Convert names of `n` vectors for the core."""
        return as_keys(names, n, argument) if self.keyed else as_ids(names, n, argument)

    def some(self, names: ArrayLike, n: int) -> NDArray[np.int64] | list[str]:
        """Convert names of some of the `n` vectors of an index for the core."""
        if isinstance(names, range) and size_of(names) > n:
            raise ArgumentValueError("ids", f"are a range of {size_of(names)}, and the index holds {n} vectors")
        if isinstance(names, (set, frozenset)):
            names = list(names)
        return as_keys(names) if self.keyed else as_ids(names, np.size(names))

    def new(self, names: ArrayLike | None, n: int) -> NDArray[np.int64] | list[str] | None:
        """Convert names of `n` vectors that are added; ids may be left to the core."""
        if names is None and self.keyed:
            raise ArgumentValueError("ids", "is None: give a key for each vector, since the index has keys")
        return None if names is None else self.given(names, n)

    def read(self, names: NDArray[np.int64] | Sequence[str | None], shape: tuple[int, ...]) -> NDArray[Any]:
        """Convert names returned by the core."""
        return names if isinstance(names, np.ndarray) else key_array(names, shape)

    def among(self, core: _core.Index, name: object) -> bool:
        """Tell whether the index has a vector of this name, which may be anything."""
        if self.keyed:
            try:
                return core.contains(as_key(name))
            except (ArgumentTypeError, ArgumentValueError):
                return False
        if not isinstance(name, (int, np.integer)) or isinstance(name, (bool, np.bool_)):
            return False
        return 0 <= int(name) <= _LARGEST and core.contains(int(name))
