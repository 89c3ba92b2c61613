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

from tvm_ethosu.partition.hardware import find_hardware
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.relay.attrs import FunctionAttrs, write_attrs
from tvm_ethosu.partition.relay.canonical import canonical
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.merge import merge_ready_together
from tvm_ethosu.partition.relay.prepare import COMPILER, bind_and_type
from tvm_ethosu.partition.relay.rewrite import (
    add_scratch_results,
    npu_functions,
    return_idle_functions,
)
from tvm_ethosu.partition.relay.used_memory import io_place, learn_call_sites
from tvm_ethosu.partition.rules import RULES, Rule
from tvm_ethosu.scheduler.arch import Arch
from tvm_ethosu.scheduler.budget import CallSite, budget_bytes, disposable_arguments
from tvm_ethosu.scheduler.compile import decisions_of, schedule
from tvm_ethosu.scheduler.errors import Infeasible, InternalError, UserError


def npu_target(arch: Arch) -> tvm.target.Target:
    """Return TVM's target for the CPU's part beside this NPU: C with no assumption on the CPU."""
    return tvm.target.Target({"kind": "c", "keys": [COMPILER], "model": arch.accelerator.value})


def _check(rule: Rule) -> Callable[[relay.Expr], bool]:
    def accepts(expr: relay.Expr) -> bool:
        params = rule.parse(expr)
        return rule.applies(params) and rule.reject(params) is None

    return accepts


def _bind(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    if npu_functions(mod):
        raise UserError("module: it is partitioned already; partition the original module")
    return canonical(bind_and_type(mod, params))


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


def _does_not_fit(
    error: Infeasible, size_bytes: int, left_bytes: int, sites: tuple[CallSite, ...]
) -> Infeasible:
    """Return the scheduler's refusal in terms of sram_size; ``left_bytes`` may be negative."""
    others = size_bytes - left_bytes
    used = max(site.used_memory_bytes - site.scratch_bytes for site in sites)
    smallest = others + error.required_bytes
    return Infeasible(
        f"{error}; sram_size is {size_bytes} bytes, and other tensors hold {others} bytes during "
        f"this call (used_memory without scratch is {used} bytes; smallest sram_size for this "
        f"function: {smallest} bytes)",
        required_bytes=smallest,
        available_bytes=size_bytes,
    )


def _plan_scratch(
    function: relay.Function, options: EthosUOptions, sites: tuple[CallSite, ...]
) -> FunctionAttrs:
    """Schedule a function for its budget and return what the code generator needs to know.

    The scratch is at least a byte, so that all calls look alike.
    """
    name = str(function.attrs["global_symbol"])
    disposable = disposable_arguments(sites, inputs=options.overwrite_inputs, io=io_place())
    graph = to_npu_graph(function, name, with_scratch=False, disposable=disposable)
    left = budget_bytes(options.sram_size, sites, io_place())
    budget = None if left is None else max(left, 0)
    try:
        hardware = find_hardware(options)
        allocation = schedule(graph, budget, hardware, options.objective)
    except Infeasible as error:
        raise _does_not_fit(error, options.sram_size or 0, left or 0, sites) from None
    live = tuple(site.live_io_bytes for site in sites)
    idle = tuple(site.idle_io_bytes for site in sites)
    scratch = max(allocation.scratch_bytes, 1)
    decisions = decisions_of(allocation.schedule)
    return FunctionAttrs(name, options, scratch, budget, live, idle, disposable, decisions)


def _plan(mod: tvm.IRModule, options: EthosUOptions) -> tvm.IRModule:
    """Schedule each NPU function for its budget and give it the scratch that it needs."""
    functions = npu_functions(mod)
    if not functions:
        return mod
    sites = learn_call_sites(mod, npu_target(options.arch))
    if sites.keys() != functions.keys():
        raise InternalError(f"no used_memory for {sorted(functions.keys() - sites.keys())}")
    planned = {
        name: _plan_scratch(function, options, sites[name]) for name, function in functions.items()
    }
    scratch = {name: attrs.scratch_bytes for name, attrs in planned.items()}
    made = add_scratch_results(mod, scratch)
    for name, function in npu_functions(made).items():
        made.update_func(made.get_global_var(name), write_attrs(function, planned[name]))
    return relay.transform.InferType()(made)


def partition_for_ethosu(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    accelerator_config: str = "ethos-u55-256",
    sram_size: int | None = None,
    memory_mode: str = "Shared_Sram",
    system_config: str | None = None,
    optimise: str = "performance",
    overwrite_inputs: bool = False,
    mod_name: str = "default",
) -> tvm.IRModule:
    """Return the module with everything the NPU takes moved into NPU functions.

    Args:
        mod: Relay as TVM's TFLite importer gives it; it is not changed.
        params: constants by parameter name; they are bound into the functions.
        accelerator_config: the NPU, such as ``ethos-u55-128``.
        sram_size: bytes of SRAM for all tensors together; None sets no limit.
        memory_mode: where constants lie, see ``EthosUOptions``.
        system_config: the memory system by Vela's name; None takes the accelerator's usual one.
        optimise: ``performance``: fewest cycles within ``sram_size``; ``size``: least SRAM.
        overwrite_inputs: whether the NPU may use the memory of a network input once it has been
            read, see ``EthosUOptions``.
        mod_name: the prefix of generated symbols, as for ``relay.build``.

    Returns:
        A module whose NPU functions carry what the code generator needs.

    Raises:
        UserError: an option is unknown, or a shape is dynamic.
        Infeasible: a function's scratch does not fit what ``sram_size`` leaves it.
    """
    options = EthosUOptions(
        accelerator_config, sram_size, memory_mode, system_config, optimise, overwrite_inputs
    )
    bound = _bind(mod, params)
    split = return_idle_functions(_split(bound, mod_name))
    return _plan(merge_ready_together(split), options)
