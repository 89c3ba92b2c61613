"""Data movement as boxes: which elements of the inputs become which elements of the result.

Concatenations, slices, pads, transpositions and their like only rearrange elements. Each is said
per dimension, as index maps cut into segments with constant steps; the product of the segments are
boxes of any rank; boxes become parts of three dimensions, which the NPU copies one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np

from tvm_ethosu.partition.lower import Lowered, elementwise_shape, to_shape
from tvm_ethosu.partition.params import OpParams, TensorType
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    DType,
    Move,
    Operand,
    Part,
    Shape,
    Strides,
    Tensor,
)

MAX_PARTS = 64
_MAX_INTERLEAVE = 8
_PART_RANK = 3

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Segment:
    """Elements of one dimension: ``extent`` of them, each so many steps behind the one before."""

    extent: int
    read: int = 0
    write: int = 0
    read_step: int = 1
    write_step: int = 1


@dataclass(frozen=True)
class Axis:
    """A dimension of a box: its extent, and its steps through input and result in elements."""

    extent: int
    read_step: int
    write_step: int


@dataclass(frozen=True)
class Box:
    """Elements that move together; ``source`` is the index of the input."""

    source: int
    axes: tuple[Axis, ...]
    read: int
    write: int

    def at(self, axis: int, index: int) -> Box:
        """Return the slice at one index of one dimension."""
        gone = self.axes[axis]
        return Box(
            self.source,
            (*self.axes[:axis], *self.axes[axis + 1 :]),
            self.read + index * gone.read_step,
            self.write + index * gone.write_step,
        )


@dataclass(frozen=True)
class MoveParams(OpParams):
    """A rearrangement; behind ``inputs`` stands one more source, filled with ``fill``, if any.

    ``same_quant`` is false where the model gives inputs and result different scales or zero
    points; ``form`` names what is not understood, or is empty.
    """

    inputs: tuple[TensorType, ...]
    boxes: tuple[Box, ...]
    fill: int | None = None
    same_quant: bool = True
    form: str = ""


# --- index maps -----------------------------------------------------------------------------------


def segments(table: Sequence[int]) -> tuple[Segment, ...]:
    """Return an index map, result index -> input index, as few segments.

    A map that repeats each index n times becomes n interleaved segments.
    """
    for step in range(1, min(_MAX_INTERLEAVE, len(table)) + 1):
        runs = [table[first::step] for first in range(step)]
        if all(_is_even(run) for run in runs):
            return tuple(
                Segment(len(run), run[0], first, _step(run), step) for first, run in enumerate(runs)
            )
    return _runs(table)


def _step(run: Sequence[int]) -> int:
    return run[1] - run[0] if len(run) > 1 else 1


def _is_even(run: Sequence[int]) -> bool:
    steps = {after - before for before, after in pairwise(run)}
    return len(steps) <= 1


def _runs(table: Sequence[int]) -> tuple[Segment, ...]:
    """Cut a map where its step changes."""
    found: list[Segment] = []
    start = 0
    while start < len(table):
        stop = start + 1
        while stop < len(table) and _is_even(table[start : stop + 1]):
            stop += 1
        run = table[start:stop]
        found.append(Segment(len(run), run[0], start, _step(run), 1))
        start = stop
    return tuple(found)


def steps_of(dims: Dims) -> tuple[int, ...]:
    """Return how many elements apart neighbours of each dimension lie in the dense form."""
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def mapped(
    source: int,
    reads: Dims,
    writes: Dims,
    maps: Sequence[Sequence[Segment]],
    axes: Sequence[int] | None = None,
) -> tuple[Box, ...]:
    """Return the boxes of a map per dimension of the result.

    Args:
        source: index of the input.
        reads: the input's dimensions.
        writes: the result's dimensions.
        maps: segments for each dimension of the result.
        axes: the input's dimension for each of the result's; by default the same one.
    """
    order = range(len(writes)) if axes is None else axes
    read_steps = [steps_of(reads)[axis] for axis in order]
    return tuple(
        _box(source, choice, read_steps, steps_of(writes))
        for choice in product(*maps)
        if all(segment.extent for segment in choice)
    )


def _box(
    source: int, choice: Sequence[Segment], read_steps: Sequence[int], write_steps: Sequence[int]
) -> Box:
    steps = list(zip(choice, read_steps, write_steps, strict=True))
    return Box(
        source,
        tuple(Axis(s.extent, s.read_step * read, s.write_step * write) for s, read, write in steps),
        sum(s.read * read for s, read, _ in steps),
        sum(s.write * write for s, _, write in steps),
    )


def whole(dims: Dims) -> list[list[Segment]]:
    """Return the map of a tensor onto itself."""
    return [[Segment(extent)] for extent in dims]


def concatenated(inputs: Sequence[Dims], axis: int, writes: Dims) -> tuple[Box, ...]:
    """Return the boxes of a concatenation."""
    boxes: list[Box] = []
    start = 0
    for source, dims in enumerate(inputs):
        maps = whole(dims)
        maps[axis] = [Segment(dims[axis], write=start)]
        boxes += mapped(source, dims, writes, maps)
        start += dims[axis]
    return tuple(boxes)


def padded(reads: Dims, before: Sequence[int], writes: Dims) -> tuple[Box, ...]:
    """Return the boxes of a constant padding; source 1 holds enough fill values in a row."""
    boxes = list(
        mapped(
            0,
            reads,
            writes,
            [[Segment(n, write=low)] for n, low in zip(reads, before, strict=True)],
        )
    )
    inner = list(whole(writes))
    for axis, low in enumerate(before):
        end = low + reads[axis]
        for start, stop in ((0, low), (end, writes[axis])):
            maps = [*inner]
            maps[axis] = [Segment(stop - start, write=start)]
            extents = tuple(segments_[0].extent for segments_ in maps)
            filled = [[replace(segment, read=0) for segment in segments_] for segments_ in maps]
            boxes += mapped(1, extents, writes, filled)
        inner[axis] = [Segment(reads[axis], write=low)]
    return tuple(boxes)


# --- parts ----------------------------------------------------------------------------------------


def parts_of(box: Box) -> Iterator[Part]:
    """Yield the copies of three dimensions that a box takes."""
    for piece in _forward(box):
        for small in _short(piece):
            yield from _flat(_ordered(small))


def _forward(box: Box) -> Iterator[Box]:
    """Unroll dimensions that are read backwards or not at all: the NPU's steps are positive."""
    for index, axis in enumerate(box.axes):
        if axis.extent > 1 and axis.read_step <= 0:
            for position in range(axis.extent):
                yield from _forward(box.at(index, position))
            return
    yield box


def _short(box: Box) -> Iterator[Box]:
    """Cut dimensions that are longer than the NPU's."""
    for index, axis in enumerate(box.axes):
        if axis.extent > MAX_DIM:
            for start in range(0, axis.extent, MAX_DIM):
                end = min(axis.extent, start + MAX_DIM)
                cut = replace(axis, extent=end - start)
                yield from _short(
                    Box(
                        box.source,
                        (*box.axes[:index], cut, *box.axes[index + 1 :]),
                        box.read + start * axis.read_step,
                        box.write + start * axis.write_step,
                    )
                )
            return
    yield box


def _ordered(box: Box) -> Box:
    """Return the box without dimensions of 1, from long steps to short, as few as can be joined."""
    axes = sorted(
        (axis for axis in box.axes if axis.extent > 1),
        key=lambda axis: (-axis.write_step, -axis.read_step),
    )
    index = 0
    while len(axes) > _PART_RANK - (not _is_dense(axes)) and index + 1 < len(axes):
        outer, inner = axes[index], axes[index + 1]
        if _joins(outer, inner):
            axes[index : index + 2] = [replace(inner, extent=outer.extent * inner.extent)]
        else:
            index += 1
    return replace(box, axes=tuple(axes))


def _is_dense(axes: Sequence[Axis]) -> bool:
    return bool(axes) and axes[-1].read_step == axes[-1].write_step == 1


def _joins(outer: Axis, inner: Axis) -> bool:
    return (
        outer.read_step == inner.extent * inner.read_step
        and outer.write_step == inner.extent * inner.write_step
        and outer.extent * inner.extent <= MAX_DIM
    )


def _flat(box: Box) -> Iterator[Part]:
    """Unroll the shortest dimensions until rows, columns and channels are left."""
    depth = box.axes[-1].extent if _is_dense(box.axes) else 1
    plane = box.axes[:-1] if _is_dense(box.axes) else box.axes
    if len(plane) > 2:
        shortest = min(range(len(plane)), key=lambda index: plane[index].extent)
        for position in range(plane[shortest].extent):
            yield from _flat(box.at(shortest, position))
        return
    rows, columns = (*(Axis(1, 0, 0),) * (2 - len(plane)), *plane)
    yield Part(
        box.source,
        Shape(1, rows.extent, columns.extent, depth),
        Strides(box.read, rows.read_step, columns.read_step),
        Strides(box.write, rows.write_step, columns.write_step),
    )


def all_parts(params: MoveParams) -> tuple[Part, ...]:
    """Return the copies of a rearrangement, in the order of its boxes."""
    return tuple(part for box in params.boxes for part in parts_of(box))


# --- limits and lowering --------------------------------------------------------------------------


def form_is_known(params: OpParams) -> Rejection | None:
    """Padding is constant, mirrored or none; indices are constant and inside of the input."""
    assert isinstance(params, MoveParams)
    return Rejection("form", params.form, "a constant rearrangement") if params.form else None


def inputs_are_alike(params: OpParams) -> Rejection | None:
    """All inputs have the output's type, and extents up to 65536."""
    assert isinstance(params, MoveParams)
    for index, of in enumerate(params.inputs):
        if of.dtype != params.ofm.dtype:
            return Rejection(f"type of input {index}", of.dtype, params.ofm.dtype)
        if any(not 1 <= dim <= MAX_DIM for dim in of.dims):
            value = "x".join(map(str, of.dims))
            return Rejection(f"shape of input {index}", value, f"dimensions of 1 to {MAX_DIM}")
    return None


def quantization_is_kept(params: OpParams) -> Rejection | None:
    """Inputs and output have the same scale and zero point."""
    assert isinstance(params, MoveParams)
    if not params.same_quant:
        return Rejection("scales and zero points", "different", "those of the output")
    return None


def copies_are_few(params: OpParams) -> Rejection | None:
    """At most 64 copies of three-dimensional boxes do it."""
    assert isinstance(params, MoveParams)
    count = len(all_parts(params))
    return None if count <= MAX_PARTS else Rejection("copies", str(count), f"up to {MAX_PARTS}")


def _operand(tensor: str, of: TensorType) -> Operand:
    shape = to_shape(of.dims)
    seen = shape if shape.n == 1 else elementwise_shape(shape)
    if seen is None:
        raise InternalError(f"{tensor}: a shape passed the constraints wrongly")
    return Operand(tensor, seen, DType(of.dtype))


def lower_move(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the copies as one operator; fill values become a constant, as long as they are used.

    Each copy of fill values begins at the constant's first.
    """
    assert isinstance(params, MoveParams)
    parts = all_parts(params)
    operands = [_operand(tensor, of) for tensor, of in zip(ifms, params.inputs, strict=True)]
    constants: tuple[Constant, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    dtype = DType(params.ofm.dtype)
    fills = [part for part in parts if part.source == len(params.inputs)]
    if fills:
        shape = _fill_shape(fills)
        data = np.full((1, shape.h, shape.w, shape.c), params.fill, dtype.value)
        constants = (Constant(f"{name}_fill", data),)
        tensors = (Tensor(f"{name}_fill", shape, dtype),)
        operands.append(Operand(f"{name}_fill", shape, dtype))
    op = Move(
        name,
        operands[0],
        _operand(ofm, params.ofm),
        Clamp(dtype.minimum, dtype.maximum),
        tuple(operands[1:]),
        parts,
        origin=params.origin,
    )
    return Lowered(op, constants, (), tensors)


def _fill_shape(fills: Sequence[Part]) -> Shape:
    """Return a shape of enough elements for the largest part."""
    last = [
        p.read.start + (p.shape.h - 1) * p.read.row + (p.shape.w - 1) * p.read.column + p.shape.c
        for p in fills
    ]
    columns = min(MAX_DIM, max(last))
    return Shape(1, ceil_div(max(last), columns), columns, 1)


MOVE_CONSTRAINTS = (
    form_is_known,
    inputs_are_alike,
    quantization_is_kept,
    copies_are_few,
)
