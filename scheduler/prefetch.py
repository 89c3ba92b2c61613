"""Weights and scales that are moved into SRAM ahead of their operator, where that saves time.

An operator reads its weights once for each block of the OFM's plane, and each stripe reads them
again: from flash that often takes longer than to compute. A transfer costs as much as one such
reading, runs beside other operators, and needs SRAM until its operator is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_ethosu.scheduler.estimator import Estimator, OpChoice
from tvm_ethosu.scheduler.plan import (
    Buffer,
    LiveRange,
    Schedule,
    Transfer,
    align,
    saved_bytes,
)
from tvm_ethosu.scheduler.stripes import Rows
from tvm_ethosu.scheduler.timeline import Timeline

# How many segments ahead a transfer may start, and how often all operators are looked at.
_FARTHEST = 8
_ROUNDS = 2


@dataclass(frozen=True)
class _OpPlan:
    """An operator's steps with weights where they are, and (if it can be) with weights in SRAM."""

    segment: int
    streamed: OpChoice
    buffered: OpChoice | None
    transfer_cycles: float

    def choice(self, in_sram: bool) -> OpChoice:
        """Return the steps' blocks and cycles."""
        return self.buffered if in_sram and self.buffered is not None else self.streamed


# Before which segment the weights of operators are moved; the others are streamed.
_Moves = Mapping[int, int]


class _Prefetch:
    """The search for transfers of one schedule."""

    def __init__(self, schedule: Schedule, estimator: Estimator, budget_bytes: int | None) -> None:
        self.schedule = schedule
        self.slots = estimator.hardware.target.timing.transfers_in_flight
        self.ops = _op_plans(schedule, estimator)
        self.order = _order(schedule)
        self.spare = _spare_bytes(schedule, budget_bytes)

    def cycles(self, moves: _Moves) -> float:
        """Return the cycles of the whole schedule with these transfers."""
        line = Timeline(self.slots)
        numbers: dict[int, int] = {}
        by_segment: dict[int, list[int]] = {}
        for op in sorted(moves):
            by_segment.setdefault(moves[op], []).append(op)
        choices = [plan.choice(op in moves).steps for op, plan in enumerate(self.ops)]
        for segment, steps in enumerate(self.order):
            for op in by_segment.get(segment, ()):
                numbers[op] = line.transfer(self.ops[op].transfer_cycles)
            for op, position in steps:
                line.kernel(choices[op][position].cycles, numbers.get(op))
        return line.end

    def search(self) -> _Moves:
        """Return transfers that make the schedule faster, found one after the other."""
        moves: dict[int, int] = {}
        best = self.cycles(moves)
        for _ in range(_ROUNDS):
            before = best
            for op, plan in enumerate(self.ops):
                if plan.buffered is not None and plan.buffered.parameter_bytes:
                    moves, best = self._best_move(op, moves, best)
            if best == before:
                break
        return moves

    def _best_move(
        self, op: int, moves: dict[int, int], best: float
    ) -> tuple[dict[int, int], float]:
        """Return the transfers with the best start of one of them, and their cycles."""
        own = self.ops[op].segment
        others = {other: before for other, before in moves.items() if other != op}
        chosen = moves
        for before in range(own, max(-1, own - _FARTHEST - 1), -1):
            changed = others | {op: before}
            if moves.get(op) == before or not self._fits(changed, before, own):
                continue
            cycles = self.cycles(changed)
            if cycles < best:
                chosen, best = changed, cycles
        return chosen, best

    def _fits(self, moves: _Moves, first: int, last: int) -> bool:
        return self.spare is None or all(
            self.spare[segment] >= self._moved_bytes(moves, segment)
            for segment in range(first, last + 1)
        )

    def _moved_bytes(self, moves: _Moves, segment: int) -> int:
        return sum(
            align(self.ops[op].choice(True).parameter_bytes)
            for op, before in moves.items()
            if before <= segment <= self.ops[op].segment
        )


def _rows_of(schedule: Schedule) -> Mapping[int, list[Rows]]:
    rows: dict[int, list[Rows]] = {}
    for step in schedule.steps:
        rows.setdefault(step.op, []).append(step.rows)
    return rows


def _segment_of(schedule: Schedule) -> list[int]:
    return [
        position
        for position, segment in enumerate(schedule.segments)
        for _ in range(segment.start, segment.stop)
    ]


def _op_plans(schedule: Schedule, estimator: Estimator) -> list[_OpPlan]:
    rows, segments = _rows_of(schedule), _segment_of(schedule)
    plans = []
    for op in range(len(schedule.graph.ops)):
        streamed = estimator.choose(op, rows[op], in_sram=False)
        assert streamed is not None
        buffered = estimator.choose(op, rows[op], in_sram=True)
        size_bytes = buffered.parameter_bytes if buffered is not None else 0
        cycles = estimator.transfer_cycles(size_bytes)
        plans.append(_OpPlan(segments[op], streamed, buffered, cycles))
    return plans


def _order(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """Return for each segment its steps: the operator, and which of the operator's steps it is."""
    segments = _segment_of(schedule)
    made = [0] * len(segments)
    steps: list[list[tuple[int, int]]] = [[] for _ in schedule.segments]
    for step in schedule.steps:
        steps[segments[step.op]].append((step.op, made[step.op]))
        made[step.op] += 1
    return steps


def _spare_bytes(schedule: Schedule, budget_bytes: int | None) -> Sequence[int] | None:
    """Return the bytes that are free during each segment; None where there is no limit."""
    if budget_bytes is None:
        return None
    writer = {op.ofm.tensor: index for index, op in enumerate(schedule.graph.ops)}
    spare = []
    for segment in schedule.segments:
        live = LiveRange(segment.start, segment.stop)
        used = sum(b.size_bytes for b in schedule.buffers if b.live.overlaps(live))
        saved = sum(
            saved_bytes(schedule.graph, overlap)
            for overlap in schedule.overlaps
            if live.start <= writer[overlap.target] < live.stop
        )
        spare.append(budget_bytes - used + saved)
    return spare


def add_transfers(schedule: Schedule, estimator: Estimator, budget_bytes: int | None) -> Schedule:
    """Return the schedule with transfers that fit a budget, block configs and cycles."""
    search = _Prefetch(schedule, estimator, budget_bytes)
    moves = search.search()
    transfers, buffers = [], list(schedule.buffers)
    for op in sorted(moves, key=lambda op: (moves[op], op)):
        own = schedule.segments[search.ops[op].segment]
        size_bytes = search.ops[op].choice(True).parameter_bytes
        name = f"parameters of operator {op}"
        live = LiveRange(schedule.segments[moves[op]].start, own.stop)
        transfers.append(Transfer(op, moves[op], name, size_bytes))
        buffers.append(Buffer(name, align(size_bytes), live, 0))
    choices = [plan.choice(op in moves).steps for op, plan in enumerate(search.ops)]
    blocks = [choices[op][position].blocks for steps in search.order for op, position in steps]
    return replace(
        schedule,
        buffers=tuple(buffers),
        blocks=tuple(blocks),
        transfers=tuple(transfers),
        cycles=search.cycles(moves),
    )
