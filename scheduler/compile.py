"""From a graph and a budget to addresses: the one entry point of this package."""

from __future__ import annotations

from tvm_ethosu.scheduler.allocate import Allocation, allocate, peak_operator
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.errors import Infeasible
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.plan import plan_whole_tensors
from tvm_ethosu.scheduler.verify import verify_graph


def schedule(graph: NpuGraph, budget_bytes: int | None) -> Allocation:
    """Plan the graph within ``budget_bytes`` of scratch (None: no limit).

    Raises:
        Infeasible: the scratch needs more; the message names the operator at the peak and what
            it holds.
        InternalError: the graph breaks an invariant of ``verify_graph``.
    """
    allocation = allocate(plan_whole_tensors(verify_graph(graph)))
    if budget_bytes is not None and allocation.scratch_bytes > budget_bytes:
        raise _infeasible(allocation, budget_bytes)
    return allocation


def _infeasible(allocation: Allocation, budget_bytes: int) -> Infeasible:
    graph = allocation.schedule.graph
    excess = allocation.scratch_bytes - budget_bytes
    text = (
        f"{graph.name}: scratch memory does not fit (needs {allocation.scratch_bytes} bytes, "
        f"{max(budget_bytes, 0)} bytes are left for it, {excess} bytes too few)"
    )
    if allocation.schedule.buffers:
        index, buffers = peak_operator(allocation)
        held = ", ".join(
            f"{graph.tensors[b.tensor].shape} {graph.tensors[b.tensor].dtype.value} "
            f"({b.size_bytes} bytes)"
            for b in buffers
        )
        operator = short_origin(graph.ops[index].origin)
        text += f"; most is in use at operator '{operator}', which holds {held}"
    return Infeasible(
        text, required_bytes=allocation.scratch_bytes, available_bytes=max(budget_bytes, 0)
    )
