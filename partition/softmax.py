"""Softmax on the NPU; that of 8 bits with the arithmetic of TFLite's integer kernel.

Row by row, x being a value less the row's largest: exp(x) comes from a table, the sum of all exp(x)
is inverted with three steps of Newton and Raphson, and each exp(x) is multiplied by that. All of it
is done in fixed point with 32 bits. TFLite's kernel is in kernels/internal/reference/softmax.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_ethosu.partition.constraints import (
    Constraint,
    dims_fit,
    is_quantized,
    types_are_activations,
    types_are_equal,
)
from tvm_ethosu.partition.fixed_point import (
    FORTY_EIGHT_OVER_17,
    MINUS_32_OVER_17,
    ONE,
    exp_of_negative,
    greater_than_one,
    input_radius,
)
from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.partition.params import OpParams, SoftmaxParams
from tvm_ethosu.partition.quantize import quantize_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.partition.wide_softmax import lower_wide_softmax, wide_factor_fits
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    DType,
    ElementKind,
    Operand,
    Quant,
    Rescale,
    Shape,
)

# The sum has 12 integer bits, the difference to the largest value 5 (Q12.19 and Q5.26).
_SUM_BITS = 12
_DIFFERENCE_BITS = 5
_LONGEST_ROW = (1 << _SUM_BITS) - 1
# From so many elements on the sum may be so large that the result's shift exceeds 31 bits.
_LONG_ROW = 512

_MOST_STRIPES = 128


def exp_table(scale: float, beta: float) -> tuple[int, ...]:
    """Return exp in Q0.31 for differences of -255 to 0 steps; 0 where TFLite leaves a value out."""
    factor = _factor(scale, beta)
    if factor is None:
        raise InternalError(f"softmax: scale {scale} passed the constraints wrongly")
    left_shift = 31 - factor.shift
    least = -input_radius(_DIFFERENCE_BITS, left_shift)
    return tuple(
        exp_of_negative(greater_than_one(x, factor.multiplier, left_shift)) if x >= least else 0
        for x in range(-255, 1)
    )


def _factor(scale: float, beta: float) -> Rescale | None:
    """Return the factor from steps to Q5.26, or None where TFLite's kernel has none."""
    real = min(beta * scale * (1 << (31 - _DIFFERENCE_BITS)), (1 << 31) - 1.0)
    return quantize_multiplier(real) if real > 1 else None


def lower_softmax(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return softmax over the last dimension, for all positions of a feature map."""
    assert isinstance(params, SoftmaxParams)
    height, width, channels = _plane(params)
    if params.ifm.dtype == "int16":
        return lower_wide_softmax(params, name, (height, width, channels), ifms[0], ofm)
    dtype = DType(params.ifm.dtype)
    ops = OpSequence(name, params.origin)
    table = ops.table(np.array(exp_table(params.ifm_quant.scale, params.beta), np.int32))

    source = Operand(ifms[0], Shape(1, height, width, channels), dtype)
    largest = ops.largest_channel(source)

    def exponentials() -> Operand:
        # The difference -255..0 plus the "zero point" 127 is -128..127, the table's index.
        result = ops.tensor(source.shape, DType.I32, Quant(1.0, 127))
        ops.elements(ElementKind.SUB, source, largest, result, table=table)
        return Operand(result.tensor, result.shape, result.dtype)

    summand = ops.shift_right(exponentials(), ops.scalar(_SUM_BITS))
    total = ops.sum_channels(summand, ops.tensor(largest.shape, DType.I32))
    zeros = ops.words(ElementKind.LEADING_ZEROS, total)
    inverse = _inverse(ops, total, zeros)
    shift = ops.words(ElementKind.SUB, zeros, ops.scalar(_SUM_BITS + 31 - 8), swapped=True)
    if channels >= _LONG_ROW:
        inverse, shift = _within_31_bits(ops, inverse, shift)
    # Computed again rather than kept: 32 bits for each element until the sum is inverted.
    product = ops.high_product(exponentials(), inverse)
    quant = Quant(1.0, dtype.minimum)
    ops.shift_right(product, shift, Operand(ofm, source.shape, dtype, quant))
    return ops.lowered()


def _plane(params: SoftmaxParams) -> tuple[int, int, int]:
    """Return height, width and channels as which the input is seen.

    Its positions may form any plane; one of a moderate height can be worked on in stripes.
    """
    *outer, channels = params.ifm.dims
    positions = math.prod(outer)
    natural = math.prod(outer[:-1])
    heights = range(min(positions, _MOST_STRIPES), 0, -1)
    divisor = next(height for height in heights if positions % height == 0)
    height = natural if 1 < natural <= _MOST_STRIPES else divisor
    return height, positions // height, channels


def _inverse(ops: OpSequence, total: Operand, zeros: Operand) -> Operand:
    """Return 1 / (total shifted up to 1..2) in Q0.31: 1 / (1 + a) of gemmlowp, step by step.

    Its half denominator (1 + a) / 2 is the total shifted up to the bit below the sign.
    """
    one_less = ops.words(ElementKind.SUB, zeros, ops.scalar(1))
    half = ops.words(ElementKind.SHIFT_LEFT, total, one_less)
    first = ops.high_product(half, ops.scalar(MINUS_32_OVER_17))
    x = ops.words(ElementKind.ADD, first, ops.scalar(FORTY_EIGHT_OVER_17))
    for _ in range(3):
        product = ops.high_product(x, half)
        rest = ops.words(ElementKind.SUB, product, ops.scalar(ONE), swapped=True)
        change = ops.high_product(x, rest)
        x = ops.words(ElementKind.ADD, x, ops.words(ElementKind.MUL, change, ops.scalar(4)))
    return ops.words(ElementKind.MUL, x, ops.scalar(2))


def _within_31_bits(ops: OpSequence, inverse: Operand, shift: Operand) -> tuple[Operand, Operand]:
    """Return inverse and shift such that no shift exceeds 31 bits.

    A larger one is for sums of 512 and more, where every result rounds to 0: the inverse is made
    so small there that it does. TFLite's kernel shifts 32-bit numbers by 32 bits and more, which
    means nothing in C.
    """
    excess = ops.words(ElementKind.SUB, shift, ops.scalar(31))
    excess = ops.words(ElementKind.MAX, excess, ops.scalar(0))
    small = ops.shift_right(inverse, ops.words(ElementKind.MUL, excess, ops.scalar(8)))
    return small, ops.words(ElementKind.SUB, shift, excess)


# --- limits ---------------------------------------------------------------------------------------


def softmax_axis_is_last(params: OpParams) -> Rejection | None:
    """Softmax goes over the last dimension."""
    assert isinstance(params, SoftmaxParams)
    last = len(params.ifm.dims) - 1
    if params.axis != last:
        return Rejection("softmax axis", str(params.axis), f"the last, {last}")
    return None


def softmax_rows_fit(params: OpParams) -> Rejection | None:
    """A row of 8 bits has at most 4095 elements; there are at most 65536 rows."""
    assert isinstance(params, SoftmaxParams)
    *outer, channels = params.ifm.dims
    if channels > _LONGEST_ROW and params.ifm.dtype != "int16":
        return Rejection("elements of a softmax row", str(channels), f"up to {_LONGEST_ROW}")
    rows = math.prod(outer)
    if rows > MAX_DIM:
        return Rejection("rows of a softmax", str(rows), f"up to {MAX_DIM}")
    return None


def softmax_input_scale_fits(params: OpParams) -> Rejection | None:
    """Input scale times beta is more than 2**-26, or from 2**-45 to 5 for int16."""
    assert isinstance(params, SoftmaxParams)
    if params.ifm.dtype == "int16":
        if not wide_factor_fits(params):
            product = params.ifm_quant.scale * params.beta
            return Rejection("input scale times beta", f"{product:.6g}", "up to 5 for int16")
        return None
    if _factor(params.ifm_quant.scale, params.beta) is None:
        product = params.ifm_quant.scale * params.beta
        return Rejection("input scale times beta", f"{product:.6g}", "more than 2**-26")
    return None


def softmax_output_is_a_share(params: OpParams) -> Rejection | None:
    """The output has scale 1/256 and the least zero point; for int16 1/32768 and 0."""
    assert isinstance(params, SoftmaxParams)
    scale, zero_point = params.ofm_quant.scale, params.ofm_quant.zero_point
    wide = params.ofm.dtype == "int16"
    steps, least = (32768, 0) if wide else (256, DType(params.ofm.dtype).minimum)
    if scale != 1 / steps:
        return Rejection("output scale", f"{scale:.6g}", f"1/{steps}")
    if zero_point != least:
        return Rejection("output zero point", str(zero_point), str(least))
    if wide and params.ifm_quant.zero_point != 0:
        return Rejection("input zero point", str(params.ifm_quant.zero_point), "0 for int16")
    return None


SOFTMAX_CONSTRAINTS: tuple[Constraint, ...] = (
    is_quantized,
    dims_fit,
    types_are_activations,
    types_are_equal,
    softmax_axis_is_last,
    softmax_rows_fit,
    softmax_input_scale_fits,
    softmax_output_is_a_share,
)
