"""A TFLite file compiled as a whole: for firmware (C) or for this host (simulator)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import tvm
from tvm import relay
from tvm.contrib import graph_executor

import tvm_ethosu.backend  # noqa: F401  (registers the code generator)
from tvm_ethosu.backend.build_context import CompiledFunction, collect_builds
from tvm_ethosu.backend.codegen import call_sites
from tvm_ethosu.backend.program import Program
from tvm_ethosu.backend.sram import PlannedSram, planned_sram
from tvm_ethosu.partition import Decision, EthosUOptions, explain_partition, partition_for_ethosu
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.relay.quiet import quiet_tuning_logs
from tvm_ethosu.partition.relay.tensor_names import SharedTensors, shared_tensors
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.budget import budget_bytes
from tvm_ethosu.scheduler.errors import UserError

MODULE_NAME = "default"
# TVM's better planner of pools: its default, greedy_by_size, often needs more bytes.
POOL_ALGORITHM = "hill_climb"


@dataclass(frozen=True)
class NpuFunction:
    """What is known of one NPU function after the build; ``used_memory_bytes`` per call site.

    ``allocation`` is the plan that the program carries out.
    """

    name: str
    used_memory_bytes: tuple[int, ...]
    budget_bytes: int | None
    program: Program
    allocation: Allocation


@dataclass(frozen=True)
class FirmwareNetwork:
    """A network as C source: TVM's factory, the NPU functions, the arena as TVM planned it.

    For each pair in ``shared`` the program passes one buffer, which is counted once.
    """

    options: EthosUOptions
    factory: Any
    functions: tuple[NpuFunction, ...]
    sram: PlannedSram
    decisions: tuple[Decision, ...]
    compile_seconds: float
    shared: tuple[SharedTensors, ...] = ()


@contextlib.contextmanager
def _naming_cpu_operators(module: tvm.IRModule) -> Iterator[None]:
    """Turn what TVM can't compile for the CPU into an error that names what is left to it."""
    try:
        yield
    except tvm.TVMError as error:
        raise cpu_refusal(module, error) from None


def cpu_refusal(module: tvm.IRModule, error: Exception) -> UserError:
    """Return the error for what TVM can't compile, with the operators that are left to it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    left = [d for d in explain_partition(module) if not d.on_npu]
    names = "; ".join(f"{d.operator} '{d.origin}': {d.reason}" for d in left[:5])
    return UserError(
        f"TVM can't compile what stays on the CPU ({lines[-1] if lines else error}); there "
        f"are: {names or 'no operators'}"
    )


def partition_file(file: TfliteFile, options: EthosUOptions) -> tvm.IRModule:
    """Return the partitioned module of a TFLite file.

    Raises:
        UserError: TVM's importer does not take the network.
        Infeasible: it does not fit ``options.sram_size``.
    """
    mod, params = to_relay(file)
    return partition_for_ethosu(
        mod,
        params,
        mod_name=MODULE_NAME,
        **asdict(options),
    )


def _npu_function(compiled: CompiledFunction) -> NpuFunction:
    attrs = compiled.attrs
    used = attrs.used_memory or ()
    shared = compiled.allocation.schedule.graph.shared_bytes
    sites = call_sites(attrs, used)
    budget = budget_bytes(attrs.options.sram_size, sites, shared_bytes=shared)
    return NpuFunction(attrs.name, used, budget, compiled.program, compiled.allocation)


def compile_for_firmware(file: TfliteFile, options: EthosUOptions) -> FirmwareNetwork:
    """Compile a network to C, for the AOT executor with the C interface.

    Raises:
        UserError: TVM's importer does not take the network.
        Infeasible: it does not fit ``options.sram_size``.
    """
    start = time.perf_counter()
    network = build_for_firmware(partition_file(file, options), options)
    return replace(network, compile_seconds=time.perf_counter() - start)


def build_for_firmware(module: tvm.IRModule, options: EthosUOptions) -> FirmwareNetwork:
    """Build a module that was partitioned with these options to C.

    Raises:
        Infeasible: the arena that TVM plans is larger than ``options.sram_size``.
    """
    start = time.perf_counter()
    config = {"tir.usmp.algorithm": POOL_ALGORITHM}
    context = tvm.transform.PassContext(opt_level=3, config=config)
    with quiet_tuning_logs(), collect_builds() as builds, context, _naming_cpu_operators(module):
        factory = relay.build(
            module,
            target=tvm.target.Target(f"ethos-u/{options.accelerator_config}"),
            executor=relay.backend.Executor("aot", {"interface-api": "c", "unpacked-api": True}),
            runtime=relay.backend.Runtime("crt"),
            mod_name=MODULE_NAME,
        )
    compiled = builds[0].compiled if builds else []
    sram = planned_sram(factory.executor_codegen_metadata, module)
    found = (_npu_function(function) for function in compiled)
    functions = tuple(sorted(found, key=lambda function: (len(function.name), function.name)))
    seconds = time.perf_counter() - start
    decisions = explain_partition(module)
    names = _shared_tensors(module, compiled)
    return FirmwareNetwork(options, factory, functions, sram, decisions, seconds, names)


def _shared_tensors(
    module: tvm.IRModule, compiled: Iterable[CompiledFunction]
) -> tuple[SharedTensors, ...]:
    return tuple(
        shared_tensors(module, function.attrs.name, function.attrs.shared)
        for function in compiled
        if function.attrs.shared is not None
    )


def build_for_host(module: tvm.IRModule) -> graph_executor.GraphModule:
    """Return a partitioned module ready to run in this process, its NPU functions simulated."""
    context = tvm.transform.PassContext(opt_level=3)
    with quiet_tuning_logs(), context, _naming_cpu_operators(module):
        factory = relay.build(module, target="llvm", mod_name=MODULE_NAME)
    return graph_executor.GraphModule(factory[MODULE_NAME](tvm.cpu()))
