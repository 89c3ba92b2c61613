"""Operators over a limit of the NPU as several, or others, within it; values stay the same.

Each function takes a matched operator and returns what gives the same result, or None. What it
returns may be over another limit: break_down.py goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relay

from tvm_ethosu.partition import constraints as c
from tvm_ethosu.partition.params import ConvParams, OpParams, PoolParams
from tvm_ethosu.partition.relay.movement import MAX_JOINED
from tvm_ethosu.partition.relay.parse import call_name, tensor_type
from tvm_ethosu.scheduler.arch import MAX_DILATION, MAX_DIM, MAX_POOL_H, MAX_STRIDE
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import Padding

Array = npt.NDArray[Any]

# Up to so many input channels a convolution that multiplies by zeros costs less than copies.
_FEW_CHANNELS = 16
_MOST_IMAGES = 256


@dataclass(frozen=True)
class Match:
    """An operator: its last call, its main call, the calculated tensors that it reads."""

    root: relay.Call
    main: relay.Call
    inputs: tuple[relay.Expr, ...]
    params: OpParams

    def with_calls(self, replaced: Mapping[relay.Expr, relay.Expr]) -> relay.Expr:
        """Return the operator with other expressions in place of some of its own."""

        def new(expr: relay.Expr) -> relay.Expr:
            if expr in replaced:
                return replaced[expr]
            if not isinstance(expr, relay.Call):
                return expr
            args = [new(arg) for arg in expr.args]
            return relay.Call(expr.op, args, expr.attrs, [], expr.span)

        return new(self.root)


Step = Callable[[Match], relay.Expr | None]

# --- batches --------------------------------------------------------------------------------------


def _joined(parts: Sequence[relay.Expr], axis: int) -> relay.Expr:
    """Return parts in a row; a row that is too long for one operator in several steps."""
    while len(parts) > 1:
        groups = [parts[i : i + MAX_JOINED] for i in range(0, len(parts), MAX_JOINED)]
        parts = [relay.concatenate(group, axis) if len(group) > 1 else group[0] for group in groups]
    return parts[0]


def image_by_image(match: Match) -> relay.Expr | None:
    """Return the operator on each part along its first dimension, the results joined.

    None for what is an image already, and for so many that the NPU would only copy.
    """
    dims = tensor_type(match.root).dims
    axis = next((axis for axis, extent in enumerate(dims[:-3]) if extent > 1), None)
    if axis is None or dims[axis] > _MOST_IMAGES:
        return None

    def part(index: int) -> relay.Expr:
        sliced = {}
        for given in match.inputs:
            own = tensor_type(given).dims
            # Dimensions that an input lacks are those in front.
            at = axis - len(dims) + len(own)
            if at >= 0 and own[at] > 1:
                begin, end = [0] * len(own), list(own)
                begin[at], end[at] = index, index + 1
                sliced[given] = relay.strided_slice(given, begin, end)
        return match.with_calls(sliced)

    return _joined([part(index) for index in range(dims[axis])], axis)


def images_in_a_column(match: Match) -> relay.Expr | None:
    """Return a convolution on all images of a batch below each other; others image by image.

    Each image has rows enough below it that no window of a result reads two images.
    """
    params = match.params
    if not isinstance(params, ConvParams) or params.kind == "transposed":
        return image_by_image(match)
    count, height, width, channels = params.ifm.dims
    _, out_h, out_w, out_c = params.ofm.dims
    kernel, padding = params.kernel, params.padding
    stride, used = kernel.stride_h, (out_h - 1) * kernel.stride_h + kernel.dilated_h
    tall = ceil_div(max(padding.top + height, used), stride) * stride
    data = _padded(match, Padding(padding.top, 0, tall - padding.top - height, 0))
    data = relay.reshape(data, (1, count * tall, width, channels))
    below = max(0, kernel.dilated_h - stride)
    main = _conv(match, data, _weights(match), padding=(0, padding.left, below, padding.right))
    every = relay.reshape(
        match.with_calls({match.main: main}), (count, tall // stride, out_w, out_c)
    )
    if tall // stride == out_h:
        return every
    return relay.strided_slice(every, [0] * 4, [count, out_h, out_w, out_c])


# --- strides --------------------------------------------------------------------------------------


def smaller_stride(match: Match) -> relay.Expr | None:
    """Return a convolution over blocks as channels, or results of which some are left out."""
    params = match.params
    assert isinstance(params, ConvParams | PoolParams)
    if isinstance(params, ConvParams) and _has_blocks(params):
        return _over_blocks(match, params)
    kernel, (_, out_h, out_w, channels) = params.kernel, params.ofm.dims
    strides = [_divisor(kernel.stride_h, out_h), _divisor(kernel.stride_w, out_w)]
    steps = [kernel.stride_h // strides[0], kernel.stride_w // strides[1]]
    if isinstance(params, ConvParams):
        main = _conv(match, match.inputs[0], _weights(match), strides=strides)
    else:
        main = _pool(match, match.main.args[0], strides=strides)
    ends = [1, (out_h - 1) * steps[0] + 1, (out_w - 1) * steps[1] + 1, channels]
    every = match.with_calls({match.main: main})
    return relay.strided_slice(every, [0] * 4, ends, [1, *steps, 1])


def blocks_of_long_rows(match: Match) -> relay.Expr | None:
    """Return a convolution with large strides on rows that are too long, over blocks of them."""
    params = match.params
    assert isinstance(params, ConvParams)
    strided = max(params.kernel.stride_h, params.kernel.stride_w) > MAX_STRIDE
    return _over_blocks(match, params) if strided and _has_blocks(params) else None


def _divisor(stride: int, outputs: int) -> int:
    """Return the largest stride of the NPU that divides another; that one itself if it is idle."""
    if outputs == 1:
        return stride
    return next(step for step in range(MAX_STRIDE, 0, -1) if stride % step == 0)


def _has_blocks(params: ConvParams) -> bool:
    kernel = params.kernel
    plain = params.kind == "conv2d" and params.groups == 1
    return plain and kernel.dilation_h == kernel.dilation_w == 1


def _over_blocks(match: Match, params: ConvParams) -> relay.Expr | None:
    """Return a convolution of stride 1 over blocks of stride x stride pixels as channels.

    An axis whose stride the NPU has keeps it. None if there are too few pixels for a block, and
    rows too long to be filled up.
    """
    kernel, padding = params.kernel, params.padding
    (_, height, width, _), (_, out_h, out_w, _) = params.ifm.dims, params.ofm.dims
    down = _blocks_of(height, out_h, kernel.h, kernel.stride_h, (padding.top, padding.bottom))
    right = _blocks_of(width, out_w, kernel.w, kernel.stride_w, (padding.left, padding.right))
    missing = Padding(0, 0, down.missing, right.missing)
    if missing.any and max(height, width) > MAX_DIM:
        return None
    data = _as_channels(_padded(match, missing), (down.size, right.size))
    _, rows, columns, channels = _dims_of(data)
    if (rows, columns) != (min(rows, down.read), min(columns, right.read)):
        read = [1, min(rows, down.read), min(columns, right.read), channels]
        data = relay.strided_slice(data, [0] * 4, read)
    main = _conv(
        match,
        data,
        _deep_weights(match, down, right),
        strides=(down.stride, right.stride),
        padding=(down.before, right.before, down.after, right.after),
    )
    return match.with_calls({match.main: main})


@dataclass(frozen=True)
class _Blocks:
    """One axis of a convolution over blocks.

    ``missing`` pixels are needed behind the input for whole blocks, of which the first ``read`` are
    read. ``before`` and ``after`` are the padding in blocks, ``taps`` the kernel's extent in
    blocks, of which the first ``shift`` pixels have weights of zero. ``stride`` is what is left of
    it.
    """

    size: int
    missing: int
    read: int
    before: int
    after: int
    taps: int
    shift: int
    stride: int


def _blocks_of(
    extent: int, outputs: int, kernel: int, stride: int, padding: tuple[int, int]
) -> _Blocks:
    """Return the blocks of an axis: single pixels where the NPU has its stride."""
    if stride <= MAX_STRIDE or outputs == 1:
        return _Blocks(1, 0, extent, *padding, kernel, 0, stride)
    before = ceil_div(padding[0], stride)
    shift = before * stride - padding[0]
    taps = ceil_div(kernel + shift, stride)
    read = outputs - 1 + taps - before
    have = ceil_div(extent, stride)
    missing, after = have * stride - extent, max(0, read - have)
    return _Blocks(stride, missing, read, before, after, taps, shift, 1)


def _as_channels(data: relay.Expr, block: tuple[int, int]) -> relay.Expr:
    """Return blocks of pixels as one pixel with more channels."""
    _, height, width, channels = _dims_of(data)
    rows, columns = height // block[0], width // block[1]
    if block[0] > 1 and columns > 1:
        data = relay.reshape(data, (rows, block[0], columns, block[1] * channels))
        data = relay.transpose(data, (0, 2, 1, 3))
    return relay.reshape(data, (1, rows, columns, block[0] * block[1] * channels))


def _deep_weights(match: Match, down: _Blocks, right: _Blocks) -> Array:
    """Return HWIO weights for blocks as channels."""
    weights = _weights(match)
    height, width, *depth = weights.shape
    size = down.taps * down.size, right.taps * right.size
    filled = np.full((*size, *depth), _zero(match), weights.dtype)
    filled[down.shift : down.shift + height, right.shift : right.shift + width] = weights
    split = filled.reshape(down.taps, down.size, right.taps, right.size, *depth)
    return split.transpose(0, 2, 1, 3, 4, 5).reshape(down.taps, right.taps, -1, depth[1])


# --- kernels --------------------------------------------------------------------------------------


def zeros_in_the_kernel(match: Match) -> relay.Expr:
    """Return a convolution with part of its dilation written out as weights of zero."""
    params = match.params
    assert isinstance(params, ConvParams)
    kernel, weights = params.kernel, _weights(match)
    left = [_kept_dilation(step) for step in (kernel.dilation_h, kernel.dilation_w)]
    steps = kernel.dilation_h // left[0], kernel.dilation_w // left[1]
    size = [(n - 1) * step + 1 for n, step in zip(weights.shape[:2], steps, strict=True)]
    filled = np.full((*size, *weights.shape[2:]), _zero(match), weights.dtype)
    filled[:: steps[0], :: steps[1]] = weights
    main = _conv(match, match.inputs[0], filled, dilation=left)
    return match.with_calls({match.main: main})


def _kept_dilation(step: int) -> int:
    if step <= MAX_DILATION:
        return step
    return MAX_DILATION if step % MAX_DILATION == 0 else 1


def several_results_per_channel(match: Match) -> relay.Expr:
    """Return a depthwise convolution with a depth multiplier without one.

    Few channels become a convolution with weights of zero; of many each is repeated.
    """
    params, weights = match.params, _weights(match)
    assert isinstance(params, ConvParams)
    (_, height, width, channels), multiplier = params.ifm.dims, params.depth_multiplier
    results = channels * multiplier
    if channels <= _FEW_CHANNELS:
        return _with_zeros(match, weights.reshape(*weights.shape[:2], 1, results))
    column = relay.reshape(match.inputs[0], (1, height * width, channels, 1))
    repeated = relay.tile(column, (1, 1, 1, multiplier))
    data = relay.reshape(repeated, (1, height, width, results))
    single = weights.reshape(*weights.shape[:2], results, 1)
    return match.with_calls({match.main: _conv(match, data, single, groups=results)})


def one_group(match: Match) -> relay.Expr:
    """Return a convolution of several groups as one with weights of zero between them."""
    return _with_zeros(match, _weights(match))


def _with_zeros(match: Match, weights: Array) -> relay.Expr:
    """Return a convolution of one group; HWIO weights of groups that follow each other."""
    params = match.params
    assert isinstance(params, ConvParams)
    height, width, depth, results = weights.shape
    channels = params.ifm.dims[3]
    per_group = results * depth // channels
    filled = np.full((height, width, channels, results), _zero(match), weights.dtype)
    for group in range(channels // depth):
        read = slice(group * depth, (group + 1) * depth)
        written = slice(group * per_group, (group + 1) * per_group)
        filled[:, :, read, written] = weights[..., written]
    main = _conv(match, match.inputs[0], filled, groups=1, kernel_layout="HWIO")
    return match.with_calls({match.main: main})


def kernel_on_its_side(match: Match) -> relay.Expr | None:
    """Return a convolution with a tall kernel on an input with rows and columns exchanged.

    A kernel that covers all of its input becomes one of a single element with more channels.
    """
    params = match.params
    assert isinstance(params, ConvParams)
    kernel, padding = params.kernel, params.padding
    (_, height, width, channels), (_, out_h, out_w, out_c) = params.ifm.dims, params.ofm.dims
    weights = _weights(match)
    covers = (kernel.h, kernel.w) == (height, width) and out_h == out_w == 1
    if covers and params.kind == "conv2d" and not padding.any:
        inputs = height * width * channels
        data = relay.reshape(match.inputs[0], (1, 1, 1, inputs))
        single = weights.reshape(1, 1, inputs, out_c)
        return match.with_calls({match.main: _conv(match, data, single, dilation=(1, 1))})
    if kernel.dilated_w >= kernel.dilated_h:
        return None
    main = _conv(
        match,
        _exchanged(match.inputs[0]),
        weights.transpose(1, 0, 2, 3),
        strides=(kernel.stride_w, kernel.stride_h),
        dilation=(kernel.dilation_w, kernel.dilation_h),
        padding=(padding.left, padding.top, padding.right, padding.bottom),
    )
    return _exchanged(match.with_calls({match.main: main}), (1, out_w, out_h, out_c))


def _exchanged(data: relay.Expr, dims: tuple[int, ...] = ()) -> relay.Expr:
    """Return an image with rows as columns; a single row or column stays where it is in memory."""
    _, height, width, channels = dims or _dims_of(data)
    if height == 1 or width == 1:
        return relay.reshape(data, (1, width, height, channels))
    return relay.transpose(data, (0, 2, 1, 3))


def padding_ahead(match: Match) -> relay.Expr:
    """Return a convolution on an input that is padded before."""
    assert isinstance(match.params, ConvParams)
    data = _padded(match, match.params.padding)
    main = _conv(match, data, _weights(match), padding=(0, 0, 0, 0))
    return match.with_calls({match.main: main})


def least_values_around(match: Match) -> relay.Expr:
    """Return the maximum over an input with the least value of its type around it."""
    params = match.params
    assert isinstance(params, PoolParams)
    fill = relay.const(np.iinfo(params.ifm.dtype).min, params.ifm.dtype)
    data = relay.nn.pad(match.main.args[0], _amounts(params.padding), fill)
    return match.with_calls({match.main: _pool(match, data, padding=(0, 0, 0, 0))})


def window_after_window(match: Match) -> relay.Expr:
    """Return the maximum over large windows as one over windows of windows."""
    params = match.params
    assert isinstance(params, PoolParams)
    if params.padding.any:
        return least_values_around(match)
    size = params.kernel.h, params.kernel.w
    first = [min(n, MAX_POOL_H) for n in size]
    then = [n - part + 1 for n, part in zip(size, first, strict=True)]
    data = _pool(match, match.main.args[0], pool_size=first, strides=(1, 1))
    return match.with_calls({match.main: _pool(match, data, pool_size=then)})


# --- operands -------------------------------------------------------------------------------------


def one_input_repeated(match: Match) -> relay.Expr:
    """Return an operator both inputs of which are broadcast, with one of them repeated before."""
    dims = tensor_type(match.root).dims
    shapes = {given: tensor_type(given).dims for given in match.inputs}
    given = max(shapes, key=lambda one: math.prod(shapes[one]))
    own = (1,) * (len(dims) - len(shapes[given])) + shapes[given]
    repeats = [extent // mine for extent, mine in zip(dims, own, strict=True)]
    return match.with_calls({given: relay.tile(relay.reshape(given, own), repeats)})


# --- parts ----------------------------------------------------------------------------------------


def _weights(match: Match) -> Array:
    """Return the weights as the model has them."""
    return np.asarray(match.main.args[1].data.numpy())


def _zero(match: Match) -> int:
    """Return what stands for a weight of zero."""
    return int(np.ravel(match.main.args[3].data.numpy())[0])


def _padded(match: Match, padding: Padding) -> relay.Expr:
    """Return the input of a convolution with rows and columns of its zero point around it."""
    if not padding.any:
        return match.inputs[0]
    params = match.params
    assert isinstance(params, ConvParams)
    fill = relay.const(params.ifm_quant.zero_point, params.ifm.dtype)
    return relay.nn.pad(match.inputs[0], _amounts(padding), fill)


def _amounts(padding: Padding) -> tuple[tuple[int, int], ...]:
    return ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))


def _dims_of(data: relay.Expr) -> tuple[int, ...]:
    """Return the dimensions of an expression that has not been typed yet."""
    typed = relay.transform.InferTypeLocal(data)
    return tuple(int(extent) for extent in typed.shape)


def _conv(match: Match, data: relay.Expr, weights: Array, **changed: Any) -> relay.Call:
    """Return the convolution with another input, other weights and attributes."""
    attrs, args = match.main.attrs, match.main.args
    names = ("channels", "strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
    given = {name: getattr(attrs, name) for name in (*names, "out_dtype")} | changed
    constant = relay.const(weights, str(weights.dtype))
    return relay.qnn.op.conv2d(data, constant, *args[2:6], weights.shape[:2], **given)


def _pool(match: Match, data: relay.Expr, **changed: Any) -> relay.Call:
    """Return the pooling of another input with other attributes."""
    attrs, name = match.main.attrs, call_name(match.main)
    names = ["pool_size", "strides", "dilation", "padding", "layout", "out_layout", "ceil_mode"]
    names += ["count_include_pad"] * (name == "nn.avg_pool2d")
    given = {name: getattr(attrs, name) for name in names} | changed
    pool = relay.nn.avg_pool2d if name == "nn.avg_pool2d" else relay.nn.max_pool2d
    return pool(data, **given)


# By the limit that an operator is over.
STEPS: dict[c.Constraint, Step] = {
    c.batch_is_one: images_in_a_column,
    c.operands_have_three_dims: image_by_image,
    c.strides_fit: smaller_stride,
    c.dilation_fits: zeros_in_the_kernel,
    c.groups_fit: one_group,
    c.depth_multiplier_is_one: several_results_per_channel,
    c.pool_window_fits: window_after_window,
    c.pool_padding_fits: least_values_around,
    c.kernel_fits: kernel_on_its_side,
    c.conv_padding_fits: padding_ahead,
    c.one_side_broadcasts: one_input_repeated,
    c.dims_fit: blocks_of_long_rows,
}

_CONVOLUTIONS = ("ethos-u.conv2d", "ethos-u.depthwise_conv2d")
_MAXIMA = ("ethos-u.max_pool2d",)
# Steps that are for some rows of the table only.
ONLY_FOR: dict[Step, tuple[str, ...]] = {
    blocks_of_long_rows: ("ethos-u.conv2d",),
    kernel_on_its_side: _CONVOLUTIONS,
    padding_ahead: _CONVOLUTIONS,
    least_values_around: _MAXIMA,
    window_after_window: _MAXIMA,
}
