"""All that the page shows, gathered from a compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_ethosu.backend.html.cascades import cascades_of
from tvm_ethosu.backend.html.data import FunctionSummary, ReportData, Variant
from tvm_ethosu.backend.html.memory import memory_chart
from tvm_ethosu.backend.html.operators import groups_of, number_operators
from tvm_ethosu.backend.network import NpuFunction
from tvm_ethosu.backend.outcome import Compilation, compile_or_least, outcome_of
from tvm_ethosu.backend.report import REMOVED, operator_rows
from tvm_ethosu.backend.timing import (
    FunctionTimes,
    constants_memory,
    core_clock_hz,
    function_times,
)
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.errors import EthosUError, InternalError


def gather(compilation: Compilation, variants: Sequence[Variant] = ()) -> ReportData:
    """Return what is known of a compilation, and of others to compare it with."""
    file, network = compilation.file, compilation.network
    times = {f.name: function_times(f, network.options) for f in network.functions}
    numbered = number_operators(compilation, times)
    rows = operator_rows(file, network.decisions)
    return ReportData(
        model=file.path.name,
        options=compilation.asked,
        outcome=outcome_of(compilation),
        pool_bytes=network.sram.pool_bytes,
        io_bytes=network.sram.io_bytes,
        constants_memory=constants_memory(network.options),
        core_clock_hz=core_clock_hz(network.options),
        removed_operators=sum(row.reason == REMOVED for row in rows),
        operators=numbered.rows,
        functions=tuple(_summary(file, f, times) for f in network.functions),
        cascades=cascades_of(compilation, times, numbered),
        memory=memory_chart(compilation, numbered),
        variants=tuple(variants),
    )


def _summary(
    file: TfliteFile, function: NpuFunction, times: Mapping[str, FunctionTimes]
) -> FunctionSummary:
    calls, own = len(function.used_memory_bytes), times[function.name]
    busy = sum(step.cycles for step in own.steps)
    return FunctionSummary(
        function.name,
        calls,
        len(groups_of(file, function)),
        function.program.scratch_bytes,
        function.budget_bytes,
        len(function.allocation.homes),
        calls * own.cycles,
        calls * max(own.cycles - busy, 0.0),
    )


def variant(file: TfliteFile, label: str, options: EthosUOptions) -> Variant:
    """Compile a network otherwise; a refusal is a result too.

    Raises:
        InternalError: something that should not happen.
    """
    try:
        outcome = outcome_of(compile_or_least(file, options))
    except InternalError:
        raise
    except EthosUError as error:
        return Variant(label, None, str(error))
    return Variant(label, outcome, outcome.refusal)
