"""Scaling of accumulators: multiply, shift right, round.

``DOUBLE`` rounds twice: the first shift is by at most 31 with ties upwards, the rest with ties
away from zero. It equals gemmlowp's saturating rounding doubling high multiply followed by its
rounding divide by a power of two. ``NATURAL`` rounds once, ties upwards. ``TRUNCATE`` goes towards
zero (no evidence). Source: EMIT, confirmed against TFLite Micro's reference kernels.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.errors import AmbiguousError
from tvm_ethosu.backend.sim.limits import MAX_SLOW_ELEMENTS, check_work
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import Rounding

_FIRST_SHIFT: Final = 31
_SAFE_PRODUCT: Final = 1 << 62
_WIDE_LIMIT: Final = 1 << 46
_SPLIT: Final = 16
_LARGEST_SHIFT: Final = 63


def scale(
    acc: Array,
    multiplier: int | Array,
    shift: int | Array,
    rounding: Rounding,
    *,
    bound: int | None = None,
    strict: bool = True,
) -> Array:
    """Return ``round(acc * multiplier >> shift)`` as int64.

    ``multiplier`` (0 to 2**32 - 1) and ``shift`` are numbers or arrays that broadcast
    against ``acc``. ``bound`` is an upper limit of ``abs(acc)`` if the caller knows one.
    Raises AmbiguousError for TRUNCATE in strict mode, LimitError.
    """
    if rounding is Rounding.TRUNCATE and strict:
        raise AmbiguousError("OFM rounding mode TRUNCATE: no compiler output relies on it")
    top = int(np.max(multiplier)) if isinstance(multiplier, np.ndarray) else multiplier
    if bound is None or bound * top >= _SAFE_PRODUCT:
        bound = max(abs(int(acc.max())), abs(int(acc.min()))) if acc.size else 0
    if int(np.max(shift)) > _LARGEST_SHIFT:
        return _scale_slowly(acc, multiplier, shift, rounding)
    if bound * top >= _SAFE_PRODUCT:
        return _scale_wide(acc, multiplier, shift, rounding, bound)
    product = acc if top == 1 and np.ndim(multiplier) == 0 else acc * multiplier
    return round_shift(product.astype(np.int64, copy=False), shift, rounding)


def round_shift(product: Array, shift: int | Array, rounding: Rounding) -> Array:
    """Return ``round(product >> shift)``; ``abs(product)`` must be below 2**62 (see ``scale``)."""
    if np.ndim(shift) == 0 and int(shift) == 0:
        return product
    if rounding is Rounding.NATURAL:
        return _shift_up(product, shift)
    if rounding is Rounding.TRUNCATE:
        return np.asarray(np.sign(product) * (np.abs(product) >> shift))
    first = np.minimum(shift, _FIRST_SHIFT)
    result = _shift_up(product, first)
    second = shift - first
    return result if not np.any(second) else _shift_away(result, second)


def _half(shift: int | Array) -> Array:
    """Return ``2**(shift - 1)``, or 0 for no shift."""
    amount = np.asarray(shift)
    return np.where(amount > 0, np.left_shift(np.int64(1), np.maximum(amount - 1, 0)), 0)


def _shift_up(value: Array, shift: int | Array) -> Array:
    """Shift right, ties upwards."""
    return np.asarray((value + _half(shift)) >> shift)


def _shift_away(value: Array, shift: int | Array) -> Array:
    """Shift right, ties away from zero."""
    nudge = (value < 0) & (np.asarray(shift) > 0)
    return np.asarray((value + (_half(shift) - nudge)) >> shift)


def _scale_wide(
    acc: Array, multiplier: int | Array, shift: int | Array, rounding: Rounding, bound: int
) -> Array:
    """Do the same for products beyond 62 bits, in two parts of the accumulator.

    With ``acc = high * 2**16 + low``, ``floor((acc * m + half) / 2**s)`` is
    ``(high * m + ((low * m + half) >> 16)) >> (s - 16)`` when ``s >= 16``.
    """
    if bound >= _WIDE_LIMIT or rounding is Rounding.TRUNCATE or int(np.min(shift)) < _SPLIT:
        return _scale_slowly(acc, multiplier, shift, rounding)
    wide = acc.astype(np.int64, copy=False)
    high, low = wide >> _SPLIT, wide & ((1 << _SPLIT) - 1)
    first = shift if rounding is Rounding.NATURAL else np.minimum(shift, _FIRST_SHIFT)
    carry = (low * multiplier + _half(first)) >> _SPLIT
    result = (high * multiplier + carry) >> (first - _SPLIT)
    second = shift - first
    return result if not np.any(second) else _shift_away(result, second)


def _scale_slowly(
    acc: Array, multiplier: int | Array, shift: int | Array, rounding: Rounding
) -> Array:
    """Do the same in Python integers, without limits; the result saturates at 64 bits."""
    arrays = np.broadcast_arrays(acc, multiplier, shift)
    check_work(arrays[0].size, MAX_SLOW_ELEMENTS, "scaling takes {} steps one by one")
    flat = [
        _scale_one(int(a) * int(m), int(s), rounding)
        for a, m, s in zip(*(array.ravel() for array in arrays), strict=True)
    ]
    return np.array(flat, np.int64).reshape(arrays[0].shape)


def _scale_one(product: int, shift: int, rounding: Rounding) -> int:
    if shift == 0:
        result = product
    elif rounding is Rounding.NATURAL:
        result = (product + (1 << (shift - 1))) >> shift
    elif rounding is Rounding.TRUNCATE:
        result = product >> shift if product >= 0 else -(-product >> shift)
    else:
        result = _round_twice(product, shift)
    return max(-(1 << 63), min((1 << 63) - 1, result))


def _round_twice(product: int, shift: int) -> int:
    first = min(shift, _FIRST_SHIFT)
    result = (product + (1 << (first - 1))) >> first
    second = shift - first
    if second == 0:
        return result
    return (result + (1 << (second - 1)) - (result < 0)) >> second
