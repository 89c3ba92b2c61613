"""The names in the model of what NPU functions read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import tvm
from tvm import relay

from tvm_ethosu.partition.relay.attrs import FunctionTensors, read_attrs
from tvm_ethosu.partition.relay.legalize import post_order
from tvm_ethosu.partition.relay.parse import call_name, span_name
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import NpuGraph


@dataclass(frozen=True)
class SharedTensors:
    """An input and an output of the network for which the program passes one buffer."""

    input: str
    output: str


def _source_name(expr: relay.Expr, outputs: dict[str, tuple[str, ...]]) -> str | None:
    """Return the name in the model of the tensor that main hands to an NPU function."""
    if isinstance(expr, relay.Var):
        return str(expr.name_hint)
    if isinstance(expr, relay.TupleGetItem):
        call = expr.tuple_value
        of_npu = isinstance(call, relay.Call) and isinstance(call.op, relay.GlobalVar)
        return outputs[call.op.name_hint][expr.index] if of_npu else None
    if call_name(expr) == "annotation.stop_fusion":
        return _source_name(expr.args[0], outputs)
    return span_name(expr) or None


def find_tensors(
    module: tvm.IRModule, graphs: Mapping[str, NpuGraph]
) -> dict[str, FunctionTensors]:
    """Return the names in the model of the tensors that each NPU function touches.

    ``graphs`` has the functions by name; those that main does not call are left out.
    """
    outputs = {
        name: tuple(graph.tensors[output].origin for output in graph.outputs)
        for name, graph in graphs.items()
    }
    found: dict[str, FunctionTensors] = {}
    for expr in post_order(module["main"].body):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            name = str(expr.op.name_hint)
            if name in outputs:
                inputs = tuple(_source_name(arg, outputs) for arg in expr.args)
                found[name] = FunctionTensors(inputs, outputs[name])
    return found


def function_tensors(module: tvm.IRModule) -> dict[str, FunctionTensors]:
    """Return for each NPU function the names in the model of the tensors that it touches."""
    return {name: read_attrs(one).tensors for name, one in npu_functions(module).items()}


def with_input_names(graph: NpuGraph, tensors: FunctionTensors) -> NpuGraph:
    """Return the graph whose inputs have their names in the model, where they have one."""
    named = {
        key: replace(graph.tensors[key], origin=name)
        for key, name in zip(graph.inputs, tensors.inputs, strict=True)
        if name is not None
    }
    return replace(graph, tensors={**graph.tensors, **named})


def shared_tensors(module: tvm.IRModule, function: str, shared: tuple[int, int]) -> SharedTensors:
    """Return the names of an input and an output that lie in one piece of memory.

    ``shared`` has their positions among the function's parameters and results.

    Raises:
        InternalError: nothing in main is called so.
    """
    tensors = function_tensors(module).get(function)
    given = None if tensors is None else tensors.inputs[shared[0]]
    if tensors is None or given is None:
        raise InternalError(f"{function}: the input that shares its memory has no name")
    return SharedTensors(given, tensors.outputs[shared[1]])
