"""Weights and scales that are moved into SRAM ahead of their operator, where that saves time.

An operator reads its weights once for each block of the OFM's plane, and each stripe reads them
again: from flash that often takes longer than to compute. A transfer costs as much as one such
reading, runs beside other operators, and needs SRAM until its operator is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.liveness import LiveRange, align, rooms_during, scratch_beside
from tvm_ethosu.scheduler.plan import Buffer, Schedule, Segment, Transfer, joined_blocks
from tvm_ethosu.scheduler.ports import Timed
from tvm_ethosu.scheduler.stripes import rows_by_operator
from tvm_ethosu.scheduler.timeline import Timeline

# How many segments ahead a transfer may start, and how often all operators are looked at.
_FARTHEST = 8
_ROUNDS = 2
# Times that differ by less are the same: sums of fractions depend on their order.
_SAME_CYCLES = 1e-3


# Before which segment the weights of operators are moved; the others are streamed.
_Moves = Mapping[int, int]


@dataclass(frozen=True)
class _BySegment:
    """Transfers by the segment that they begin before, and by the one that waits for them."""

    start_of: _Moves
    starting: Mapping[int, tuple[int, ...]]
    moved: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, moves: _Moves, segment_of: Sequence[int]) -> _BySegment:
        starting: dict[int, tuple[int, ...]] = {}
        moved: dict[int, tuple[int, ...]] = {}
        for op in sorted(moves):
            starting[moves[op]] = (*starting.get(moves[op], ()), op)
            moved[segment_of[op]] = (*moved.get(segment_of[op], ()), op)
        return cls(moves, starting, moved)

    def with_one(self, op: int, before: int, own: int) -> _BySegment:
        """Return these with one transfer more, or at another place; ``own`` waits for it."""
        starting, moved = dict(self.starting), self.moved
        if op in self.start_of:
            starting[self.start_of[op]] = tuple(o for o in starting[self.start_of[op]] if o != op)
        else:
            moved = {**moved, own: tuple(sorted((*moved.get(own, ()), op)))}
        starting[before] = tuple(sorted((*starting.get(before, ()), op)))
        return _BySegment({**self.start_of, op: before}, starting, moved)


@dataclass(frozen=True)
class _Trace:
    """When things happen: the state at the begin of each segment, and when transfers end."""

    moves: _BySegment
    states: Sequence[tuple[float, ...]]
    arrival: Mapping[int, float]
    end: float


class _Prefetch:
    """The search for transfers of one schedule."""

    def __init__(self, schedule: Schedule, estimator: Estimator, budget_bytes: int | None) -> None:
        self.schedule = schedule
        self.slots = estimator.hardware.target.timing.transfers_in_flight
        rows = rows_by_operator(schedule.steps)
        self.ops = [estimator.choices(op, rows[op]) for op in range(len(schedule.graph.ops))]
        self.transfers = [
            estimator.transfer_cycles(self.size_bytes(op)) for op in range(len(self.ops))
        ]
        self.order = _order(schedule)
        self.budget_bytes = budget_bytes
        self.memory = [_memory(schedule, segment) for segment in schedule.segments]
        self._runs: dict[tuple[int, tuple[int, ...]], list[tuple[int | None, float]]] = {}

    def cycles(self, moves: _Moves) -> float:
        """Return the cycles of the whole schedule with these transfers."""
        return self.trace(moves).end

    def trace(self, moves: _Moves) -> _Trace:
        """Return when everything happens with these transfers."""
        by_segment = _BySegment.of(moves, self.schedule.segment_of)
        line, arrival = Timeline(self.slots), dict[int, float]()
        states = []
        for segment in range(len(self.order)):
            states.append(line.state)
            self._advance(line, segment, by_segment, arrival)
        return _Trace(by_segment, states, arrival, line.end)

    def _advance(
        self,
        line: Timeline,
        segment: int,
        moves: _BySegment,
        arrival: dict[int, float],
    ) -> None:
        """Go on by one segment."""
        for op in moves.starting.get(segment, ()):
            arrival[op] = line.transfer(self.transfers[op])
        for waiting, cycles in self._runs_of(segment, moves.moved.get(segment, ())):
            line.kernels(cycles, 0.0 if waiting is None else arrival[waiting])

    def _cycles_with(self, trace: _Trace, op: int, before: int) -> float:
        """Return the cycles of a trace with one transfer more, or at another place.

        Nothing changes before it begins, and once all times are later by the same, the end is too.
        """
        own = self.schedule.segment_of[op]
        moves = trace.moves.with_one(op, before, own)
        first = min(before, trace.moves.start_of.get(op, before))
        line, arrival = Timeline.at(trace.states[first]), dict(trace.arrival)
        for segment in range(first, len(self.order)):
            if segment > own:
                later = self._later(trace, segment, line.state, arrival)
                if later is not None:
                    return trace.end + later
            self._advance(line, segment, moves, arrival)
        return line.end

    def _later(
        self,
        trace: _Trace,
        segment: int,
        state: tuple[float, ...],
        arrival: Mapping[int, float],
    ) -> float | None:
        """Return by how much everything at a segment is later than in a trace; None if it differs.

        ``state`` and ``arrival`` say when engines are free and transfers end there now.
        """
        then = trace.states[segment]
        later = state[0] - then[0]

        def is_later(now: float, before: float) -> bool:
            return abs(now - before - later) < _SAME_CYCLES

        if not all(map(is_later, state, then)):
            return None
        for op, start in trace.moves.start_of.items():
            if start < segment <= self.schedule.segment_of[op]:
                arrivals = max(state[0], arrival[op]), max(then[0], trace.arrival[op])
                if not is_later(*arrivals):
                    return None
        return later

    def _runs_of(self, segment: int, moved: tuple[int, ...]) -> Sequence[tuple[int | None, float]]:
        """Return a segment's kernels, in runs of which only the first has a transfer to wait for.

        Each has the operator whose weights it waits for, and the cycles of all its kernels.
        """
        key = segment, moved
        if key not in self._runs:
            runs: list[tuple[int | None, float]] = []
            waiting = set(moved)
            for op, position in self.order[segment]:
                choice = self.ops[op].buffered if op in moved else self.ops[op].streamed
                assert choice is not None
                cycles = choice.steps[position].cycles
                if op in waiting or not runs:
                    runs.append((op if op in waiting else None, cycles))
                    waiting.discard(op)
                else:
                    runs[-1] = runs[-1][0], runs[-1][1] + cycles
            self._runs[key] = runs
        return self._runs[key]

    def timed(self, moves: _Moves) -> list[tuple[Timed, ...]]:
        """Return the steps of each operator with these transfers."""
        chosen = (
            choices.buffered if op in moves else choices.streamed
            for op, choices in enumerate(self.ops)
        )
        return [choice.steps if choice is not None else () for choice in chosen]

    def size_bytes(self, op: int) -> int:
        """Return the bytes that a transfer moves for an operator; 0 if there can be none."""
        buffered = self.ops[op].buffered
        return 0 if buffered is None else buffered.parameter_bytes

    def search(self) -> _Moves:
        """Return transfers that make the schedule faster, found one after the other."""
        trace = self.trace({})
        for _ in range(_ROUNDS):
            before = trace.end
            for op, choices in enumerate(self.ops):
                if choices.buffered is not None:
                    trace = self._best_move(op, trace)
            if trace.end == before:
                break
        return trace.moves.start_of

    def _best_move(self, op: int, trace: _Trace) -> _Trace:
        """Return the transfers with the best start of one of them."""
        own, moves = self.schedule.segment_of[op], trace.moves.start_of
        others = {other: before for other, before in moves.items() if other != op}
        chosen, best = None, trace.end
        for before in range(own, max(-1, own - _FARTHEST - 1), -1):
            # The segments after this one had room for it already.
            if not self._fits(others | {op: before}, before):
                break
            if moves.get(op) == before:
                continue
            cycles = self._cycles_with(trace, op, before)
            if cycles < best - _SAME_CYCLES:
                chosen, best = before, cycles
        return trace if chosen is None else self.trace(others | {op: chosen})

    def _fits(self, moves: _Moves, segment: int) -> bool:
        limit_bytes = self.budget_bytes
        return limit_bytes is None or self._scratch_bytes(moves, segment) <= limit_bytes

    def _scratch_bytes(self, moves: _Moves, segment: int) -> int:
        """Return the scratch in use during a segment with these transfers."""
        moved = [
            align(self.size_bytes(op))
            for op, before in moves.items()
            if before <= segment <= self.schedule.segment_of[op]
        ]
        blocks, rooms = self.memory[segment]
        return scratch_beside([*blocks, *moved], rooms)


def _order(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """Return for each segment its steps: the operator, and which of the operator's steps it is."""
    made = [0] * len(schedule.graph.ops)
    steps: list[list[tuple[int, int]]] = [[] for _ in schedule.segments]
    for step in schedule.steps:
        steps[schedule.segment_of[step.op]].append((step.op, made[step.op]))
        made[step.op] += 1
    return steps


def _memory(schedule: Schedule, segment: Segment) -> tuple[list[int], list[int]]:
    """Return the blocks of memory in use during a segment, and the caller's that is idle then."""
    live = LiveRange(segment.start, segment.stop)
    sizes = {b.tensor: b.size_bytes for b in schedule.buffers if b.live.overlaps(live)}
    writers = schedule.graph.writers
    made = [o for o in schedule.overlaps if live.start <= writers[o.target] < live.stop]
    return joined_blocks(schedule.layouts, sizes, made), rooms_during(schedule.lent, live)


def add_transfers(schedule: Schedule, estimator: Estimator, budget_bytes: int | None) -> Schedule:
    """Return the schedule with transfers that fit a budget, block configs and cycles.

    None sets no limit; below 0 nothing is moved.
    """
    search = _Prefetch(schedule, estimator, budget_bytes)
    return _with_moves(search, search.search())


def repeat_transfers(
    schedule: Schedule, estimator: Estimator, moves: Mapping[int, int]
) -> Schedule:
    """Return the schedule with given transfers: before which segment those of operators begin."""
    return _with_moves(_Prefetch(schedule, estimator, None), moves)


def _with_moves(search: _Prefetch, moves: _Moves) -> Schedule:
    schedule = search.schedule
    transfers, buffers = [], list(schedule.buffers)
    for op in sorted(moves, key=lambda op: (moves[op], op)):
        own, size_bytes = schedule.segments[schedule.segment_of[op]], search.size_bytes(op)
        name = f"parameters of operator {op}"
        live = LiveRange(schedule.segments[moves[op]].start, own.stop)
        transfers.append(Transfer(op, moves[op], name, size_bytes))
        buffers.append(Buffer(name, align(size_bytes), live, 0))
    timed = search.timed(moves)
    return replace(
        schedule,
        buffers=tuple(buffers),
        timed=tuple(timed[op][position] for steps in search.order for op, position in steps),
        transfers=tuple(transfers),
        cycles=search.cycles(moves),
    )
