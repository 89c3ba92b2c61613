"""CONV and DEPTHWISE: exact accumulators through floating-point matrix products.

Sums of integers are exact in float32 while every partial sum stays below 2**24, in float64 below
2**53; the largest possible sum (largest input times largest sum of absolute weights) decides.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.errors import MemoryFault
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    CoreParameters,
    Depthwise,
    ElementType,
)
from tvm_ethosu.backend.sim.output import finish
from tvm_ethosu.backend.sim.scaling import scale
from tvm_ethosu.backend.sim.weights import (
    Scales,
    Weights,
    core_order,
    decode_scales,
    decode_weights,
)
from tvm_ethosu.backend.sim.windows import padded, taps, windows

_SINGLE_EXACT: Final = 1 << 24
_DOUBLE_EXACT: Final = 1 << 53
_INT32_EXACT: Final = 1 << 31
_CHUNK_ELEMENTS: Final = 1 << 18
_MANY_TAPS: Final = 32
_ALIGNMENT: Final = 16


def run_convolution(op: Conv | Depthwise, context: Context) -> int:
    """Execute a convolution; return its multiply-accumulates."""
    _check(op, context)
    weights, scales = load_parameters(op, context)
    ifm = context.memory.read(op.ifm)
    largest = _largest_input(op.ifm.type, op.ifm.zero_point) * weights.largest_sum
    if isinstance(op, Depthwise):
        acc = _depthwise(op, ifm, weights, largest)
    else:
        acc = _convolve(op, ifm, weights, largest)
    bound = largest + scales.largest_bias
    acc = acc + scales.bias
    _check_accumulator(op, acc, bound, context)
    scaled = scale(
        acc, scales.multiplier, scales.shift, op.rounding, bound=bound, strict=context.strict
    )
    finish(op, scaled, context)
    return macs(op)


def macs(op: Conv | Depthwise) -> int:
    """Return the multiply-accumulates of a convolution."""
    per_output = op.kernel.taps * (1 if isinstance(op, Depthwise) else op.ifm.shape.depth)
    return op.ofm.shape.elements * per_output


def load_parameters(op: Conv | Depthwise, context: Context) -> tuple[Weights, Scales]:
    """Return weights and scales of all output channels, from the stream's cache if unchanged."""
    ranges = [_core_bytes(core, context) for core in op.parameters]
    block = op.block.depth
    order = (op.ofm.shape.depth, op.ifm.shape.depth, op.kernel, block, type(op), op.ifm.type.bits)
    key = ("parameters", order, tuple(ranges))
    cached: tuple[Weights, Scales] | None = context.stream.cache.get(key)
    if cached is None:
        cached = _decode_parameters(op, ranges, context)
        context.stream.cache[key] = cached
    return cached


def _core_bytes(core: CoreParameters, context: Context) -> tuple[bytes, bytes | None]:
    def load(what: str, start: int, region: int, length: int) -> bytes:
        if start % _ALIGNMENT or length % _ALIGNMENT:
            raise MemoryFault(
                f"{what} at {start:#x} of {length} bytes in region {region} is not in units of 16"
            )
        return context.memory.read_bytes(region, start, length, what).tobytes()

    weights, scales = core.weights, core.scales
    return (
        load("WEIGHT range", weights.start, weights.region, weights.length),
        None if scales is None else load("SCALE range", scales.start, scales.region, scales.length),
    )


def _decode_parameters(
    op: Conv | Depthwise, ranges: list[tuple[bytes, bytes | None]], context: Context
) -> tuple[Weights, Scales]:
    outputs = op.ofm.shape.depth
    depth = 1 if isinstance(op, Depthwise) else op.ifm.shape.depth
    values = np.zeros((outputs, op.kernel.height, op.kernel.width, depth), np.int16)
    columns = [np.zeros(outputs, np.int64) for _ in range(3)]
    cores = context.stream.accelerator.cores
    for core, (weight_bytes, scale_bytes) in enumerate(ranges):
        order = core_order(
            context.stream.accelerator,
            core,
            shape=(outputs, op.ifm.shape.depth),
            kernel=op.kernel,
            block_depth=op.block.depth,
            depthwise=isinstance(op, Depthwise),
            wide_ifm=op.ifm.type.bits == 16,
        )
        values[core::cores] = decode_weights(weight_bytes, order)
        scales = _core_scales(op, scale_bytes, order.ofm_depth)
        for column, part in zip(
            columns, (scales.bias, scales.multiplier, scales.shift), strict=True
        ):
            column[core::cores] = part
    return Weights(values), Scales(*columns)


def _core_scales(op: BlockOperation, data: bytes | None, channels: int) -> Scales:
    if data is not None:
        return decode_scales(np.frombuffer(data, np.uint8), channels)
    factor = op.global_scale
    multiplier, shift = (1, 0) if factor is None else (factor.multiplier, factor.shift)
    return Scales(
        np.zeros(channels, np.int64),
        np.full(channels, multiplier, np.int64),
        np.full(channels, shift, np.int64),
    )


def _check(op: Conv | Depthwise, context: Context) -> None:
    context.ambiguous_if(op.ifm.type.bits > 16, f"convolution of {op.ifm.type.name} input")
    context.ambiguous_if(op.global_scale is not None, "convolution with a global OFM scale")


def _check_accumulator(op: BlockOperation, acc: Array, bound: int, context: Context) -> None:
    limit = 1 << (39 if op.acc_format == 1 else 31)
    if bound >= limit and (int(acc.max()) >= limit or int(acc.min()) < -limit):
        context.ambiguous("an accumulator overflows")


def _largest_input(element: ElementType, zero_point: int) -> int:
    return max(abs(element.minimum - zero_point), abs(element.maximum - zero_point))


def _convolve(op: Conv, ifm: Array, weights: Weights, largest: int) -> Array:
    dtype: Any
    if largest < _SINGLE_EXACT:
        dtype, matrix = np.float32, weights.single
    elif largest < _DOUBLE_EXACT:
        dtype, matrix = np.float64, weights.double
    else:
        dtype, matrix = np.int64, weights.integer
    centred = np.subtract(ifm, op.ifm.zero_point, dtype=dtype)
    source = np.ascontiguousarray(padded(op, centred, 0, dtype))
    shape, kernel = op.ofm.shape, op.kernel
    if kernel.taps == 1 and kernel.stride_x == kernel.stride_y == 1:
        product = source.reshape(-1, source.shape[2]) @ matrix
        return product.astype(np.int64).reshape(shape.height, shape.width, shape.depth)
    view = windows(op, source)
    result = np.empty((shape.height, shape.width, shape.depth), np.int64)
    pixels = max(1, _CHUNK_ELEMENTS // matrix.shape[0])
    rows, columns = max(1, pixels // shape.width), min(pixels, shape.width)
    for y in range(0, shape.height, rows):
        for x in range(0, shape.width, columns):
            part = view[y : y + rows, x : x + columns]
            product = part.reshape(-1, matrix.shape[0]) @ matrix
            result[y : y + rows, x : x + columns] = product.reshape(*part.shape[:2], shape.depth)
    return result


def _depthwise(op: Depthwise, ifm: Array, weights: Weights, largest: int) -> Array:
    dtype: Any = np.int32 if largest < _INT32_EXACT else np.int64
    centred = np.subtract(ifm, op.ifm.zero_point, dtype=dtype)
    source = padded(op, centred, 0, dtype)
    factors = weights.taps.astype(dtype, copy=False)
    if op.kernel.taps >= _MANY_TAPS:
        return np.asarray(np.einsum("yxijc,ijc->yxc", windows(op, source), factors))
    shape = op.ofm.shape
    result = np.zeros((shape.height, shape.width, shape.depth), dtype)
    scratch = np.empty_like(result)
    for ky, kx, view in taps(op, source):
        np.multiply(view, factors[ky, kx], out=scratch)
        result += scratch
    return result
