"""Transposed convolutions: one ordinary convolution for all phases, then a move.

Output row y of a transposed convolution with stride s and padding p meets only the kernel rows
that are congruent to y + p modulo s. So there are s * s small kernels; side by side, as channels of
one convolution, they give each input position's block of s * s outputs, which a move spreads out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tvm_ethosu.partition.lower import Lowered, lower_conv
from tvm_ethosu.partition.moves import Box, MoveParams, Segment, lower_move, mapped
from tvm_ethosu.partition.params import ConvParams, OpParams, TensorType
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.scheduler import arch
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import DType, Kernel, Padding, Tensor

_MAX_STRIDE = 4


def transposed_form_fits(params: OpParams) -> Rejection | None:
    """Strides are 1 to 4, one group, no dilation, padding is smaller than the kernel."""
    assert isinstance(params, ConvParams)
    kernel, padding = params.kernel, params.padding
    for stride in (kernel.stride_h, kernel.stride_w):
        if not 1 <= stride <= _MAX_STRIDE:
            return Rejection("stride", str(stride), f"1 to {_MAX_STRIDE}")
    if params.groups != 1 or (kernel.dilation_h, kernel.dilation_w) != (1, 1):
        return Rejection("groups or dilation", "more than 1", "1")
    if not (0 <= padding.top < kernel.h and 0 <= padding.left < kernel.w):
        return Rejection("padding", str(padding), "less than the kernel")
    channels = params.weights.shape[0] * kernel.stride_h * kernel.stride_w
    if channels > arch.MAX_DIM:
        return Rejection("channels of all phases", str(channels), f"up to {arch.MAX_DIM}")
    return None


def _phases(weights: npt.NDArray[np.int64], kernel: Kernel) -> npt.NDArray[np.int64]:
    """Return weights (rows x columns x O, taps, taps, I), one small kernel per phase."""
    channels, _, _, depth = weights.shape
    taps = ceil_div(kernel.h, kernel.stride_h), ceil_div(kernel.w, kernel.stride_w)
    result = np.zeros((kernel.stride_h, kernel.stride_w, channels, *taps, depth), np.int64)
    for row in range(kernel.stride_h):
        for column in range(kernel.stride_w):
            part = weights[:, row :: kernel.stride_h, column :: kernel.stride_w][:, ::-1, ::-1]
            result[row, column, :, taps[0] - part.shape[1] :, taps[1] - part.shape[2] :] = part
    return result.reshape(-1, *taps, depth)


def _blocks(out: int, padding: int, stride: int) -> int:
    """Return how many input positions, from the first one on, have an output in their block."""
    return (padding + out - 1) // stride + 1


def _of_all_phases(params: ConvParams, rows: int, columns: int) -> ConvParams:
    """Return the ordinary convolution, whose result has a block of outputs in its channels."""
    kernel, ifm = params.kernel, params.ifm
    count = kernel.stride_h * kernel.stride_w
    weights = _phases(params.weights, kernel)
    small = Kernel(*weights.shape[1:3])
    scales = params.weight_scales
    return replace(
        params,
        kind="conv2d",
        weights=weights,
        bias=None if params.bias is None else np.tile(params.bias, count),
        weight_scales=scales if len(scales) == 1 else scales * count,
        kernel=small,
        padding=Padding(
            small.h - 1,
            small.w - 1,
            max(0, rows - ifm.dims[1]),
            max(0, columns - ifm.dims[2]),
        ),
        ofm=TensorType((1, rows, columns, weights.shape[0]), params.ofm.dtype),
    )


def _kept(out: int, padding: int, stride: int, phase: int) -> Segment:
    """Return which blocks have an output of this phase, and where along the dimension it goes."""
    first = max(0, ceil_div(padding - phase, stride))
    start = first * stride + phase - padding
    extent = max(0, ceil_div(out - start, stride))
    return Segment(extent, first, start, 1, stride)


def _spread(params: ConvParams, blocks: TensorType) -> tuple[Box, ...]:
    """Return the boxes from blocks of outputs to the outputs, one for each phase."""
    kernel, padding, ofm = params.kernel, params.padding, params.ofm.dims
    boxes: list[Box] = []
    for row in range(kernel.stride_h):
        for column in range(kernel.stride_w):
            phase = row * kernel.stride_w + column
            maps = [
                [Segment(1)],
                [_kept(ofm[1], padding.top, kernel.stride_h, row)],
                [_kept(ofm[2], padding.left, kernel.stride_w, column)],
                [Segment(ofm[3], read=phase * ofm[3])],
            ]
            boxes += mapped(0, blocks.dims, ofm, maps)
    return tuple(boxes)


def lower_transposed(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the convolution of all phases and the move of its blocks."""
    assert isinstance(params, ConvParams)
    kernel, padding = params.kernel, params.padding
    rows = _blocks(params.ofm.dims[1], padding.top, kernel.stride_h)
    columns = _blocks(params.ofm.dims[2], padding.left, kernel.stride_w)
    conv_params = _of_all_phases(params, rows, columns)
    blocks = conv_params.ofm
    conv = lower_conv(conv_params, f"{name}_phases", ifms, f"{name}_blocks")
    move_params = MoveParams(params.origin, blocks, params.ofm, (blocks,), _spread(params, blocks))
    move = lower_move(move_params, name, [f"{name}_blocks"], ofm)
    tensor = Tensor(f"{name}_blocks", conv.op.ofm.shape, DType(params.ofm.dtype))
    return Lowered(move.op, conv.constants, (conv.op,), (tensor,))
