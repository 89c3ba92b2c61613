"""Search for the stripes of a graph: a shortest path over cuts between operators.

An edge is a segment of operators. What is in memory during a segment follows from the segment
alone (tensors from before that are read later, rolling buffers inside), so the path's peak is the
largest of its edges' and its cost their sum, and the best path within a budget is found exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tvm_ethosu.scheduler.cost import step_cycles
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.plan import (
    Segment,
    align,
    kept_tensors,
    plan_segment,
    saved_bytes,
    uses,
    whole_segments,
)

# Longer cascades gain little: each operator more needs its rows, and the first stripes grow.
LONGEST_CASCADE = 20


class Objective(Enum):
    """What a plan is chosen for: fewest cycles within the budget, or least memory."""

    PERFORMANCE = "performance"
    SIZE = "size"


@dataclass(frozen=True, order=True)
class Edge:
    """A segment with its peak in bytes and its estimated cycles."""

    peak_bytes: int
    cycles: int
    segment: Segment


@dataclass(frozen=True, order=True)
class _Path:
    """The best way to a cut: the fewest cycles, then the lowest peak."""

    cycles: int
    peak_bytes: int
    segments: tuple[Segment, ...]


class PlanSearch:
    """Finds plans of one graph for any budget; every segment is looked at once.

    The order of operators is the graph's.
    """

    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.ranges = uses(graph)
        self.sizes = {name: align(graph.tensors[name].size_bytes) for name in self.ranges}
        self.edges: dict[Segment, Edge] = {}
        self.singles = [self.edge(segment) for segment in whole_segments(graph)]

    def edge(self, segment: Segment) -> Edge:
        """Return the edge of a segment."""
        if segment not in self.edges:
            plan = plan_segment(self.graph, segment, self.ranges)
            peak = self._before_bytes(segment.start)
            peak += sum(buffer.size_bytes for buffer in plan.buffers)
            if plan.overlap is not None:
                peak -= saved_bytes(self.graph, plan.overlap)
            cycles = sum(step_cycles(self.graph, step) for step in plan.steps)
            self.edges[segment] = Edge(peak, cycles, segment)
        return self.edges[segment]

    def _before_bytes(self, start: int) -> int:
        """Return the bytes of tensors from before a cut that are read after it."""
        return sum(
            self.sizes[name] for name, live in self.ranges.items() if live.start < start < live.stop
        )

    def _least_bytes(self, start: int, stop: int) -> int:
        """Return a lower bound of a segment's peak: its boundary tensors, overlapping at best."""
        kept = kept_tensors(self.graph, start, stop)
        made = [self.sizes[name] for name in kept if name in self.ranges]
        return self._before_bytes(start) + sum(made) - max(made, default=0)

    def _can_be_striped(self, start: int, stop: int) -> bool:
        """Return whether stripes may save memory: something rolls, or grows into its input."""
        last, rolling = self.graph.ops[stop - 1].ofm, self.graph.rolling_tensors
        if last.shape.h == 1 or last.tensor not in rolling:
            return False
        return any(
            operand.tensor in self.ranges and operand.tensor in rolling
            for op in self.graph.ops[start:stop]
            for operand in op.inputs
        )

    def _striped(self, start: int, stop: int, limit_bytes: int) -> Edge | None:
        """Return the edge of operators executed in the highest stripes that stay in a limit."""
        if self._least_bytes(start, stop) > limit_bytes or not self._can_be_striped(start, stop):
            return None
        height = self.graph.ops[stop - 1].ofm.shape.h
        powers = [1 << power for power in range(height.bit_length()) if 1 << power < height]
        lowest = [self.edge(Segment(start, stop, rows)).peak_bytes for rows in powers[:2]]
        if min(lowest) > limit_bytes:
            return None
        edges = (self.edge(Segment(start, stop, rows)) for rows in reversed(powers))
        return next((edge for edge in edges if edge.peak_bytes <= limit_bytes), None)

    def _candidates(self, stop: int, limit_bytes: int) -> Iterator[Edge]:
        """Yield the edges that end before operator ``stop``."""
        if self.singles[stop - 1].peak_bytes <= limit_bytes:
            yield self.singles[stop - 1]
        needed = False
        for start in range(stop - 1, max(-1, stop - 1 - LONGEST_CASCADE), -1):
            # Stripes only cost time; without an operator that needs them they are never better.
            needed = needed or self.singles[start].peak_bytes > limit_bytes
            edge = self._striped(start, stop, limit_bytes) if needed else None
            if edge is not None:
                yield edge

    def find(self, budget_bytes: int) -> tuple[Segment, ...] | None:
        """Return the segments of the plan with the fewest estimated cycles within a budget.

        None if no plan has a peak of at most ``budget_bytes``.
        """
        paths: list[_Path | None] = [_Path(0, 0, ())]
        for stop in range(1, len(self.graph.ops) + 1):
            options = []
            for edge in self._candidates(stop, budget_bytes):
                before = paths[edge.segment.start]
                if before is not None:
                    peak = max(before.peak_bytes, edge.peak_bytes)
                    segments = (*before.segments, edge.segment)
                    options.append(_Path(before.cycles + edge.cycles, peak, segments))
            paths.append(min(options, default=None))
        best = paths[-1]
        return None if best is None else best.segments
