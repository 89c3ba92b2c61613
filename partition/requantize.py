"""Changes of quantisation between 8 and 16 bits, and from and to 32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_ethosu.partition.constraints import (
    ACTIVATIONS,
    Constraint,
    elementwise_extents_fit,
    requantize_scales_fit,
    scales_are_per_tensor,
    zero_points_fit,
)
from tvm_ethosu.partition.lower import Lowered, flat_shape, lower_requantize
from tvm_ethosu.partition.params import OpParams, RequantizeParams
from tvm_ethosu.partition.quantize import checked_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.ir import DType, Operand, Shape

# TFLite's kernel shifts to the left before it multiplies: 17 bits with so many more are 31.
_LARGEST_FACTOR_TO_WORDS = 2.0**14


def requantize_types_fit(params: OpParams) -> Rejection | None:
    """Inputs and outputs are int8, uint8 or int16, or one of them int32."""
    names = (("input", params.ifm.dtype), ("output", params.ofm.dtype))
    for name, dtype in names:
        if dtype not in (*ACTIVATIONS, "int32"):
            return Rejection(f"{name} type", dtype, "int8, uint8, int16 or int32")
    if params.ifm.dtype == params.ofm.dtype == "int32":
        return Rejection("output type", "int32", "int8, uint8 or int16 from int32")
    return None


def words_are_centred(params: OpParams) -> Rejection | None:
    """Where one side is int32, its zero point is 0; to it the factor is below 2**14, from it 1."""
    assert isinstance(params, RequantizeParams)
    for name, of, quant in (
        ("input", params.ifm, params.ifm_quant),
        ("output", params.ofm, params.ofm_quant),
    ):
        if of.dtype == "int32" and quant.zero_point != 0:
            return Rejection(f"{name} zero point", str(quant.zero_point), "0 for int32")
    factor = params.ifm_quant.scale / params.ofm_quant.scale
    limit = {params.ifm.dtype: 1.0, params.ofm.dtype: _LARGEST_FACTOR_TO_WORDS}.get("int32")
    if limit is not None and factor >= limit:
        return Rejection("rescale factor", f"{factor:.6g}", f"less than {limit:g} with int32")
    return None


def words_are_no_accumulators(params: OpParams) -> Rejection | None:
    """An int32 input is a tensor of the model, not the accumulator of an operator on the CPU."""
    assert isinstance(params, RequantizeParams)
    if params.accumulator_of:
        return Rejection("origin of the int32 input", params.accumulator_of, "tensors of the model")
    return None


def lower_any_requantize(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return a copy with a scale, or a product of 32 bits where one side has them."""
    assert isinstance(params, RequantizeParams)
    if "int32" not in (params.ifm.dtype, params.ofm.dtype):
        return lower_requantize(params, name, ifms, ofm)
    shape = flat_shape(params)
    factor = checked_multiplier(params.ifm_quant.scale / params.ofm_quant.scale)
    ops = OpSequence(name, params.origin)
    words = _as_words(ops, params, ifms[0], shape)
    result = Operand(ofm, shape, DType(params.ofm.dtype), params.ofm_quant)
    limits = None if params.ofm.dtype == "int32" else params.clamp
    ops.times(words, factor, result, limits)
    return ops.lowered()


def _as_words(ops: OpSequence, params: RequantizeParams, ifm: str, shape: Shape) -> Operand:
    """Return the input less its zero point in int32."""
    source = Operand(ifm, shape, DType(params.ifm.dtype), params.ifm_quant)
    if source.dtype is DType.I32:
        return source
    return ops.scale_channels(source, ops.tensor(shape, DType.I32), 1, np.zeros(shape.c))


REQUANTIZE_CONSTRAINTS: tuple[Constraint, ...] = (
    requantize_types_fit,
    elementwise_extents_fit,
    scales_are_per_tensor,
    zero_points_fit,
    requantize_scales_fit,
    words_are_centred,
    words_are_no_accumulators,
)
