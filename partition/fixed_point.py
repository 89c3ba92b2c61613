"""Fixed-point numbers of 32 bits, as TFLite's integer kernels calculate with them.

TFLite takes this arithmetic from gemmlowp (``fixedpoint/fixedpoint.h``). ``Q5.26`` has 5 integer
bits and a sign: its numbers are multiples of 2**-26. Python's integers have no limits, so
saturation is written out.
"""

from __future__ import annotations

import math

_MAX = (1 << 31) - 1
_MIN = -(1 << 31)

# exp(-1/8) and 1/3 in Q0.31, and exp(-2**e) for e = -2, -1, 0, ... as gemmlowp has them.
_EXP_MINUS_EIGHTH = 1895147668
_THIRD = 715827883
# sqrt(1/2) in Q0.31.
ROOT_OF_HALF = 1518500250
_EXP_MINUS_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)

# 48/17, -32/17 and 1 in Q2.29: the first guess of an inverse.
FORTY_EIGHT_OVER_17 = 1515870810
MINUS_32_OVER_17 = -1010580540
ONE = 1 << 29


def saturate(value: int) -> int:
    """Limit to 32 bits."""
    return max(_MIN, min(_MAX, value))


def high_multiply(a: int, b: int) -> int:
    """Return ``a * b / 2**31`` rounded to nearest, ties upwards, saturated."""
    return saturate((a * b + (1 << 30)) >> 31)


def divide_by_power(value: int, exponent: int) -> int:
    """Return ``value / 2**exponent`` rounded to nearest, ties away from zero."""
    half = (1 << exponent) >> 1
    return (value + half) >> exponent if value >= 0 else -((half - value) >> exponent)


def _exp_of_small(value: int) -> int:
    """Return exp of -1/4 <= value < 0 in Q0.31: a polynomial around -1/8."""
    x = value + (1 << 28)
    square = high_multiply(x, x)
    cube = high_multiply(square, x)
    fourth = high_multiply(square, square)
    tail = high_multiply(divide_by_power(fourth, 2) + cube, _THIRD) + square
    return _EXP_MINUS_EIGHTH + high_multiply(_EXP_MINUS_EIGHTH, x + divide_by_power(tail, 1))


def exp_of_negative(value: int, integer_bits: int = 5) -> int:
    """Return exp(value) in Q0.31 for a number that is not positive and has 4 or 5 integer bits."""
    if value == 0:
        return _MAX
    quarter = 1 << (29 - integer_bits)
    part = (value & (quarter - 1)) - quarter
    result = _exp_of_small(saturate(part << integer_bits))
    remainder = part - value
    for index, factor in enumerate(_EXP_MINUS_POWERS[: integer_bits + 2]):
        if remainder & (quarter << index):
            result = high_multiply(result, factor)
    return result


def _inverse_of_half(half: int) -> int:
    """Return 1 / (2 * half) in Q2.29 for a number of Q0.31 from 1/2 to 1: Newton-Raphson."""
    x = FORTY_EIGHT_OVER_17 + high_multiply(half, MINUS_32_OVER_17)
    for _ in range(3):
        rest = ONE - high_multiply(half, x)
        x += saturate(high_multiply(x, rest) << 2)
    return x


def logistic(value: int) -> int:
    """Return 1 / (1 + exp(-value)) in Q0.31 for a number of Q4.27."""
    if value == 0:
        return 1 << 30
    half = (exp_of_negative(-abs(value), 4) + _MAX + 1) >> 1
    positive = saturate(_inverse_of_half(half) << 1)
    return positive if value > 0 else _MAX - positive


def tanh(value: int) -> int:
    """Return the hyperbolic tangent in Q0.31 of a number of Q4.27."""
    if value == 0:
        return 0
    # Read as Q5.26 the same bits are twice the value.
    half = (exp_of_negative(-abs(value), 5) + _MAX + 1) >> 1
    positive = saturate((_inverse_of_half(half) - ONE) << 2)
    return positive if value > 0 else -positive


def inverse_root(value: int) -> tuple[int, int]:
    """Return 1 / sqrt of a positive number as multiplier and right shift, by Newton and Raphson."""
    if value == 1:
        return _MAX, 31
    pairs = (30 - (value.bit_length() - 1)) // 2 - 1
    scaled = (value << (2 * pairs)) >> 1
    half, three_halves = divide_by_power(scaled, 1), 3 << 27
    x = 1 << 28
    for _ in range(5):
        cube = saturate(high_multiply(high_multiply(x, x), x) << 6)
        x = saturate((high_multiply(three_halves, x) - high_multiply(half, cube)) << 3)
    multiplier, shift = high_multiply(x, ROOT_OF_HALF), 11 - pairs
    return (multiplier, 31 + shift) if shift >= 0 else (multiplier << -shift, 31)


def rescaled(value: int, multiplier: int, shift: int) -> int:
    """Return ``value * multiplier / 2**shift``, rounded twice where the shift exceeds 31 bits."""
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    return divide_by_power(high_multiply(value << left, multiplier), right)


def greater_than_one(value: int, multiplier: int, left_shift: int) -> int:
    """Return ``value * multiplier * 2**(left_shift - 31)``, rounded once."""
    return high_multiply(value << left_shift, multiplier)


def input_radius(integer_bits: int, left_shift: int) -> int:
    """Return the largest value whose rescaled form stays below ``2**integer_bits``."""
    largest = ((1 << integer_bits) - 1) << (31 - integer_bits)
    return math.floor(largest / (1 << left_shift))
