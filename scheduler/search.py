"""Search for the stripes of a graph: a shortest path over cuts between operators.

An edge is a segment of operators. What is in memory during a segment follows from the segment
alone (tensors from before that are read later, rolling buffers inside), so the path's peak is the
largest of its edges' and its cost their sum, and the best path within a budget is found exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from tvm_ethosu.scheduler.estimator import Choices, Estimator
from tvm_ethosu.scheduler.liveness import (
    LiveRange,
    align,
    breaks_shared,
    kept_tensors,
    lent_arguments,
    rooms_during,
    scratch_beside,
)
from tvm_ethosu.scheduler.plan import (
    Segment,
    SegmentPlan,
    StepsOfSegments,
    plan_segment,
    whole_segments,
)
from tvm_ethosu.scheduler.stripes import rows_by_operator

# Longer cascades gain little: each operator more needs its rows, and the first stripes grow.
LONGEST_CASCADE = 20
# Of the stripe heights that fit, so many are compared; lower ones leave more room for weights.
_HEIGHTS = 3
# The least memory is with one of so many of the lowest stripes: two rows at a time may take less
# than one where windows of stride 2 or operators beside each other read them.
_LOWEST = 2
# Up to so many operators, every segment with every height is compared.
_SMALL_GRAPH = 7


class Objective(Enum):
    """What a plan is chosen for: fewest cycles within the budget, or least memory."""

    PERFORMANCE = "performance"
    SIZE = "size"


@dataclass(frozen=True, order=True)
class Edge:
    """A segment with its peak in bytes and its estimated cycles."""

    peak_bytes: int
    cycles: float
    segment: Segment


@dataclass(frozen=True, order=True)
class _Path:
    """The best way to a cut: the fewest cycles, then the lowest peak."""

    cycles: float
    peak_bytes: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class _Priced:
    """A segment's peak in bytes, its cycles with all weights streamed, and what others save.

    ``savings`` has cycles and bytes of weights in SRAM, the best first. ``least`` are the cycles
    with all weights where they are read fastest, and nothing to wait for.
    """

    peak_bytes: int
    streamed: float
    least: float
    savings: tuple[tuple[float, int], ...]

    def cycles(self, limit_bytes: int) -> float:
        """Return the cycles when what is left of a limit holds the weights that are worth it."""
        cycles, spare = self.streamed, limit_bytes - self.peak_bytes
        for saving, size_bytes in self.savings:
            if size_bytes <= spare:
                cycles, spare = cycles - saving, spare - size_bytes
        return cycles


def _heights(height: int) -> list[int]:
    """Return the stripe heights to compare: powers of two below the whole height."""
    return [1 << power for power in range(height.bit_length()) if 1 << power < height]


class PlanSearch:
    """Finds plans of one graph for any budget; every segment is looked at once.

    The order of operators is the graph's.
    """

    def __init__(self, estimator: Estimator, steps: StepsOfSegments | None = None) -> None:
        self.estimator = estimator
        self.graph = estimator.graph
        self.steps = steps or StepsOfSegments(self.graph)
        self.layouts = estimator.layouts
        self.is_small = len(self.graph.ops) <= _SMALL_GRAPH
        self.ranges = self.steps.ranges
        self.lent = lent_arguments(self.graph)
        self.most_lent = sum(lent.size_bytes for lent in self.lent)
        self.sizes = {name: align(self.layouts.size_bytes(name)) for name in self.ranges}
        self.plans: dict[Segment, tuple[SegmentPlan, int]] = {}
        self.prices: dict[Segment, _Priced] = {}
        self.singles = [self.peak_bytes(segment) for segment in whole_segments(self.graph)]

    def peak_bytes(self, segment: Segment) -> int:
        """Return the bytes in use during a segment, weights not counted."""
        return self._planned(segment)[1]

    def _planned(self, segment: Segment) -> tuple[SegmentPlan, int]:
        if segment not in self.plans:
            plan = plan_segment(self.layouts, segment, self.steps)
            blocks = plan.blocks(self.layouts, self._before(segment.start))
            rooms = rooms_during(self.lent, LiveRange(segment.start, segment.stop))
            self.plans[segment] = plan, scratch_beside(blocks, rooms)
        return self.plans[segment]

    def least_cycles(self, segments: Sequence[Segment]) -> float:
        """Return what a plan of these segments takes at least, wherever its weights are."""
        return sum(self._priced(segment).least for segment in segments)

    def _priced(self, segment: Segment) -> _Priced:
        if segment not in self.prices:
            self.prices[segment] = self._price(*self._planned(segment))
        return self.prices[segment]

    def edge(self, segment: Segment, limit_bytes: int) -> Edge:
        """Return the edge of a segment whose weights may use what is left of a limit."""
        priced = self._priced(segment)
        return Edge(priced.peak_bytes, priced.cycles(limit_bytes), segment)

    def _price(self, plan: SegmentPlan, peak_bytes: int) -> _Priced:
        cycles = least = 0.0
        savings: list[tuple[float, int]] = []
        for op, rows in rows_by_operator(plan.steps).items():
            choices = self.estimator.choices(op, rows)
            ways = filter(None, (choices.streamed, choices.buffered))
            cycles += choices.streamed.cycles
            least += min(way.cycles for way in ways)
            savings += self._savings(choices)
        savings.sort(key=lambda saving: (-saving[0] / saving[1], saving[1]))
        return _Priced(peak_bytes, cycles, least, tuple(savings))

    def _savings(self, choices: Choices) -> Iterator[tuple[float, int]]:
        """Yield what weights in SRAM save even if nothing hides their transfer, and their bytes."""
        if choices.buffered is not None:
            size_bytes = align(choices.buffered.parameter_bytes)
            moved = choices.buffered.cycles + self.estimator.transfer_cycles(size_bytes)
            if moved < choices.streamed.cycles:
                yield choices.streamed.cycles - moved, size_bytes

    def _before(self, start: int) -> dict[str, int]:
        """Return the sizes of tensors from before a cut that are read after it."""
        return {
            name: self.sizes[name]
            for name, live in self.ranges.items()
            if live.start < start < live.stop
        }

    def _least_bytes(self, start: int, stop: int) -> int:
        """Return a lower bound of a segment's peak: its boundary tensors, overlapping at best."""
        kept = kept_tensors(self.graph, start, stop)
        before = self._before(start)
        made = [self.sizes[n] for n in kept if n in self.ranges and n not in before]
        boundary = sum(before.values()) + sum(made) - max(made, default=0)
        return max(0, boundary - self.most_lent)

    def _can_be_striped(self, start: int, stop: int) -> bool:
        """Return whether stripes may save memory: something rolls, or grows into its input."""
        last, rolling = self.graph.ops[stop - 1].ofm, self.graph.rolling_tensors
        if last.shape.h == 1 or last.tensor not in rolling:
            return False
        if breaks_shared(self.graph, LiveRange(start, stop)):
            return False
        return any(
            operand.tensor in self.ranges and operand.tensor in rolling
            for op in self.graph.ops[start:stop]
            for operand in op.inputs
        )

    def _striped(self, start: int, stop: int, limit_bytes: int) -> Iterator[Edge]:
        """Yield the edges of operators executed in the highest stripes that stay in a limit."""
        if self._least_bytes(start, stop) > limit_bytes or not self._can_be_striped(start, stop):
            return
        height = self.graph.ops[stop - 1].ofm.shape.h
        lowest = self._lowest_stripes(start, stop)
        if min(self.peak_bytes(segment) for segment in lowest) > limit_bytes:
            return
        for fine in (False, True):
            segments = (Segment(start, stop, rows, fine) for rows in _heights(height)[::-1])
            fitting = (s for s in segments if self.peak_bytes(s) <= limit_bytes)
            for segment in fitting if self.is_small else islice(fitting, _HEIGHTS):
                yield self.edge(segment, limit_bytes)

    def _candidates(self, stop: int, limit_bytes: int) -> Iterator[Edge]:
        """Yield the edges that end before operator ``stop``."""
        if self.singles[stop - 1] <= limit_bytes:
            whole = Segment(stop - 1, stop, self.graph.ops[stop - 1].ofm.shape.h)
            yield self.edge(whole, limit_bytes)
        needed = False
        for start in range(stop - 1, max(-1, stop - 1 - LONGEST_CASCADE), -1):
            # Stripes cost time; where no operator needs them, they seldom pay by what they leave
            # for weights.
            needed = needed or self.is_small or self.singles[start] > limit_bytes
            if needed:
                yield from self._striped(start, stop, limit_bytes)

    def lowest(self) -> tuple[int, tuple[Segment, ...]]:
        """Return the least peak of all plans, and the segments of a plan that has it."""
        paths: list[tuple[int, int, tuple[Segment, ...]]] = [(0, 0, ())]
        for stop in range(1, len(self.graph.ops) + 1):
            best: tuple[int, int, tuple[Segment, ...]] | None = None
            for segment in self._all_segments(stop):
                peak, steps, before = paths[segment.start]
                if best is not None and self._least_bytes(segment.start, stop) > best[0]:
                    continue
                made = steps + len(self._planned(segment)[0].steps)
                path = max(peak, self.peak_bytes(segment)), made, (*before, segment)
                best = path if best is None else min(best, path)
            assert best is not None
            paths.append(best)
        return paths[-1][0], paths[-1][2]

    def _all_segments(self, stop: int) -> Iterator[Segment]:
        """Yield the segments that end before operator ``stop``."""
        height = self.graph.ops[stop - 1].ofm.shape.h
        yield Segment(stop - 1, stop, height)
        for start in range(stop - 1, max(-1, stop - 1 - LONGEST_CASCADE), -1):
            if self._can_be_striped(start, stop):
                yield from self._lowest_stripes(start, stop)

    def _lowest_stripes(self, start: int, stop: int) -> list[Segment]:
        """Return the segments of some operators that may take the least memory."""
        low = _heights(self.graph.ops[stop - 1].ofm.shape.h)[:_LOWEST]
        return [Segment(start, stop, rows, fine=True) for rows in low]

    def find(self, budget_bytes: int) -> tuple[Segment, ...] | None:
        """Return the segments of the plan with the fewest estimated cycles within a budget.

        None if no plan has a peak of at most ``budget_bytes``.
        """
        paths: list[_Path | None] = [_Path(0.0, 0, ())]
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
