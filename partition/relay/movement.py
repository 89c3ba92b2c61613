"""Data movement in Relay: patterns, and calls as boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, is_tuple, wildcard

from tvm_ethosu.partition.moves import (
    Axis,
    Box,
    MoveParams,
    Segment,
    concatenated,
    mapped,
    padded,
    segments,
    whole,
)
from tvm_ethosu.partition.relay.parse import call_name, span_name, tensor_type

MAX_JOINED = 16


def _any_count(make: Callable[[int], DFPattern]) -> DFPattern:
    """Return a pattern for one to so many joined tensors; each becomes an input of its own."""
    return reduce(lambda one, other: one | other, map(make, range(1, MAX_JOINED + 1)))


def _tensors(count: int) -> DFPattern:
    return is_tuple([wildcard() for _ in range(count)])


def quantized_concatenate() -> DFPattern:
    """Return ``qnn.concatenate`` of up to 16 tensors."""

    def of(count: int) -> DFPattern:
        numbers = [is_tuple([is_constant() for _ in range(count)]) for _ in range(2)]
        return is_op("qnn.concatenate")(_tensors(count), *numbers, is_constant(), is_constant())

    return _any_count(of)


def concatenate() -> DFPattern:
    """Return ``concatenate`` of up to 16 tensors."""
    return _any_count(lambda count: is_op("concatenate")(_tensors(count)))


def pad() -> DFPattern:
    """Return ``nn.pad``."""
    return is_op("nn.pad")(wildcard(), is_constant())


def one_input(name: str) -> Callable[[], DFPattern]:
    """Return the pattern of a call with one argument."""
    return lambda: is_op(name)(wildcard())


# --- calls as boxes -------------------------------------------------------------------------------


def _params(body: relay.Call, args: Sequence[relay.Expr], **fields: Any) -> MoveParams:
    inputs = tuple(tensor_type(arg) for arg in args)
    return MoveParams(span_name(body), inputs[0], tensor_type(body), inputs, **fields)


def _numbers(expr: relay.Expr) -> list[float]:
    fields = expr.fields if isinstance(expr, relay.Tuple) else [expr]
    return [float(number) for field in fields for number in np.ravel(field.data.numpy())]


def parse_concatenate(body: relay.Call) -> MoveParams:
    """Parse ``concatenate``, quantized or not."""
    args = list(body.args[0].fields)
    same = True
    if call_name(body) == "qnn.concatenate":
        given = [set(_numbers(arg)) for arg in body.args[1:5]]
        same = given[0] == given[2] and given[1] == given[3]
    ofm = tensor_type(body).dims
    axis = int(body.attrs.axis) % len(ofm)
    boxes = concatenated([tensor_type(arg).dims for arg in args], axis, ofm)
    return _params(body, args, boxes=boxes, same_quant=same)


def parse_pad(body: relay.Call) -> MoveParams:
    """Parse ``nn.pad`` with a constant."""
    ifm, ofm = tensor_type(body.args[0]).dims, tensor_type(body).dims
    amounts = [[int(amount) for amount in pair] for pair in body.attrs.pad_width]
    value = _numbers(body.args[1])[0]
    mode = str(body.attrs.pad_mode)
    if mode != "constant" or min(min(pair) for pair in amounts) < 0 or value != int(value):
        return _params(body, body.args[:1], boxes=(), form=f"{mode} padding of {amounts}")
    boxes = padded(ifm, [low for low, _ in amounts], ofm)
    return _params(body, body.args[:1], boxes=boxes, fill=int(value))


def _by_tables(body: relay.Call, tables: Sequence[Sequence[int]]) -> MoveParams:
    """Return the movement whose dimensions each follow a table: result index -> input index."""
    ifm, ofm = tensor_type(body.args[0]).dims, tensor_type(body).dims
    fits = tuple(map(len, tables)) == ofm
    inside = all(0 <= i < n for table, n in zip(tables, ifm, strict=True) for i in table)
    if not (fits and inside):
        return _params(body, body.args[:1], boxes=(), form="indices outside of the input")
    boxes = mapped(0, ifm, ofm, [segments(table) for table in tables])
    return _params(body, body.args[:1], boxes=boxes)


def parse_strided_slice(body: relay.Call) -> MoveParams:
    """Parse ``strided_slice`` with the bounds that Relay has found."""
    ifm = tensor_type(body.args[0]).dims
    attrs = body.attrs
    axes = range(len(ifm)) if attrs.axes is None else [int(a) % len(ifm) for a in attrs.axes]
    begins = dict(zip(axes, [int(begin) for begin in attrs.begin], strict=False))
    ends = dict(zip(axes, [int(end) for end in attrs.end], strict=False))
    given = [int(stride) for stride in attrs.strides]
    given = given * len(begins) if len(given) == 1 else given
    strides = dict(zip(axes, given, strict=False))
    if str(attrs.slice_mode) == "size":
        ends = {axis: ifm[axis] if size < 0 else begins[axis] + size for axis, size in ends.items()}
        strides = {}
    tables = [
        range(ifm[axis])[slice(begins.get(axis), ends.get(axis), strides.get(axis, 1))]
        for axis in range(len(ifm))
    ]
    return _by_tables(body, tables)


def parse_transpose(body: relay.Call) -> MoveParams:
    """Parse ``transpose``."""
    ifm, ofm = tensor_type(body.args[0]).dims, tensor_type(body).dims
    axes = [int(axis) % len(ifm) for axis in body.attrs.axes or reversed(range(len(ifm)))]
    return _params(body, body.args[:1], boxes=mapped(0, ifm, ofm, whole(ofm), axes))


def parse_reverse(body: relay.Call) -> MoveParams:
    """Parse ``reverse``: one dimension is read backwards."""
    ifm = tensor_type(body.args[0]).dims
    turned = int(body.attrs.axis) % len(ifm)
    tables = [range(n)[:: -1 if axis == turned else 1] for axis, n in enumerate(ifm)]
    return _by_tables(body, tables)


def parse_tile(body: relay.Call) -> MoveParams:
    """Parse ``tile``: repetitions of each dimension, and of new ones at the front."""
    ifm, ofm = tensor_type(body.args[0]).dims, tensor_type(body).dims
    seen = (1,) * (len(ofm) - len(ifm)) + ifm
    maps = [
        [Segment(n, write=start) for start in range(0, out, n)]
        for n, out in zip(seen, ofm, strict=True)
    ]
    return _params(body, body.args[:1], boxes=mapped(0, seen, ofm, maps))


def parse_mirror_pad(body: relay.Call) -> MoveParams:
    """Parse ``nn.mirror_pad``; SYMMETRIC repeats the edge, REFLECT does not."""
    ifm = tensor_type(body.args[0]).dims
    edge = 0 if str(body.attrs.mode) == "SYMMETRIC" else 1
    amounts = [(int(low), int(high)) for low, high in body.attrs.pad_width]
    tables = [
        [
            *range(low - 1 + edge, edge - 1, -1),
            *range(n),
            *range(n - 1 - edge, n - 1 - edge - high, -1),
        ]
        for n, (low, high) in zip(ifm, amounts, strict=True)
    ]
    return _by_tables(body, tables)


def gather() -> DFPattern:
    """Return ``take`` with constant indices."""
    return is_op("take")(wildcard(), is_constant())


def parse_gather(body: relay.Call) -> MoveParams:
    """Parse ``take`` of a list of indices along one dimension."""
    ifm, indices = tensor_type(body.args[0]).dims, body.args[1].data.numpy()
    if body.attrs.axis is None or indices.ndim != 1:
        return _params(body, body.args[:1], boxes=(), form="indices of other than one dimension")
    tables: list[Sequence[int]] = [range(extent) for extent in ifm]
    tables[int(body.attrs.axis) % len(ifm)] = [int(index) for index in indices]
    return _by_tables(body, tables)


def _blocks(body: relay.Call, wide: relay.Expr) -> tuple[tuple[int, ...], list[int], list[int]]:
    """Return extents (row, column, row and column in the block, channel), and steps twice.

    The first steps go through the tensor of many channels, the second through ``wide``.
    """
    size = int(body.attrs.block_size)
    _, height, width, channels = tensor_type(wide).dims
    rows, columns = height // size, width // size
    deep = [columns * size * size * channels, size * size * channels, size * channels, channels, 1]
    flat = [size * width * channels, size * channels, width * channels, channels, 1]
    return (rows, columns, size, size, channels), deep, flat


def _blocks_form(body: relay.Call, wide: relay.Expr) -> str:
    """Say what is not understood about a rearrangement of blocks; empty if nothing is."""
    dims, layout = tensor_type(wide).dims, str(body.attrs.layout)
    mode = str(getattr(body.attrs, "mode", "DCR"))
    known = layout == "NHWC" and mode in ("DCR", "") and len(dims) == 4 and dims[0] == 1
    return "" if known else f"blocks in layout {layout}, mode {mode}, batch {dims[0]}"


def parse_depth_to_space(body: relay.Call) -> MoveParams:
    """Parse ``nn.depth_to_space``."""
    form = _blocks_form(body, body)
    extents, deep, flat = _blocks(body, body)
    axes = tuple(map(Axis, extents, deep, flat))
    return _params(body, body.args[:1], boxes=(Box(0, axes, 0, 0),), form=form)


def parse_space_to_depth(body: relay.Call) -> MoveParams:
    """Parse ``nn.space_to_depth``."""
    form = _blocks_form(body, body.args[0])
    extents, deep, flat = _blocks(body, body.args[0])
    axes = tuple(map(Axis, extents, flat, deep))
    return _params(body, body.args[:1], boxes=(Box(0, axes, 0, 0),), form=form)


def resize_nearest() -> DFPattern:
    """Return ``image.resize2d`` to the nearest neighbour."""
    return is_op("image.resize2d")(wildcard()).has_attr({"method": "nearest_neighbor"})


def parse_resize_nearest(body: relay.Call) -> MoveParams:
    """Parse ``image.resize2d``; coordinates in float32 as TFLite's kernel has them."""
    ifm, ofm = tensor_type(body.args[0]).dims, tensor_type(body).dims
    mode, layout = str(body.attrs.coordinate_transformation_mode), str(body.attrs.layout)
    if layout != "NHWC" or len(ifm) != 4:
        return _params(body, body.args[:1], boxes=(), form=f"resize in layout {layout}")
    tables = [
        range(ifm[0]),
        _nearest(ifm[1], ofm[1], mode),
        _nearest(ifm[2], ofm[2], mode),
        range(ifm[3]),
    ]
    return _by_tables(body, tables)


def _nearest(size: int, out: int, mode: str) -> list[int]:
    """Return the input index for each output index (TFLite: resize_nearest_neighbor.h)."""
    half = np.float32(0.5)
    aligned = mode == "align_corners" and out > 1
    sizes = (size - 1, out - 1) if aligned else (size, out)
    scale = np.float32(sizes[0]) / np.float32(sizes[1])
    offset = half if mode == "half_pixel" else np.float32(0)
    at = (np.arange(out, dtype=np.float32) + offset) * scale
    # In float64: a sum in float32 may round up to the next whole number.
    rounded = np.floor(at.astype(np.float64) + 0.5) if mode == "align_corners" else np.floor(at)
    return [int(index) for index in np.clip(rounded, 0, size - 1)]
