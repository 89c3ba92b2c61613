"""A rough cost of an NPU operation, to compare plans of one graph with each other."""

from __future__ import annotations

from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, NpuGraph
from tvm_ethosu.scheduler.stripes import Step, input_rows

# In cycles: what a byte of weights costs from flash (an eighth of the SRAM's bandwidth, as in
# Vela's Ethos_U55_High_End_Embedded), eight bytes of feature map, and the start of an operation.
_CYCLES_PER_WEIGHT = 1
_BYTES_PER_CYCLE = 8
_START_CYCLES = 64
_MACS_PER_CYCLE = 64


def step_cycles(graph: NpuGraph, step: Step) -> int:
    """Return about how long a step takes: its slowest part and its start.

    Every step reads all weights of its operator, which is what makes many stripes slow.
    """
    op = graph.ops[step.op]
    ofm = op.ofm.shape
    moved = step.rows.count * ofm.w * ofm.c
    for operand in op.inputs:
        moved += input_rows(op, operand, step.rows).count * operand.shape.w * operand.shape.c
    weights = 0
    if isinstance(op, Conv2D | DepthwiseConv2D):
        weights = graph.constants[op.weights].data.size
    macs = op.macs * step.rows.count // ofm.h
    slowest = max(moved // _BYTES_PER_CYCLE, weights * _CYCLES_PER_WEIGHT, macs // _MACS_PER_CYCLE)
    return slowest + _START_CYCLES
