"""Types of arrays and of JSON as signatures name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Letters: TypeAlias = NDArray[np.int8]
Texts: TypeAlias = NDArray[np.object_]
Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.int32] | NDArray[np.float64]
Indices: TypeAlias = NDArray[np.signedinteger[Any]]
"""Whole numbers of whatever width: codes, and indices of other arrays."""
Value: TypeAlias = NDArray[Any] | np.int64 | int | float | list[float]
"""What a kernel takes: an array, a number, or, run by the interpreter, the elements of an array."""
Column: TypeAlias = NDArray[np.generic]
"""An array of whatever type a table has for it."""

if TYPE_CHECKING:  # a type that refers to itself, which Python 3.11 cannot evaluate
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    """A decoded JSON document of which nothing is known yet."""
else:
    Json = Any  # so that a struct may have fields of it, which are then decoded to whatever they hold
