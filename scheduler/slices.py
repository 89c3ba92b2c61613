"""Convolutions in slices of channels, so that weights come in pieces that fit into SRAM.

An operator whose weights lie in flash reads all of them again for each block of its OFM's plane,
and moved ahead as a whole they may need more SRAM than there is. Of a few channels at a time they
fit, twice: a slice is worked on while the next one is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_ethosu.scheduler.arch import BRICK_CHANNELS
from tvm_ethosu.scheduler.estimator import Estimator, OpChoice
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import Constant, Conv2D, NpuGraph
from tvm_ethosu.scheduler.plan import Schedule, Segment
from tvm_ethosu.scheduler.stripes import Rows

# What an operator must gain at most to be looked at, as a share of all cycles.
_WORTHWHILE = 0.005
# Into how many pieces the SRAM that is left beside an operator is divided; two hold slices at once.
_PIECES = (2, 3, 5)
# With much left, smaller slices than that may be faster: the first one is waited for.
_SLICES = (4, 8)
# More slices than these cost more than their weights.
_MOST_SLICES = 16

# Operator -> channels of a slice.
Slices = Mapping[int, int]


@dataclass(frozen=True)
class _Candidate:
    """An operator that may gain: its weights' bytes, and the SRAM that is left beside it."""

    op: int
    parameter_bytes: int
    spare_bytes: int


def split(graph: NpuGraph, slices: Slices) -> NpuGraph:
    """Return the graph with convolutions in slices of so many channels.

    Before: ``y = conv(x)``
    After:  ``y[0:16] = conv(x)``, ``y[16:32] = conv(x)``, …
    """
    ops, constants = [], dict(graph.constants)
    for index, op in enumerate(graph.ops):
        if index not in slices:
            ops.append(op)
            continue
        assert isinstance(op, Conv2D)
        for first in range(0, op.ofm.shape.c, slices[index]):
            piece, made = _slice(graph, op, first, min(first + slices[index], op.ofm.shape.c))
            ops.append(piece)
            constants |= {constant.name: constant for constant in made}
    return replace(graph, ops=tuple(ops), constants=constants)


def _slice(
    graph: NpuGraph, op: Conv2D, first: int, last: int
) -> tuple[Conv2D, tuple[Constant, Constant]]:
    label, shape = f"[{first}:{last}]", op.ofm.shape
    made = (
        Constant(op.weights + label, graph.constants[op.weights].data[first:last]),
        Constant(op.bias + label, graph.constants[op.bias].data[first:last]),
    )
    piece = replace(
        op,
        name=op.name + label,
        ofm=replace(op.ofm, shape=replace(shape, c=last - first), first_channel=first),
        weights=made[0].name,
        bias=made[1].name,
        rescale=op.rescale[first:last],
        model_macs=op.model_macs * (last - first) // shape.c,
    )
    return piece, made


def split_segments(
    segments: Sequence[Segment], graph: NpuGraph, slices: Slices
) -> tuple[Segment, ...]:
    """Return segments of the operators of ``graph`` for those of the split graph."""
    made: list[Segment] = []
    at = 0
    for segment in segments:
        count = segment.stop - segment.start
        if segment.start in slices and count == 1:
            pieces = ceil_div(graph.ops[segment.start].ofm.shape.c, slices[segment.start])
            made += [replace(segment, start=at + n, stop=at + n + 1) for n in range(pieces)]
            at += pieces
        else:
            made.append(replace(segment, start=at, stop=at + count))
            at += count
    return tuple(made)


def worth_slicing(
    schedule: Schedule, estimator: Estimator, budget_bytes: int | None
) -> Iterator[dict[int, int]]:
    """Yield slices with which a schedule may be faster within a budget."""
    candidates = list(_candidates(schedule, estimator, budget_bytes))
    seen: list[dict[int, int]] = []
    by_room = [[one.spare_bytes // pieces for one in candidates] for pieces in _PIECES]
    by_count = [
        [min(one.spare_bytes // 2, ceil_div(one.parameter_bytes, count)) for one in candidates]
        for count in _SLICES
    ]
    for sizes in (*by_room, *by_count):
        slices = {}
        for one, size_bytes in zip(candidates, sizes, strict=True):
            channels = _channels(schedule.graph, one, size_bytes)
            if channels:
                slices[one.op] = channels
        if slices and slices not in seen:
            seen.append(slices)
            yield slices


def _channels(graph: NpuGraph, one: _Candidate, slice_bytes: int) -> int:
    """Return the channels of slices with at most so many bytes; 0 if they are too many."""
    channels = graph.ops[one.op].ofm.shape.c
    bricks = channels * slice_bytes // max(1, one.parameter_bytes) // BRICK_CHANNELS
    # A slice must leave something for the next one.
    bricks = min(bricks, ceil_div(channels, 2 * BRICK_CHANNELS))
    fits = bricks > 0 and ceil_div(channels, bricks * BRICK_CHANNELS) <= _MOST_SLICES
    return bricks * BRICK_CHANNELS if fits else 0


def _candidates(
    schedule: Schedule, estimator: Estimator, budget_bytes: int | None
) -> Iterator[_Candidate]:
    """Yield convolutions in one go that may take less time with weights in slices."""
    graph, moved = schedule.graph, {transfer.op for transfer in schedule.transfers}
    for segment in schedule.segments:
        op, index = graph.ops[segment.start], segment.start
        whole = segment.stop - index == 1 and segment.stripe_rows >= op.ofm.shape.h
        if not (whole and isinstance(op, Conv2D) and _can_be_split(graph, op)):
            continue
        choices = estimator.choices(index, [Rows(0, op.ofm.shape.h)])
        if choices.buffered is not None:
            gain = _most_gained(choices.streamed, choices.buffered, estimator, index in moved)
            if gain > _WORTHWHILE * schedule.cycles:
                size_bytes = choices.buffered.parameter_bytes
                # Without a limit there is room for all of the weights, twice.
                used = _bytes_during(schedule, segment)
                spare = 2 * size_bytes if budget_bytes is None else budget_bytes - used
                yield _Candidate(index, size_bytes, spare)


def _most_gained(
    streamed: OpChoice, buffered: OpChoice, estimator: Estimator, is_moved: bool
) -> float:
    """Return what slices save at most: all waiting for flash, or for the whole transfer."""
    if is_moved:
        return estimator.transfer_cycles(buffered.parameter_bytes)
    return streamed.cycles - buffered.cycles


def _can_be_split(graph: NpuGraph, op: Conv2D) -> bool:
    whole = op.ofm.shape == graph.tensors[op.ofm.tensor].shape
    return whole and op.ofm.shape.c >= 2 * BRICK_CHANNELS


def _bytes_during(schedule: Schedule, segment: Segment) -> int:
    """Return the bytes of feature maps while an operator runs."""
    return sum(
        buffer.size_bytes
        for buffer in schedule.buffers
        if buffer.rows and buffer.live.start <= segment.start < buffer.live.stop
    )
