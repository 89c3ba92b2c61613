"""The memory along the program: what TVM keeps between calls, and the scratch inside of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_ethosu.backend.html.data import Holding, MemoryChart, Moment, Piece
from tvm_ethosu.backend.html.operators import Group, Numbered, groups_of
from tvm_ethosu.backend.network import NpuFunction
from tvm_ethosu.backend.outcome import Compilation
from tvm_ethosu.partition import analyze_used_memory
from tvm_ethosu.partition.liveness import Role
from tvm_ethosu.partition.memory_report import CallReport, LiveTensor
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.plan import Buffer

_MOST_OPERATORS = 6

_HOLDINGS = {
    Role.INPUT: Holding.INPUT,
    Role.OUTPUT: Holding.OUTPUT,
    Role.INNER: Holding.TENSOR,
    Role.CONSTANT: Holding.TENSOR,
}


@dataclass(frozen=True)
class _Span:
    """The places ``[start, stop)`` of a call on the chart."""

    call: CallReport
    start: int
    stop: int


def memory_chart(compilation: Compilation, numbered: Numbered) -> MemoryChart:
    """Return what is in memory at each operator of the program."""
    network = compilation.network
    target = f"ethos-u/{network.options.accelerator_config}"
    report = analyze_used_memory(compilation.module, target=target)
    functions = {function.name: function for function in network.functions}
    groups = {name: groups_of(compilation.file, f) for name, f in functions.items()}
    spans, moments = [], list[Moment]()
    for call in report.calls:
        here = list(_moments(call, functions, groups, numbered))
        spans.append(_Span(call, len(moments), len(moments) + len(here)))
        moments += here
    pieces = [*_outside(spans), *_inside(spans, functions, groups)]
    limit = compilation.asked.sram_size
    return MemoryChart(tuple(moments), tuple(pieces), network.sram.total_bytes, limit)


def _moments(
    call: CallReport,
    functions: Mapping[str, NpuFunction],
    groups: Mapping[str, Sequence[Group]],
    numbered: Numbered,
) -> Iterator[Moment]:
    used = sum(tensor.aligned_bytes for tensor in (*call.live, *call.idle_io))
    if call.function not in functions:
        shown = ", ".join(call.operators[:_MOST_OPERATORS])
        more = ", …" if len(call.operators) > _MOST_OPERATORS else ""
        yield Moment(f"CPU: {shown}{more}", "CPU", used, 0)
        return
    scratch = functions[call.function].program.scratch_bytes
    for group in groups[call.function]:
        number = numbered.number_of[call.function, group.start]
        label = f"{number} {group.name or 'operator'} {short_origin(group.origin)}"
        yield Moment(label, call.function, used, scratch)


def _outside(spans: Sequence[_Span]) -> Iterator[Piece]:
    """Yield tensors that TVM keeps, piled above the scratch; neighbours of one height are one."""
    last: dict[tuple[str, int], Piece] = {}
    for span in spans:
        height = _scratch_bytes(span.call)
        idle = {id(tensor) for tensor in span.call.idle_io}
        for tensor in _piled(span.call):
            kept = " (kept for the caller, not in use here)" if id(tensor) in idle else ""
            before = last.get((tensor.name, height))
            if before is not None and before.stop == span.start and before.detail == kept:
                start = before.start
            else:
                if before is not None:
                    yield before
                start = span.start
            last[tensor.name, height] = Piece(
                short_origin(tensor.name),
                _HOLDINGS[tensor.role],
                start,
                span.stop,
                height,
                tensor.aligned_bytes,
                kept,
            )
            height += tensor.aligned_bytes
    yield from last.values()


def _piled(call: CallReport) -> list[LiveTensor]:
    """Return what is in memory beside the scratch, what the caller holds at the bottom."""
    order = (Role.INPUT, Role.OUTPUT, Role.INNER, Role.CONSTANT)
    found = [t for t in (*call.live, *call.idle_io) if t.role is not Role.SCRATCH]
    return sorted(found, key=lambda tensor: (order.index(tensor.role), tensor.name))


def _scratch_bytes(call: CallReport) -> int:
    return sum(tensor.aligned_bytes for tensor in call.live if tensor.role is Role.SCRATCH)


def _inside(
    spans: Sequence[_Span],
    functions: Mapping[str, NpuFunction],
    groups: Mapping[str, Sequence[Group]],
) -> Iterator[Piece]:
    """Yield the buffers in the scratch of each call, at their addresses."""
    for span in spans:
        if span.call.function not in functions:
            continue
        function = functions[span.call.function]
        places = _places(groups[function.name], span.start)
        lenders = _lenders(span.call, function)
        for buffer in function.allocation.schedule.buffers:
            piece = _piece(function, buffer, places)
            home = function.allocation.homes.get(buffer.tensor)
            if home is None:
                yield piece
            elif home in lenders:
                owner, base = lenders[home]
                detail = f"{piece.detail} (in the memory of {short_origin(owner)})"
                yield replace(piece, offset_bytes=base + piece.offset_bytes, detail=detail)


def _lenders(call: CallReport, function: NpuFunction) -> dict[str, tuple[str, int]]:
    """Return name and height of the tensors behind a function's inputs and outputs.

    The key is the name in the function's graph; what is no single tensor is left out.
    """
    heights: dict[str, int] = {}
    height = _scratch_bytes(call)
    for tensor in _piled(call):
        heights.setdefault(tensor.name, height)
        height += tensor.aligned_bytes
    graph = function.allocation.schedule.graph
    names = dict(zip(graph.inputs, call.arguments, strict=False))
    names |= {made: f"result of {call.function}.{at}" for at, made in enumerate(graph.outputs)}
    return {inner: (name, heights[name]) for inner, name in names.items() if name in heights}


def _places(groups: Sequence[Group], start: int) -> list[float]:
    """Return where each operator of an NPU graph begins on the chart, and where the last ends."""
    places = []
    for at, group in enumerate(groups, start=start):
        count = group.stop - group.start
        places += [at + part / count for part in range(count)]
    return [*places, float(start + len(groups))]


def _piece(function: NpuFunction, buffer: Buffer, places: Sequence[float]) -> Piece:
    allocation = function.allocation
    graph = allocation.schedule.graph
    where = places[buffer.live.start], places[buffer.live.stop]
    at = allocation.addresses[buffer.tensor]
    if not buffer.rows:
        index = next(t.op for t in allocation.schedule.transfers if t.buffer == buffer.tensor)
        name = short_origin(graph.ops[index].origin)
        return Piece(name, Holding.WEIGHTS, *where, at, buffer.size_bytes)
    tensor = graph.tensors[buffer.tensor]
    name = short_origin(tensor.origin) or tensor.name
    if buffer.rows >= tensor.shape.h:
        return Piece(name, Holding.FEATURE_MAP, *where, at, buffer.size_bytes)
    detail = f" ({buffer.rows} of {tensor.shape.h} rows)"
    return Piece(name, Holding.ROLLING, *where, at, buffer.size_bytes, detail)
