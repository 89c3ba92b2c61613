"""A network run on the simulator, and its numbers compared with TFLite Micro's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tvm_ethosu.backend.host import NpuCall, observe_npu_calls
from tvm_ethosu.backend.network import build_for_host, partition_file
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.rewrite import npu_functions
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
    largest_difference: int

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
    """A network built for this host; ``npu_outputs`` names the tensors that NPU functions write.

    ``npu_outputs`` maps a function's name to its outputs' names in the TFLite file.
    """

    file: TfliteFile
    executor: Any
    npu_outputs: dict[str, tuple[str, ...]]

    @property
    def inputs(self) -> tuple[TfliteTensor, ...]:
        """Return the network's inputs."""
        return tuple(self.file.tensors[index] for index in self.file.inputs)


def npu_output_tensors(module: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """Return for each NPU function the names in the model of the tensors that it writes."""
    found = {}
    for name, function in npu_functions(module).items():
        graph = to_npu_graph(function, name, with_scratch=True)
        found[name] = tuple(graph.tensors[output].origin for output in graph.outputs)
    return found


def load_for_host(file: TfliteFile, options: EthosUOptions) -> HostNetwork:
    """Partition and build a network for this host."""
    module = partition_file(file, options)
    return HostNetwork(file, build_for_host(module), npu_output_tensors(module))


def run_once(network: HostNetwork, inputs: Sequence[Array]) -> Inference:
    """Run the network on one set of inputs, in the order of the file's inputs."""
    executor = network.executor
    for tensor, data in zip(network.inputs, inputs, strict=True):
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
        try:
            data = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: not a readable .npy file ({error})") from None
        if not isinstance(data, np.ndarray) or (data.shape, str(data.dtype)) != (
            tensor.shape,
            tensor.dtype,
        ):
            got = f"{getattr(data, 'dtype', type(data).__name__)} {getattr(data, 'shape', '')}"
            raise UserError(
                f"{path}: does not fit input '{tensor.name}' "
                f"(got {got}, needs {tensor.dtype} {tensor.shape})"
            )
        arrays.append(data)
    return arrays


class Checker:
    """Compares runs of a network with the reference and adds up what differs."""

    def __init__(self, network: HostNetwork) -> None:
        self.network = network
        self.names = [name for names in network.npu_outputs.values() for name in names]
        inner = [name for name in dict.fromkeys(self.names) if not self._is_output(name)]
        self.reference = Reference(network.file.data, inner)
        self.inner = inner
        self.differing: dict[tuple[str, bool], int] = {}
        self.elements: dict[tuple[str, bool], int] = {}
        self.largest: dict[tuple[str, bool], int] = {}

    def _is_output(self, name: str) -> bool:
        file = self.network.file
        return name in [file.tensors[index].name for index in file.outputs]

    def _add(self, name: str, on_npu: bool, ours: Array, expected: Array) -> None:
        key = (name, on_npu)
        difference = np.abs(ours.astype(np.int64) - expected.astype(np.int64).reshape(ours.shape))
        self.elements[key] = self.elements.get(key, 0) + difference.size
        self.differing[key] = self.differing.get(key, 0) + int(np.count_nonzero(difference))
        largest = int(difference.max(initial=0))
        self.largest[key] = max(self.largest.get(key, 0), largest)

    def add(self, inputs: Sequence[Array], inference: Inference) -> None:
        """Run the reference on the same inputs and compare."""
        file = self.network.file
        tensors = self.reference.run(inputs)
        output_names = [file.tensors[index].name for index in file.outputs]
        expected = dict(zip([*output_names, *self.inner], tensors, strict=True))
        for call in inference.calls:
            names = self.network.npu_outputs[call.name]
            for name, data in zip(names, call.outputs, strict=True):
                like = expected[name]
                self._add(name, True, data.view(like.dtype).reshape(like.shape), like)
        for name, data in zip(output_names, inference.outputs, strict=True):
            if name not in self.names:
                self._add(name, False, data, expected[name])

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return one comparison per tensor, those of the NPU first."""
        keys = sorted(self.elements, key=lambda key: not key[1])
        return tuple(
            Comparison(name, on_npu, self.elements[key], self.differing[key], self.largest[key])
            for key in keys
            for name, on_npu in [key]
        )
