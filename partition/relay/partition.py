"""Split a Relay module into NPU functions and the rest.

Before: ``main(x) = softmax(dense(conv2d(x)))``
After:  ``main(x) = softmax((@npu(x)).0)`` with ``@npu(x) = (dense(conv2d(x)), scratch)``

The scratch is an extra result so that TVM plans its memory together with all other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from tvm_ethosu.partition.hardware import find_hardware
from tvm_ethosu.partition.options import EthosUOptions, check_names, parse_size
from tvm_ethosu.partition.relay.attrs import FunctionAttrs, FunctionTensors, write_attrs
from tvm_ethosu.partition.relay.break_down import broken_down
from tvm_ethosu.partition.relay.canonical import canonical
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.merge import merge_ready_together
from tvm_ethosu.partition.relay.parse import call_name
from tvm_ethosu.partition.relay.prepare import COMPILER, bind_and_type
from tvm_ethosu.partition.relay.rewrite import (
    add_scratch_results,
    npu_functions,
    return_idle_functions,
)
from tvm_ethosu.partition.relay.tensor_names import find_tensors, with_input_names
from tvm_ethosu.partition.relay.used_memory import io_place, learn_call_sites
from tvm_ethosu.partition.rules import RULES, Rule
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import Arch
from tvm_ethosu.scheduler.budget import CallSite, IoPlace, budget_bytes, disposable_arguments
from tvm_ethosu.scheduler.compile import decisions_of, schedule
from tvm_ethosu.scheduler.errors import Infeasible, InternalError, UserError
from tvm_ethosu.scheduler.ir import NpuGraph, Shared
from tvm_ethosu.scheduler.liveness import can_share
from tvm_ethosu.scheduler.search import Objective

# Two arguments in one memory are a search more; it must save this share of all arguments.
_WORTH_SHARING = 0.01


def npu_target(arch: Arch) -> tvm.target.Target:
    """Return TVM's target for the CPU's part beside this NPU: C with no assumption on the CPU."""
    return tvm.target.Target({"kind": "c", "keys": [COMPILER], "model": arch.accelerator.value})


def _check(rule: Rule) -> Callable[[relay.Expr], bool]:
    def accepts(expr: relay.Expr) -> bool:
        params = rule.parse(expr)
        return rule.applies(params) and rule.reject(params) is None

    return accepts


def _possible_rules(mod: tvm.IRModule) -> Iterator[Rule]:
    """Yield the rows whose calls are all there: TVM matches each row with the whole graph."""
    present: set[str] = set()
    for function in mod.functions.values():
        relay.analysis.post_order_visit(function, lambda expr: present.add(call_name(expr)))
    return (rule for rule in RULES if present.issuperset(rule.calls))


def _merged(
    mod: tvm.IRModule, rules: Callable[[tvm.IRModule], Iterable[Rule]] = _possible_rules
) -> tvm.IRModule:
    table = [(rule.name, rule.pattern(), _check(rule)) for rule in rules(mod)]
    return relay.transform.MergeComposite(table)(mod)


def _bind(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    if not isinstance(mod, tvm.IRModule):
        raise UserError(
            f"module: not a Relay module (got {type(mod).__name__}); relay.frontend.from_tflite "
            "returns one, and its constants beside it"
        )
    if npu_functions(mod):
        raise UserError("module: it is partitioned already; partition the original module")
    return broken_down(canonical(bind_and_type(mod, params)), _merged)


def _split(
    mod: tvm.IRModule,
    mod_name: str,
    rules: Callable[[tvm.IRModule], Iterable[Rule]] = _possible_rules,
) -> tvm.IRModule:
    passes = [
        relay.transform.AnnotateTarget(COMPILER),
        relay.transform.MergeCompilerRegions(),
        relay.transform.InferType(),
        relay.transform.PartitionGraph(mod_name),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(_merged(mod, rules))


def _does_not_fit(
    error: Infeasible, size_bytes: int, left_bytes: int, sites: tuple[CallSite, ...]
) -> Infeasible:
    """Return the scheduler's refusal in terms of sram_size; ``left_bytes`` may be negative."""
    others = size_bytes - left_bytes
    used = max(site.used_memory_bytes - site.scratch_bytes for site in sites)
    smallest = others + max(site.alignment_bytes for site in sites) + error.required_bytes
    return Infeasible(
        f"{error}; sram_size is {size_bytes} bytes, and other tensors hold {others} bytes during "
        f"this call (used_memory without scratch is {used} bytes; smallest sram_size for this "
        f"function, with each tensor rounded up to 16 bytes: {smallest} bytes)",
        required_bytes=smallest,
        available_bytes=size_bytes,
    )


def _plan_scratch(
    graph: NpuGraph, tensors: FunctionTensors, options: EthosUOptions, sites: tuple[CallSite, ...]
) -> FunctionAttrs:
    """Schedule a function for its budget and return what the code generator needs to know.

    The scratch is at least a byte, so that all calls look alike.
    """
    overwrite = options.overwrite_inputs or options.share_io
    disposable = disposable_arguments(sites, inputs=overwrite, io=io_place())
    lent = frozenset(graph.inputs[position] for position in disposable)
    named = with_input_names(replace(graph, disposable=lent), tensors)
    allocation = _best_plan(named, options, sites)
    planned = allocation.schedule.graph
    budget = budget_bytes(options.sram_size, sites, io_place(), planned.shared_bytes)
    return FunctionAttrs(
        graph.name,
        tensors,
        options,
        max(allocation.scratch_bytes, 1),
        None if budget is None else max(budget, 0),
        tuple(site.live_io_bytes for site in sites),
        tuple(site.idle_io_bytes for site in sites),
        frozenset(planned.inputs.index(name) for name in planned.disposable),
        decisions_of(allocation.schedule),
        _positions(planned),
    )


def _positions(graph: NpuGraph) -> tuple[int, int] | None:
    """Return which input and which output lie in the same memory."""
    if graph.shared is None:
        return None
    return graph.inputs.index(graph.shared.input), graph.outputs.index(graph.shared.output)


def _sharing(
    graph: NpuGraph, options: EthosUOptions, sites: tuple[CallSite, ...]
) -> NpuGraph | None:
    """Return the graph with the two arguments in one memory that save most, if any may be.

    They must be an input and an output of the network: others are TVM's to place.
    """
    if not options.share_io or len(sites) != 1 or io_place() is not IoPlace.BESIDE_POOL:
        return None
    pairs = [
        Shared(graph.inputs[given], graph.outputs[made])
        for given in sorted(sites[0].ending_inputs)
        for made in sorted(sites[0].made_outputs)
    ]
    possible = [replace(graph, shared=pair) for pair in pairs if can_share(graph, pair)]
    best = max(possible, key=lambda sharing: sharing.shared_bytes, default=None)
    arguments = sum(graph.tensors[name].size_bytes for name in (*graph.inputs, *graph.outputs))
    return None if best is None or best.shared_bytes < arguments * _WORTH_SHARING else best


def _best_plan(graph: NpuGraph, options: EthosUOptions, sites: tuple[CallSite, ...]) -> Allocation:
    """Return the plan of a function, with arguments in one memory where that is better.

    Where inputs may be overwritten it is also planned without: the search counts on their memory
    for all that would fit there, and so at times finds a slower plan.

    Raises:
        Infeasible: neither fits; the error is of the one that needs less.
    """
    found: list[Allocation] = []
    refusals: list[Infeasible] = []
    keeping = replace(graph, disposable=frozenset()) if graph.disposable else None
    for one in filter(None, (graph, keeping, _sharing(graph, options, sites))):
        left = budget_bytes(options.sram_size, sites, io_place(), one.shared_bytes)
        budget = None if left is None else max(left, 0)
        try:
            found.append(schedule(one, budget, find_hardware(options), options.objective))
        except Infeasible as error:
            refusals.append(_does_not_fit(error, options.sram_size or 0, left or 0, sites))
    if not found:
        raise min(refusals, key=lambda refusal: refusal.required_bytes)
    return min(found, key=lambda plan: _rank(plan, options.objective))


def _rank(plan: Allocation, objective: Objective) -> tuple[float, float]:
    size_bytes = plan.scratch_bytes - plan.schedule.graph.shared_bytes
    cycles = plan.schedule.cycles
    return (size_bytes, cycles) if objective is Objective.SIZE else (cycles, size_bytes)


def _plan(mod: tvm.IRModule, options: EthosUOptions) -> tvm.IRModule:
    """Schedule each NPU function for its budget and give it the scratch that it needs."""
    functions = npu_functions(mod)
    if not functions:
        return mod
    sites = learn_call_sites(mod, npu_target(options.arch))
    if sites.keys() != functions.keys():
        raise InternalError(f"no used_memory for {sorted(functions.keys() - sites.keys())}")
    graphs = {
        name: to_npu_graph(function, name, with_scratch=False)
        for name, function in functions.items()
    }
    tensors = find_tensors(mod, graphs)
    planned = {
        name: _plan_scratch(graph, tensors[name], options, sites[name])
        for name, graph in graphs.items()
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
    sram_size: int | str | None = None,
    memory_mode: str = "Shared_Sram",
    system_config: str | None = None,
    optimise: str = "performance",
    overwrite_inputs: bool = False,
    share_io: bool = False,
    mod_name: str = "default",
    **others: Any,
) -> tvm.IRModule:
    """Return the module with everything the NPU takes moved into NPU functions.

    Args:
        mod: Relay as TVM's TFLite importer gives it; it is not changed.
        params: constants by parameter name; they are bound into the functions.
        accelerator_config: NPU: ethos-u55-32, ethos-u55-64, ethos-u55-128, ethos-u55-256,
            ethos-u65-256, ethos-u65-512.
        sram_size: SRAM for all tensors together, network inputs and outputs included, such as
            65536, 64K or 1M; no limit by default.
        memory_mode: Shared_Sram: constants in flash. Sram_Only: constants in SRAM too, not counted
            in the SRAM size.
        system_config: Memory system that cycles are estimated for, by Vela's name; the
            accelerator's usual one by default.
        optimise: performance: fewest cycles within the SRAM size. size: least SRAM.
        overwrite_inputs: Let the NPU use an input's memory once it has been read; the program then
            writes its inputs anew before each run.
        share_io: Let an output lie in an input's memory, the program passing one buffer for both;
            inputs are then overwritten too.
        mod_name: the prefix of generated symbols, as for ``relay.build``.
        others: none; options of TVM's former backend are refused with what replaces them.

    Returns:
        A module whose NPU functions carry what the code generator needs.

    Raises:
        UserError: an option is unknown, a shape is dynamic, or ``mod`` is no Relay module.
        Infeasible: a function's scratch does not fit what ``sram_size`` leaves it.
    """
    check_names(others, "partition_for_ethosu")
    options = EthosUOptions(
        accelerator_config,
        parse_size(sram_size) if isinstance(sram_size, str) else sram_size,
        memory_mode,
        system_config,
        optimise,
        overwrite_inputs,
        share_io,
    )
    bound = _bind(mod, params)
    split = return_idle_functions(_split(bound, mod_name))
    return _plan(merge_ready_together(split), options)
