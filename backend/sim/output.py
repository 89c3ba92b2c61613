"""The last stage of every kernel operation: activation, zero point, clamp, store."""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.activation import interpolated_lut, sigmoid, tanh
from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.memory import SHRAM_REGION, Array
from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    ElementType,
    Elementwise,
    ElementwiseMode,
    Function,
)

_LUT_SLOT_BYTES: Final = 256
_LUT_BYTES: Final = 2048
_CLIP_TO_OFM: Final = 0
_CLIP_TO_S8: Final = 3


def finish(op: BlockOperation, scaled: Array, context: Context) -> None:
    """Apply the activation to scaled int64 values (H, W, C) and store them as the OFM."""
    function = op.activation.function
    if function is Function.LUT:
        values = _look_up(op, scaled, context)
    elif function is Function.CLAMP:
        values = _clamp(op, scaled, context)
    else:
        values = _curve(op, scaled, context)
    context.memory.write(op.ofm, values, strict=context.strict)


def clobber_lut(op: BlockOperation, context: Context) -> None:
    """Forget the LUT when an operation without one reuses its banks as accumulators."""
    accelerator = context.stream.accelerator
    if accelerator.lut_shares_accumulators and op.activation.function is not Function.LUT:
        start = accelerator.lut_address
        context.memory.forget(SHRAM_REGION, start, start + _LUT_BYTES)


def _clamp(op: BlockOperation, scaled: Array, context: Context) -> Array:
    element = op.ofm.type
    context.ambiguous_if(
        op.activation.clip_range != _CLIP_TO_OFM,
        f"ACTIVATION clip range {op.activation.clip_range} without a LUT",
    )
    if element.bits == 32:
        return _saturate(op, scaled, context)
    low = max(op.activation.minimum, element.minimum)
    high = min(op.activation.maximum, element.maximum)
    return np.asarray(np.clip(scaled + op.ofm.zero_point, low, high))


def _saturate(op: BlockOperation, scaled: Array, context: Context) -> Array:
    """Limit to 32 bits; there is evidence for MUL only, from Vela's softmax of equal values."""
    low, high = ElementType.S32.minimum, ElementType.S32.maximum
    outside = int(scaled.min()) < low or int(scaled.max()) > high
    known = isinstance(op, Elementwise) and op.mode is ElementwiseMode.MUL
    context.ambiguous_if(outside and not known, "a 32-bit OFM value saturates or wraps")
    return np.asarray(np.clip(scaled, low, high))


def _curve(op: BlockOperation, scaled: Array, context: Context) -> Array:
    name = op.activation.function.value
    context.ambiguous_if(op.ofm.type is not ElementType.S16, f"{name} with {op.ofm.type.name} OFM")
    context.ambiguous_if(op.ofm.zero_point != 0, f"{name} with an OFM zero point")
    curve = tanh if op.activation.function is Function.TANH else sigmoid
    return _clamp(op, curve(scaled), context)


def _look_up(op: BlockOperation, scaled: Array, context: Context) -> Array:
    element, activation = op.ofm.type, op.activation
    expected = _CLIP_TO_S8 if element.bits == 32 else _CLIP_TO_OFM
    context.ambiguous_if(
        activation.clip_range != expected,
        f"ACTIVATION clip range {activation.clip_range} with a LUT and {element.name} OFM",
    )
    value = scaled + op.ofm.zero_point
    index_type = ElementType.S8 if element.bits == 32 else element
    low = max(activation.minimum, index_type.minimum)
    high = min(activation.maximum, index_type.maximum)
    value = np.minimum(np.maximum(value, low), high)
    if element.bits == 16:
        table = _table(op, _LUT_BYTES, context).view("<u4")
        return interpolated_lut(table, value)
    size = 256 * element.size_bytes
    return np.asarray(_table(op, size, context).view(element.dtype)[value - index_type.minimum])


def _table(op: BlockOperation, size: int, context: Context) -> Array:
    start = _LUT_SLOT_BYTES * op.activation.slot
    context.ambiguous_if(
        start + size > _LUT_BYTES,
        f"LUT slot {op.activation.slot} of {size} bytes reaches beyond the LUT memory",
    )
    address = context.stream.accelerator.lut_address + start
    what = f"LUT slot {op.activation.slot}"
    return context.memory.read_bytes(SHRAM_REGION, address, size, what)
