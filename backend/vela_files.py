"""TFLite files compiled by Vela: read them, and run them with the simulator as the NPU.

Such a file has one ``ethos-u`` custom operator per NPU call. Its inputs are the driver payload, the
read-only bytes (region 0), the scratch arena (region 1), the fast scratch (region 2) and then the
feature maps; its outputs are feature maps. The ``OfflineMemoryAllocation`` metadata gives each
tensor's arena offset, -1 for tensors without one. The remaining operators run on TensorFlow Lite
Micro's reference kernels, each as a network of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from ethosu.vela.tflite.Model import Model

from tvm_ethosu.backend.sim import (
    Accelerator,
    LiveTensor,
    MemoryFault,
    Region,
    RunReport,
    Stream,
    decode,
    run,
)
from tvm_ethosu.backend.sim.words import payload_accelerator, payload_words
from tvm_ethosu.backend.tflm import TflmError, TflmNetwork
from tvm_ethosu.partition.flatbuffer import read_model
from tvm_ethosu.scheduler.errors import InternalError, Unsupported, UserError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_CUSTOM_CODE: Final = b"ethos-u"
_REGION_INPUTS: Final = 4
_LEFT_OUT: Final = -1
_MAX_ARENA_BYTES: Final = 1 << 28
_CONSTANTS, _SCRATCH, _FAST = range(3)
_ALLOCATION: Final = b"OfflineMemoryAllocation"
_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {0: "<f4", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1"}
)


class Core(Enum):
    """Vela's two compilers."""

    REGOR = "regor"
    LEGACY = "legacy"


class MemoryMode(Enum):
    """Where Vela puts the arena; the value is its name in Vela's file."""

    SHARED_SRAM = "Shared_Sram"
    SRAM_ONLY = "Sram_Only"
    DEDICATED_SRAM = "Dedicated_Sram"


@dataclass(frozen=True)
class VelaOptions:
    """One way to call Vela; ``optimise`` is ``Performance`` or ``Size``."""

    accelerator: Accelerator
    core: Core = Core.REGOR
    optimise: str = "Performance"
    memory_mode: MemoryMode | None = None
    arena_cache_size: int | None = None

    @property
    def mode(self) -> MemoryMode:
        """Return the memory mode, by default what suits the accelerator."""
        if self.memory_mode is not None:
            return self.memory_mode
        return MemoryMode.DEDICATED_SRAM if self.accelerator.is_u65 else MemoryMode.SHARED_SRAM

    @property
    def system_config(self) -> str:
        """Return the system configuration of Vela's file that knows the memories used."""
        if not self.accelerator.is_u65:
            return "Ethos_U55_High_End_Embedded"
        dedicated = self.mode is MemoryMode.DEDICATED_SRAM
        return "Ethos_U65_High_End" if dedicated else "Ethos_U65_Embedded"


@dataclass(frozen=True)
class Tensor:
    """A tensor; ``offset`` is its place in the arena, ``data`` its bytes if it is a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int | None
    data: bytes | None

    @property
    def size_bytes(self) -> int:
        """Return the bytes the tensor takes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class NpuOperator:
    """An NPU call: its stream, and tensor indices for regions 0..2, inputs and outputs."""

    accelerator: Accelerator
    payload: bytes = field(repr=False)
    stream: Stream
    regions: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class CpuOperator:
    """An operator that stayed on the CPU: operator ``index`` of the TFLite file ``model``."""

    model: bytes = field(repr=False)
    index: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A compiled network: tensors, operators in order, tensor indices of its ends."""

    tensors: tuple[Tensor, ...]
    operators: tuple[NpuOperator | CpuOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def payloads(self) -> tuple[bytes, ...]:
        """Return the driver payloads of the NPU calls."""
        return tuple(op.payload for op in self.operators if isinstance(op, NpuOperator))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Return the decoded streams of the NPU calls."""
        return tuple(op.stream for op in self.operators if isinstance(op, NpuOperator))


@dataclass(frozen=True)
class NetworkRun:
    """Outputs in the network's order and the simulator's report per NPU call."""

    outputs: tuple[Array, ...]
    reports: tuple[RunReport, ...] = field(repr=False)


def compile_with_vela(
    source: Path, output_dir: Path, options: VelaOptions, *, raw: bool = False
) -> Path:
    """Compile a TFLite file; return the compiled file, or with ``raw`` the .npz of its NPU call.

    Vela runs in a process of its own: its Python core keeps caches between calls in one process.
    Raises UserError with Vela's words when it fails.
    """
    command = [
        sys.executable,
        "-m",
        "ethosu.vela",
        str(source),
        f"--output-dir={output_dir}",
        f"--accelerator-config={options.accelerator.value}",
        "--config=Arm/vela.ini",
        f"--system-config={options.system_config}",
        f"--memory-mode={options.mode.value}",
        f"--optimise={options.optimise}",
    ]
    if options.core is Core.LEGACY:
        command.append("--debug-force-legacy-core")
    if raw:
        command.append("--output-format=raw")
    if options.arena_cache_size is not None:
        command.append(f"--arena-cache-size={options.arena_cache_size}")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    made = sorted(output_dir.glob(f"{source.stem}_vela*{'.npz' if raw else '.tflite'}"))
    if result.returncode or not made:
        tail = (result.stdout + result.stderr).strip()[-800:]
        raise UserError(f"vela: {source.name} does not compile: {tail}")
    return made[0]


def read_network(model: bytes) -> Network:
    """Read a TFLite file; operators other than NPU calls are kept as networks of one operator.

    Raises UserError when it is damaged or has several subgraphs, SimulationError for a bad stream.
    """
    if model[4:8] != b"TFL3":
        raise UserError("not a TFLite file: no TFL3 at byte 4")
    read_model(model)  # every offset is checked before the accessors below follow it
    root = Model.GetRootAsModel(bytearray(model), 0)
    if root.SubgraphsLength() != 1:
        raise UserError(f"{root.SubgraphsLength()} subgraphs (limit 1)")
    graph = root.Subgraphs(0)
    offsets = _offsets(root, graph.TensorsLength())
    tensors = tuple(
        _tensor(root, graph.Tensors(index), offsets[index]) for index in range(len(offsets))
    )
    operators = tuple(
        _operator(model, root, graph.Operators(index), index, tensors)
        for index in range(graph.OperatorsLength())
    )
    inputs, outputs = (_indices(graph, name, len(tensors)) for name in ("Inputs", "Outputs"))
    return Network(tensors, operators, inputs, outputs)


def run_network(network: Network, inputs: Sequence[Array], *, strict: bool = True) -> NetworkRun:
    """Run a network on one set of inputs, in the order of its inputs.

    Raises SimulationError from NPU calls, and where an operator overwrites a tensor that a later
    one reads; Unsupported when TensorFlow Lite Micro lacks an operator.
    """
    storage = _Storage(network)
    for index, values in zip(network.inputs, inputs, strict=True):
        storage.store(index, np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    reports: list[RunReport] = []
    uses = _uses(network)
    for position, operator in enumerate(network.operators):
        kept = {i: storage.bytes_of(i).copy() for i in _still_used(uses, operator, position)}
        if isinstance(operator, NpuOperator):
            ended = tuple(_ended_tensors(network, operator, uses, position))
            reports.append(_run_npu(operator, storage, ended, strict=strict))
        else:
            _run_cpu(operator, network, storage)
        _check_kept(kept, storage, network, uses, position)
    return NetworkRun(tuple(storage.array(index) for index in network.outputs), tuple(reports))


def reference_runner(model: bytes) -> Callable[[Sequence[Array]], tuple[Array, ...]]:
    """Return a function that runs a TFLite file on TensorFlow Lite Micro's reference kernels.

    Raises Unsupported, as does the function, when it lacks an operator; UserError when it crashes.
    """
    outputs = Model.GetRootAsModel(bytearray(model), 0).Subgraphs(0).OutputsLength()
    try:
        network = TflmNetwork(model, outputs)
    except TflmError as error:
        raise Unsupported(f"tflite-micro: cannot prepare the network: {error}") from None

    def call(inputs: Sequence[Array]) -> tuple[Array, ...]:
        try:
            return tuple(network.run(inputs))
        except TflmError as error:
            raise Unsupported(f"tflite-micro: cannot run the network: {error}") from None

    return call


class _Storage:
    """Bytes of all tensors; tensors with an offset share the arena.

    The fast scratch is a memory apart, although its offset in the file is 0: with a dedicated SRAM
    it holds other data than the arena, and without one no stream uses it.
    """

    def __init__(self, network: Network) -> None:
        self._tensors = network.tensors
        self._apart = {
            op.regions[_FAST]
            for op in network.operators
            if isinstance(op, NpuOperator) and op.regions[_FAST] != op.regions[_SCRATCH]
        }
        ends = [
            tensor.offset + tensor.size_bytes
            for index, tensor in enumerate(network.tensors)
            if tensor.offset is not None and index not in self._apart
        ]
        self.arena = np.zeros(max(ends, default=0), np.uint8)
        self._own: dict[int, Array] = {}

    def bytes_of(self, index: int) -> Array:
        """Return a tensor's bytes, shared with the arena or with later calls."""
        tensor = self._tensors[index]
        if tensor.offset is not None and tensor.data is None and index not in self._apart:
            return self.arena[tensor.offset : tensor.offset + tensor.size_bytes]
        if index not in self._own:
            if tensor.data is not None:
                self._own[index] = np.frombuffer(tensor.data, np.uint8)
            else:
                self._own[index] = np.zeros(tensor.size_bytes, np.uint8)
        return self._own[index]

    def store(self, index: int, values: Array) -> None:
        """Set a tensor's bytes."""
        target = self.bytes_of(index)
        if target.size != values.size:
            name = self._tensors[index].name
            raise InternalError(
                f"tensor {name}: wrong size (got {values.size}, limit {target.size})"
            )
        target[...] = values

    def array(self, index: int) -> Array:
        """Return a copy of a tensor with its shape and type."""
        tensor = self._tensors[index]
        return self.bytes_of(index).copy().view(tensor.dtype).reshape(tensor.shape)


@dataclass(frozen=True)
class _Use:
    """Operators of the file: ``first`` writes a tensor (-1: an input), ``last`` reads it last."""

    first: int
    last: int


def _uses(network: Network) -> dict[int, _Use]:
    """Return the live range of each tensor in the arena, as far as the file shows it."""
    first = dict.fromkeys(network.inputs, -1)
    last: dict[int, int] = {}
    for position, operator in enumerate(network.operators):
        for index in operator.outputs:
            first.setdefault(index, position)
        last |= dict.fromkeys((*operator.inputs, *operator.outputs), position)
    last |= dict.fromkeys(network.outputs, len(network.operators))
    return {
        index: _Use(first.get(index, -1), last[index])
        for index in last
        if network.tensors[index].offset is not None and network.tensors[index].data is None
    }


def _still_used(
    uses: Mapping[int, _Use], operator: NpuOperator | CpuOperator, position: int
) -> Iterator[int]:
    """Yield the tensors that an operator must leave as they are."""
    for index, use in uses.items():
        if use.first < position < use.last and index not in operator.outputs:
            yield index


def _check_kept(
    kept: Mapping[int, Array],
    storage: _Storage,
    network: Network,
    uses: Mapping[int, _Use],
    position: int,
) -> None:
    for index, before in kept.items():
        changed = np.flatnonzero(storage.bytes_of(index) != before)
        if changed.size:
            raise MemoryFault(
                f"operator {position} of the file overwrites byte {changed[0]:#x} of tensor "
                f"{network.tensors[index].name}, which is used until operator {uses[index].last}"
            )


def _ended_tensors(
    network: Network, operator: NpuOperator, uses: Mapping[int, _Use], position: int
) -> Iterator[LiveTensor]:
    """Yield the tensors whose remains an NPU call may find in its arena."""
    arena = network.tensors[operator.regions[_SCRATCH]]
    for index, use in uses.items():
        tensor = network.tensors[index]
        if arena.offset is None or tensor.offset is None or use.last >= position:
            continue
        start = max(0, tensor.offset - arena.offset)
        stop = min(arena.size_bytes, tensor.offset - arena.offset + tensor.size_bytes)
        if start < stop:
            last_use = f"operator {use.last} of the file"
            yield LiveTensor(tensor.name, 1, start, stop, -1, use.last - position, last_use)


def _run_npu(
    operator: NpuOperator, storage: _Storage, ended: Sequence[LiveTensor], *, strict: bool
) -> RunReport:
    arena = storage.bytes_of(operator.regions[_SCRATCH])
    written = _input_ranges(operator, storage, arena)
    regions = {
        0: Region(storage.bytes_of(operator.regions[_CONSTANTS]), read_only=True),
        1: Region(arena, initialised=False, written=written),
    }
    if operator.regions[_FAST] != operator.regions[_SCRATCH]:
        regions[2] = Region(storage.bytes_of(operator.regions[_FAST]), initialised=False)
    return run(operator.stream, regions, strict=strict, tensors=ended)


def _input_ranges(
    operator: NpuOperator, storage: _Storage, arena: Array
) -> tuple[tuple[int, int], ...]:
    base = arena.__array_interface__["data"][0]
    ranges = []
    for index in operator.inputs:
        data = storage.bytes_of(index)
        start = data.__array_interface__["data"][0] - base
        if start >= 0 and start + data.size <= arena.size:
            ranges.append((start, start + data.size))
    return tuple(ranges)


def _run_cpu(operator: CpuOperator, network: Network, storage: _Storage) -> None:
    variable = [index for index in operator.inputs if network.tensors[index].data is None]
    run_operator = _operator_runner(operator.model, operator.index)
    results = run_operator([storage.array(index) for index in variable])
    for index, values in zip(operator.outputs, results, strict=True):
        storage.store(index, np.ascontiguousarray(values).reshape(-1).view(np.uint8))


def _offsets(root: Any, count: int) -> list[int | None]:
    for index in range(root.MetadataLength()):
        entry = root.Metadata(index)
        if entry.Name() == _ALLOCATION:
            data = _buffer(root, entry.Buffer()) or b""
            words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
            if words.size < 3 + count:
                raise UserError(f"OfflineMemoryAllocation lists too few tensors (limit {count})")
            return [int(word) if word >= 0 else None for word in words[3 : 3 + count]]
    return [None] * count


def _tensor(root: Any, table: Any, offset: int | None) -> Tensor:
    if table.Type() not in _TYPES:
        raise UserError(f"tensor type {table.Type()} is not known")
    shape = () if table.ShapeIsNone() else tuple(int(n) for n in table.ShapeAsNumpy())
    name = (table.Name() or b"").decode(errors="replace")
    tensor = Tensor(name, shape, _TYPES[table.Type()], offset, _buffer(root, table.Buffer()))
    end = (offset or 0) + tensor.size_bytes
    if min(shape, default=0) < 0 or end > _MAX_ARENA_BYTES:
        raise UserError(
            f"tensor {name} of shape {list(shape)} ends at byte {end} (limit {_MAX_ARENA_BYTES})"
        )
    # Vela's Python core leaves out the extent of what a RESHAPE reads: it may have more bytes.
    if tensor.data is not None and len(tensor.data) < tensor.size_bytes:
        raise UserError(
            f"tensor {name} has {len(tensor.data)} bytes of data, takes {tensor.size_bytes}"
        )
    return tensor


def _buffer(root: Any, index: int) -> bytes | None:
    """Return the bytes of a buffer of the file, None if it is empty."""
    if not 0 <= index < root.BuffersLength():
        raise UserError(f"no such buffer (got {index}, limit {root.BuffersLength() - 1})")
    buffer = root.Buffers(index)
    empty = buffer.DataIsNone() or not buffer.DataLength()
    return None if empty else bytes(buffer.DataAsNumpy())


def _indices(table: Any, name: str, tensors: int, least: int = 0) -> tuple[int, ...]:
    """Return the numbers of tensors in a list of the file."""
    if getattr(table, f"{name}Length")() == 0:
        return ()
    indices = tuple(int(index) for index in getattr(table, f"{name}AsNumpy")())
    for index in indices:
        if not least <= index < tensors:
            raise UserError(f"no such tensor (got {index}, limit {tensors - 1})")
    return indices


def _operator(
    model: bytes, root: Any, table: Any, index: int, tensors: tuple[Tensor, ...]
) -> NpuOperator | CpuOperator:
    outputs = _indices(table, "Outputs", len(tensors))
    inputs = _indices(table, "Inputs", len(tensors), least=_LEFT_OUT)
    code = table.OpcodeIndex()
    if not 0 <= code < root.OperatorCodesLength():
        raise UserError(f"operator {index} has no such code (got {code})")
    if root.OperatorCodes(code).CustomCode() != _CUSTOM_CODE:
        present = tuple(dict.fromkeys(number for number in inputs if number >= 0))
        return CpuOperator(model, index, present, outputs)
    payload = tensors[inputs[0]].data if inputs else None
    if payload is None:
        raise UserError("an ethos-u operator has no command stream")
    if len(inputs) < _REGION_INPUTS or min(inputs) < 0:
        raise UserError(f"an ethos-u operator needs {_REGION_INPUTS} inputs (got {list(inputs)})")
    accelerator = payload_accelerator(payload)
    stream = decode(payload_words(payload), accelerator)
    regions, maps = inputs[1:_REGION_INPUTS], inputs[_REGION_INPUTS:]
    return NpuOperator(accelerator, payload, stream, regions, maps, outputs)


@lru_cache(maxsize=64)
def _operator_runner(model: bytes, index: int) -> Callable[[Sequence[Array]], tuple[Array, ...]]:
    return reference_runner(_cut_out(model, index))


def _cut_out(model: bytes, index: int) -> bytes:
    """Return a TFLite file with operator ``index`` alone; its variable inputs become inputs."""
    import flatbuffers
    from tflite_micro.tensorflow.lite.micro.python import (
        schema_py_generated as schema,
    )

    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(bytearray(model), 0))
    graph = tree.subgraphs[0]
    operator = graph.operators[index]
    graph.operators = [operator]
    used = [int(number) for number in operator.inputs if number >= 0]

    def is_constant(number: int) -> bool:
        data = tree.buffers[graph.tensors[number].buffer].data
        return data is not None and len(data) > 0

    graph.inputs = [number for number in dict.fromkeys(used) if not is_constant(number)]
    graph.outputs = [int(number) for number in operator.outputs]
    tree.metadata = []
    builder = flatbuffers.Builder(len(model))
    builder.Finish(tree.Pack(builder), b"TFL3")
    return bytes(builder.Output())
