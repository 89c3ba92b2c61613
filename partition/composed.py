"""SQUARED_DIFFERENCE and PRELU of int8 and int16 as several operators, with TFLite's arithmetic.

TFLite's kernels: micro/kernels/squared_difference.cc and kernels/internal/reference/prelu.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tvm_ethosu.partition import fixed_point as fp
from tvm_ethosu.partition.lower import Lowered, operand_shapes
from tvm_ethosu.partition.params import AddParams, OpParams
from tvm_ethosu.partition.quantize import checked_multiplier, quantize_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import DType, ElementKind, Operand, Quant, Rescale

_TYPES = ("int8", "int16")


def _operands(params: AddParams, ifms: Sequence[str], ofm: str) -> tuple[Operand, Operand, Operand]:
    """Return inputs and output as integers with their zero points."""
    shapes = operand_shapes(params)
    if shapes is None:
        raise InternalError(f"{params.origin}: the operands passed the constraints wrongly")
    dtype = DType(params.ofm.dtype)
    quants = (params.ifm_quant, params.ifm2_quant, params.ofm_quant)
    return tuple(  # type: ignore[return-value]
        Operand(tensor, shape, dtype, Quant(1.0, quant.zero_point))
        for tensor, shape, quant in zip((*ifms[:2], ofm), shapes, quants, strict=True)
    )


def _bare(operand: Operand) -> Operand:
    return replace(operand, quant=Quant())


# --- squared difference ---------------------------------------------------------------------------

# By how much int8 is shifted up before it is scaled.
_SHIFT = {"int8": 7, "int16": 0}
# Below what the factor of the square must be, so that 32 bits hold it.
_LARGEST_SQUARE_FACTOR = {"int8": 2.0, "int16": 1.0}


def _square_factors(params: AddParams) -> tuple[float, float, float]:
    """Return the factors of both inputs and of the square."""
    scales = params.ifm_quant.scale, params.ifm2_quant.scale
    unit = 2 * max(scales)
    shift = _SHIFT[params.ofm.dtype]
    result = unit * unit / (4**shift * params.ofm_quant.scale)
    return scales[0] / unit, scales[1] / unit, result


def lower_squared_difference(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return both inputs in one scale as int32, their difference, and its scaled square."""
    assert isinstance(params, AddParams)
    ops = OpSequence(name, params.origin)
    *inputs, result = _operands(params, ifms, ofm)
    *factors, last = _square_factors(params)
    scaled = [
        _in_one_scale(ops, operand, factor, str(index))
        for index, (operand, factor) in enumerate(zip(inputs, factors, strict=True))
    ]
    # The sign of the difference does not matter, so the one of the result's shape comes first.
    first, second = scaled if scaled[0].shape == result.shape else scaled[::-1]
    difference = ops.elements(ElementKind.SUB, first, second, ops.tensor(result.shape, DType.I32))
    square = ops.words(ElementKind.MUL, difference, difference)
    ops.times(square, checked_multiplier(last), result, params.clamp)
    return ops.lowered()


def _in_one_scale(ops: OpSequence, operand: Operand, real: float, which: str) -> Operand:
    """Return the values times a factor of at most one half: int8 by a table of int32."""
    factor = checked_multiplier(real)
    if operand.dtype is DType.I16:
        one = ops.scalar(1, DType.I16)
        target = ops.tensor(operand.shape, DType.I16)
        return ops.elements(ElementKind.MUL, operand, one, target, rescale=factor)
    steps = np.arange(operand.dtype.minimum, operand.dtype.maximum + 1) - operand.quant.zero_point
    shifted = (int(step) << _SHIFT["int8"] for step in steps)
    values = [fp.rescaled(step, factor.multiplier, factor.shift) for step in shifted]
    table = ops.table(np.array(values, np.int32), f"scaled{which}")
    target = ops.tensor(operand.shape, DType.I32)
    return ops.elements(
        ElementKind.ADD, _bare(operand), ops.scalar(0, operand.dtype), target, table=table
    )


def square_factor_fits(params: OpParams) -> Rejection | None:
    """4 times the larger input scale squared over the output scale is below 2**15, 1 for int16."""
    assert isinstance(params, AddParams)
    scales = (params.ifm_quant.scale, params.ifm2_quant.scale, params.ofm_quant.scale)
    if not all(0 < scale < float("inf") for scale in scales):
        value = ", ".join(f"{scale:.6g}" for scale in scales)
        return Rejection("scales", value, "positive numbers")
    factor = _square_factors(params)[2]
    limit = _LARGEST_SQUARE_FACTOR[params.ofm.dtype]
    if factor >= limit or quantize_multiplier(factor) is None:
        return Rejection("factor of the square", f"{factor:.6g}", f"below {limit:g}")
    return None


# --- PRELU ----------------------------------------------------------------------------------------

# Below what the factors must be, so that 32 bits hold values and products shifted up.
_LARGEST_FACTORS = {"int8": (2.0**14, 2.0**14), "int16": (2.0**14, 2.0**7)}


def _prelu_factors(params: AddParams) -> tuple[float, float]:
    """Return the factors of positive values, and of products of negative ones with a slope."""
    ifm, slope, ofm = params.ifm_quant.scale, params.ifm2_quant.scale, params.ofm_quant.scale
    return ifm / ofm, ifm * slope / ofm


def lower_prelu(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the positive values scaled, the negative ones times their slopes, and the sum."""
    assert isinstance(params, AddParams)
    ops = OpSequence(name, params.origin)
    # As it is written: where x is negative, x times slopes, x.
    x, slopes, result = _operands(params, (ifms[0], ifms[2]), ofm)
    upper, lower = map(checked_multiplier, _prelu_factors(params))
    zero = ops.scalar(x.quant.zero_point, x.dtype)

    def limited(kind: ElementKind) -> Operand:
        made = ops.elements(kind, _bare(x), zero, ops.tensor(x.shape, x.dtype))
        return replace(made, quant=x.quant)

    def product(values: Operand, factors: Operand, rescale: Rescale) -> Operand:
        target = ops.tensor(x.shape, DType.I16)
        return ops.elements(ElementKind.MUL, values, factors, target, rescale=rescale)

    # Values of other steps may be small or large, but no int8 needs more than 16 bits of them.
    above = product(limited(ElementKind.MAX), ops.scalar(1, x.dtype), upper)
    below = product(limited(ElementKind.MIN), slopes, lower)
    ops.elements(ElementKind.ADD, above, below, result, params.clamp)
    return ops.lowered()


def prelu_factors_fit(params: OpParams) -> Rejection | None:
    """Factors of values and of products are below 2**14; 2**7 for products of int16."""
    assert isinstance(params, AddParams)
    limits = _LARGEST_FACTORS[params.ofm.dtype]
    names = ("factor of positive values", "factor of negative values")
    for what, factor, limit in zip(names, _prelu_factors(params), limits, strict=True):
        if not 0 < factor < limit or quantize_multiplier(factor) is None:
            return Rejection(what, f"{factor:.6g}", f"positive and below {limit:g}")
    return None


def slopes_are_broadcast(params: OpParams) -> Rejection | None:
    """The input has the output's shape."""
    assert isinstance(params, AddParams)
    if params.ifm.dims != params.ofm.dims:
        dims = "x".join(map(str, params.ifm.dims))
        return Rejection("input shape", dims, "the output's shape")
    return None


def operands_are_signed(params: OpParams) -> Rejection | None:
    """Inputs and outputs are int8 or int16."""
    for name, dtype in (("input type", params.ifm.dtype), ("output type", params.ofm.dtype)):
        if dtype not in _TYPES:
            return Rejection(name, dtype, " or ".join(_TYPES))
    return None
