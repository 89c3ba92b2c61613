"""The schedule: in which order rows are made, how tensors lie in memory, what lives when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tvm_ethosu.scheduler.ir import Add, ElementWise, NpuGraph, Requantize
from tvm_ethosu.scheduler.layouts import Layouts
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
    that buffers may lie in. ``slices`` are operators of the original graph (their position) that
    are several ones here, each of so many channels.
    """

    graph: NpuGraph
    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    layouts: Layouts
    buffers: tuple[Buffer, ...]
    overlaps: tuple[Overlap, ...] = ()
    timed: tuple[Timed, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    cycles: float = 0.0
    slices: tuple[tuple[int, int], ...] = ()
    lent: tuple[Lent, ...] = ()

    @cached_property
    def segment_of(self) -> tuple[int, ...]:
        """Return the position of each operator's segment."""
        return positions_of(self.segments)


def positions_of(segments: Sequence[Segment]) -> tuple[int, ...]:
    """Return for each operator the position of its segment; segments follow one another."""
    return tuple(n for n, s in enumerate(segments) for _ in range(s.start, s.stop))


@dataclass(frozen=True)
class SegmentPlan:
    """A segment's steps, the buffers that it writes, and the one that may grow into another."""

    segment: Segment
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    overlap: Overlap | None

    def blocks(self, layouts: Layouts, before: Mapping[str, int]) -> list[int]:
        """Return the sizes of the memory in use during the segment, each in one piece.

        Tensors of which one grows into the other are one piece. ``before`` has those of tensors
        from before the segment.
        """
        sizes = {buffer.tensor: buffer.size_bytes for buffer in self.buffers}
        return joined_blocks(layouts, {**before, **sizes}, filter(None, [self.overlap]))


def joined_blocks(
    layouts: Layouts, sizes: Mapping[str, int], overlaps: Iterable[Overlap]
) -> list[int]:
    """Return the sizes of memory blocks, of tensors that overlap the size of both together."""
    blocks = dict(sizes)
    for overlap in overlaps:
        blocks[overlap.target] -= saved_bytes(layouts, overlap)
        if overlap.source in blocks:
            blocks[overlap.target] += blocks.pop(overlap.source)
    return [size for size in blocks.values() if size]


class StepsOfSegments:
    """Knows the steps of one graph's segments, and the rows that they use, whatever the layouts."""

    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.ranges = uses(graph)
        self._known: dict[tuple[Segment, Direction, Trail | None], _StepsAndRows] = {}

    def of(self, segment: Segment, direction: Direction, trail: Trail | None) -> _StepsAndRows:
        """Return the steps of a segment, and which rows they use."""
        key = segment, direction, trail
        if key not in self._known:
            graph, start, stop = self.graph, segment.start, segment.stop
            kept = kept_tensors(graph, start, stop)
            stripes = Stripes(segment.stripe_rows, segment.fine)
            steps = segment_steps(graph, start, stop, stripes, kept, direction, trail)
            use = row_use(graph, steps, direction)
            self._known[key] = _StepsAndRows(steps, use, kept, rolling_rows(use))
        return self._known[key]


@dataclass(frozen=True)
class _StepsAndRows:
    """A segment's steps, the tensors that it makes for others, and rows in memory at once."""

    steps: tuple[Step, ...]
    use: RowUse
    kept: frozenset[str]
    rolling: Mapping[str, int]


def plan_segment(
    layouts: Layouts,
    segment: Segment,
    steps: StepsOfSegments,
    direction: Direction = DOWNWARDS,
) -> SegmentPlan:
    """Return the plan of one segment of the graph of ``steps``."""
    plain = _plan_segment(layouts, segment, steps, direction, None)
    trail = _trail(layouts, segment, steps.ranges)
    if trail is None:
        return plain
    trailing = _plan_segment(layouts, segment, steps, direction, trail)
    return min(plain, trailing, key=lambda plan: sum(plan.blocks(layouts, {})))


def _trail(layouts: Layouts, segment: Segment, ranges: Mapping[str, LiveRange]) -> Trail | None:
    """Return how a segment's result may follow in the place of an input that ends there."""
    graph, last = layouts.graph, segment.stop - 1
    target = graph.ops[last].ofm.tensor
    reads = {operand.tensor for operand in graph.ops[last].inputs}
    if target not in ranges or target not in graph.rolling_tensors:
        return None
    for source in _ending_inputs(graph, segment):
        if source not in reads and _fits_into(layouts, target, source):
            rows = layouts.row_bytes(source), layouts.row_bytes(target)
            return Trail(source, *rows)
    return None


def _ending_inputs(graph: NpuGraph, segment: Segment) -> list[str]:
    """Return the inputs that may be overwritten once a segment has read them, row by row."""
    return [
        owner.tensor
        for lent in lent_arguments(graph)
        for owner in lent.owners
        if owner.tensor in graph.inputs
        and owner.tensor in graph.rolling_tensors
        and segment.start < owner.live.stop <= segment.stop
    ]


def _fits_into(layouts: Layouts, target: str, source: str) -> bool:
    return align(layouts.size_bytes(target)) <= layouts.size_bytes(source)


def _plan_segment(
    layouts: Layouts,
    segment: Segment,
    steps: StepsOfSegments,
    direction: Direction,
    trail: Trail | None,
) -> SegmentPlan:
    found, ranges = steps.of(segment, direction, trail), steps.ranges
    buffers = _segment_buffers(layouts, segment, found.kept, found.rolling, ranges)
    overlap = _best_overlap(layouts, segment, found.kept, found.use, ranges, direction)
    return SegmentPlan(segment, found.steps, tuple(buffers), overlap)


def _segment_buffers(
    layouts: Layouts,
    segment: Segment,
    kept: frozenset[str],
    rows: Mapping[str, int],
    ranges: Mapping[str, LiveRange],
) -> list[Buffer]:
    graph, buffers = layouts.graph, []
    for index in range(segment.start, segment.stop):
        name = graph.ops[index].ofm.tensor
        # A tensor that is made in slices has memory from the first one on.
        if name not in ranges or ranges[name].start != index:
            continue
        height = graph.tensors[name].shape.h
        in_memory = height if name in kept else min(height, rows.get(name, height))
        live = LiveRange(segment.start, max(segment.stop, ranges[name].stop))
        size_bytes = align(in_memory * layouts.row_bytes(name))
        buffers.append(Buffer(name, size_bytes, live, in_memory))
    return buffers


def _best_overlap(
    layouts: Layouts,
    segment: Segment,
    kept: frozenset[str],
    use: RowUse,
    ranges: Mapping[str, LiveRange],
    direction: Direction,
) -> Overlap | None:
    """Return the pair of tensors that saves most when one grows into the other, if any does."""
    graph = layouts.graph
    sources = [
        name
        for name, live in ranges.items()
        if live.start < segment.start < live.stop <= segment.stop and name in graph.rolling_tensors
    ]
    targets = [name for name in sorted(kept) if name in ranges and name in graph.rolling_tensors]
    found = [
        _overlap(layouts, use, source, target, direction)
        for source in sources
        for target in targets
    ]
    for source in _ending_inputs(graph, segment):
        fitting = (target for target in targets if _fits_into(layouts, target, source))
        into = (_overlap(layouts, use, source, target, direction) for target in fitting)
        found += [overlap for overlap in into if overlap.distance_bytes == 0]
    return max(
        (overlap for overlap in found if saved_bytes(layouts, overlap) > 0),
        key=lambda overlap: saved_bytes(layouts, overlap),
        default=None,
    )


def _overlap(
    layouts: Layouts, use: RowUse, source: str, target: str, direction: Direction
) -> Overlap:
    """Return how a tensor may grow into another one's rows: in place where that is possible."""
    rows = layouts.row_bytes(source), layouts.row_bytes(target)
    if _is_element_by_element(layouts, source, target):
        others = _without_own_reads(use, source, target)
        if overlap_distance(others, source, target, rows) == 0:
            return Overlap(source, target, 0, direction, in_place=True)
    distance = align(overlap_distance(use, source, target, rows))
    return Overlap(source, target, distance, direction)


def _is_element_by_element(layouts: Layouts, source: str, target: str) -> bool:
    """Return whether each element of a tensor is written where its operator has just read one.

    Both must lie alike, so that the blocks that the NPU reads and writes are the same bytes.
    """
    writer = layouts.graph.ops[layouts.graph.writers[target]]
    read = [operand for operand in writer.inputs if operand.tensor == source]
    alike = bool(read) and all(
        operand.shape == writer.ofm.shape and operand.dtype is writer.ofm.dtype for operand in read
    )
    lie_alike = layouts.by_tensor[source] is layouts.by_tensor[target]
    return isinstance(writer, Add | ElementWise | Requantize) and alike and lie_alike


def _without_own_reads(use: RowUse, source: str, target: str) -> RowUse:
    """Return the use as if the steps that write ``target`` were done with ``source`` already."""
    own = {position for position, _ in use.writes[target]}
    reads = [
        (position, Rows(rows.stop, rows.stop) if position in own else rows)
        for position, rows in use.reads[source]
    ]
    return RowUse(use.writes, {**use.reads, source: reads})


def saved_bytes(layouts: Layouts, overlap: Overlap) -> int:
    """Return how much less two overlapping tensors take than two apart."""
    source, target = (align(layouts.size_bytes(n)) for n in (overlap.source, overlap.target))
    if overlap.source in layouts.graph.inputs:
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

    return tuple(
        replace(one, owners=tuple(replace(o, live=whole(o.live)) for o in one.owners))
        for one in lent
    )


def _moves_on(overlap: Overlap, grown: Mapping[str, Direction]) -> bool:
    """Return whether a tensor would go on away from what its source has grown into."""
    return overlap.distance_bytes > 0 and grown.get(overlap.source) == DOWNWARDS


def plan_segments(
    layouts: Layouts, segments: Sequence[Segment], steps: StepsOfSegments | None = None
) -> Schedule:
    """Schedule a graph's operators in the given order, cut into these segments.

    Where one tensor after the other grows into the one before, the direction of the stripes
    changes each time, so that they move up and down instead of away.
    """
    graph = layouts.graph
    steps = steps or StepsOfSegments(graph)
    plans: list[SegmentPlan] = []
    grown: dict[str, Direction] = {}
    for segment in segments:
        plan = plan_segment(layouts, segment, steps)
        if plan.overlap is not None and _moves_on(plan.overlap, grown):
            plan = plan_segment(layouts, segment, steps, UPWARDS)
        if plan.overlap is not None:
            grown[plan.overlap.target] = plan.overlap.direction
        plans.append(plan)
    buffers = [buffer for plan in plans for buffer in plan.buffers]
    return Schedule(
        graph,
        tuple(segments),
        tuple(step for plan in plans for step in plan.steps),
        layouts,
        tuple(_end_with_segments(buffers, segments)),
        tuple(plan.overlap for plan in plans if plan.overlap is not None),
        lent=_busy_in_segments(lent_arguments(graph), segments),
    )


def whole_segments(graph: NpuGraph) -> tuple[Segment, ...]:
    """Return a segment for each operator: one after the other, feature maps whole."""
    return tuple(Segment(i, i + 1, op.ofm.shape.h) for i, op in enumerate(graph.ops))


def plan_whole_tensors(layouts: Layouts) -> Schedule:
    """Schedule operators in the given order, every inner tensor whole."""
    return plan_segments(layouts, whole_segments(layouts.graph))
