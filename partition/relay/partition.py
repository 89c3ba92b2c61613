"""Split a Relay module into NPU functions and the rest.

Before: ``main(x) = softmax(dense(conv2d(x)))``
After:  ``main(x) = softmax((@npu(x)).0)`` with ``@npu(x) = (dense(conv2d(x)), scratch)``

The scratch is an extra result so that TVM plans its memory together with all other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.relay.attrs import FunctionAttrs, write_attrs
from tvm_ethosu.partition.relay.legalize import composite_calls, to_npu_graph
from tvm_ethosu.partition.relay.used_memory import COMPILER, is_npu_function, learn_call_sites
from tvm_ethosu.partition.rules import RULES, Rule
from tvm_ethosu.scheduler.arch import Arch
from tvm_ethosu.scheduler.budget import CallSite, budget_bytes
from tvm_ethosu.scheduler.compile import schedule
from tvm_ethosu.scheduler.errors import Infeasible, InternalError, UserError

def npu_target(arch: Arch) -> tvm.target.Target:
    """Return TVM's target for the CPU's part beside this NPU: C with no assumption on the CPU."""
    return tvm.target.Target({"kind": "c", "keys": [COMPILER], "model": arch.accelerator.value})


def _check(rule: Rule) -> Callable[[relay.Expr], bool]:
    def accepts(expr: relay.Expr) -> bool:
        params = rule.parse(expr)
        return rule.applies(params) and rule.reject(params) is None

    return accepts


def _check_static(main: relay.Function) -> None:
    for param in main.params:
        dims = getattr(param.checked_type, "shape", ())
        if not all(isinstance(dim, tvm.tir.IntImm) for dim in dims):
            shape = "x".join(str(dim) for dim in dims)
            raise UserError(
                f"input '{param.name_hint}': the shape is dynamic (got {shape}); give it a fixed "
                "shape before partitioning, for example with relay.transform.DynamicToStatic"
            )


def _bind(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    if "main" not in [var.name_hint for var in mod.get_global_vars()]:
        raise UserError("module: there is no function 'main' to partition")
    bound = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    if params:
        bound["main"] = relay.build_module.bind_params_by_name(mod["main"], dict(params))
    bound = relay.transform.InferType()(bound)
    _check_static(bound["main"])
    return bound


def _split(mod: tvm.IRModule, mod_name: str) -> tvm.IRModule:
    table = [(rule.name, rule.pattern(), _check(rule)) for rule in RULES]
    passes = [
        relay.transform.MergeComposite(table),
        relay.transform.AnnotateTarget(COMPILER),
        relay.transform.MergeCompilerRegions(),
        relay.transform.InferType(),
        relay.transform.PartitionGraph(mod_name),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def npu_functions(mod: tvm.IRModule) -> dict[str, relay.Function]:
    """Return the module's NPU functions by global symbol, in the order of their names."""
    found = {
        str(function.attrs["global_symbol"]): function
        for function in mod.functions.values()
        if isinstance(function, relay.Function) and is_npu_function(function)
    }
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


class _CallMutator(ExprMutator):
    """Rewrites calls of global functions by name."""

    def __init__(self, rewrites: Mapping[str, Callable[[relay.Call], relay.Expr]]) -> None:
        super().__init__()
        self.rewrites = rewrites

    def visit_call(self, call: relay.Call) -> relay.Expr:
        new_call = super().visit_call(call)
        if isinstance(new_call.op, relay.GlobalVar):
            rewrite = self.rewrites.get(new_call.op.name_hint)
            return new_call if rewrite is None else rewrite(new_call)
        return new_call


class _FieldMutator(ExprMutator):
    """Replaces whole expressions."""

    def __init__(self, replacements: Mapping[relay.Expr, relay.Expr]) -> None:
        super().__init__()
        self.memo_map.update(replacements)


class _CompositeInliner(ExprMutator):
    """Puts the bodies of composite functions back in place of their calls."""

    def visit_call(self, call: relay.Call) -> relay.Expr:
        args = [self.visit(arg) for arg in call.args]
        if isinstance(call.op, relay.Function):
            return relay.bind(call.op.body, dict(zip(call.op.params, args, strict=True)))
        return relay.Call(call.op, args, call.attrs, call.type_args, call.span)


def _rebuild(
    mod: tvm.IRModule,
    functions: Mapping[str, relay.Function],
    rewrites: Callable[[Mapping[str, relay.GlobalVar]], Mapping[str, Callable[..., relay.Expr]]],
) -> tvm.IRModule:
    """Return the module with these NPU functions and every call in main rewritten."""
    rebuilt = tvm.IRModule({relay.GlobalVar(name): fn for name, fn in functions.items()})
    rebuilt = relay.transform.InferType()(rebuilt)
    global_vars = {name: rebuilt.get_global_var(name) for name in functions}
    main = mod["main"]
    new_main = _CallMutator(rewrites(global_vars)).visit(main)
    rebuilt["main"] = relay.Function(
        new_main.params, new_main.body, None, new_main.type_params, main.attrs
    )
    if mod.attrs is not None:
        rebuilt = rebuilt.with_attrs(dict(mod.attrs.items()))
    return relay.transform.InferType()(rebuilt)


def _is_idle(function: relay.Function) -> bool:
    return all(rule.lower is None for _, rule in composite_calls(function))


def _return_idle_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """Give functions that only reshape back to the CPU: the NPU would only copy."""
    functions = npu_functions(mod)
    idle = {name for name, function in functions.items() if _is_idle(function)}
    if not idle:
        return mod

    def inline(call: relay.Call) -> relay.Expr:
        function = functions[call.op.name_hint]
        body = _CompositeInliner().visit(function.body)
        return relay.bind(body, dict(zip(function.params, call.args, strict=True)))

    busy = {name: function for name, function in functions.items() if name not in idle}

    def rewrites(
        global_vars: Mapping[str, relay.GlobalVar],
    ) -> Mapping[str, Callable[[relay.Call], relay.Expr]]:
        kept = {
            name: lambda call, var=var: relay.Call(var, call.args, span=call.span)
            for name, var in global_vars.items()
        }
        return kept | dict.fromkeys(idle, inline)

    return _rebuild(mod, busy, rewrites)


def _plan_scratch(function: relay.Function, name: str, budget: int | None, size: int | None) -> int:
    graph = to_npu_graph(function, name, with_scratch=False)
    try:
        return schedule(graph, budget).scratch_bytes
    except Infeasible as error:
        assert size is not None and budget is not None
        raise Infeasible(
            f"{error}; sram_size is {size} bytes, of which {size - budget} are held by other "
            f"tensors during this call (smallest sram_size for this function: "
            f"{size + error.excess_bytes} bytes)",
            required_bytes=size + error.excess_bytes,
            available_bytes=size,
        ) from None


def _with_scratch(
    function: relay.Function, options: EthosUOptions, sites: tuple[CallSite, ...], scratch: int
) -> relay.Function:
    body = function.body
    fields = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    # Without scratch there is still a field, of one byte, so that all calls look alike.
    fields.append(relay.op.zeros((max(scratch, 1),), "int8"))
    made = relay.Function(function.params, relay.Tuple(fields), None, [], function.attrs)
    idle = tuple(site.idle_io_bytes for site in sites)
    name = str(function.attrs["global_symbol"])
    return write_attrs(made, FunctionAttrs(name, options, max(scratch, 1), idle))


def _drop_scratch(call: relay.Call, var: relay.GlobalVar, results: int | None) -> relay.Expr:
    """Return a call whose value is what it was before the scratch was added.

    ``stop_fusion`` keeps TVM from handing the whole tuple, scratch included, to the next operator,
    which would keep the scratch alive longer than needed.
    """
    made = relay.Call(var, call.args, span=call.span)

    def field(index: int) -> relay.Expr:
        return relay.annotation.stop_fusion(relay.TupleGetItem(made, index))

    return field(0) if results is None else relay.Tuple([field(i) for i in range(results)])


def _add_scratch(mod: tvm.IRModule, options: EthosUOptions) -> tvm.IRModule:
    functions = npu_functions(mod)
    sites = learn_call_sites(mod, npu_target(options.arch)) if functions else {}
    if sites.keys() != functions.keys():
        raise InternalError(f"no used_memory for {sorted(functions.keys() - sites.keys())}")
    made = {}
    for name, function in functions.items():
        budget = budget_bytes(options.sram_size, sites[name])
        scratch = _plan_scratch(function, name, budget, options.sram_size)
        made[name] = _with_scratch(function, options, sites[name], scratch)

    def result_count(name: str) -> int | None:
        body = functions[name].body
        return len(body.fields) if isinstance(body, relay.Tuple) else None

    def rewrites(
        global_vars: Mapping[str, relay.GlobalVar],
    ) -> Mapping[str, Callable[[relay.Call], relay.Expr]]:
        return {
            name: lambda call, name=name, var=var: _drop_scratch(call, var, result_count(name))
            for name, var in global_vars.items()
        }

    return _rebuild(mod, made, rewrites)


def partition_for_ethosu(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    accelerator_config: str = "ethos-u55-256",
    sram_size: int | None = None,
    memory_mode: str = "Shared_Sram",
    system_config: str | None = None,
    mod_name: str = "default",
) -> tvm.IRModule:
    """Return the module with everything the NPU takes moved into NPU functions.

    Args:
        mod: Relay as TVM's TFLite importer gives it; it is not changed.
        params: constants by parameter name; they are bound into the functions.
        accelerator_config, sram_size, memory_mode, system_config: see ``EthosUOptions``.
        mod_name: the prefix of generated symbols, as for ``relay.build``.

    Raises:
        UserError: an option is unknown, or a shape is dynamic.
        Infeasible: a function's scratch does not fit what ``sram_size`` leaves it.
    """
    options = EthosUOptions(accelerator_config, sram_size, memory_mode, system_config)
    bound = _bind(mod, params)
    return _add_scratch(_return_idle_functions(_split(bound, mod_name)), options)
