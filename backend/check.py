"""A network run on the simulator, and its numbers compared with TFLite Micro's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tvm_ethosu.backend.arrays import load_array
from tvm_ethosu.backend.host import Bytes, NpuCall, as_bytes, observe_npu_calls, run_on
from tvm_ethosu.backend.network import build_for_host, partition_file
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.relay.attrs import FunctionTensors
from tvm_ethosu.partition.relay.tensor_names import function_tensors
from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteTensor
from tvm_ethosu.scheduler.errors import UserError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """How one tensor agrees with the reference over all inputs that were run.

    ``on_npu`` tells whether an NPU function wrote it; other tensors come from CPU operators,
    which TVM computes in its own arithmetic.
    """

    tensor: str
    on_npu: bool
    elements: int
    differing: int
    largest_difference: float

    @property
    def is_equal(self) -> bool:
        """Return whether every element is equal."""
        return self.differing == 0


@dataclass(frozen=True)
class Inference:
    """One run: the network's outputs, and what the NPU functions were given and gave."""

    outputs: tuple[Array, ...]
    calls: tuple[NpuCall, ...]


@dataclass(frozen=True, eq=False)
class HostNetwork:
    """A network built for this host, with the tensors of its NPU functions by function name."""

    file: TfliteFile
    executor: Any
    functions: dict[str, FunctionTensors]

    @property
    def inputs(self) -> tuple[TfliteTensor, ...]:
        """Return the network's inputs."""
        return tuple(self.file.tensors[index] for index in self.file.inputs)


def load_for_host(file: TfliteFile, options: EthosUOptions) -> HostNetwork:
    """Partition and build a network for this host."""
    module = partition_file(file, options)
    return HostNetwork(file, build_for_host(module), function_tensors(module))


def run_once(network: HostNetwork, inputs: Sequence[Array]) -> Inference:
    """Run the network on one set of inputs, in the order of the file's inputs."""
    executor = network.executor
    for tensor, data in zip(network.inputs, inputs, strict=True):
        # An input that no operator reads is not there any more.
        if executor.get_input_index(tensor.name) >= 0:
            executor.set_input(tensor.name, tvm.nd.array(data))
    with observe_npu_calls() as calls:
        executor.run()
    outputs = tuple(executor.get_output(i).numpy() for i in range(executor.get_num_outputs()))
    return Inference(outputs, tuple(calls))


def random_inputs(file: TfliteFile, rng: np.random.Generator) -> list[Array]:
    """Return inputs drawn evenly from the whole range of their types."""
    drawn = []
    for index in file.inputs:
        tensor = file.tensors[index]
        if tensor.dtype == "float32":
            drawn.append(rng.standard_normal(tensor.shape).astype(np.float32))
            continue
        info = np.iinfo(tensor.dtype)
        values = rng.integers(info.min, info.max, tensor.shape, endpoint=True)
        drawn.append(values.astype(tensor.dtype))
    return drawn


def load_inputs(file: TfliteFile, paths: Sequence[Path]) -> list[Array]:
    """Return the arrays of .npy files, one per input of the network.

    Raises:
        UserError: a file is missing or no array, or the number, a shape or a type differs.
    """
    if len(paths) != len(file.inputs):
        raise UserError(f"inputs: the network has {len(file.inputs)} (got {len(paths)} files)")
    arrays = []
    for path, index in zip(paths, file.inputs, strict=True):
        tensor = file.tensors[index]
        data = load_array(path)
        if (data.shape, str(data.dtype)) != (tensor.shape, tensor.dtype):
            raise UserError(
                f"{path}: does not fit input '{tensor.name}' "
                f"(got {data.dtype} {data.shape}, needs {tensor.dtype} {tensor.shape})"
            )
        arrays.append(data)
    return arrays


class _Tally:
    """What has been added up for one tensor."""

    def __init__(self) -> None:
        self.elements = 0
        self.differing = 0
        self.largest: float = 0

    def add(self, ours: Array, expected: Array) -> None:
        wide = np.float64 if expected.dtype.kind == "f" else np.int64
        difference = np.abs(ours.astype(wide) - expected.astype(wide).reshape(ours.shape))
        self.elements += difference.size
        self.differing += int(np.count_nonzero(difference))
        self.largest = max(self.largest, difference.max(initial=0).item())


class Checker:
    """Compares runs of a network with the reference and adds up what differs.

    An NPU function is judged by what it makes of the reference's inputs: where a CPU operator
    before it gave other numbers (TVM computes those in its own arithmetic), the function is run
    once more on the reference's.
    """

    def __init__(self, network: HostNetwork) -> None:
        self.network = network
        file = network.file
        self.output_names = [file.tensors[index].name for index in file.outputs]
        self.known = {tensor.name for tensor in file.tensors}
        used = [name for f in network.functions.values() for name in (*f.inputs, *f.outputs)]
        given = {file.tensors[index].name for index in (*file.outputs, *file.inputs)}
        wanted = dict.fromkeys(name for name in used if name in self.known and name not in given)
        self.inner = [name for name in wanted if name is not None]
        self.reference = Reference(file.data, self.inner)
        self.tallies: dict[tuple[str, bool], _Tally] = {}

    def _tally(self, name: str, on_npu: bool) -> _Tally:
        return self.tallies.setdefault((name, on_npu), _Tally())

    def _expected(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Return the reference's tensors by name, the network's inputs among them."""
        names = [self.network.file.tensors[index].name for index in self.network.file.inputs]
        tensors = self.reference.run(inputs)
        inner = zip([*self.output_names, *self.inner], tensors, strict=True)
        return dict(zip(names, inputs, strict=True)) | dict(inner)

    def _outputs_for(self, call: NpuCall, expected: dict[str, Array]) -> tuple[Bytes, ...]:
        """Return what the function makes of the reference's inputs."""
        arguments = []
        for name, ours in zip(self.network.functions[call.name].inputs, call.inputs, strict=True):
            like = expected.get(name) if name is not None else None
            has_bytes = like is not None and like.nbytes == ours.nbytes
            arguments.append(as_bytes(like) if has_bytes and like is not None else ours)
        same = all(np.array_equal(a, b) for a, b in zip(arguments, call.inputs, strict=True))
        return call.outputs if same else run_on(call.loaded, arguments)

    def add(self, inputs: Sequence[Array], inference: Inference) -> None:
        """Run the reference on the same inputs and compare."""
        expected = self._expected(inputs)
        for call in inference.calls:
            names = self.network.functions[call.name].outputs
            for name, data in zip(names, self._outputs_for(call, expected), strict=True):
                like = expected[name]
                self._tally(name, True).add(data.view(like.dtype).reshape(like.shape), like)
        for name, data in zip(self.output_names, inference.outputs, strict=True):
            if (name, True) not in self.tallies:
                self._tally(name, False).add(data, expected[name])

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return one comparison per tensor, those of the NPU first."""
        ordered = sorted(self.tallies.items(), key=lambda item: not item[0][1])
        return tuple(
            Comparison(name, on_npu, tally.elements, tally.differing, tally.largest)
            for (name, on_npu), tally in ordered
        )
