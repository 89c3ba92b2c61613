"""ELEMENTWISE operations.

Operand a is IFM minus its zero point, b is IFM2 (or the scalar) minus its zero point; the reversed
bit swaps them. With 32-bit input only the shift of OFM_SCALE applies. Source: EMIT.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import (
    ElementType,
    Elementwise,
    ElementwiseMode,
    Rounding,
    Scale,
    ScaleMode,
    Upscale,
)
from tvm_ethosu.backend.sim.output import finish
from tvm_ethosu.backend.sim.scaling import round_shift, scale

_LEFT_SHIFT: Final = {8: 20, 16: 15}
"""Bits by which ADD and SUB with a 32-bit operand scale shift both operands left, by input width.

As in TFLite the scaled operand is shifted first and then multiplied with double rounding. For
16-bit input this rarely differs from scaling the unshifted operand, and only this equals TFLite
Micro. The other operand, whose scale is one half, is shifted by one bit less.
"""
_WORD_ONLY: Final = frozenset({ElementwiseMode.CLZ, ElementwiseMode.SHR, ElementwiseMode.SHL})


def run_elementwise(op: Elementwise, context: Context) -> int:
    """Execute an elementwise operation; it has no multiply-accumulates."""
    context.ambiguous_if(op.upscale is not Upscale.NONE, "elementwise operation with upscaling")
    context.ambiguous_if(
        op.mode in _WORD_ONLY and op.ifm.type is not ElementType.S32,
        f"{op.mode.name} of {op.ifm.type.name} input",
    )
    a = _operand(context.memory.read(op.ifm), op.ifm.zero_point)
    if op.mode.is_unary:
        finish(op, _unary(op, a, context), context)
        return 0
    b = _second(op, context)
    if op.reversed:
        a, b = b, a
    shape = op.ofm.shape
    result = np.broadcast_to(_binary(op, a, b, context), (shape.height, shape.width, shape.depth))
    finish(op, result, context)
    return 0


def _operand(values: Array, zero_point: int) -> Array:
    return np.subtract(values, zero_point, dtype=np.int64)


def _second(op: Elementwise, context: Context) -> Array:
    if op.ifm2 is not None:
        return _operand(context.memory.read(op.ifm2), op.ifm2.zero_point)
    scalar = op.scalar if op.scalar is not None else 0
    return np.array(scalar - op.ifm2_zero_point, np.int64).reshape(1, 1, 1)


def _unary(op: Elementwise, a: Array, context: Context) -> Array:
    match op.mode:
        case ElementwiseMode.CLZ:
            return _leading_zeros(a)
        case ElementwiseMode.ABS:
            return _scaled(op, np.abs(a), context)
        case _:
            context.ambiguous_if(op.ifm.type.bits == 32, "LRELU of 32-bit input")
            return np.where(a >= 0, a, _scaled(op, a, context))


def _binary(op: Elementwise, a: Array, b: Array, context: Context) -> Array:
    match op.mode:
        case ElementwiseMode.MIN:
            return np.minimum(a, b)
        case ElementwiseMode.MAX:
            return np.maximum(a, b)
        case ElementwiseMode.SHR:
            return _shift_right(op, a, b, context)
        case ElementwiseMode.SHL:
            return _shift_left(a, b, context)
        case ElementwiseMode.MUL:
            return _scaled(op, _multiply(a, b), context)
        case _:
            a, b = _scale_operands(op, a, b, context)
            total = a + b if op.mode is ElementwiseMode.ADD else a - b
            return _scaled(op, total, context)


def _multiply(a: Array, b: Array) -> Array:
    return np.asarray(a * b)


def _scale_operands(op: Elementwise, a: Array, b: Array, context: Context) -> tuple[Array, Array]:
    """Scale both operands; only a 32-bit operand scale is a fraction that rounds."""
    if op.ifm.type.bits == 32:
        return a, b
    if op.scale_mode is ScaleMode.BOTH_16:
        return a * op.opa_scale.multiplier, b * op.opb_scale
    context.ambiguous_if(
        op.ifm_rounding is not Rounding.DOUBLE, f"IFM rounding mode {op.ifm_rounding.name}"
    )
    left = _LEFT_SHIFT[op.ifm.type.bits]
    factor = op.opa_scale

    def precise(values: Array) -> Array:
        shift = factor.shift + left
        return scale(values << left, factor.multiplier, shift, op.ifm_rounding, strict=False)

    if op.scale_mode is ScaleMode.OPA_32:
        return precise(a), b << (left - 1)
    return a << (left - 1), precise(b)


def _scaled(op: Elementwise, values: Array, context: Context) -> Array:
    factor = op.global_scale
    if factor is None:
        context.ambiguous(f"{op.mode.name} without a global OFM scale")
        factor = Scale(1, 0)
    multiplier = 1 if op.ifm.type.bits == 32 else factor.multiplier
    return scale(values, multiplier, factor.shift, op.rounding, strict=context.strict)


def _leading_zeros(a: Array) -> Array:
    _, exponent = np.frexp((a & 0xFFFFFFFF).astype(np.float64))
    return 32 - exponent.astype(np.int64)


def _shift_right(op: Elementwise, a: Array, b: Array, context: Context) -> Array:
    amount = _shift_amount(b, context)
    context.ambiguous_if(op.rounding is Rounding.TRUNCATE, "SHR with rounding mode TRUNCATE")
    return round_shift(a, amount, op.rounding)


def _shift_left(a: Array, b: Array, context: Context) -> Array:
    result = a << _shift_amount(b, context)
    low, high = ElementType.S32.minimum, ElementType.S32.maximum
    outside = int(result.max()) > high or int(result.min()) < low
    context.ambiguous_if(outside, "SHL beyond 32 bits saturates or wraps")
    return np.asarray(((result + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))


def _shift_amount(b: Array, context: Context) -> Array:
    outside = int(b.min()) < 0 or int(b.max()) > 31
    context.ambiguous_if(outside, "shift amount outside 0..31")
    return np.clip(b, 0, 31)
