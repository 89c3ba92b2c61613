"""A program in A-normal form as a list of bindings, and its values as storages.

Before: ``let %f = fn(..) {..}; let %a = %f(%x); let %t = (%a, %x); let %b = %t.0; %b``
After:  one call of ``%f`` that reads the storage of ``%x`` and makes that of ``%a``; ``%b`` is
        another name for the latter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import tvm
from tvm import relay

from tvm_ethosu.partition.liveness import Role, Step, Storage
from tvm_ethosu.partition.relay.attrs import SCRATCH_BYTES
from tvm_ethosu.partition.relay.parse import call_name, span_name
from tvm_ethosu.scheduler.errors import UserError

_CONTROL_FLOW = (relay.If, relay.Match, relay.RefCreate, relay.RefRead, relay.RefWrite)


def strip_on_device(expr: relay.Expr) -> relay.Expr:
    """Take off the ``on_device`` wrappers that the device planner puts around values."""
    while call_name(expr) == "on_device":
        expr = expr.args[0]
    return expr


@dataclass(frozen=True)
class Binding:
    """One ``let``: the variable and its value without ``on_device``."""

    var: relay.Var
    value: relay.Expr


@dataclass(frozen=True)
class LetChain:
    """The body of a function in A-normal form."""

    params: tuple[relay.Var, ...]
    bindings: tuple[Binding, ...]
    result: relay.Expr


def read_chain(mod: tvm.IRModule) -> LetChain:
    """Return the body of main as a chain.

    Raises:
        UserError: there is control flow, or a call of something that is no primitive function.
    """
    main = mod["main"]
    bindings = []
    body = strip_on_device(main.body)
    while isinstance(body, relay.Let):
        value = strip_on_device(body.value)
        _check_value(value, mod)
        bindings.append(Binding(body.var, value))
        body = strip_on_device(body.body)
    _check_value(body, mod)
    return LetChain(tuple(main.params), tuple(bindings), body)


def _check_value(value: relay.Expr, mod: tvm.IRModule) -> None:
    if isinstance(value, _CONTROL_FLOW):
        raise UserError(
            f"used_memory: control flow has no fixed memory (found {type(value).__name__} at "
            f"'{span_name(value) or 'an unnamed expression'}'); analyse its branches as modules of "
            "their own"
        )
    is_global = isinstance(value, relay.Call) and isinstance(value.op, relay.GlobalVar)
    if is_global and not _is_primitive(mod[value.op]):
        raise UserError(
            f"used_memory: a call of @{value.op.name_hint} has no fixed memory unless it is "
            "inlined; give that function the attribute Inline, or remove the recursion"
        )
    if isinstance(value, relay.Function) and not _is_primitive(value):
        raise UserError(
            "used_memory: a function inside of main is no primitive function; fuse operators "
            "first (relay.transform.FuseOps), or pass the module before it was taken apart"
        )


def _is_primitive(function: relay.Function) -> bool:
    attrs = function.attrs
    return attrs is not None and bool(dict(attrs.items()).get("Primitive", 0))


def tensor_types(of: tvm.ir.Type, where: str) -> list[relay.TensorType]:
    """Return the tensors of a type, tuples taken apart.

    Raises:
        UserError: a shape is dynamic.
    """
    if isinstance(of, relay.TupleType):
        return [tensor for item in of.fields for tensor in tensor_types(item, where)]
    if not isinstance(of, relay.TensorType):
        return []
    if not all(isinstance(dim, tvm.tir.IntImm) for dim in of.shape):
        shape = ", ".join(str(dim) for dim in of.shape)
        raise UserError(
            f"a dynamic shape has no fixed size in memory ({where} is ({shape})); make shapes "
            "static first (relay.transform.DynamicToStatic, or fixed input shapes)"
        )
    return [of]


def tensor_bytes(of: relay.TensorType) -> int:
    """Return the raw bytes of a tensor; a bool takes a byte."""
    element = tvm.DataType(of.dtype)
    elements = 1
    for dim in of.shape:
        elements *= int(dim)
    return elements * -(-int(element.bits * element.lanes) // 8)


def type_bytes(of: tvm.ir.Type, where: str) -> int:
    """Return the raw bytes of a type, the way TVM's pass adds them up: fields of tuples summed."""
    return sum(tensor_bytes(tensor) for tensor in tensor_types(of, where))


def free_vars(expr: relay.Expr) -> Iterator[relay.Var]:
    """Yield the variables that an atomic value or call refers to, its callee included."""
    expr = strip_on_device(expr)
    if isinstance(expr, relay.Var):
        yield expr
    elif isinstance(expr, relay.Call):
        yield from free_vars(expr.op)
        for arg in expr.args:
            yield from free_vars(arg)
    elif isinstance(expr, relay.Tuple):
        for item in expr.fields:
            yield from free_vars(item)
    elif isinstance(expr, relay.TupleGetItem):
        yield from free_vars(expr.tuple_value)


@dataclass(frozen=True)
class Call:
    """A call of a primitive function: at which step, and where its binding stands.

    ``step`` is None for a call that only gives its input another shape: nothing runs.
    """

    step: int | None
    binding: int
    function: relay.Function
    name: str


class Storages:
    """The storages of a chain, filled while it is walked once.

    ``of`` maps expressions to the indices in ``all`` of the storages that they show.
    """

    def __init__(self) -> None:
        self.all: list[Storage] = []
        self.of: dict[relay.Expr, tuple[int, ...]] = {}
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.functions: dict[relay.Var, relay.Function] = {}

    def make(self, expr: relay.Expr, name: str, role: Role) -> tuple[int, ...]:
        """Add a storage for each tensor of the expression's type."""
        tensors = tensor_types(expr.checked_type, f"'{name}'")
        first = len(self.all)
        for index, tensor in enumerate(tensors):
            label = name if len(tensors) == 1 else f"{name}.{index}"
            shape = tuple(int(dim) for dim in tensor.shape)
            self.all.append(Storage(label, shape, str(tensor.dtype), tensor_bytes(tensor), role))
        self.of[expr] = tuple(range(first, len(self.all)))
        return self.of[expr]

    def read(self, expr: relay.Expr) -> tuple[int, ...]:
        """Return the storages that an atomic expression shows."""
        expr = strip_on_device(expr)
        if expr in self.of:
            return self.of[expr]
        if isinstance(expr, relay.Tuple):
            return tuple(index for item in expr.fields for index in self.read(item))
        if isinstance(expr, relay.TupleGetItem):
            return self._field(expr)
        if isinstance(expr, relay.Constant):
            return self.make(expr, span_name(expr) or "constant", Role.CONSTANT)
        return ()

    def _field(self, expr: relay.TupleGetItem) -> tuple[int, ...]:
        whole = self.read(expr.tuple_value)
        fields = expr.tuple_value.checked_type.fields
        counts = [len(tensor_types(item, "a tuple field")) for item in fields]
        start = sum(counts[: expr.index])
        return whole[start : start + counts[expr.index]]


def function_operators(function: relay.Function) -> tuple[str, ...]:
    """Return the operators that a primitive function computes, inputs before users."""
    names: list[str] = []

    def visit(expr: relay.Expr) -> None:
        name = call_name(expr)
        if name:
            names.append(name)

    relay.analysis.post_order_visit(function.body, visit)
    return tuple(names)


def _only_reshapes(function: relay.Function) -> bool:
    """Return whether TVM runs the function by giving its input another shape."""
    return bool(dict(function.attrs.items()).get("relay.reshape_only", 0))


def function_name(function: relay.Function) -> str:
    """Return a readable name: the symbol of an NPU function, else its operators."""
    attrs = dict(function.attrs.items())
    if "global_symbol" in attrs:
        return str(attrs["global_symbol"])
    return "fused_" + "_".join(
        name.removeprefix("nn.").removeprefix("qnn.") for name in function_operators(function)
    )


def read_storages(chain: LetChain) -> Storages:
    """Walk a chain once and return its storages, calls and steps."""
    found = Storages()
    for param in chain.params:
        found.make(param, str(param.name_hint), Role.INPUT)
    for index, binding in enumerate(chain.bindings):
        _read_binding(found, index, binding)
    return found


def _read_binding(found: Storages, index: int, binding: Binding) -> None:
    value = binding.value
    if isinstance(value, relay.Function):
        found.functions[binding.var] = value
        return
    if isinstance(value, relay.Var) and value in found.functions:
        found.functions[binding.var] = found.functions[value]
        return
    if isinstance(value, relay.Constant):
        found.make(binding.var, span_name(value) or "constant", Role.CONSTANT)
        return
    if not isinstance(value, relay.Call):
        found.of[binding.var] = found.read(value)
        return
    reads = tuple(index for arg in value.args for index in found.read(arg))
    function = _callee(found, value)
    if function is not None and _only_reshapes(function) and len(value.args) == 1:
        found.of[binding.var] = reads
        found.calls.append(Call(None, index, function, function_name(function)))
        return
    makes = _make_results(found, binding, function)
    found.steps.append(Step(frozenset(reads), frozenset(makes)))
    if function is not None:
        found.calls.append(Call(len(found.steps) - 1, index, function, function_name(function)))


def _make_results(
    found: Storages, binding: Binding, function: relay.Function | None
) -> tuple[int, ...]:
    """Add the storages that a call makes; the last one of an NPU function is its scratch."""
    name = span_name(binding.value)
    if not name and function is not None:
        name = f"result of {function_name(function)}"
    makes = found.make(binding.var, name or str(binding.var.name_hint), Role.INNER)
    if function is not None and SCRATCH_BYTES in dict(function.attrs.items()):
        last = makes[-1]
        label = f"scratch of {function_name(function)}"
        found.all[last] = replace(found.all[last], name=label, role=Role.SCRATCH)
    return makes


def _callee(found: Storages, call: relay.Call) -> relay.Function | None:
    op = strip_on_device(call.op)
    return op if isinstance(op, relay.Function) else found.functions.get(op)
