"""What operators mean where TFLite Micro has no kernel to compare with.

Functions of int16 are read off a table in TFLite: 512 lines between 513 points. The formulas are
those of kernels/internal/common.h (filling and looking up tables), one point after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.equivalence.cases import Array

_LEAST, _LARGEST = -(1 << 15), (1 << 15) - 1
_LINES = 512
_VALUES_PER_LINE = 128


def _nearest(x: np.float32) -> np.float32:
    """Round to a whole number, halves away from zero."""
    whole = np.floor(np.abs(np.float64(x)) + 0.5)
    return np.float32(-whole if x < 0 else whole)


def _points(function: Callable[[float], float], ifm_scale: float, ofm_scale: float) -> list[int]:
    low, high = (np.float32(ifm_scale) * np.float32(end) for end in (_LEAST, _LARGEST))
    bottom, top = (np.float32(ofm_scale) * np.float32(end) for end in (_LEAST, _LARGEST))
    width = (high - low) / np.float32(_LINES)
    steps = np.float32(1 << 16) / (top - bottom)

    def at(x: np.float32) -> np.float32:
        return np.float32(function(float(x))) * steps

    points = []
    for line in range(_LINES):
        start = low + np.float32(line) * width
        begin, end = _nearest(at(start)), at(low + np.float32(line + 1) * width)
        drawn = _nearest((end + begin) / np.float32(2))
        # Half of the error in the middle is taken off, so that both halves share it.
        error = _nearest((drawn - _nearest(at(start + width / np.float32(2)))) / np.float32(2))
        points.append(begin - error)
    points.append(_nearest(at(high)))
    return [int(np.clip(point, _LEAST, _LARGEST)) for point in points]


def looked_up(
    function: Callable[[float], float], values: Array, ifm_scale: float, ofm_scale: float
) -> Array:
    """Return TFLite's results of int16 ``values`` whose zero points are 0."""
    points = _points(function, ifm_scale, ofm_scale)
    results = []
    for value in values.reshape(-1).tolist():
        line, offset = divmod(value - _LEAST, _VALUES_PER_LINE)
        rise = (points[line + 1] - points[line]) * offset
        results.append(points[line] + ((rise + _VALUES_PER_LINE // 2) >> 7))
    return np.array(results, np.int16).reshape(values.shape)


def table_of_int8(
    function: Callable[[float], float],
    values: Array,
    ifm: tuple[float, int],
    ofm: tuple[float, int],
) -> Array:
    """Return TFLite's results of int8 ``values``; a scale and a zero point of input and output."""
    inverse = np.float32(1) / np.float32(ofm[0])
    results = []
    for value in values.reshape(-1).tolist():
        real = np.float32(function(float(np.float32(ifm[0]) * np.float32(value - ifm[1]))))
        results.append(int(np.clip(int(_nearest(real * inverse)) + ofm[1], -128, 127)))
    return np.array(results, np.int8).reshape(values.shape)


def mirrored(values: Array, shape: Sequence[int]) -> Array:
    """Return an array padded alike at both ends, up to a shape, without its edges twice."""
    amounts = [(out - n) // 2 for n, out in zip(values.shape, shape, strict=True)]
    return np.pad(values, [(amount, amount) for amount in amounts], mode="reflect")


def blended(values: Array, factors: tuple[int, int], mode: str) -> Array:
    """Return an NHWC image enlarged in height and width: sums of exact weights, rounded once."""
    sums = _blend(values.astype(np.int64), 1, factors[0], mode)
    sums = _blend(sums, 2, factors[1], mode)
    half = 1 << 15
    return np.where(sums < 0, -((half - sums) >> 16), (sums + half) >> 16).astype(values.dtype)


def _blend(values: Array, axis: int, factor: int, mode: str) -> Array:
    """Return one axis enlarged, in 256 times the steps, by the definition of the mode."""
    size = values.shape[axis]
    count = (size - 1) * factor + 1 if mode == "align_corners" else size * factor
    at = np.arange(count) / factor
    if mode == "half_pixel":
        at = (np.arange(count) + 0.5) / factor - 0.5
    at = at.clip(0, size - 1)
    low = np.floor(at).astype(int)
    share = ((at - low) * 256).astype(np.int64).reshape([-1 if i == axis else 1 for i in range(4)])
    first, second = (values.take(i, axis) for i in (low, np.minimum(low + 1, size - 1)))
    return first * (256 - share) + second * share
