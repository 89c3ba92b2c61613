"""Rewriting a partitioned module: other NPU functions, and calls that fit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tvm_ethosu.partition.relay.legalize import composite_calls, post_order
from tvm_ethosu.partition.relay.prepare import is_npu_function

# Given a call of an NPU function and its new global variable (None if the function is gone).
Rewrite = Callable[[relay.Call, relay.GlobalVar | None], relay.Expr]


def npu_functions(mod: tvm.IRModule) -> dict[str, relay.Function]:
    """Return the module's NPU functions by global symbol, in the order of their names."""
    found = {
        str(function.attrs["global_symbol"]): function
        for function in mod.functions.values()
        if isinstance(function, relay.Function) and is_npu_function(function)
    }
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


class _CallMutator(ExprMutator):  # type: ignore[misc]
    """Rewrites the calls of NPU functions."""

    def __init__(
        self, names: set[str], new_vars: Mapping[str, relay.GlobalVar], rewrite: Rewrite
    ) -> None:
        super().__init__()
        self.names = names
        self.new_vars = new_vars
        self.rewrite = rewrite

    def visit_call(self, call: relay.Call) -> relay.Expr:
        new_call = super().visit_call(call)
        if not isinstance(new_call.op, relay.GlobalVar):
            return new_call
        name = new_call.op.name_hint
        return self.rewrite(new_call, self.new_vars.get(name)) if name in self.names else new_call


class _CompositeInliner(ExprMutator):  # type: ignore[misc]
    """Puts the bodies of composite functions back in place of their calls."""

    def visit_call(self, call: relay.Call) -> relay.Expr:
        args = [self.visit(arg) for arg in call.args]
        if isinstance(call.op, relay.Function):
            return relay.bind(call.op.body, dict(zip(call.op.params, args, strict=True)))
        return relay.Call(call.op, args, call.attrs, call.type_args, call.span)


def rebuild(
    mod: tvm.IRModule,
    functions: Mapping[str, relay.Function],
    mutator: Callable[[Mapping[str, relay.GlobalVar]], ExprMutator],
) -> tvm.IRModule:
    """Return the module with these NPU functions instead, and main as ``mutator`` rewrites it.

    ``mutator`` is given the functions' global variables by name. Functions of other code
    generators stay as they are.
    """
    old = {*npu_functions(mod), "main"}
    others = {var: fn for var, fn in mod.functions.items() if var.name_hint not in old}
    rebuilt = tvm.IRModule({relay.GlobalVar(name): fn for name, fn in functions.items()} | others)
    rebuilt = relay.transform.InferType()(rebuilt)
    new_vars = {name: rebuilt.get_global_var(name) for name in functions}
    main = mutator(new_vars).visit(mod["main"])
    rebuilt["main"] = relay.Function(
        main.params, main.body, None, main.type_params, mod["main"].attrs
    )
    if mod.attrs is not None:
        rebuilt = rebuilt.with_attrs(dict(mod.attrs.items()))
    return relay.transform.InferType()(rebuilt)


def replace_npu_functions(
    mod: tvm.IRModule, functions: Mapping[str, relay.Function], rewrite: Rewrite
) -> tvm.IRModule:
    """Return the module with these NPU functions instead, and every call of the old ones rewritten.

    Functions of other code generators stay as they are.
    """
    old = set(npu_functions(mod))
    return rebuild(mod, functions, lambda new_vars: _CallMutator(old, new_vars, rewrite))


def _sources(expr: relay.Expr) -> list[relay.Expr]:
    """Return what hands its value to ``expr``, tuples and their fields looked through."""
    match expr:
        case relay.Tuple():
            return [source for field in expr.fields for source in _sources(field)]
        case relay.TupleGetItem():
            return _sources(expr.tuple_value)
        case _:
            return [expr]


def _neighbours(main: relay.Function) -> list[tuple[str, str]]:
    """Return who hands a tensor to whom; other calls than of global functions are "" (the CPU)."""

    def name(call: relay.Call) -> str:
        return str(call.op.name_hint) if isinstance(call.op, relay.GlobalVar) else ""

    return [
        (name(source), name(expr))
        for expr in post_order(main.body)
        if isinstance(expr, relay.Call)
        for argument in expr.args
        for source in _sources(argument)
        if isinstance(source, relay.Call)
    ]


def _idle_functions(mod: tvm.IRModule, functions: Mapping[str, relay.Function]) -> set[str]:
    """Return the functions that only move data to or from operators of the CPU."""
    moving = {
        name
        for name, function in functions.items()
        if not any(rule.does_work for _, rule in composite_calls(function))
    }
    views = {
        name
        for name in moving
        if all(rule.lower is None for _, rule in composite_calls(functions[name]))
    }
    # Between the ends of the network, or between NPU functions, nobody else has a use for the data.
    pairs = _neighbours(mod["main"])
    idle, busy = views, set(functions)
    while True:
        busy = busy - idle
        beside_cpu = {name for pair in pairs if not busy.issuperset(pair) for name in pair}
        if not (moving & beside_cpu) - idle:
            return idle
        idle = idle | (moving & beside_cpu)


def return_idle_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """Give functions that only rearrange memory for the CPU back to it: the NPU would only copy.

    One that lies between inputs and outputs of the network, or between NPU functions, stays: no
    copy is saved by giving it back. Views alone go back everywhere, as they are no work at all.
    """
    functions = npu_functions(mod)
    idle = _idle_functions(mod, functions)
    busy = {name: function for name, function in functions.items() if name not in idle}
    if not idle:
        return mod

    def rewrite(call: relay.Call, var: relay.GlobalVar | None) -> relay.Expr:
        if var is not None:
            return relay.Call(var, call.args, span=call.span)
        function = functions[call.op.name_hint]
        body = _CompositeInliner().visit(function.body)
        return relay.bind(body, dict(zip(function.params, call.args, strict=True)))

    return replace_npu_functions(mod, busy, rewrite)


def result_fields(function: relay.Function) -> list[relay.Expr]:
    """Return the results of a function, one or several."""
    return list(function.body.fields) if isinstance(function.body, relay.Tuple) else [function.body]


def add_scratch_results(mod: tvm.IRModule, scratch_bytes: Mapping[str, int]) -> tvm.IRModule:
    """Return the module with a scratch tensor as last result of each NPU function."""
    functions = npu_functions(mod)

    def with_scratch(name: str, function: relay.Function) -> relay.Function:
        scratch = relay.op.zeros((scratch_bytes[name],), "int8")
        body = relay.Tuple([*result_fields(function), scratch])
        return relay.Function(function.params, body, None, [], function.attrs)

    def rewrite(call: relay.Call, var: relay.GlobalVar | None) -> relay.Expr:
        function = functions[call.op.name_hint]
        made = relay.Call(var, call.args, span=call.span)
        # Otherwise TVM hands the whole tuple to the next operator, and the scratch lives longer.
        fields = [
            relay.annotation.stop_fusion(relay.TupleGetItem(made, index))
            for index in range(len(result_fields(function)))
        ]
        return relay.Tuple(fields) if isinstance(function.body, relay.Tuple) else fields[0]

    made = {name: with_scratch(name, function) for name, function in functions.items()}
    return replace_npu_functions(mod, made, rewrite)
