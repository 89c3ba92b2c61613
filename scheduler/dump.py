"""Text of graphs and schedules, for people and for golden tests."""

from __future__ import annotations

from tvm_ethosu.scheduler.ir import (
    Add,
    Conv2D,
    DepthwiseConv2D,
    ElementWise,
    Move,
    NpuGraph,
    NpuOp,
    Pool,
    Requantize,
    SumChannels,
    Tensor,
)


def short_origin(origin: str) -> str:
    """Return the last part of a name that converters joined of many with semicolons."""
    return origin.rsplit(";", 1)[-1]


def _signature(graph: NpuGraph, names: tuple[str, ...]) -> str:
    return ", ".join(_tensor_text(graph.tensors[name]) for name in names)


def _tensor_text(tensor: Tensor) -> str:
    return f"%{tensor.name}: {tensor.shape} {tensor.dtype.value}"


def _constant_text(graph: NpuGraph, name: str) -> str:
    data = graph.constants[name].data
    return f"@{name}[{'x'.join(map(str, data.shape))} {data.dtype}]"


def op_text(graph: NpuGraph, op: NpuOp) -> str:
    """Return one line for one operator: result, what it computes, its limits."""
    match op:
        case Conv2D() | DepthwiseConv2D():
            kind = "conv2d" if isinstance(op, Conv2D) else "depthwise_conv2d"
            first = op.rescale[0]
            detail = (
                f"{kind}({op.ifm}, {_constant_text(graph, op.weights)}, "
                f"{_constant_text(graph, op.bias)}) kernel={op.kernel} pad={op.padding} "
                f"rescale={first.multiplier}>>{first.shift}"
                + (f" (+{len(op.rescale) - 1} channels)" if len(set(op.rescale)) > 1 else "")
            )
        case Pool():
            detail = f"{op.kind.value}_pool({op.ifm}) kernel={op.kernel} pad={op.padding}"
        case Add():
            detail = f"add({op.ifm} scale={op.ifm.quant.scale:.6g}, {op.ifm2} "
            detail += f"scale={op.ifm2.quant.scale:.6g}) scale={op.ofm.quant.scale:.6g}"
        case Requantize():
            what = "requantize" if op.curve is None else op.curve.value
            detail = f"{what}({op.ifm} scale={op.ifm.quant.scale:.6g}) "
            detail += f"scale={op.ofm.quant.scale:.6g}"
        case ElementWise():
            operands = [str(operand) for operand in op.inputs]
            detail = f"{op.kind.value}({', '.join(operands[::-1] if op.swapped else operands)}) "
            factor = op.rescale
            scaling = "by scales" if factor is None else f"{factor.multiplier}>>{factor.shift}"
            detail += f"rescale={scaling} {op.rounding.value}"
        case SumChannels():
            detail = f"sum_channels({op.ifm})"
        case Move():
            detail = f"move({', '.join(map(str, op.inputs))}) parts={len(op.parts)}"
    table = f" table={_constant_text(graph, op.table)}" if op.table else ""
    return f"{op.ofm} = {detail} clamp={op.clamp}{table}"


def graph_text(graph: NpuGraph) -> str:
    """Return the whole graph: signature, one line per operator, what is returned."""
    head = f"npu @{graph.name}({_signature(graph, graph.inputs)})"
    lines = [f"{head} -> ({_signature(graph, graph.outputs)}) {{"]
    lines += [f"  {op_text(graph, op)}" for op in graph.ops]
    lines.append("}")
    return "\n".join(lines)
