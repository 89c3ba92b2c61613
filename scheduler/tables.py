"""Tables looked up by the operator that makes their argument, instead of by one of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvm_ethosu.scheduler.ir import (
    Add,
    Conv2D,
    DepthwiseConv2D,
    DType,
    NpuGraph,
    NpuOp,
    Pool,
    Requantize,
)

_Makers = Conv2D | DepthwiseConv2D | Pool | Add


def fuse_tables(graph: NpuGraph) -> NpuGraph:
    """Return the graph in which int8 results that only a table reads are looked up at once.

    Before: ``a = conv(x)``, ``b = table[a]``
    After:  ``b = table[conv(x)]``
    """
    readers = Counter(operand.tensor for op in graph.ops for operand in op.inputs)
    # By the tensor that they write, in order: what looks up takes the place of what it reads.
    ops: dict[str, NpuOp] = {}
    looked_up: dict[str, NpuOp] = {}
    for op in graph.ops:
        maker = ops.get(op.ifm.tensor)
        alone = readers[op.ifm.tensor] == 1 and op.ifm.tensor not in graph.outputs
        if maker is not None and alone and _can_be_fused(maker, op):
            looked_up[op.ifm.tensor] = op
        else:
            ops[op.ofm.tensor] = op
    if not looked_up:
        return graph
    made = (_with_table(op, looked_up.get(name)) for name, op in ops.items())
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in looked_up}
    return replace(graph, ops=tuple(made), tensors=tensors)


def _with_table(op: NpuOp, table: NpuOp | None) -> NpuOp:
    if table is None:
        return op
    return replace(op, ofm=replace(op.ofm, tensor=table.ofm.tensor), table=table.table)


def _can_be_fused(maker: NpuOp, table: NpuOp) -> bool:
    """Return whether an operator only looks up the very bytes that another one makes."""
    return (
        isinstance(maker, _Makers)
        and not maker.table
        and isinstance(table, Requantize)
        and bool(table.table)
        and table.ifm.quant == table.ofm.quant
        and (table.clamp.minimum, table.clamp.maximum) == (DType.I8.minimum, DType.I8.maximum)
        and {maker.ofm.dtype, table.ifm.dtype, table.ofm.dtype} == {DType.I8}
        and maker.ofm.shape == table.ifm.shape == table.ofm.shape
    )
