"""Kernel operations one element at a time, in Python integers, for comparison.

Nothing here is shared with the simulator but the typed operations it decodes: addresses, rounding
and sums are written out as the description states them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    Depthwise,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Layout,
    Pool,
    PoolMode,
    Rounding,
    ScaleMode,
    Upscale,
)

Values = dict[tuple[int, int, int], int]


def address(fm: FeatureMap, y: int, x: int, c: int) -> int:
    """Return the byte address of an element."""
    right = x >= fm.width0
    split = fm.height1 if right else fm.height0
    low = y >= split
    base = fm.bases[right + 2 * low]
    assert base is not None
    y -= split if low else 0
    x -= fm.width0 if right else 0
    size = fm.type.bits // 8
    if fm.layout is Layout.NHWC:
        return base + y * fm.stride_y + x * fm.stride_x + c * size
    return base + y * fm.stride_y + c // 16 * fm.stride_c + x * 16 * size + c % 16 * size


def load(fm: FeatureMap, memory: np.ndarray, y: int, x: int, c: int) -> int:
    """Return an element's value."""
    start = address(fm, y, x, c)
    raw = memory[start : start + fm.type.bits // 8].tobytes()
    return int.from_bytes(raw, "little", signed=fm.type.minimum < 0)


def stored(fm: FeatureMap, memory: np.ndarray) -> Values:
    """Return all elements of a feature map."""
    shape = fm.shape
    return {
        (y, x, c): load(fm, memory, y, x, c)
        for y in range(shape.height)
        for x in range(shape.width)
        for c in range(shape.depth)
    }


def divide_rounding_away(value: int, power: int) -> int:
    """Return value / 2**power, ties away from zero."""
    if power == 0:
        return value
    magnitude = (abs(value) + (1 << (power - 1))) >> power
    return magnitude if value >= 0 else -magnitude


def high_multiply(product: int, shift: int) -> int:
    """Return product / 2**shift as gemmlowp's doubling high multiply rounds it."""
    if shift == 0:
        return product
    nudge = 1 << (shift - 1) if product >= 0 else 1 - (1 << (shift - 1))
    total = product + nudge
    quotient = abs(total) >> shift
    return quotient if total >= 0 else -quotient


def scale(value: int, multiplier: int, shift: int, rounding: Rounding) -> int:
    """Return round(value * multiplier >> shift)."""
    product = value * multiplier
    if rounding is Rounding.NATURAL:
        return (2 * product + (1 << shift)) >> (shift + 1)
    if rounding is Rounding.TRUNCATE:
        return product >> shift if product >= 0 else -(-product >> shift)
    first = min(shift, 31)
    return divide_rounding_away(high_multiply(product, first), shift - first)


def taps(op: BlockOperation, memory: np.ndarray) -> Callable[[int, int, int], list[int | None]]:
    """Return a function (y, x, c) -> IFM values minus zero point per tap, None for padding."""
    kernel, pad = op.kernel, op.padding
    up = 1 if op.upscale is Upscale.NONE else 2
    ofm = op.ofm.shape
    rows = (
        (ofm.height - 1) * kernel.stride_y
        + (kernel.height - 1) * kernel.dilation_y
        + 1
        - pad.top
        - pad.bottom
    )
    columns = (
        (ofm.width - 1) * kernel.stride_x
        + (kernel.width - 1) * kernel.dilation_x
        + 1
        - pad.left
        - pad.right
    )

    def value(y: int, x: int, c: int) -> int | None:
        if not (0 <= y < rows and 0 <= x < columns):
            return None
        if op.upscale is Upscale.ZEROS and (y % 2 or x % 2):
            return 0
        return load(op.ifm, memory, y // up, x // up, c) - op.ifm.zero_point

    def window(y: int, x: int, c: int) -> list[int | None]:
        return [
            value(
                y * kernel.stride_y + ky * kernel.dilation_y - pad.top,
                x * kernel.stride_x + kx * kernel.dilation_x - pad.left,
                c,
            )
            for ky in range(kernel.height)
            for kx in range(kernel.width)
        ]

    return window


def clamp(op: BlockOperation, value: int) -> int:
    """Add the zero point and clamp, as without an activation function."""
    if op.ofm.type.bits == 32:
        return value
    low = max(op.activation.minimum, op.ofm.type.minimum)
    high = min(op.activation.maximum, op.ofm.type.maximum)
    return min(max(value + op.ofm.zero_point, low), high)


def convolution(
    op: Conv | Depthwise,
    memory: np.ndarray,
    weights: np.ndarray,
    scales: list[tuple[int, int, int]],
) -> Values:
    """Return the OFM of a convolution with OHWI weights."""
    window = taps(op, memory)
    result = {}
    shape = op.ofm.shape
    flat = weights.reshape(weights.shape[0], -1, weights.shape[3])
    for y in range(shape.height):
        for x in range(shape.width):
            for o in range(shape.depth):
                channels = [o] if isinstance(op, Depthwise) else range(op.ifm.shape.depth)
                bias, multiplier, shift = scales[o]
                total = bias
                for index, c in enumerate(channels):
                    pairs = zip(window(y, x, c), flat[o, :, index].tolist(), strict=True)
                    total += sum((value or 0) * weight for value, weight in pairs)
                result[y, x, o] = clamp(op, scale(total, multiplier, shift, op.rounding))
    return result


def pool(op: Pool, memory: np.ndarray) -> Values:
    """Return the OFM of a pooling operation."""
    window = taps(op, memory)
    result = {}
    shape = op.ofm.shape
    for y in range(shape.height):
        for x in range(shape.width):
            for c in range(shape.depth):
                result[y, x, c] = clamp(op, _pooled(op, window, y, x, c))
    return result


def _pooled(op: Pool, window: Callable, y: int, x: int, c: int) -> int:
    if op.mode is PoolMode.REDUCE_SUM:
        values = [value for k in range(op.ifm.shape.depth) for value in window(y, x, k)]
    else:
        values = [value for value in window(y, x, c) if value is not None]
    if op.mode is PoolMode.MAX:
        return max(values)
    total = sum(values)
    if op.mode is PoolMode.AVERAGE and op.padding.any:
        magnitude = (2 * abs(total) + len(values)) // (2 * len(values))
        return magnitude if total >= 0 else -magnitude
    assert op.global_scale is not None
    return scale(total, op.global_scale.multiplier, op.global_scale.shift, op.rounding)


def elementwise(op: Elementwise, memory: np.ndarray) -> Values:
    """Return the OFM of an elementwise operation."""
    result = {}
    shape = op.ofm.shape
    for y in range(shape.height):
        for x in range(shape.width):
            for c in range(shape.depth):
                a = load(op.ifm, memory, y, x, c) - op.ifm.zero_point
                b = _second(op, memory, y, x, c)
                if op.reversed:
                    a, b = b, a
                result[y, x, c] = clamp(op, _combine(op, a, b))
    return result


def _second(op: Elementwise, memory: np.ndarray, y: int, x: int, c: int) -> int:
    if op.ifm2 is None:
        return (op.scalar or 0) - op.ifm2_zero_point
    shape = op.ifm2.shape
    place = (min(y, shape.height - 1), min(x, shape.width - 1), min(c, shape.depth - 1))
    return load(op.ifm2, memory, *place) - op.ifm2.zero_point


def _combine(op: Elementwise, a: int, b: int) -> int:
    factor = op.global_scale
    wide = op.ifm.type.bits == 32

    def scaled(value: int) -> int:
        assert factor is not None
        return scale(value, 1 if wide else factor.multiplier, factor.shift, op.rounding)

    def total() -> int:
        first, second = _scaled_operands(op, a, b)
        return scaled(first + second if op.mode is ElementwiseMode.ADD else first - second)

    results: dict[ElementwiseMode, Callable[[], int]] = {
        ElementwiseMode.MIN: lambda: min(a, b),
        ElementwiseMode.MAX: lambda: max(a, b),
        ElementwiseMode.MUL: lambda: scaled(a * b),
        ElementwiseMode.ADD: total,
        ElementwiseMode.SUB: total,
        ElementwiseMode.ABS: lambda: scaled(abs(a)),
        ElementwiseMode.LRELU: lambda: a if a >= 0 else scaled(a),
        ElementwiseMode.CLZ: lambda: 32 - (a & 0xFFFFFFFF).bit_length(),
        ElementwiseMode.SHR: lambda: scale(a, 1, b, op.rounding),
        ElementwiseMode.SHL: lambda: a << b,
    }
    return results[op.mode]()


def _scaled_operands(op: Elementwise, a: int, b: int) -> tuple[int, int]:
    if op.ifm.type.bits == 32:
        return a, b
    factor = op.opa_scale
    left = 20 if op.ifm.type.bits == 8 else 15
    shift = factor.shift + left
    if op.scale_mode is ScaleMode.OPA_32:
        return scale(a << left, factor.multiplier, shift, op.ifm_rounding), (b << left) // 2
    if op.scale_mode is ScaleMode.OPB_32:
        return (a << left) // 2, scale(b << left, factor.multiplier, shift, op.ifm_rounding)
    return a * factor.multiplier, b * op.opb_scale
