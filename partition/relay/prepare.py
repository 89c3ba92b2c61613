"""Bring a Relay module into the form in which its memory can be read: fused, A-normal, typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_ethosu.partition.relay.fold import fold_types
from tvm_ethosu.partition.relay.let_chain import strip_on_device, tensor_types
from tvm_ethosu.partition.relay.quiet import quiet_tuning_logs
from tvm_ethosu.scheduler.errors import UserError

COMPILER = "ethos-u"


@dataclass(frozen=True)
class Prepared:
    """A module in A-normal form and the names of the passes that brought it there."""

    mod: tvm.IRModule
    passes: tuple[str, ...]


def is_npu_function(function: relay.Function) -> bool:
    """Return whether a function was partitioned for this code generator."""
    attrs = {} if function.attrs is None else dict(function.attrs.items())
    return str(attrs.get("Compiler", "")) == COMPILER


def _holds_primitives(main: relay.Function) -> bool:
    """Return whether operators were fused into primitive functions already."""
    found = False

    def visit(expr: relay.Expr) -> None:
        nonlocal found
        attrs = getattr(expr, "attrs", None) if isinstance(expr, relay.Function) else None
        found = found or (attrs is not None and bool(dict(attrs.items()).get("Primitive", 0)))

    relay.analysis.post_order_visit(main.body, visit)
    return found


def _is_atom(expr: relay.Expr) -> bool:
    return isinstance(strip_on_device(expr), relay.Var)


def _is_chain(main: relay.Function) -> bool:
    """Return whether every value of main has a name."""
    body = strip_on_device(main.body)
    while isinstance(body, relay.Let):
        value = strip_on_device(body.value)
        if isinstance(value, relay.Call) and not all(map(_is_atom, (value.op, *value.args))):
            return False
        body = strip_on_device(body.body)
    return isinstance(body, relay.Var)


def _check_shapes(main: relay.Function) -> None:
    for param in main.params:
        tensor_types(param.checked_type, f"input '{param.name_hint}'")


def bind_and_type(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    """Return a copy of the module with parameters bound into main and types inferred.

    Raises:
        UserError: there is no main, or an input's shape is dynamic.
    """
    if "main" not in [var.name_hint for var in mod.get_global_vars()]:
        raise UserError("module: there is no function 'main'")
    copy = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    if params:
        copy["main"] = relay.build_module.bind_params_by_name(mod["main"], dict(params))
    typed = relay.transform.InferType()(copy)
    _check_shapes(typed["main"])
    return typed


def prepare(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    params: Mapping[str, Any] | None = None,
    *,
    keep_values: bool = True,
) -> Prepared:
    """Return the module as the AOT executor has it when it annotates memory.

    A module whose operators are not fused yet is optimised as ``relay.build`` does for ``target``;
    what is already done is not done again. Without ``keep_values`` only the result's types mean
    something, and it is there sooner.

    Raises:
        UserError: there is no main, or a shape is dynamic.
    """
    typed = bind_and_type(mod, params)
    names: list[str] = []
    if not _holds_primitives(typed["main"]):
        typed = typed if keep_values else fold_types(typed)
        with quiet_tuning_logs():
            typed, _ = relay.optimize(typed, target=target)
        names.append(f"relay.optimize for {target.kind.name} (fuses operators)")
    steps: list[tuple[str, Callable[[], Any]]] = []
    if not _is_chain(typed["main"]):
        steps.append(("ToANormalForm", relay.transform.ToANormalForm))
    steps.append(("InferType", relay.transform.InferType))
    for name, make in steps:
        typed = make()(typed)
        names.append(name)
    return Prepared(typed, tuple(names))
