"""The IFM as kernels see it: upscaled, padded, and cut into taps.

The padded array has as many rows as lie under the kernel (``Axis.extent``); those that are not
padding come from the (upscaled) IFM, which may have one row more than is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tvm_ethosu.backend.sim.geometry import Axis, horizontal, vertical
from tvm_ethosu.backend.sim.limits import check_elements
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import BlockOperation, Upscale


def axes(op: BlockOperation) -> tuple[Axis, Axis]:
    """Return the vertical and the horizontal axis."""
    arguments = (op.ofm.shape, op.kernel, op.padding)
    return vertical(*arguments), horizontal(*arguments)


def padded(op: BlockOperation, ifm: Array, fill: int, dtype: Any) -> Array:
    """Return the upscaled IFM (H, W, C) with ``fill`` in its padding, as ``dtype``.

    Zeros that ``Upscale.ZEROS`` inserts are literal zeros, so the zero point must already be
    subtracted. Raises LimitError.
    """
    rows, columns = axes(op)
    depth = ifm.shape[2]
    check_elements("the padded IFM", rows.extent * columns.extent * depth)
    if op.upscale is Upscale.NONE and not op.padding.any:
        return ifm.astype(dtype, copy=False)
    result = np.full((rows.extent, columns.extent, depth), fill, dtype)
    inner = result[
        rows.before : rows.before + rows.inputs, columns.before : columns.before + columns.inputs
    ]
    if op.upscale is Upscale.NONE:
        inner[...] = ifm
    elif op.upscale is Upscale.NEAREST:
        inner[...] = ifm.repeat(2, axis=0).repeat(2, axis=1)[: rows.inputs, : columns.inputs]
    else:
        inner[...] = 0
        inner[::2, ::2] = ifm
    return result


def taps(op: BlockOperation, source: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield (ky, kx, view) with the padded IFM elements (OH, OW, C) under each kernel tap."""
    rows, columns = axes(op)
    for ky in range(rows.taps):
        y = ky * rows.dilation
        for kx in range(columns.taps):
            x = kx * columns.dilation
            yield (
                ky,
                kx,
                source[y : y + rows.span : rows.stride, x : x + columns.span : columns.stride],
            )


def windows(op: BlockOperation, source: Array) -> Array:
    """Return a view (OH, OW, KH, KW, C) of the padded IFM."""
    rows, columns = axes(op)
    step_y, step_x, step_c = source.strides
    return np.lib.stride_tricks.as_strided(
        source,
        (rows.outputs, columns.outputs, rows.taps, columns.taps, source.shape[2]),
        (
            step_y * rows.stride,
            step_x * columns.stride,
            step_y * rows.dilation,
            step_x * columns.dilation,
            step_c,
        ),
        writeable=False,
    )


def valid_counts(op: BlockOperation) -> Array:
    """Return how many elements under each kernel position (OH, OW, 1) are not padding."""
    rows, columns = (_valid_along(axis) for axis in axes(op))
    return np.asarray(rows[:, None, None] * columns[None, :, None], np.int64)


def _valid_along(axis: Axis) -> Array:
    starts = np.arange(axis.outputs)[:, None] * axis.stride
    position = starts + np.arange(axis.taps)[None, :] * axis.dilation
    inside = (position >= axis.before) & (position < axis.before + axis.inputs)
    return np.asarray(inside.sum(axis=1))
