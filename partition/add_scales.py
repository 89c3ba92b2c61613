"""Scales with which an addition on the NPU equals TFLite's kernel for every pair of values.

TFLite brings the operand of the smaller scale to the larger one with two roundings (gemmlowp). How
often the NPU rounds there is not documented: once at the end, or after 11 bits and at the end. The
readings differ for about one in a hundred triples of scales, in a pair or two of 65025. So scales
are taken that give TFLite's result under both readings; a change of the smaller scale by a few
units of 2**-31 is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_ethosu.partition.quantize import quantize_multiplier

_Ints = npt.NDArray[np.int64]

# TFLite shifts 8-bit operands up by this many bits before it scales them (kernels/add.cc).
_HEADROOM_BITS = 20
_FIRST_STAGE_BITS = 31 - _HEADROOM_BITS
_MOST_UNITS = 64


@dataclass(frozen=True)
class Values:
    """A scale, and the values less their zero point that can occur: ``low`` to ``high``."""

    scale: float
    low: int
    high: int

    def all(self) -> _Ints:
        """Return every value that can occur."""
        return np.arange(self.low, self.high + 1, dtype=np.int64)


def _high_multiply(values: _Ints, bits: int) -> _Ints:
    """Return values / 2**bits rounded to nearest, ties upwards (gemmlowp's high multiply)."""
    half = np.int64(1) << np.int64(bits - 1)
    nudged = values + np.where(values >= 0, half, 1 - half)
    rounded: _Ints = np.sign(nudged) * (np.abs(nudged) >> bits)
    return rounded


def _divide_by_power(values: _Ints, bits: int) -> _Ints:
    """Return values / 2**bits rounded to nearest, ties away from zero."""
    if bits == 0:
        return values
    half = np.int64(1) << np.int64(bits - 1)
    rounded: _Ints = np.sign(values) * ((np.abs(values) + half) >> bits)
    return rounded


def _twice_rounded(products: _Ints, shift: int, first_bits: int) -> _Ints:
    first = min(shift, first_bits)
    return _divide_by_power(_high_multiply(products, first), shift - first)


def _outputs(smaller: _Ints, larger: Values, ofm: Values) -> _Ints:
    """Return the sums of all pairs, scaled to the OFM and limited to what can be written."""
    factor = quantize_multiplier(2 * larger.scale / (ofm.scale * (1 << _HEADROOM_BITS)))
    assert factor is not None
    sums = smaller[:, None] + (larger.all() << (_HEADROOM_BITS - 1))[None, :]
    scaled = _twice_rounded(sums * factor.multiplier, factor.shift, 31)
    return np.clip(scaled, ofm.low, ofm.high)


def _is_exact(smaller: Values, larger: Values, ofm: Values, units: int, sign: int) -> bool:
    """Return whether the multiplier moved by ``units`` gives TFLite's sums under both readings."""
    ratio = quantize_multiplier(smaller.scale / (2 * larger.scale) * (1 << _HEADROOM_BITS))
    assert ratio is not None
    values = smaller.all()
    exact = _twice_rounded(values * ratio.multiplier, ratio.shift, _FIRST_STAGE_BITS)
    moved = values * (ratio.multiplier + units)
    readings = [_twice_rounded(moved, ratio.shift, bits) for bits in (31, _FIRST_STAGE_BITS)]
    differing = np.flatnonzero((readings[0] != exact) | (readings[1] != exact))
    expected = _outputs(sign * exact[differing], larger, ofm)
    return all(
        np.array_equal(_outputs(sign * reading[differing], larger, ofm), expected)
        for reading in readings
    )


def _units() -> Iterator[int]:
    yield 0
    for units in range(1, _MOST_UNITS + 1):
        yield from (units, -units)


def exact_smaller_scale(
    smaller: Values, larger: Values, ofm: Values, sign: int = 1
) -> float | None:
    """Return a scale for the operand of the smaller scale with which the NPU adds as TFLite does.

    It is the given one wherever possible; None if there is none nearby. All scales must be
    positive, with factors between them that fit the NPU's shifts. With ``sign`` -1 the smaller
    operand is subtracted.
    """
    if smaller.scale == larger.scale:
        return smaller.scale
    significand, _ = math.frexp(smaller.scale / (2 * larger.scale))
    for units in _units():
        if _is_exact(smaller, larger, ofm, units, sign):
            return smaller.scale * (1 + units / (significand * (1 << 31)))
    return None
