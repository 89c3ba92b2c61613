"""The schedule: in which order rows are made, how tensors lie in memory, what lives when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from tvm_ethosu.scheduler.arch import BRICK_CHANNELS, Layout
from tvm_ethosu.scheduler.ir import Add, ElementWise, NpuGraph, Requantize, Tensor
from tvm_ethosu.scheduler.liveness import (
    Lent,
    LiveRange,
    align,
    kept_tensors,
    lent_arguments,
    uses,
)
from tvm_ethosu.scheduler.ports import Timed
from tvm_ethosu.scheduler.stripes import (
    DOWNWARDS,
    UPWARDS,
    Direction,
    Rows,
    RowUse,
    Step,
    Stripes,
    Trail,
    overlap_distance,
    rolling_rows,
    row_use,
    segment_steps,
)


@dataclass(frozen=True)
class Buffer:
    """Scratch memory for one inner tensor, or for ``rows`` rows of it that come and go.

    Memory for weights and scales has no rows; ``tensor`` is then the buffer's own name.
    """

    tensor: str
    size_bytes: int
    live: LiveRange
    rows: int


@dataclass(frozen=True, order=True)
class Segment:
    """Operators ``[start, stop)`` executed together, ``stripe_rows`` rows of the last at a time.

    In a fine segment no other operator makes more rows at a time either.
    """

    start: int
    stop: int
    stripe_rows: int
    fine: bool = False


@dataclass(frozen=True)
class Overlap:
    """A tensor that grows into rows of another that are dead by then.

    Going downwards, ``target`` must begin at least ``distance_bytes`` before ``source``; going
    upwards, it must end as much behind it. Where ``in_place``, both begin at the same address or
    lie apart: blocks then meet their own bytes only, whatever their order. A source that is an
    input of the function has no memory around it, so that the target begins where it does.
    """

    source: str
    target: str
    distance_bytes: int
    direction: Direction = DOWNWARDS
    in_place: bool = False


@dataclass(frozen=True)
class Transfer:
    """Weights and scales of an operator are moved into SRAM when a segment is about to begin.

    ``op`` and ``before`` are indices of the operator and of the segment, ``buffer`` names the
    memory, which is in use from that segment to the operator's own.
    """

    op: int
    before: int
    buffer: str
    size_bytes: int


@dataclass(frozen=True)
class Schedule:
    """A graph with its steps, the layout of each tensor, and buffers for the inner ones.

    ``timed`` has cycles and block configs of each step, ``cycles`` the estimate for all of them and
    the transfers; both are missing from a plan of memory only. ``lent`` is memory of the caller
    that buffers may lie in.
    """

    graph: NpuGraph
    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    layouts: Mapping[str, Layout]
    buffers: tuple[Buffer, ...]
    overlaps: tuple[Overlap, ...] = ()
    timed: tuple[Timed, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    cycles: float = 0.0
    lent: tuple[Lent, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "layouts", MappingProxyType(dict(self.layouts)))

    @cached_property
    def segment_of(self) -> tuple[int, ...]:
        """Return the position of each operator's segment."""
        return positions_of(self.segments)


def positions_of(segments: Sequence[Segment]) -> tuple[int, ...]:
    """Return for each operator the position of its segment; segments follow one another."""
    return tuple(n for n, s in enumerate(segments) for _ in range(s.start, s.stop))


def choose_layout(graph: NpuGraph, tensor: Tensor) -> Layout:
    """Return NHCWB16 for an inner tensor that loses no bytes by it and is seen in one shape."""
    in_bricks = (
        tensor.shape.c % BRICK_CHANNELS == 0
        and tensor.name in graph.inner_tensors
        and tensor.name not in graph.reshaped_tensors
        and tensor.name not in graph.dense_tensors
    )
    return Layout.NHCWB16 if in_bricks else Layout.NHWC


def choose_layouts(graph: NpuGraph) -> Mapping[str, Layout]:
    """Return the layout of every tensor."""
    return {name: choose_layout(graph, tensor) for name, tensor in graph.tensors.items()}


def row_bytes(tensor: Tensor) -> int:
    """Return the bytes of one row; both layouts take the same, see ``choose_layout``."""
    return tensor.shape.w * tensor.shape.c * tensor.dtype.size_bytes


@dataclass(frozen=True)
class SegmentPlan:
    """A segment's steps, the buffers that it writes, and the one that may grow into another."""

    segment: Segment
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    overlap: Overlap | None

    def blocks(self, graph: NpuGraph, before: Mapping[str, int]) -> list[int]:
        """Return the sizes of the memory in use during the segment, each in one piece.

        Tensors of which one grows into the other are one piece. ``before`` has those of tensors
        from before the segment.
        """
        sizes = {buffer.tensor: buffer.size_bytes for buffer in self.buffers}
        return joined_blocks(graph, {**before, **sizes}, filter(None, [self.overlap]))


def joined_blocks(
    graph: NpuGraph, sizes: Mapping[str, int], overlaps: Iterable[Overlap]
) -> list[int]:
    """Return the sizes of memory blocks, of tensors that overlap the size of both together."""
    blocks = dict(sizes)
    for overlap in overlaps:
        blocks[overlap.target] -= saved_bytes(graph, overlap)
        if overlap.source in blocks:
            blocks[overlap.target] += blocks.pop(overlap.source)
    return [size for size in blocks.values() if size]


def plan_segment(
    graph: NpuGraph,
    segment: Segment,
    ranges: Mapping[str, LiveRange],
    direction: Direction = DOWNWARDS,
) -> SegmentPlan:
    """Return the plan of one segment; ``ranges`` are the graph's ``uses``."""
    plain = _plan_segment(graph, segment, ranges, direction, None)
    trail = _trail(graph, segment, ranges)
    if trail is None:
        return plain
    trailing = _plan_segment(graph, segment, ranges, direction, trail)
    return min(plain, trailing, key=lambda plan: sum(plan.blocks(graph, {})))


def _trail(graph: NpuGraph, segment: Segment, ranges: Mapping[str, LiveRange]) -> Trail | None:
    """Return how a segment's result may follow in the place of an input that ends there."""
    last = segment.stop - 1
    target = graph.ops[last].ofm.tensor
    reads = {operand.tensor for operand in graph.ops[last].inputs}
    if target not in ranges or target not in graph.rolling_tensors:
        return None
    for source in _ending_inputs(graph, segment):
        if source not in reads and _fits_into(graph, target, source):
            rows = row_bytes(graph.tensors[source]), row_bytes(graph.tensors[target])
            return Trail(source, *rows)
    return None


def _ending_inputs(graph: NpuGraph, segment: Segment) -> list[str]:
    """Return the inputs that may be overwritten once a segment has read them, row by row."""
    return [
        lent.tensor
        for lent in lent_arguments(graph)
        if lent.tensor in graph.inputs
        and lent.tensor in graph.rolling_tensors
        and segment.start < lent.busy.stop <= segment.stop
    ]


def _fits_into(graph: NpuGraph, target: str, source: str) -> bool:
    return align(graph.tensors[target].size_bytes) <= graph.tensors[source].size_bytes


def _plan_segment(
    graph: NpuGraph,
    segment: Segment,
    ranges: Mapping[str, LiveRange],
    direction: Direction,
    trail: Trail | None,
) -> SegmentPlan:
    start, stop = segment.start, segment.stop
    kept = kept_tensors(graph, start, stop)
    stripes = Stripes(segment.stripe_rows, segment.fine)
    steps = segment_steps(graph, start, stop, stripes, kept, direction, trail)
    use = row_use(graph, steps, direction)
    buffers = _segment_buffers(graph, segment, kept, rolling_rows(use), ranges)
    overlap = _best_overlap(graph, segment, kept, use, ranges, direction)
    return SegmentPlan(segment, steps, tuple(buffers), overlap)


def _segment_buffers(
    graph: NpuGraph,
    segment: Segment,
    kept: frozenset[str],
    rows: Mapping[str, int],
    ranges: Mapping[str, LiveRange],
) -> list[Buffer]:
    buffers = []
    for op in graph.ops[segment.start : segment.stop]:
        name = op.ofm.tensor
        if name not in ranges:
            continue
        tensor = graph.tensors[name]
        height = tensor.shape.h
        in_memory = height if name in kept else min(height, rows.get(name, height))
        whole = tensor.size_bytes if in_memory == height else in_memory * row_bytes(tensor)
        live = LiveRange(segment.start, max(segment.stop, ranges[name].stop))
        buffers.append(Buffer(name, align(whole), live, in_memory))
    return buffers


def _best_overlap(
    graph: NpuGraph,
    segment: Segment,
    kept: frozenset[str],
    use: RowUse,
    ranges: Mapping[str, LiveRange],
    direction: Direction,
) -> Overlap | None:
    """Return the pair of tensors that saves most when one grows into the other, if any does."""
    sources = [
        name
        for name, live in ranges.items()
        if live.start < segment.start < live.stop <= segment.stop and name in graph.rolling_tensors
    ]
    targets = [name for name in sorted(kept) if name in ranges and name in graph.rolling_tensors]
    found = [
        _overlap(graph, use, source, target, direction) for source in sources for target in targets
    ]
    for source in _ending_inputs(graph, segment):
        fitting = (target for target in targets if _fits_into(graph, target, source))
        into = (_overlap(graph, use, source, target, direction) for target in fitting)
        found += [overlap for overlap in into if overlap.distance_bytes == 0]
    return max(
        (overlap for overlap in found if saved_bytes(graph, overlap) > 0),
        key=lambda overlap: saved_bytes(graph, overlap),
        default=None,
    )


def _overlap(
    graph: NpuGraph, use: RowUse, source: str, target: str, direction: Direction
) -> Overlap:
    """Return how a tensor may grow into another one's rows: in place where that is possible."""
    rows = row_bytes(graph.tensors[source]), row_bytes(graph.tensors[target])
    if _is_element_by_element(graph, source, target):
        others = _without_own_reads(use, source, target)
        if overlap_distance(others, source, target, rows) == 0:
            return Overlap(source, target, 0, direction, in_place=True)
    distance = align(overlap_distance(use, source, target, rows))
    return Overlap(source, target, distance, direction)


def _is_element_by_element(graph: NpuGraph, source: str, target: str) -> bool:
    """Return whether each element of a tensor is written where its operator has just read one.

    Both must lie alike, so that the blocks that the NPU reads and writes are the same bytes.
    """
    writer = graph.ops[graph.writers[target]]
    read = [operand for operand in writer.inputs if operand.tensor == source]
    alike = bool(read) and all(
        operand.shape == writer.ofm.shape and operand.dtype is writer.ofm.dtype for operand in read
    )
    layouts = {choose_layout(graph, graph.tensors[name]) for name in (source, target)}
    return isinstance(writer, Add | ElementWise | Requantize) and alike and len(layouts) == 1


def _without_own_reads(use: RowUse, source: str, target: str) -> RowUse:
    """Return the use as if the steps that write ``target`` were done with ``source`` already."""
    own = {position for position, _ in use.writes[target]}
    reads = [
        (position, Rows(rows.stop, rows.stop) if position in own else rows)
        for position, rows in use.reads[source]
    ]
    return RowUse(use.writes, {**use.reads, source: reads})


def saved_bytes(graph: NpuGraph, overlap: Overlap) -> int:
    """Return how much less two overlapping tensors take than two apart."""
    source, target = (
        align(graph.tensors[name].size_bytes) for name in (overlap.source, overlap.target)
    )
    if overlap.source in graph.inputs:
        return target
    return source + target - max(source + overlap.distance_bytes, target)


def _end_with_segments(buffers: Sequence[Buffer], segments: Sequence[Segment]) -> list[Buffer]:
    """Let a buffer live to the end of the segment in which it is read last."""
    position = positions_of(segments)

    def end(buffer: Buffer) -> int:
        return segments[position[buffer.live.stop - 1]].stop

    return [replace(b, live=LiveRange(b.live.start, end(b))) for b in buffers]


def _busy_in_segments(lent: Iterable[Lent], segments: Sequence[Segment]) -> tuple[Lent, ...]:
    """Let an argument be busy from the segment that first touches it to the end of the last."""
    position = positions_of(segments)

    def whole(busy: LiveRange) -> LiveRange:
        if not busy.stop:
            return busy
        first, last = position[busy.start], position[busy.stop - 1]
        return LiveRange(segments[first].start, segments[last].stop)

    return tuple(replace(one, busy=whole(one.busy)) for one in lent)


def _moves_on(overlap: Overlap, grown: Mapping[str, Direction]) -> bool:
    """Return whether a tensor would go on away from what its source has grown into."""
    return overlap.distance_bytes > 0 and grown.get(overlap.source) == DOWNWARDS


def plan_segments(graph: NpuGraph, segments: Sequence[Segment]) -> Schedule:
    """Schedule the graph's operators in the given order, cut into these segments.

    Where one tensor after the other grows into the one before, the direction of the stripes
    changes each time, so that they move up and down instead of away.
    """
    ranges = uses(graph)
    plans: list[SegmentPlan] = []
    grown: dict[str, Direction] = {}
    for segment in segments:
        plan = plan_segment(graph, segment, ranges)
        if plan.overlap is not None and _moves_on(plan.overlap, grown):
            plan = plan_segment(graph, segment, ranges, UPWARDS)
        if plan.overlap is not None:
            grown[plan.overlap.target] = plan.overlap.direction
        plans.append(plan)
    buffers = [buffer for plan in plans for buffer in plan.buffers]
    return Schedule(
        graph,
        tuple(segments),
        tuple(step for plan in plans for step in plan.steps),
        choose_layouts(graph),
        tuple(_end_with_segments(buffers, segments)),
        tuple(plan.overlap for plan in plans if plan.overlap is not None),
        lent=_busy_in_segments(lent_arguments(graph), segments),
    )


def whole_segments(graph: NpuGraph) -> tuple[Segment, ...]:
    """Return a segment for each operator: one after the other, feature maps whole."""
    return tuple(Segment(i, i + 1, op.ofm.shape.h) for i, op in enumerate(graph.ops))


def plan_whole_tensors(graph: NpuGraph) -> Schedule:
    """Schedule operators in the given order, every inner tensor whole."""
    return plan_segments(graph, whole_segments(graph))
