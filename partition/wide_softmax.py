"""Softmax of int16 on the NPU, with the arithmetic of TFLite's kernel (SoftmaxInt16 in softmax.h).

Row by row, x being a value less the row's largest: exp(x) comes from a table that is interpolated,
and so does the inverse of the sum of all exp(x), which is shifted to 1..2 for that. Their product
is the result.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tvm_ethosu.partition.float_curves import (
    Reals,
    in_double,
    interpolated_results,
    interpolation_words,
)
from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.partition.params import SoftmaxParams
from tvm_ethosu.partition.quantize import checked_multiplier, quantize_multiplier
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.ir import (
    DType,
    ElementKind,
    Operand,
    Quant,
    Shape,
)

# Both tables take 65536 steps: of 10 from -10 to 0, of 1 from 0 to 1.
_STEPS = 65535.0
_EXP_RANGE = 10.0
_LEAST, _LARGEST = DType.I16.minimum, DType.I16.maximum
# From where on a difference of 17 bits would not be shifted up within 32 bits any more.
_HEADROOM = 2.0**15
# The sum is shifted to 31 bits; 17 of them are kept, 1..2 with 16 bits behind the point.
_DROPPED_BITS = 14


def wide_factor(params: SoftmaxParams) -> float:
    """Return the factor from steps of the input to steps of the table of exp."""
    return params.ifm_quant.scale * params.beta / (_EXP_RANGE / _STEPS)


def wide_factor_fits(params: SoftmaxParams) -> bool:
    """Return whether TFLite's kernel can use the factor."""
    factor = wide_factor(params)
    return factor < _HEADROOM and quantize_multiplier(factor) is not None


def _inverse_of_one_more(x: Reals) -> Reals:
    return np.float32(1) / (np.float32(1) + x)


def lower_wide_softmax(
    params: SoftmaxParams, name: str, plane: tuple[int, int, int], ifm: str, ofm: str
) -> Lowered:
    """Return softmax over the channels; ``plane`` is height, width and channels of the input."""
    height, width, channels = plane
    ops = OpSequence(name, params.origin)
    result = Quant(2 / _STEPS)
    exp = interpolated_results(
        partial(in_double, np.exp), Quant(_EXP_RANGE / _STEPS, _LARGEST), result
    )
    inverse = interpolated_results(_inverse_of_one_more, Quant(1 / _STEPS, _LEAST), result)
    exp_table = ops.table(interpolation_words(exp), "exp")
    inverse_table = ops.table(interpolation_words(inverse), "inverse")

    source = Operand(ifm, Shape(1, height, width, channels), DType.I16)
    largest = ops.largest_channel(source)
    difference = ops.elements(ElementKind.SUB, source, largest, ops.tensor(source.shape, DType.I32))
    steps = ops.times(difference, checked_multiplier(wide_factor(params)))
    exps = ops.elements(
        ElementKind.ADD,
        steps,
        ops.scalar(_LARGEST),
        ops.tensor(source.shape, DType.I16),
        table=exp_table,
    )
    total = ops.sum_channels(exps, ops.tensor(largest.shape, DType.I32))
    zeros = ops.words(ElementKind.LEADING_ZEROS, total)
    one_less = ops.words(ElementKind.SUB, zeros, ops.scalar(1))
    shifted = ops.words(ElementKind.SHIFT_LEFT, total, one_less)
    kept = ops.shift_right(shifted, ops.scalar(_DROPPED_BITS))
    share = ops.elements(
        ElementKind.ADD,
        kept,
        ops.scalar(_LEAST - (1 << 16)),
        ops.tensor(largest.shape, DType.I16),
        table=inverse_table,
    )
    product = ops.elements(ElementKind.MUL, exps, share, ops.tensor(source.shape, DType.I32))
    shift = ops.words(ElementKind.SUB, zeros, ops.scalar(31), swapped=True)
    ops.shift_right(product, shift, Operand(ofm, source.shape, DType.I16))
    return ops.lowered()
