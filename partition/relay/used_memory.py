"""TVM's ``used_memory`` for each call of an NPU function.

The AOT executor runs AnnotateUsedMemory on the optimised program in A-normal form. Here the same
passes run on a copy, so that the numbers are known before the program is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relay

from tvm_ethosu.scheduler.budget import CallSite

COMPILER = "ethos-u"


def _annotate(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Bring a module into the form that the AOT executor annotates, and annotate it."""
    optimised, _ = relay.optimize(mod, target=target)
    annotate = tvm.get_global_func("relay._transform.AnnotateUsedMemory")()
    passes = [relay.transform.ToANormalForm(), relay.transform.InferType(), annotate]
    return tvm.transform.Sequential(passes)(optimised)


def type_size_bytes(of: tvm.ir.Type) -> int:
    """Return the raw bytes of a tensor or of all fields of a tuple."""
    if isinstance(of, relay.TupleType):
        return sum(type_size_bytes(field) for field in of.fields)
    element = tvm.DataType(of.dtype)
    elements = math.prod(int(dim) for dim in of.shape)
    return elements * int(element.bits * element.lanes) // 8


@dataclass(frozen=True)
class _Binding:
    """One ``let`` of the main function."""

    var: relay.Var
    value: relay.Expr


def _bindings(main: relay.Function) -> Iterator[_Binding]:
    body = main.body
    while isinstance(body, relay.Let):
        yield _Binding(body.var, body.value)
        body = body.body


def _result(main: relay.Function) -> relay.Expr:
    body = main.body
    while isinstance(body, relay.Let):
        body = body.body
    return body


def _strip(expr: relay.Expr) -> relay.Expr:
    """Take off the ``on_device`` wrappers that the device planner puts around values."""
    while isinstance(expr, relay.Call) and getattr(expr.op, "name", "") == "on_device":
        expr = expr.args[0]
    return expr


def _vars(expr: relay.Expr) -> set[relay.Var]:
    expr = _strip(expr)
    if isinstance(expr, relay.Var):
        return {expr}
    if isinstance(expr, relay.Call):
        return set().union(*(_vars(arg) for arg in expr.args))
    if isinstance(expr, relay.Tuple):
        return set().union(*(_vars(field) for field in expr.fields))
    if isinstance(expr, relay.TupleGetItem):
        return _vars(expr.tuple_value)
    return set()


def _resolve(expr: relay.Expr, values: dict[relay.Var, relay.Expr]) -> relay.Expr:
    """Follow variables that only rename another one (A-normal form makes such)."""
    while isinstance(values.get(expr), relay.Var):
        expr = values[expr]
    return expr


def _outputs(main: relay.Function, values: dict[relay.Var, relay.Expr]) -> list[relay.Expr]:
    """Return the network's outputs one by one, also when ``main`` returns a variable of a tuple."""
    result = _resolve(_strip(_result(main)), values)
    value = values.get(result, result)
    return list(value.fields) if isinstance(value, relay.Tuple) else [result]


def _computed_by(var: relay.Expr, values: dict[relay.Var, relay.Expr]) -> relay.Expr:
    """Return the variable of the call that a variable is a field of, or the variable itself."""
    var = _resolve(_strip(var), values)
    while isinstance(values.get(var), relay.TupleGetItem):
        var = _resolve(_strip(values[var].tuple_value), values)
    return var


def _idle_io_bytes(main: relay.Function, bindings: list[_Binding], at: int) -> int:
    """Return the bytes of network inputs last read before, and of outputs written after, a call."""
    values = {binding.var: _strip(binding.value) for binding in bindings}
    read_later = set().union(*(_vars(b.value) for b in bindings[at:]), _vars(_result(main)))
    idle = sum(type_size_bytes(p.checked_type) for p in main.params if p not in read_later)
    written = {binding.var for binding in bindings[: at + 1]} | set(main.params)
    return idle + sum(
        type_size_bytes(output.checked_type)
        for output in _outputs(main, values)
        if _computed_by(output, values) not in written
    )


def _stub(function: relay.Function) -> relay.Function:
    """Return the function with a body of the same type that costs TVM's passes nothing."""
    result = function.checked_type.ret_type

    def zeros(of: tvm.ir.Type) -> relay.Expr:
        if isinstance(of, relay.TupleType):
            return relay.Tuple([zeros(field) for field in of.fields])
        return relay.op.zeros(of.shape, of.dtype)

    return relay.Function(function.params, zeros(result), result, [], function.attrs)


def _with_stubs(mod: tvm.IRModule) -> tvm.IRModule:
    stubs = {
        var: _stub(function) if is_npu_function(function) else function
        for var, function in mod.functions.items()
    }
    return relay.transform.InferType()(tvm.IRModule(stubs, attrs=mod.attrs))


def learn_call_sites(
    mod: tvm.IRModule, target: tvm.target.Target
) -> dict[str, tuple[CallSite, ...]]:
    """Return for each NPU function, by global symbol, what TVM says of each of its calls.

    The module is not changed. ``target`` is what the CPU's part will be built for; its operators
    are fused accordingly.
    """
    main = _annotate(_with_stubs(mod), target)["main"]
    bindings = list(_bindings(main))
    functions = {
        b.var: value
        for b in bindings
        if isinstance(value := _strip(b.value), relay.Function) and is_npu_function(value)
    }
    sites: dict[str, list[CallSite]] = {}
    for at, binding in enumerate(bindings):
        call = _strip(binding.value)
        if not isinstance(call, relay.Call) or _strip(call.op) not in functions:
            continue
        function = functions[_strip(call.op)]
        of_function = sites.setdefault(str(function.attrs["global_symbol"]), [])
        used = int(function.attrs["used_memory"][len(of_function)])
        of_function.append(CallSite(used, idle_io_bytes=_idle_io_bytes(main, bindings, at)))
    return {name: tuple(calls) for name, calls in sites.items()}


def is_npu_function(function: relay.Function) -> bool:
    """Return whether a function was partitioned for this code generator."""
    attrs = function.attrs
    has_compiler = attrs is not None and "Compiler" in attrs.keys()  # noqa: SIM118 (TVM's map)
    return has_compiler and str(attrs["Compiler"]) == COMPILER
