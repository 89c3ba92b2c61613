"""Operators that rearrange elements, for the network builder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Fields, Operator, Value

Shape = Sequence[int]


def _one(
    net: NetBuilder, code: str, xs: Sequence[Value], shape: Shape, options: str, fields: Fields
) -> Value:
    """Add an operator whose result has the quantization of its first input."""
    result = net._result(shape, xs[0].scale, xs[0].zero_point, "")
    return net._add(code, tuple(x.index for x in xs), result, options, fields)


def _numbers(net: NetBuilder, values: object) -> Value:
    return net._constant(np.array(values, np.int32))


def concat(net: NetBuilder, xs: Sequence[Value], axis: int) -> Value:
    """Add CONCATENATION."""
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return _one(net, "CONCATENATION", xs, shape, "ConcatenationOptions", {0: ("Int32", axis)})


def pack(net: NetBuilder, xs: Sequence[Value], axis: int) -> Value:
    """Add PACK."""
    shape = list(xs[0].shape)
    shape.insert(axis, len(xs))
    fields: Fields = {0: ("Int32", len(xs)), 1: ("Int32", axis)}
    return _one(net, "PACK", xs, shape, "PackOptions", fields)


def _several(
    net: NetBuilder,
    code: str,
    inputs: Sequence[Value],
    shapes: Sequence[Shape],
    like: Value,
    options: str,
    fields: Fields,
) -> tuple[Value, ...]:
    results = [net._result(shape, like.scale, like.zero_point, "") for shape in shapes]
    indices = tuple(x.index for x in inputs), tuple(r.index for r in results)
    net._operators.append(Operator(code, *indices, options, fields))
    return tuple(results)


def split(net: NetBuilder, x: Value, count: int, axis: int) -> tuple[Value, ...]:
    """Add SPLIT into equal parts."""
    shape = list(x.shape)
    shape[axis] //= count
    inputs = (_numbers(net, axis), x)
    fields: Fields = {0: ("Int32", count)}
    return _several(net, "SPLIT", inputs, [shape] * count, x, "SplitOptions", fields)


def split_v(net: NetBuilder, x: Value, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    """Add SPLIT_V."""
    shapes = [[*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in sizes]
    inputs = (x, _numbers(net, sizes), _numbers(net, axis))
    fields: Fields = {0: ("Int32", len(sizes))}
    return _several(net, "SPLIT_V", inputs, shapes, x, "SplitVOptions", fields)


def unpack(net: NetBuilder, x: Value, axis: int) -> tuple[Value, ...]:
    """Add UNPACK."""
    shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
    fields: Fields = {0: ("Int32", x.shape[axis]), 1: ("Int32", axis)}
    return _several(net, "UNPACK", (x,), [shape] * x.shape[axis], x, "UnpackOptions", fields)


def slice_(net: NetBuilder, x: Value, begin: Shape, size: Shape) -> Value:
    """Add SLICE."""
    inputs = (x, _numbers(net, begin), _numbers(net, size))
    return _one(net, "SLICE", inputs, size, "SliceOptions", {})


def strided_slice(net: NetBuilder, x: Value, begin: Shape, end: Shape, strides: Shape) -> Value:
    """Add STRIDED_SLICE without masks."""
    inputs = (x, *(_numbers(net, values) for values in (begin, end, strides)))
    shape = [
        len(range(n)[slice(*bounds)])
        for n, bounds in zip(x.shape, zip(begin, end, strides, strict=True), strict=True)
    ]
    return _one(net, "STRIDED_SLICE", inputs, shape, "StridedSliceOptions", {})


def pad(net: NetBuilder, x: Value, amounts: Sequence[Sequence[int]]) -> Value:
    """Add PAD: the zero point around the input."""
    shape = [n + sum(pair) for n, pair in zip(x.shape, amounts, strict=True)]
    return _one(net, "PAD", (x, _numbers(net, amounts)), shape, "PadOptions", {})


def pad_v2(net: NetBuilder, x: Value, amounts: Sequence[Sequence[int]], value: int) -> Value:
    """Add PADV2: a value around the input."""
    shape = [n + sum(pair) for n, pair in zip(x.shape, amounts, strict=True)]
    fill = net._constant(np.array([value], net.dtype), x.scales, x.zero_point)
    return _one(net, "PADV2", (x, _numbers(net, amounts), fill), shape, "PadV2Options", {})


def mirror_pad(
    net: NetBuilder, x: Value, amounts: Sequence[Sequence[int]], symmetric: bool
) -> Value:
    """Add MIRROR_PAD."""
    shape = [n + sum(pair) for n, pair in zip(x.shape, amounts, strict=True)]
    fields: Fields = {0: ("Int8", int(symmetric))}
    inputs = (x, _numbers(net, amounts))
    return _one(net, "MIRROR_PAD", inputs, shape, "MirrorPadOptions", fields)


def transpose(net: NetBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Add TRANSPOSE."""
    shape = [x.shape[axis] for axis in axes]
    return _one(net, "TRANSPOSE", (x, _numbers(net, axes)), shape, "TransposeOptions", {})


def reverse(net: NetBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Add REVERSE_V2."""
    return _one(net, "REVERSE_V2", (x, _numbers(net, axes)), x.shape, "ReverseV2Options", {})


def tile(net: NetBuilder, x: Value, times: Sequence[int]) -> Value:
    """Add TILE."""
    shape = [n * count for n, count in zip(x.shape, times, strict=True)]
    return _one(net, "TILE", (x, _numbers(net, times)), shape, "TileOptions", {})


def gather(net: NetBuilder, x: Value, indices: Sequence[int], axis: int) -> Value:
    """Add GATHER."""
    shape = [*x.shape[:axis], len(indices), *x.shape[axis + 1 :]]
    inputs = (x, _numbers(net, indices))
    return _one(net, "GATHER", inputs, shape, "GatherOptions", {0: ("Int32", axis)})


def depth_to_space(net: NetBuilder, x: Value, size: int) -> Value:
    """Add DEPTH_TO_SPACE."""
    batch, height, width, channels = x.shape
    shape = (batch, height * size, width * size, channels // size**2)
    return _one(net, "DEPTH_TO_SPACE", (x,), shape, "DepthToSpaceOptions", {0: ("Int32", size)})


def space_to_depth(net: NetBuilder, x: Value, size: int) -> Value:
    """Add SPACE_TO_DEPTH."""
    batch, height, width, channels = x.shape
    shape = (batch, height // size, width // size, channels * size**2)
    return _one(net, "SPACE_TO_DEPTH", (x,), shape, "SpaceToDepthOptions", {0: ("Int32", size)})


def resize_nearest(
    net: NetBuilder, x: Value, size: tuple[int, int], aligned: bool, half_pixel: bool
) -> Value:
    """Add RESIZE_NEAREST_NEIGHBOR."""
    fields: Fields = {0: ("Bool", aligned), 1: ("Bool", half_pixel)}
    options = "ResizeNearestNeighborOptions"
    return _resize(net, "RESIZE_NEAREST_NEIGHBOR", x, size, options, fields)


def resize_bilinear(
    net: NetBuilder, x: Value, size: tuple[int, int], aligned: bool, half_pixel: bool
) -> Value:
    """Add RESIZE_BILINEAR."""
    fields: Fields = {2: ("Bool", aligned), 3: ("Bool", half_pixel)}
    return _resize(net, "RESIZE_BILINEAR", x, size, "ResizeBilinearOptions", fields)


def _resize(
    net: NetBuilder, code: str, x: Value, size: tuple[int, int], options: str, fields: Fields
) -> Value:
    shape = (x.shape[0], *size, x.shape[3])
    return _one(net, code, (x, _numbers(net, size)), shape, options, fields)


def reduce(
    net: NetBuilder,
    code: str,
    x: Value,
    axes: Sequence[int],
    *,
    keep: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Value:
    """Add MEAN, SUM, REDUCE_MAX or REDUCE_MIN; by default in the quantization of its input."""
    shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
    if not keep:
        shape = [n for axis, n in enumerate(x.shape) if axis not in axes]
    result = net._result(
        shape, scale or x.scale, x.zero_point if zero_point is None else zero_point, ""
    )
    inputs = (x.index, _numbers(net, axes).index)
    return net._add(code, inputs, result, "ReducerOptions", {0: ("Bool", keep)})
