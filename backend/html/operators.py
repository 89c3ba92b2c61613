"""One row per operator of the model, its parts on the NPU taken together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import add

from tvm_ethosu.backend.html.data import OperatorRow
from tvm_ethosu.backend.network import NpuFunction
from tvm_ethosu.backend.outcome import Compilation, utilisation
from tvm_ethosu.backend.report import REMOVED, operator_rows
from tvm_ethosu.backend.timing import FunctionTimes, StepTime, Traffic, constants_memory
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.ir import NpuOp
from tvm_ethosu.scheduler.plan import Schedule


@dataclass(frozen=True)
class Group:
    """Neighbouring operators ``[start, stop)`` of an NPU graph that are one in the model.

    ``file_index`` is that operator's place in the file; it and ``name`` are None where the file
    does not know the tensor.
    """

    function: str
    start: int
    stop: int
    origin: str
    file_index: int | None
    name: str | None


@dataclass(frozen=True)
class Numbered:
    """The rows in the order of execution, and the row of each group of each function."""

    rows: tuple[OperatorRow, ...]
    number_of: Mapping[tuple[str, int], int]


def groups_of(file: TfliteFile, function: NpuFunction) -> tuple[Group, ...]:
    """Return the operators of the model that a function holds, in its order."""
    known = {name: (i, op.name) for i, op in enumerate(file.operators) for name in op.outputs}
    graph = function.allocation.schedule.graph
    ops = enumerate(graph.ops)
    found = []
    for origin, members in groupby(ops, key=lambda pair: pair[1].origin):
        indices = [index for index, _ in members]
        place, name = known.get(origin, (None, None))
        last = graph.ops[indices[-1]]
        made = known.get(graph.tensors[last.ofm.tensor].origin, (place, name))
        if last.table and name and made[0] != place:
            # A function of single values is looked up by the operator that makes them.
            name = f"{name} + {made[1]}"
        found.append(Group(function.name, indices[0], indices[-1] + 1, origin, place, name))
    return tuple(found)


def cascade_segments(schedule: Schedule) -> tuple[int, ...]:
    """Return the positions of the segments that join operators of the graph."""
    return tuple(n for n, s in enumerate(schedule.segments) if s.stop - s.start > 1)


def cascade_numbers(functions: Sequence[NpuFunction]) -> dict[tuple[str, int], int]:
    """Return the number of each cascade, from 1 through all functions, by function and segment."""
    keys = [(f.name, n) for f in functions for n in cascade_segments(f.allocation.schedule)]
    return {key: number for number, key in enumerate(keys, start=1)}


def number_operators(compilation: Compilation, times: Mapping[str, FunctionTimes]) -> Numbered:
    """Return a row for each operator of the model, save for those that the importer removed."""
    file, network = compilation.file, compilation.network
    cascades = cascade_numbers(network.functions)
    unordered: list[tuple[tuple[int, int], tuple[str, int] | None, OperatorRow]] = []
    for row in operator_rows(file, network.decisions):
        if row.npu_function is None and row.reason != REMOVED:
            index = next(i for i, op in enumerate(file.operators) if row.origin in op.outputs)
            cpu = OperatorRow(0, row.name, short_origin(row.origin), reason=row.reason)
            unordered.append(((index, 0), None, cpu))
    for function in network.functions:
        # A function has an order of its own; the CPU's operators stand where the file has them.
        place = -1
        for group in groups_of(file, function):
            place = max(place, -1 if group.file_index is None else group.file_index)
            made = _npu_row(compilation, function, group, times[function.name], cascades)
            unordered.append(((place, 1), (function.name, group.start), made))
    unordered.sort(key=lambda entry: entry[0])
    rows = tuple(replace(row, number=n) for n, (_, _, row) in enumerate(unordered, start=1))
    keys = ((key, row) for (_, key, _), row in zip(unordered, rows, strict=True))
    return Numbered(rows, {key: row.number for key, row in keys if key is not None})


def _npu_row(
    compilation: Compilation,
    function: NpuFunction,
    group: Group,
    times: FunctionTimes,
    cascades: Mapping[tuple[str, int], int],
) -> OperatorRow:
    schedule, calls = function.allocation.schedule, len(function.used_memory_bytes)
    ops = schedule.graph.ops[group.start : group.stop]
    own = [t for t in times.steps if group.start <= t.step.op < group.stop]
    moved = [t for t in times.transfers if group.start <= t.op < group.stop]
    cycles, macs = sum(time.cycles for time in own), sum(op.macs for op in ops)
    ifm, ofm = ops[0].ifm, ops[-1].ofm
    bytes_moved = [*(t.traffic for t in own), *(t.traffic for t in moved)]
    accelerator = compilation.asked.accelerator_config
    return OperatorRow(
        number=0,
        name=group.name or _kind(ops[-1]),
        tensor=short_origin(group.origin),
        function=function.name,
        parts=len(ops),
        kernels=len(own),
        cascade=cascades.get((function.name, schedule.segment_of[group.stop - 1])),
        stripe_rows=_stripe_rows(schedule, group.stop - 1),
        ifm=f"{ifm.shape.h}×{ifm.shape.w}×{ifm.shape.c}",
        ofm=f"{ofm.shape.h}×{ofm.shape.w}×{ofm.shape.c}",
        layouts=(
            schedule.layouts.by_tensor[ifm.tensor].value,
            schedule.layouts.by_tensor[ofm.tensor].value,
        ),
        block=_block(schedule, group),
        cycles=calls * cycles,
        macs=calls * macs,
        utilisation=utilisation(macs, cycles, accelerator),
        traffic=reduce(add, calls * bytes_moved, Traffic()),
        limited_by=_limit(own, constants_memory(compilation.network.options)),
        weights_bytes=_weights_bytes(own),
        weights_moved=bool(moved),
    )


def _kind(op: NpuOp) -> str:
    """Return a word for an operator that the file does not have."""
    return type(op).__name__.upper()


def _stripe_rows(schedule: Schedule, op: int) -> int | None:
    """Return how many rows an operator makes at a time, or None if it makes all at once."""
    rows = [step.rows.height for step in schedule.steps if step.op == op]
    return max(rows) if len(rows) > 1 else None


def _block(schedule: Schedule, group: Group) -> str:
    """Return the block config of what takes longest."""
    pairs = zip(schedule.steps, schedule.timed, strict=True)
    own = [timed for step, timed in pairs if group.start <= step.op < group.stop]
    return str(max(own, key=lambda timed: timed.cycles).blocks[0])


def _limit(times: Sequence[StepTime], constants: str) -> str:
    """Return what an operator waits for during most of its cycles."""
    waits: dict[str, float] = {}
    for time in times:
        needs = {
            "NPU": time.npu_cycles,
            "SRAM": time.sram_cycles,
            constants: time.constants_cycles,
        }
        slowest = max(needs, key=lambda name: needs[name])
        waits[slowest] = waits.get(slowest, 0.0) + time.cycles
    return max(waits, key=lambda name: waits[name], default="")


def _weights_bytes(times: Sequence[StepTime]) -> int:
    """Return the encoded bytes of weights and scales; all stripes of an operator read the same."""
    sizes: dict[int, int] = {}
    for time in times:
        sizes[time.step.op] = max(sizes.get(time.step.op, 0), time.parameters_bytes)
    return sum(sizes.values())
