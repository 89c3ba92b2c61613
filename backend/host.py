"""NPU functions inside a host process: run by the simulator.

The host module of a function holds its program as constant data and calls back into Python with
the addresses of its arguments, so that a library exported by TVM carries all it needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tir
from tvm._ffi.runtime_ctypes import ArgTypeCode, TVMArray

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.program import (
    SCRATCH_REGION,
    Binding,
    Invocation,
    Program,
    Source,
    from_bytes,
    to_bytes,
)
from tvm_ethosu.scheduler.arch import ALIGN_BYTES
from tvm_ethosu.scheduler.errors import InternalError

Bytes = npt.NDArray[np.uint8]

RUNNER = "tvm_ethosu.run_program"


@dataclass(frozen=True)
class LoadedProgram:
    """A program with its command streams decoded."""

    program: Program
    streams: tuple[sim.Stream, ...]
    constants: Bytes


@dataclass(frozen=True)
class NpuCall:
    """One call of an NPU function: copies of its inputs and outputs, and what the NPU did."""

    loaded: LoadedProgram
    inputs: tuple[Bytes, ...]
    outputs: tuple[Bytes, ...]
    reports: tuple[sim.RunReport, ...]

    @property
    def name(self) -> str:
        """Return the function's name."""
        return self.loaded.program.name


def load_program(program: Program) -> LoadedProgram:
    """Decode a program's command streams."""
    accelerator = sim.Accelerator(program.accelerator)
    streams = tuple(
        sim.decode(np.asarray(invocation.words, np.uint32), accelerator)
        for invocation in program.invocations
    )
    return LoadedProgram(program, streams, np.frombuffer(program.constants, np.uint8).copy())


def _region(
    binding: Binding, loaded: LoadedProgram, arguments: Sequence[Bytes], written: set[int]
) -> sim.Region:
    """Return the memory behind a base pointer; ``written`` names arguments with defined bytes."""
    match binding.source:
        case Source.CONSTANTS:
            return sim.Region(loaded.constants, read_only=True)
        case Source.SCRATCH:
            data = arguments[-1][: binding.size_bytes]
            return sim.Region(data, initialised=False)
        case Source.ARGUMENT:
            data = arguments[binding.argument][: binding.size_bytes]
            # Where the memory map knows an argument, it also says when its bytes are defined.
            mapped = any(t.argument == binding.argument for t in loaded.program.tensors)
            defined = binding.argument in written and not mapped
            return sim.Region(data, binding.read_only, initialised=defined)


def run_program(loaded: LoadedProgram, arguments: Sequence[Bytes]) -> tuple[sim.RunReport, ...]:
    """Run an NPU function in place on its inputs, outputs and scratch, in this order.

    Raises:
        SimulationError: the stream does something that the hardware would not do right.
        InternalError: the number of arguments is not the function's.
    """
    program = loaded.program
    if len(arguments) != program.argument_count:
        raise InternalError(
            f"{program.name}: called with {len(arguments)} arguments, takes "
            f"{program.argument_count}"
        )
    reports = []
    written = set(range(len(program.inputs)))
    _copy(program.copied_in, arguments)
    kernels = 0
    for invocation, stream in zip(program.invocations, loaded.streams, strict=True):
        regions = {b.region: _region(b, loaded, arguments, written) for b in invocation.bindings}
        live = _live_tensors(program, kernels, invocation)
        reports.append(sim.run(stream, regions, tensors=live))
        # What this invocation wrote is there for the later ones; of the scratch, what still lives.
        written |= {b.argument for b in invocation.bindings if b.source is Source.ARGUMENT}
        kernels += stream.kernel_count
    _copy(program.copied_out, arguments)
    return tuple(reports)


def _copy(pair: tuple[int, int] | None, arguments: Sequence[Bytes]) -> None:
    """Copy to the first argument from the second, where the caller has two pieces of memory."""
    if pair is not None:
        size_bytes = min(arguments[argument].size for argument in pair)
        target, source = (arguments[argument][:size_bytes] for argument in pair)
        target[:] = source.copy()


def _live_tensors(program: Program, kernels: int, invocation: Invocation) -> list[sim.LiveTensor]:
    """Return the map of the memory for an invocation that begins after so many kernels."""
    regions: dict[int | None, int] = {b.argument: b.region for b in invocation.bindings}
    regions[None] = SCRATCH_REGION
    return [
        sim.LiveTensor(
            tensor.name,
            regions[tensor.argument],
            tensor.offset,
            tensor.offset + tensor.size_bytes,
            tensor.first - kernels,
            tensor.last - kernels,
            last_use="an earlier invocation",
        )
        for tensor in program.tensors
        if tensor.argument in regions
    ]


def as_bytes(data: npt.NDArray[Any]) -> Bytes:
    """Return an array's elements, in NHWC order, as bytes."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def run_on(loaded: LoadedProgram, inputs: Sequence[Bytes]) -> tuple[Bytes, ...]:
    """Run an NPU function on copies of these inputs and return its outputs."""
    program = loaded.program
    outputs = tuple(np.zeros(output.size_bytes, np.uint8) for output in program.outputs)
    scratch = np.zeros(max(program.scratch_bytes, 1), np.uint8)
    run_program(loaded, [*(data.copy() for data in inputs), *outputs, scratch])
    return outputs


_OBSERVED: ContextVar[list[NpuCall] | None] = ContextVar("tvm_ethosu_calls", default=None)


@contextlib.contextmanager
def observe_npu_calls() -> Iterator[list[NpuCall]]:
    """Collect every call of an NPU function that the host runs inside the ``with`` block."""
    calls: list[NpuCall] = []
    token = _OBSERVED.set(calls)
    try:
        yield calls
    finally:
        _OBSERVED.reset(token)


def call_program(loaded: LoadedProgram, arguments: Sequence[Bytes]) -> None:
    """Run an NPU function and tell whoever observes."""
    reports = run_program(loaded, arguments)
    calls = _OBSERVED.get()
    if calls is not None:
        count = len(loaded.program.inputs)
        inputs = tuple(argument.copy() for argument in arguments[:count])
        outputs = tuple(argument.copy() for argument in arguments[count:-1])
        calls.append(NpuCall(loaded, inputs, outputs, reports))


@functools.lru_cache(maxsize=64)
def _load_bytes(data: bytes) -> LoadedProgram:
    return load_program(from_bytes(data))


_TENSOR_CODES = (ArgTypeCode.DLTENSOR_HANDLE, ArgTypeCode.NDARRAY_HANDLE)


def _data_address(value: int, type_code: int) -> int:
    """Return where an argument's bytes are: executors pass tensors or plain pointers."""
    if type_code in _TENSOR_CODES:
        tensor = ctypes.cast(value, ctypes.POINTER(TVMArray)).contents
        return int(tensor.data) + int(tensor.byte_offset)
    return value


def _argument(address: int, size_bytes: int, name: str) -> Bytes:
    if address % ALIGN_BYTES:
        raise InternalError(
            f"{name}: an argument lies at an address that the NPU can't take "
            f"(got {address:#x}, must be a multiple of {ALIGN_BYTES})"
        )
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (size_bytes,))


def _run_packed(
    program: ctypes.c_void_p,
    program_bytes: int,
    values: ctypes.c_void_p,
    type_codes: ctypes.c_void_p,
    count: int,
) -> None:
    """Run the program at an address on the arguments of a packed call."""
    assert program.value is not None
    loaded = _load_bytes(ctypes.string_at(program.value, program_bytes))
    addresses = np.ctypeslib.as_array(
        ctypes.cast(values, ctypes.POINTER(ctypes.c_uint64)), (count,)
    )
    codes = np.ctypeslib.as_array(ctypes.cast(type_codes, ctypes.POINTER(ctypes.c_int32)), (count,))
    declared = (*loaded.program.inputs, *loaded.program.outputs)
    sizes = [argument.size_bytes for argument in declared] + [loaded.program.scratch_bytes]
    if len(sizes) != count:
        raise InternalError(f"{loaded.program.name}: called with {count} arguments")
    arguments = [
        _argument(_data_address(int(address), int(code)), size_bytes, loaded.program.name)
        for address, code, size_bytes in zip(addresses, codes, sizes, strict=True)
    ]
    call_program(loaded, arguments)


def register_runner() -> None:
    """Register with TVM the function that host modules call."""
    tvm.register_func(RUNNER, _run_packed, override=True)


def host_module(program: Program) -> tvm.runtime.Module:
    """Return an LLVM module with the function's symbol, in TVM's packed calling convention."""
    blob = np.frombuffer(to_bytes(program), np.uint8)
    data = tir.decl_buffer((blob.size,), "uint8", name="program")
    values, codes, count = (
        tir.Var("args", "handle"),
        tir.Var("arg_type_ids", "handle"),
        tir.Var("num_args", "int32"),
    )
    unused = [tir.Var(name, "handle") for name in ("ret_value", "ret_tcode", "resource_handle")]
    call = tir.Evaluate(tir.call_packed(RUNNER, data.data, blob.size, values, codes, count))
    body = tir.SeqStmt(
        [
            tir.AllocateConst(data.data, "uint8", [blob.size], tvm.nd.array(blob), call),
            tir.Evaluate(tir.ret(tir.const(0, "int32"))),
        ]
    )
    function = tir.PrimFunc(
        [values, codes, count, *unused], body, ret_type=tvm.ir.PrimType("int32")
    )
    attrs = {
        "global_symbol": program.name,
        "calling_conv": 1,  # CallingConv::kCPackedFunc
        "target": tvm.target.Target("llvm", host="llvm"),
    }
    for key, value in attrs.items():
        function = function.with_attr(key, value)
    return tvm.build(tvm.IRModule({program.name: function}), target="llvm")
