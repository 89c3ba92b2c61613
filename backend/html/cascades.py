"""The cascades of a network: which rows each of their operators makes, and when."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_ethosu.backend.html.data import Cascade, Lane, Stripe
from tvm_ethosu.backend.html.operators import Numbered, cascade_numbers, groups_of
from tvm_ethosu.backend.network import NpuFunction
from tvm_ethosu.backend.outcome import Compilation
from tvm_ethosu.backend.timing import FunctionTimes
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.plan import Segment


def cascades_of(
    compilation: Compilation, times: Mapping[str, FunctionTimes], numbered: Numbered
) -> tuple[Cascade, ...]:
    """Return the cascades of all NPU functions, in the order of execution."""
    functions = {function.name: function for function in compilation.network.functions}
    return tuple(
        _cascade(compilation.file, functions[name], segment, number, times[name], numbered)
        for (name, segment), number in cascade_numbers(compilation.network.functions).items()
    )


def _cascade(
    file: TfliteFile,
    function: NpuFunction,
    segment: int,
    number: int,
    times: FunctionTimes,
    numbered: Numbered,
) -> Cascade:
    cut = function.allocation.schedule.segments[segment]
    rows = [
        numbered.number_of[function.name, group.start]
        for group in groups_of(file, function)
        if group.start < cut.stop and cut.start < group.stop
    ]
    names = {
        index: group.name or "?"
        for group in groups_of(file, function)
        for index in range(group.start, group.stop)
    }
    lanes = tuple(
        _lane(function, index, names[index], times) for index in range(cut.start, cut.stop)
    )
    return Cascade(number, function.name, min(rows), max(rows), _stripe_rows(cut, lanes), lanes)


def _stripe_rows(cut: Segment, lanes: tuple[Lane, ...]) -> int:
    """Return the rows of the result at a time; a result of fewer rows is made at once."""
    return min(cut.stripe_rows, lanes[-1].height)


def _lane(function: NpuFunction, index: int, name: str, times: FunctionTimes) -> Lane:
    schedule = function.allocation.schedule
    op, tensors = schedule.graph.ops[index], schedule.graph.tensors
    stripes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for time in times.steps:
        if time.step.op == index:
            rows = time.step.rows
            stripes.setdefault((rows.start, rows.stop), []).append((time.start, time.end))
    held = {buffer.tensor: buffer.size_bytes for buffer in schedule.buffers}
    whole = tensors[op.ofm.tensor].size_bytes
    return Lane(
        name,
        short_origin(op.origin),
        op.ofm.shape.h,
        tuple(
            Stripe(first, stop, spans[0][0], spans[-1][1])
            for (first, stop), spans in stripes.items()
        ),
        whole,
        held.get(op.ofm.tensor, whole),
    )
