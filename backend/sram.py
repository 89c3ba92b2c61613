"""The SRAM that TVM planned for a whole network, and the proof that it keeps to the limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_ethosu.backend.build_context import BuildRequest
from tvm_ethosu.partition.relay.attrs import read_attrs
from tvm_ethosu.partition.relay.let_chain import tensor_bytes, tensor_types
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.relay.used_memory import io_place
from tvm_ethosu.scheduler.budget import IoPlace
from tvm_ethosu.scheduler.errors import Infeasible
from tvm_ethosu.scheduler.liveness import align


@dataclass(frozen=True)
class PlannedSram:
    """The arena: ``pool_bytes`` as USMP planned it, beside the network's inputs and outputs."""

    pool_bytes: int
    io_bytes: int

    @property
    def total_bytes(self) -> int:
        """Return all bytes of SRAM that tensors use."""
        return align(self.pool_bytes) + self.io_bytes


def _sizes(function: relay.Function) -> tuple[list[int], list[int]]:
    """Return the bytes of each input and of each output, rounded up to 16."""

    def sizes(of: tvm.ir.Type) -> list[int]:
        return [align(tensor_bytes(tensor)) for tensor in tensor_types(of, "an input or output")]

    given = [size for param in function.params for size in sizes(param.checked_type)]
    return given, sizes(function.checked_type.ret_type)


def io_bytes(mod: tvm.IRModule) -> int:
    """Return the bytes of the network's inputs and outputs, each rounded up to 16.

    Two for which the program passes one buffer count once.
    """
    given, made = _sizes(mod["main"])
    saved = 0
    for function in npu_functions(mod).values():
        shared = read_attrs(function).shared
        if shared is not None:
            inputs, outputs = _sizes(function)
            saved += min(inputs[shared[0]], outputs[shared[1]])
    return sum(given) + sum(made) - saved


def planned_sram(metadata: Any, mod: tvm.IRModule) -> PlannedSram:
    """Return the arena of a network built for the AOT executor, under the pass context in force.

    ``metadata`` is the build's ``executor_codegen_metadata``, ``mod`` the partitioned module. Where
    inputs and outputs are in the pool, or not in this SRAM, they take nothing beside it.
    """
    pools = metadata.pool_inputs.values() if metadata is not None and metadata.pool_inputs else ()
    workspace = sum(
        int(pool.allocated_size)
        for pool in pools
        if isinstance(pool.pool_info, tvm.ir.memory_pools.WorkspacePoolInfo)
    )
    beside = io_place() is IoPlace.BESIDE_POOL
    return PlannedSram(workspace, io_bytes(mod) if beside else 0)


def check_planned_sram(build: Any, request: BuildRequest, mod: tvm.IRModule) -> None:
    """Check that what TVM planned keeps to the sram_size that the network was partitioned for.

    Raises:
        Infeasible: the arena is larger; TVM's estimate was used before, this is the real number.
    """
    limits = [
        f.attrs.options.sram_size for f in request.compiled if f.attrs.options.sram_size is not None
    ]
    if not limits or str(request.executor.name) != "aot" or not request.makes_c:
        return
    planned = planned_sram(build.get_executor_codegen_metadata(), mod)
    limit = min(limits)
    if planned.total_bytes > limit:
        raise Infeasible(
            f"network: the arena does not fit (needs {planned.total_bytes} bytes: "
            f"{planned.pool_bytes} bytes of tensors and scratch, {planned.io_bytes} bytes of "
            f"network inputs and outputs; sram_size is {limit} bytes, "
            f"{planned.total_bytes - limit} bytes too few)",
            required_bytes=planned.total_bytes,
            available_bytes=limit,
        )
