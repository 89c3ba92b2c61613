"""Row arithmetic of cascades: which rows an operator needs, in which order rows are made.

A segment is a run of operators that is executed stripe by stripe: each operator makes a few rows
of its OFM whenever its consumers need them, every row once. What lies between two operators of the
segment needs memory only for the rows that are made and not yet done with: a rolling buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.ir import (
    Add,
    Conv2D,
    DepthwiseConv2D,
    ElementWise,
    Move,
    NpuGraph,
    NpuOp,
    Operand,
    Padding,
    Pool,
    Requantize,
    Shape,
    SumChannels,
)


class Rows(NamedTuple):
    """Rows ``[start, stop)`` of a feature map; there are many of them, hence no dataclass."""

    start: int
    stop: int

    @property
    def height(self) -> int:
        """Return how many rows these are."""
        return self.stop - self.start


@dataclass(frozen=True)
class Step:
    """One NPU operation: operator ``op`` (its index in the graph) makes these rows of its OFM."""

    op: int
    rows: Rows


def input_rows(op: NpuOp, operand: Operand, rows: Rows) -> Rows:
    """Return the rows of an operand that are read to make these rows of the OFM.

    Padding is not among them: rows outside of the operand are cut off.
    """
    return _window(op, operand).rows(rows)


@dataclass(frozen=True)
class _Window:
    """How an operator reads the rows of an operand of so many: those of its windows, or all."""

    height: int
    stride: int = 1
    extent: int = 1
    above: int = 0
    is_whole: bool = False

    def rows(self, made: Rows) -> Rows:
        """Return the rows that are read to make rows of the OFM."""
        if self.is_whole:
            return Rows(0, self.height)
        start = made.start * self.stride - self.above
        stop = (made.stop - 1) * self.stride + self.extent - self.above
        return Rows(max(0, start), min(self.height, stop))


def _window(op: NpuOp, operand: Operand) -> _Window:
    height = operand.shape.h
    if height == 1 or isinstance(op, Move):
        return _Window(height, is_whole=True)
    if not isinstance(op, Conv2D | DepthwiseConv2D | Pool):
        return _Window(height)
    kernel = op.kernel
    return _Window(height, kernel.stride_h, kernel.dilated_h, op.padding.top)


@dataclass(frozen=True)
class _Read:
    """One operand of an operator, with its window."""

    tensor: str
    window: _Window


def _reads(op: NpuOp) -> tuple[_Read, ...]:
    return tuple(_Read(operand.tensor, _window(op, operand)) for operand in op.inputs)


def _padding(op: Conv2D | DepthwiseConv2D | Pool, rows: Rows) -> Padding:
    """Return the padding that the window meets while it makes these rows."""
    kernel, padding = op.kernel, op.padding
    above = padding.top - rows.start * kernel.stride_h
    end = (rows.stop - 1) * kernel.stride_h + kernel.dilated_h - padding.top
    below = min(padding.bottom, end - op.ifm.shape.h)
    return Padding(max(0, above), padding.left, max(0, below), padding.right)


def _cut(operand: Operand, rows: Rows) -> Operand:
    shape = operand.shape
    return replace(operand, shape=Shape(1, rows.height, shape.w, shape.c))


def cut_op(op: NpuOp, rows: Rows) -> NpuOp:
    """Return an operator that makes only these rows of the OFM, from the rows that they need."""
    ofm = _cut(op.ofm, rows)
    ifm = _cut(op.ifm, input_rows(op, op.ifm, rows))
    match op:
        case Conv2D() | DepthwiseConv2D() | Pool():
            return replace(op, ifm=ifm, ofm=ofm, padding=_padding(op, rows))
        case Add() | ElementWise() if op.ifm2 is not None:
            ifm2 = _cut(op.ifm2, input_rows(op, op.ifm2, rows))
            return replace(op, ifm=ifm, ofm=ofm, ifm2=ifm2)
        case Add() | ElementWise() | Requantize() | SumChannels():
            return replace(op, ifm=ifm, ofm=ofm)
        case Move():
            return op


def _mirror(rows: Rows, height: int) -> Rows:
    return Rows(height - rows.stop, height - rows.start)


@dataclass(frozen=True)
class Direction:
    """Whether stripes go from the top down or from the bottom up.

    Rows are counted from where the stripes begin: ``seen`` turns rows as they lie in memory into
    rows so counted, and back.
    """

    upwards: bool = False

    def seen(self, rows: Rows, height: int) -> Rows:
        """Return rows of a feature map of this height, counted the other way if need be."""
        return _mirror(rows, height) if self.upwards else rows

    def rows_read(self, window: _Window, rows: Rows, height: int) -> Rows:
        """Return the rows that are read to make rows, all counted from where the stripes begin.

        ``height`` is the OFM's.
        """
        if not self.upwards:
            return window.rows(rows)
        return self.seen(window.rows(self.seen(rows, height)), window.height)


DOWNWARDS = Direction()
UPWARDS = Direction(upwards=True)


@dataclass(frozen=True)
class Trail:
    """A segment's last operator writes its result over rows of ``source`` that are done with.

    Both begin at the same address, so that what reads the source must be ahead by as many rows as
    that takes. The sizes are those of a row of the source and of the result.
    """

    source: str
    source_row_bytes: int
    target_row_bytes: int

    def rows_overwritten(self, rows_made: int) -> int:
        """Return how many rows of the source lie where these rows of the result are written."""
        return -(-rows_made * self.target_row_bytes // self.source_row_bytes)


@dataclass(frozen=True)
class Stripes:
    """Rows of a segment's last operator at a time.

    Others make what a stripe takes in one go, or if ``fine`` as many rows at most: that needs less
    memory and more operations.
    """

    rows: int
    fine: bool = False

    @property
    def most_rows(self) -> int:
        """Return how many rows an operator makes at most at a time."""
        return self.rows if self.fine else MAX_DIM


class _Demand:
    """Makes rows when they are asked for; remembers in which order."""

    def __init__(
        self, graph: NpuGraph, start: int, stop: int, direction: Direction, most_rows: int
    ) -> None:
        self.graph = graph
        self.direction = direction
        self.most_rows = most_rows
        self.writers: dict[str, list[int]] = {}
        for index in range(start, stop):
            self.writers.setdefault(graph.ops[index].ofm.tensor, []).append(index)
        self.reads = {index: _reads(graph.ops[index]) for index in range(start, stop)}
        self.made = dict.fromkeys(range(start, stop), 0)
        self.steps: list[Step] = []

    def ensure(self, index: int, stop: int) -> None:
        """Make the rows of an operator's OFM up to ``stop`` that are not there yet."""
        op = self.graph.ops[index]
        height = op.ofm.shape.h
        whole = op.ofm.tensor not in self.graph.rolling_tensors
        while (start := self.made[index]) < stop:
            rows = Rows(start, height if whole else min(stop, start + self.most_rows))
            for read in self.reads[index]:
                for writer in self.writers.get(read.tensor, ()):
                    self.ensure(writer, self._needed(read, rows, height))
            self.steps.append(Step(index, self.direction.seen(rows, height)))
            self.made[index] = rows.stop

    def finish(self, source: str, rows: int) -> None:
        """Let all operators that read a tensor go on until they don't need its first rows."""
        for index in list(self.made):
            for read in self.reads[index]:
                if read.tensor == source:
                    self.ensure(index, self._made_without(index, read, rows))

    def _made_without(self, index: int, read: _Read, rows: int) -> int:
        """Return how many rows an operator must have made to need only rows from ``rows`` on."""
        made, height = self.made[index], self.graph.ops[index].ofm.shape.h
        while made < height:
            one = Rows(made, made + 1)
            if self.direction.rows_read(read.window, one, height).start >= rows:
                break
            made += 1
        return made

    def _needed(self, read: _Read, rows: Rows, height: int) -> int:
        if read.tensor not in self.graph.rolling_tensors:
            return self.graph.tensors[read.tensor].shape.h
        return self.direction.rows_read(read.window, rows, height).stop


def segment_steps(
    graph: NpuGraph,
    start: int,
    stop: int,
    stripes: Stripes,
    kept: frozenset[str],
    direction: Direction = DOWNWARDS,
    trail: Trail | None = None,
) -> tuple[Step, ...]:
    """Return the steps of operators ``[start, stop)`` when the last one makes stripes of rows.

    Args:
        graph: the NPU graph.
        start: index of the segment's first operator.
        stop: index behind its last operator.
        stripes: how many rows are made at a time.
        kept: tensors that must be made whole, because somebody outside reads them.
        direction: where the stripes begin.
        trail: what the last operator writes over, if it does.
    """
    demand = _Demand(graph, start, stop, direction, stripes.most_rows)
    height = graph.ops[stop - 1].ofm.shape.h
    for end in range(stripes.rows, height + stripes.rows, stripes.rows):
        if trail is not None:
            demand.finish(trail.source, trail.rows_overwritten(min(end, height)))
        demand.ensure(stop - 1, min(end, height))
    for index in range(start, stop):
        if graph.ops[index].ofm.tensor in kept:
            demand.ensure(index, graph.ops[index].ofm.shape.h)
    return tuple(demand.steps)


def rows_by_operator(steps: Sequence[Step]) -> Mapping[int, list[Rows]]:
    """Return the rows that each operator makes, step by step."""
    rows: dict[int, list[Rows]] = {}
    for step in steps:
        rows.setdefault(step.op, []).append(step.rows)
    return rows


@dataclass(frozen=True)
class RowUse:
    """Which rows of each tensor steps write and read, counted from where the stripes begin.

    ``writes`` and ``reads`` hold pairs of a step's position and the rows, in order.
    """

    writes: Mapping[str, Sequence[tuple[int, Rows]]]
    reads: Mapping[str, Sequence[tuple[int, Rows]]]


def row_use(graph: NpuGraph, steps: Sequence[Step], direction: Direction = DOWNWARDS) -> RowUse:
    """Return the rows that steps write and read."""
    writes: dict[str, list[tuple[int, Rows]]] = {}
    reads: dict[str, list[tuple[int, Rows]]] = {}
    windows = {index: _reads(graph.ops[index]) for index in {step.op for step in steps}}
    for position, step in enumerate(steps):
        op = graph.ops[step.op]
        height = op.ofm.shape.h
        rows = direction.seen(step.rows, height)
        writes.setdefault(op.ofm.tensor, []).append((position, rows))
        for read in windows[step.op]:
            seen = direction.rows_read(read.window, rows, height)
            reads.setdefault(read.tensor, []).append((position, seen))
    return RowUse(writes, reads)


def rolling_rows(use: RowUse) -> Mapping[str, int]:
    """Return how many rows of each tensor that is written must be in memory at once.

    A row stays from the step that makes it to the last step that reads it. The NPU begins to
    write a step's rows only after it has read what earlier steps need, so that a row may be
    replaced by the very next step.
    """
    return {
        name: max(_rows_in_use(made, use.reads.get(name, ()))) for name, made in use.writes.items()
    }


def _oldest_after(
    reads: Sequence[tuple[int, Rows]], positions: Sequence[int], *, including: bool
) -> list[int | None]:
    """Return for each position the first row that is read later (or at it); None if none is."""
    found: list[int | None] = []
    oldest: int | None = None
    remaining = list(reads)
    for position in reversed(positions):
        first = position if including else position + 1
        while remaining and remaining[-1][0] >= first:
            start = remaining.pop()[1].start
            oldest = start if oldest is None else min(oldest, start)
        found.append(oldest)
    return found[::-1]


def _rows_in_use(
    writes: Sequence[tuple[int, Rows]], reads: Sequence[tuple[int, Rows]]
) -> list[int]:
    """Return, for each write, the rows from the oldest that is read later to the newest."""
    oldest = _oldest_after(reads, [position for position, _ in writes], including=False)
    return [
        rows.stop - (rows.start if first is None else min(first, rows.start))
        for (_, rows), first in zip(writes, oldest, strict=True)
    ]


def overlap_distance(use: RowUse, source: str, target: str, row_bytes: tuple[int, int]) -> int:
    """Return how far a tensor must lie before another so that it may grow into its dead rows.

    When ``target`` begins this many bytes before ``source`` (counted in the direction of the
    stripes), no step writes to a row of ``source`` that it or a later step reads.

    Args:
        use: the rows that the steps write and read.
        source: the tensor that is read, and dead after the steps.
        target: the tensor that is written.
        row_bytes: bytes of a row of source and target.
    """
    source_row, target_row = row_bytes
    writes = use.writes[target]
    oldest = _oldest_after(use.reads[source], [position for position, _ in writes], including=True)
    distances = [
        rows.stop * target_row - first * source_row
        for (_, rows), first in zip(writes, oldest, strict=True)
        if first is not None
    ]
    return max(0, *distances) if distances else 0
