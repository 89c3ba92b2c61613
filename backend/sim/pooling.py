"""POOL: maximum, average and sum over channels."""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.errors import DecodeError
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import Pool, PoolMode, Scale, Upscale
from tvm_ethosu.backend.sim.output import finish
from tvm_ethosu.backend.sim.scaling import scale
from tvm_ethosu.backend.sim.windows import padded, taps, valid_counts, windows

_MANY_TAPS: Final = 32


def run_pool(op: Pool, context: Context) -> int:
    """Execute a pooling operation; it has no multiply-accumulates."""
    context.ambiguous_if(op.upscale is Upscale.ZEROS, "pooling of a zero-stuffed IFM")
    ifm = context.memory.read(op.ifm)
    match op.mode:
        case PoolMode.MAX:
            result = _maximum(op, ifm, context)
        case PoolMode.AVERAGE:
            result = _average(op, ifm, context)
        case PoolMode.REDUCE_SUM:
            result = _reduce_sum(op, ifm, context)
    finish(op, result, context)
    return 0


def _maximum(op: Pool, ifm: Array, context: Context) -> Array:
    context.ambiguous_if(op.ifm.type.bits == 32, "maximum pooling of 32-bit input")
    if op.padding.any and not valid_counts(op).all():
        raise DecodeError("a pooling window lies in the padding")
    source = padded(op, ifm, op.ifm.type.minimum, ifm.dtype)
    if op.kernel.taps >= _MANY_TAPS:
        result = np.asarray(windows(op, source).max(axis=(2, 3)))
    else:
        views = [view for _, _, view in taps(op, source)]
        result = views[0].copy()
        for view in views[1:]:
            np.maximum(result, view, out=result)
    return np.asarray(np.subtract(result, op.ifm.zero_point, dtype=np.int64))


def _sum_windows(op: Pool, ifm: Array) -> Array:
    centred = np.subtract(ifm, op.ifm.zero_point, dtype=np.int64)
    source = padded(op, centred, 0, np.int64)
    if op.kernel.taps == 1:
        return next(taps(op, source))[2]
    if op.kernel.taps >= _MANY_TAPS:
        return np.asarray(windows(op, source).sum(axis=(2, 3)))
    shape = op.ofm.shape
    result = np.zeros((shape.height, shape.width, shape.depth), np.int64)
    for _, _, view in taps(op, source):
        result += view
    return result


def _average(op: Pool, ifm: Array, context: Context) -> Array:
    context.ambiguous_if(op.ifm.type.bits == 32, "average pooling of 32-bit input")
    total = _sum_windows(op, ifm)
    factor = op.global_scale
    if not op.padding.any:
        return _scaled(op, total, context)
    context.ambiguous_if(
        factor is not None and factor != Scale(1, 0),
        "average pooling with padding and an explicit global scale",
    )
    counts = valid_counts(op)
    if not counts.all():
        raise DecodeError("a pooling window lies in the padding")
    magnitude = (2 * np.abs(total) + counts) // (2 * counts)
    return np.asarray(np.sign(total) * magnitude)


def _reduce_sum(op: Pool, ifm: Array, context: Context) -> Array:
    context.ambiguous_if(op.kernel.taps != 1, "REDUCE_SUM with a kernel larger than 1x1")
    context.ambiguous_if(op.ofm.shape.depth != 1, "REDUCE_SUM with more than one output channel")
    total = _sum_windows(op, ifm.sum(axis=2, keepdims=True, dtype=np.int64))
    correction = op.ifm.zero_point * (op.ifm.shape.depth - 1)
    total = np.broadcast_to(total - correction, (*total.shape[:2], op.ofm.shape.depth))
    return _scaled(op, total, context)


def _scaled(op: Pool, total: Array, context: Context) -> Array:
    factor = op.global_scale
    if factor is None:
        context.ambiguous(f"{op.mode.name} pooling with per-channel scales")
        return total
    return scale(total, factor.multiplier, factor.shift, op.rounding, strict=context.strict)
