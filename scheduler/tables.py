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
    fused: set[str] = set()
    ops: list[NpuOp] = []
    for op in graph.ops:
        maker = next((i for i, made in enumerate(ops) if made.ofm.tensor == op.ifm.tensor), None)
        alone = readers[op.ifm.tensor] == 1 and op.ifm.tensor not in graph.outputs
        if maker is not None and alone and _can_be_fused(ops[maker], op):
            made = ops[maker]
            ofm = replace(made.ofm, tensor=op.ofm.tensor)
            ops[maker] = replace(made, ofm=ofm, table=op.table)
            fused.add(made.ofm.tensor)
        else:
            ops.append(op)
    if not fused:
        return graph
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in fused}
    return replace(graph, ops=tuple(ops), tensors=tensors)


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
