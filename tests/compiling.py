"""Graphs planned and emitted for real accelerators, without TVM."""

from __future__ import annotations

from tvm_ethosu.backend.emit import emit_program
from tvm_ethosu.backend.parameters import Encoder
from tvm_ethosu.backend.program import Program
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import Arch
from tvm_ethosu.scheduler.compile import schedule
from tvm_ethosu.scheduler.hardware import make_target
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.ports import Hardware
from tvm_ethosu.scheduler.search import Objective


def hardware(arch: Arch) -> Hardware:
    """Return an accelerator in its usual system, with Vela's encoder."""
    return Hardware(make_target(arch, None), Encoder(arch))


def plan(
    graph: NpuGraph,
    arch: Arch,
    budget_bytes: int | None = None,
    objective: Objective = Objective.PERFORMANCE,
) -> Allocation:
    """Return the graph's plan for an accelerator."""
    return schedule(graph, budget_bytes, hardware(arch), objective)


def emit(allocation: Allocation, arch: Arch) -> Program:
    """Return the program of a plan for the same accelerator."""
    return emit_program(allocation, Encoder(arch))


def compile_graph(
    graph: NpuGraph,
    arch: Arch,
    budget_bytes: int | None = None,
    objective: Objective = Objective.PERFORMANCE,
) -> Program:
    """Return the graph's program for an accelerator."""
    return emit(plan(graph, arch, budget_bytes, objective), arch)
