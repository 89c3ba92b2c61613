"""``relay.ext.ethos-u``: TVM hands over each NPU function, and gets C or a host module back."""

from __future__ import annotations

import tvm
from tvm import relay

from tvm_ethosu.backend.build_context import BuildRequest, CompiledFunction, current_request
from tvm_ethosu.backend.csource import c_module
from tvm_ethosu.backend.emit import emit_program
from tvm_ethosu.backend.host import host_module
from tvm_ethosu.backend.parameters import Encoder
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.relay.attrs import FunctionAttrs, read_attrs
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.tensor_names import with_input_names
from tvm_ethosu.partition.relay.used_memory import io_place
from tvm_ethosu.scheduler.budget import CallSite, budget_bytes
from tvm_ethosu.scheduler.compile import repeat
from tvm_ethosu.scheduler.errors import Infeasible, InternalError, UserError
from tvm_ethosu.scheduler.ports import Hardware


def call_sites(attrs: FunctionAttrs, used_memory: tuple[int, ...]) -> tuple[CallSite, ...]:
    """Return the call sites with the numbers that TVM wrote during this build."""
    calls = len(attrs.idle_io_bytes)
    if calls != len(used_memory):
        raise UserError(
            f"{attrs.name}: partitioned for {calls} calls, built with {len(used_memory)}; "
            "call partition_for_ethosu on the module that is built"
        )
    return tuple(
        CallSite(used, attrs.scratch_bytes, live_io, idle_io)
        for used, live_io, idle_io in zip(
            used_memory, attrs.live_io_bytes, attrs.idle_io_bytes, strict=True
        )
    )


def _check_budget(attrs: FunctionAttrs, shared_bytes: int) -> None:
    """Check that the scratch fits what this build's ``used_memory`` leaves; only AOT has it."""
    if attrs.used_memory is None:
        return
    sites = call_sites(attrs, attrs.used_memory)
    budget = budget_bytes(attrs.options.sram_size, sites, io_place(), shared_bytes)
    if budget is not None and attrs.scratch_bytes > max(budget, 1):
        raise Infeasible(
            f"{attrs.name}: the scratch of {attrs.scratch_bytes} bytes was planned for another "
            f"program than is built (used_memory is now {max(attrs.used_memory)} bytes, which "
            f"leaves {max(budget, 0)} bytes); partition for the module that is built",
            required_bytes=attrs.scratch_bytes,
            available_bytes=max(budget, 0),
        )


def _check_request(request: BuildRequest, options: EthosUOptions) -> None:
    model = request.model
    if request.makes_c and model.startswith("ethos-u") and model != options.accelerator_config:
        raise UserError(
            f"target: names {model}, but the module was partitioned for "
            f"{options.accelerator_config}; use the same accelerator for both"
        )
    if request.makes_c and not request.has_unpacked_api:
        raise UserError(
            "executor: C code for the NPU needs plain pointers as arguments; build with "
            "Executor('aot', {'interface-api': 'c', 'unpacked-api': True}); tvmc: --executor=aot "
            "--executor-aot-interface-api=c --executor-aot-unpacked-api=1 --runtime=crt"
        )
    if not request.makes_c and request.has_unpacked_api:
        raise UserError(
            "executor: on this host NPU functions take TVM's packed arguments (got unpacked-api, "
            "which is for firmware); leave the executor's options out, or build for c"
        )
    kind = str(request.target.kind.name)
    if kind not in ("c", "llvm"):
        raise UserError(f"target: NPU functions can be built for c and llvm (got '{kind}')")


def compile_function(function: relay.Function) -> CompiledFunction:
    """Compile a partitioned function of the program that is being built.

    Raises:
        Infeasible: its scratch does not fit what this build's ``used_memory`` leaves.
    """
    attrs = read_attrs(function)
    graph = to_npu_graph(
        function,
        attrs.name,
        with_scratch=True,
        disposable=attrs.disposable,
        shared=attrs.shared,
    )
    graph = with_input_names(graph, attrs.tensors)
    _check_budget(attrs, graph.shared_bytes)
    # The partitioner has searched for the plan.
    encoder = Encoder(attrs.options.arch)
    hardware = Hardware(attrs.options.target, encoder)
    allocation = repeat(graph, attrs.decisions, hardware)
    if allocation.scratch_bytes > attrs.scratch_bytes:
        raise InternalError(
            f"{attrs.name}: planned for {attrs.scratch_bytes} bytes of scratch, now takes "
            f"{allocation.scratch_bytes}"
        )
    return CompiledFunction(emit_program(allocation, encoder), attrs, allocation)


def generate(function: relay.Function) -> tvm.runtime.Module:
    """Return the module of an NPU function for what ``relay.build`` was asked for."""
    request = current_request()
    compiled = compile_function(function)
    options = compiled.attrs.options
    _check_request(request, options)
    request.compiled.append(compiled)
    if request.makes_c:
        return c_module(compiled.program, options.memory_mode)
    return host_module(compiled.program)


def no_constants(_function: relay.Function, _symbol: str) -> dict[str, tvm.nd.NDArray]:
    """Return the constants that TVM must keep for a function: none, the program holds its own.

    Without this, TVM lifts the weights of NPU functions into the network's parameters, and the
    AOT executor then fails to find inputs of their names.
    """
    return {}


def register_codegen() -> None:
    """Register the code generator under the name that partitioned functions carry."""
    tvm.register_func("relay.ext.ethos-u", generate, override=True)
    tvm.register_func("relay.ext.ethos-u.constant_updater", no_constants, override=True)
