"""A partitioned Relay function as an NPU graph.

Before: ``fn (%x) { %0 = composite conv2d(%x); %1 = composite reshape(%0); composite dense(%1) }``
After:  two operators; the dense one reads the convolution's tensor under another shape.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
from tvm import relay

from tvm_ethosu.partition.lower import elementwise_shape, stored_shape, to_shape
from tvm_ethosu.partition.params import TensorType
from tvm_ethosu.partition.relay.parse import span_name, tensor_type
from tvm_ethosu.partition.rules import Rule, find_rule
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    DType,
    NpuGraph,
    NpuOp,
    Operand,
    Requantize,
    Shared,
    Tensor,
)
from tvm_ethosu.scheduler.verify import verify_graph


def composite_rule(call: relay.Expr) -> Rule | None:
    """Return the table row of a call of a composite function, or None for any other expression."""
    if not (isinstance(call, relay.Call) and isinstance(call.op, relay.Function)):
        return None
    attrs = call.op.attrs
    has_name = attrs is not None and "Composite" in attrs.keys()  # noqa: SIM118 (TVM's map)
    return find_rule(str(attrs["Composite"])) if has_name else None


def composite_calls(function: relay.Function) -> Iterator[tuple[relay.Call, Rule]]:
    """Yield the composite calls of a function, inputs before users."""
    for expr in post_order(function.body):
        rule = composite_rule(expr)
        if rule is not None:
            yield expr, rule


def children(expr: relay.Expr) -> list[relay.Expr]:
    """Return what an expression is made of; bodies of functions are not looked into."""
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Let):
        return [expr.value, expr.body]
    if isinstance(expr, relay.If):
        return [expr.cond, expr.true_branch, expr.false_branch]
    return []


def post_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """Yield each expression once, arguments first; without recursion, for deep networks."""
    done: set[relay.Expr] = set()
    stack = [(root, False)]
    while stack:
        expr, expanded = stack.pop()
        if expr in done:
            continue
        if expanded:
            done.add(expr)
            yield expr
        else:
            stack.append((expr, True))
            stack += [(child, False) for child in reversed(children(expr))]


def _variables(body: relay.Expr) -> Iterator[relay.Var]:
    """Yield a composite's variables in the order of operands; twice if used twice: add(x, x)."""
    if isinstance(body, relay.Var):
        yield body
    for child in children(body):
        yield from _variables(child)


class _GraphBuilder:
    """Collects tensors, constants and operators while the function is walked once."""

    def __init__(self, function: relay.Function, name: str) -> None:
        self.name = name
        self.ops: list[NpuOp] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Constant] = {}
        self.names: dict[relay.Expr, str] = {}
        self.origins: dict[relay.Expr, str] = {}
        for param in function.params:
            self.names[param] = self.add_tensor("in", tensor_type(param), str(param.name_hint))
        self.inputs = tuple(self.names[param] for param in function.params)

    def add_tensor(self, prefix: str, of: TensorType, origin: str) -> str:
        name = f"{prefix}{len(self.tensors)}"
        self.tensors[name] = Tensor(name, stored_shape(of.dims), DType(of.dtype), origin)
        return name

    def add_constant_tensor(self, expr: relay.Constant) -> None:
        name = self.add_tensor("const", tensor_type(expr), span_name(expr))
        shape = self.tensors[name].shape
        data = np.asarray(expr.data.numpy()).reshape(shape.n, shape.h, shape.w, shape.c)
        self.constants[name] = Constant(name, data)
        self.names[expr] = name

    def add_composite(self, call: relay.Call, rule: Rule) -> None:
        arguments = dict(zip(call.op.params, call.args, strict=True))
        sources = [self.names[arguments[var]] for var in _variables(call.op.body)]
        params = rule.parse(call.op.body)
        self.origins[call] = params.origin
        if rule.lower is None:
            self.names[call] = sources[0]
            return
        ofm = self.add_tensor("t", params.ofm, params.origin)
        op_name = f"op{len(self.ops)}_{rule.name.removeprefix('ethos-u.')}"
        lowered = rule.lower(params, op_name, sources, ofm)
        self.constants |= {constant.name: constant for constant in lowered.constants}
        self.tensors |= {tensor.name: tensor for tensor in lowered.tensors}
        self.ops += (*lowered.before, lowered.op)
        self.names[call] = ofm

    def add_copy(self, source: str, of: TensorType, origin: str) -> str:
        """Copy a tensor element by element; an output needs memory that is its own."""
        target = self.add_tensor("t", of, origin)
        dtype = DType(of.dtype)
        shape = elementwise_shape(to_shape(of.dims))
        if shape is None:
            raise InternalError(f"{self.name}: no way to copy {origin or source}, {of.dims}")
        copy = Requantize(
            f"op{len(self.ops)}_copy",
            Operand(source, shape, dtype),
            Operand(target, shape, dtype),
            Clamp(dtype.minimum, dtype.maximum),
            origin=origin,
        )
        self.ops.append(copy)
        return target

    def claim_outputs(self, exprs: list[relay.Expr]) -> tuple[str, ...]:
        claimed: list[str] = []
        for expr in exprs:
            name, origin = self.names[expr], self.origins.get(expr, "")
            if name in (*self.inputs, *self.constants, *claimed):
                name = self.add_copy(name, tensor_type(expr), origin)
            # The model's name of what is returned, which may be a view of what was computed.
            self.tensors[name] = replace(self.tensors[name], origin=origin)
            claimed.append(name)
        return tuple(claimed)


def _result_exprs(function: relay.Function, with_scratch: bool) -> list[relay.Expr]:
    body = function.body
    fields = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    return fields[:-1] if with_scratch else fields


def to_npu_graph(
    function: relay.Function,
    name: str,
    *,
    with_scratch: bool,
    disposable: Collection[int] = (),
    shared: tuple[int, int] | None = None,
) -> NpuGraph:
    """Return the NPU graph of a partitioned function.

    Args:
        function: its body consists of composite calls and a tuple of results; types are inferred.
        name: the function's global symbol.
        with_scratch: the last result is the scratch tensor and no result of the network.
        disposable: positions of the parameters whose memory may be overwritten.
        shared: positions of a parameter and of a result that lie in the same memory.

    Raises:
        InternalError: the function holds something that the partitioner never puts there.
    """
    builder = _GraphBuilder(function, name)
    results = _result_exprs(function, with_scratch)
    for root in results:
        for expr in post_order(root):
            if expr in builder.names:
                continue
            rule = composite_rule(expr)
            if rule is not None:
                builder.add_composite(expr, rule)
            elif isinstance(expr, relay.Constant):
                builder.add_constant_tensor(expr)
            else:
                raise InternalError(f"{name}: unexpected {type(expr).__name__} in an NPU function")
    outputs = builder.claim_outputs(results)
    graph = NpuGraph(
        name,
        tuple(builder.ops),
        builder.tensors,
        builder.constants,
        builder.inputs,
        outputs,
        frozenset(builder.inputs[position] for position in disposable),
        None if shared is None else Shared(builder.inputs[shared[0]], outputs[shared[1]]),
    )
    return verify_graph(graph)
