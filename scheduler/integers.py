"""Integer arithmetic of numbers and of numpy arrays alike."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]


@overload
def ceil_div(value: int, by: int) -> int: ...
@overload
def ceil_div(value: Integers, by: int | Integers) -> Integers: ...
@overload
def ceil_div(value: int, by: Integers) -> Integers: ...
def ceil_div(value: Any, by: Any) -> Any:
    """Return the quotient rounded up."""
    return -(-value // by)


@overload
def round_up(value: int, to: int) -> int: ...
@overload
def round_up(value: Integers, to: int) -> Integers: ...
def round_up(value: Any, to: Any) -> Any:
    """Return the next multiple of ``to``."""
    return ceil_div(value, to) * to
