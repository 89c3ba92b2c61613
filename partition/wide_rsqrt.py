"""1 / sqrt(x) of int16 on the NPU, with the arithmetic of TFLite Micro's integer kernel.

micro/kernels/elementwise.cc shifts x to 27..29 bits, finds the inverse root with five steps of
Newton and Raphson in Q3.28, and shifts that back to 20 bits behind the point. Every number has 32
bits on the NPU too. TFLite itself has another kernel for int16, an interpolated table.
"""

from __future__ import annotations

import math

from tvm_ethosu.partition.fixed_point import ROOT_OF_HALF
from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.partition.params import CurveParams, Factors
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.ir import DType, ElementKind, Operand, Rescale

# 1 and 3/2 in Q3.28.
_ONE = 1 << 28
_THREE_HALVES = 3 << 27
_STEPS = 5
FRACTION_BITS = 20
# A product of 32 bits drops so many, and an inverse of 1 has so many left in front.
_PRODUCT_BITS = 31
FREE_BITS = 10
# Larger than any int16: what is added where x is not positive, so that the result is the largest.
_BEYOND = 1 << 16


def rsqrt_factor(params: CurveParams) -> float:
    """Return the factor from 1 / sqrt(steps of the input) to steps of the output."""
    return 1 / (math.sqrt(params.ifm_quant.scale) * params.ofm_quant.scale)


def rsqrt_factors(params: CurveParams) -> Factors:
    """Return the factor and whether 32 bits hold what TFLite's kernel makes with it."""
    factor = rsqrt_factor(params)
    return [
        ("factor to the output", factor, 2.0**-11 <= factor < 2.0 ** (FRACTION_BITS + FREE_BITS))
    ]


def lower_wide_rsqrt(
    name: str, origin: str, source: Operand, result: Operand, factor: Rescale
) -> Lowered:
    """Return the operators; ``factor`` is the one from 1 / sqrt(steps) to steps of the output."""
    ops = OpSequence(name, origin)
    zero = ops.scalar(0, DType.I16)
    x = ops.elements(ElementKind.ADD, source, zero, ops.tensor(source.shape, DType.I32))
    positive = ops.words(ElementKind.MAX, x, ops.scalar(1))
    zeros = ops.words(ElementKind.LEADING_ZEROS, positive)
    # Pairs of bits by which x can be shifted up, rounded down and two more than are used.
    pairs = ops.shift_right(ops.words(ElementKind.SUB, zeros, ops.scalar(2)), ops.scalar(1))
    bits = ops.words(
        ElementKind.SUB, ops.words(ElementKind.MUL, pairs, ops.scalar(2)), ops.scalar(4)
    )
    half = ops.words(ElementKind.SHIFT_LEFT, positive, bits)
    root = ops.high_product(_inverse_root(ops, half), ops.scalar(ROOT_OF_HALF))
    shift = ops.words(ElementKind.SUB, pairs, ops.scalar(23), swapped=True)
    inverse = ops.shift_right(root, shift)
    scaled = _scaled(ops, inverse, factor)
    missing = ops.words(ElementKind.SUB, positive, x)
    beyond = ops.words(
        ElementKind.MUL, ops.words(ElementKind.MIN, missing, ops.scalar(1)), ops.scalar(_BEYOND)
    )
    ops.elements(ElementKind.ADD, scaled, beyond, result)
    return ops.lowered()


def _scaled(ops: OpSequence, inverse: Operand, factor: Rescale) -> Operand:
    """Return the inverse root, with bits behind its point, times a factor.

    Left shifts come before the product, as in TFLite; the inverse is at most 1.
    """
    shift = factor.shift + FRACTION_BITS
    if shift < _PRODUCT_BITS:
        inverse = ops.words(ElementKind.SHIFT_LEFT, inverse, ops.scalar(_PRODUCT_BITS - shift))
    return ops.times(inverse, Rescale(factor.multiplier, max(shift, _PRODUCT_BITS)))


def _inverse_root(ops: OpSequence, half: Operand) -> Operand:
    """Return 1 / sqrt(2 * half) in Q3.28; the first step starts from 1, whose cube is 1."""
    three_halves = ops.scalar(_THREE_HALVES)
    first = ops.scalar((_THREE_HALVES * _ONE) >> 31)
    rest = ops.words(ElementKind.SUB, ops.high_product(half, ops.scalar(_ONE)), first, swapped=True)
    x = ops.words(ElementKind.MUL, rest, ops.scalar(8))
    for _ in range(_STEPS - 1):
        cube = ops.words(
            ElementKind.MUL, ops.high_product(ops.high_product(x, x), x), ops.scalar(64)
        )
        rest = ops.words(
            ElementKind.SUB, ops.high_product(x, three_halves), ops.high_product(half, cube)
        )
        x = ops.words(ElementKind.MUL, rest, ops.scalar(8))
    return x
