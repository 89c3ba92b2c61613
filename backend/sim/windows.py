"""The IFM as kernels see it: upscaled, padded, and cut into taps.

With H the rows under the kernel, ``H = (OFM height - 1) * stride + (taps - 1) * dilation + 1``, the
padded array has H rows, of which ``H - top - bottom`` come from the (upscaled) IFM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tvm_ethosu.backend.sim.limits import check_elements
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import BlockOperation, Upscale


def extent(op: BlockOperation) -> tuple[int, int]:
    """Return height and width of the padded IFM."""
    kernel, shape = op.kernel, op.ofm.shape
    return (
        (shape.height - 1) * kernel.stride_y + (kernel.height - 1) * kernel.dilation_y + 1,
        (shape.width - 1) * kernel.stride_x + (kernel.width - 1) * kernel.dilation_x + 1,
    )


def padded(op: BlockOperation, ifm: Array, fill: int, dtype: Any) -> Array:
    """Return the upscaled IFM (H, W, C) with ``fill`` in its padding, as ``dtype``.

    Zeros that ``Upscale.ZEROS`` inserts are literal zeros, so the zero point must already be
    subtracted. Raises LimitError.
    """
    height, width = extent(op)
    depth = ifm.shape[2]
    check_elements("the padded IFM", height * width * depth)
    pad = op.padding
    if op.upscale is Upscale.NONE and not pad.any:
        return ifm.astype(dtype, copy=False)
    result = np.full((height, width, depth), fill, dtype)
    inner = result[pad.top : height - pad.bottom, pad.left : width - pad.right]
    rows, columns = inner.shape[:2]
    if op.upscale is Upscale.NONE:
        inner[...] = ifm
    elif op.upscale is Upscale.NEAREST:
        inner[...] = ifm.repeat(2, axis=0).repeat(2, axis=1)[:rows, :columns]
    else:
        inner[...] = 0
        inner[::2, ::2] = ifm
    return result


def taps(op: BlockOperation, source: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield (ky, kx, view) with the padded IFM elements (OH, OW, C) under each kernel tap."""
    kernel, shape = op.kernel, op.ofm.shape
    span_y = (shape.height - 1) * kernel.stride_y + 1
    span_x = (shape.width - 1) * kernel.stride_x + 1
    for ky in range(kernel.height):
        y = ky * kernel.dilation_y
        for kx in range(kernel.width):
            x = kx * kernel.dilation_x
            yield ky, kx, source[y : y + span_y : kernel.stride_y, x : x + span_x : kernel.stride_x]


def windows(op: BlockOperation, source: Array) -> Array:
    """Return a view (OH, OW, KH, KW, C) of the padded IFM."""
    kernel, shape = op.kernel, op.ofm.shape
    step_y, step_x, step_c = source.strides
    return np.lib.stride_tricks.as_strided(
        source,
        (shape.height, shape.width, kernel.height, kernel.width, source.shape[2]),
        (
            step_y * kernel.stride_y,
            step_x * kernel.stride_x,
            step_y * kernel.dilation_y,
            step_x * kernel.dilation_x,
            step_c,
        ),
        writeable=False,
    )


def valid_counts(op: BlockOperation) -> Array:
    """Return how many elements under each kernel position (OH, OW, 1) are not padding."""
    height, width = extent(op)
    kernel, pad, shape = op.kernel, op.padding, op.ofm.shape

    def along(count: int, stride: int, taps_: int, dilation: int, start: int, stop: int) -> Array:
        position = np.arange(count)[:, None] * stride + np.arange(taps_)[None, :] * dilation
        return ((position >= start) & (position < stop)).sum(axis=1)

    rows = along(
        shape.height, kernel.stride_y, kernel.height, kernel.dilation_y, pad.top,
        height - pad.bottom,
    )  # fmt: skip
    columns = along(
        shape.width, kernel.stride_x, kernel.width, kernel.dilation_x, pad.left,
        width - pad.right,
    )  # fmt: skip
    return np.asarray(rows[:, None, None] * columns[None, :, None], np.int64)
