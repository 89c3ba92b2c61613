"""What a compile is reported as: plain data for JSON, tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from tvm_ethosu.backend.network import FirmwareNetwork
from tvm_ethosu.partition import Decision
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.dump import short_origin


@dataclass(frozen=True)
class OperatorRow:
    """One operator of the TFLite file and where it runs."""

    name: str
    origin: str
    npu_function: str | None
    reason: str


# The reason of an operator that is no more after the import: nothing runs it.
REMOVED = "TVM's importer removed it"


def operator_rows(file: TfliteFile, decisions: Sequence[Decision]) -> tuple[OperatorRow, ...]:
    """Return one row per operator of the file, in its order.

    TVM's importer turns an operator into several calls; it is on the CPU if any of them is.
    """
    by_origin: dict[str, list[Decision]] = {}
    for decision in decisions:
        by_origin.setdefault(decision.origin, []).append(decision)
    rows = []
    for operator in file.operators:
        origin = operator.outputs[0] if operator.outputs else ""
        found = [d for name in operator.outputs for d in by_origin.get(name, [])]
        on_cpu = [decision for decision in found if not decision.on_npu]
        if on_cpu:
            rows.append(OperatorRow(operator.name, origin, None, on_cpu[0].reason))
        elif found:
            rows.append(OperatorRow(operator.name, origin, found[0].npu_function, ""))
        else:
            rows.append(OperatorRow(operator.name, origin, None, REMOVED))
    return tuple(rows)


def compile_report(file: TfliteFile, network: FirmwareNetwork) -> dict[str, Any]:
    """Return the report of a compile as JSON data; the keys are described in docs/cli.md."""
    rows = operator_rows(file, network.decisions)
    return {
        "model": file.path.name,
        "accelerator": network.options.accelerator_config,
        "memory_mode": network.options.memory_mode,
        "system_config": network.options.system_config,
        "optimise": network.options.optimise,
        "sram_size": network.options.sram_size,
        "sram_bytes": network.sram.total_bytes,
        "pool_bytes": network.sram.pool_bytes,
        "io_bytes": network.sram.io_bytes,
        "one_buffer": [{"input": pair.input, "output": pair.output} for pair in network.shared],
        "npu_functions": [
            {
                "name": function.name,
                "used_memory_bytes": max(function.used_memory_bytes),
                "used_memory_per_call": list(function.used_memory_bytes),
                "budget_bytes": function.budget_bytes,
                "scratch_bytes": function.program.scratch_bytes,
                "macs": function.program.macs,
                "command_stream_bytes": function.program.command_stream_bytes,
                "weights_bytes": len(function.program.constants),
            }
            for function in network.functions
        ],
        "npu_operators": [
            {"name": row.name, "origin": row.origin, "npu_function": row.npu_function}
            for row in rows
            if row.npu_function is not None
        ],
        "cpu_operators": [
            {"name": row.name, "origin": row.origin, "reason": row.reason}
            for row in rows
            if row.npu_function is None
        ],
        "compile_seconds": round(network.compile_seconds, 3),
    }


def operator_table(rows: Sequence[OperatorRow]) -> Table:
    """Return the operators with where they run and why."""
    table = Table("#", "operator", "tensor", "runs on", "why not on the NPU", box=None)
    for index, row in enumerate(rows):
        place = "CPU" if row.npu_function is None else "NPU"
        table.add_row(str(index), row.name, short_origin(row.origin), place, row.reason)
    return table


def memory_table(report: dict[str, Any]) -> Table:
    """Return the SRAM of the network and of each call of an NPU function."""
    table = Table("SRAM", "bytes", box=None)
    table.columns[1].justify = "right"
    table.add_row("whole arena", f"{report['sram_bytes']}")
    table.add_row("  tensors and scratch (pool)", f"{report['pool_bytes']}")
    table.add_row("  network inputs and outputs", f"{report['io_bytes']}")
    for pair in report["one_buffer"]:
        table.add_row(f"    one buffer for {pair['input']} and {pair['output']}", "")
    for function in report["npu_functions"]:
        table.add_row(function["name"], "")
        for used in function["used_memory_per_call"]:
            table.add_row("  used_memory at its call", f"{used}")
        budget = function["budget_bytes"]
        table.add_row("  budget for its scratch", "no limit" if budget is None else f"{budget}")
        table.add_row("  scratch", f"{function['scratch_bytes']}")
    return table
