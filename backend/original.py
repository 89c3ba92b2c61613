"""A network before it was compiled, and what TFLite Micro makes of it: what a run is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tvm_ethosu.backend.cli_options import working
from tvm_ethosu.backend.program import Program
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.backend.sim import RunReport, Stream
from tvm_ethosu.backend.vela_files import Array, Network, read_network, reference_runner
from tvm_ethosu.scheduler.errors import UserError


@dataclass(frozen=True)
class Result:
    """What a run produced: streams with their reports, the outputs, and what they should be."""

    streams: tuple[Stream, ...]
    reports: tuple[RunReport, ...]
    outputs: tuple[Array, ...]
    expected: tuple[Array, ...] | None = None
    is_program: bool = False

    @property
    def differing(self) -> int | None:
        """Return how many output elements are not as expected; None if nothing is known of them."""
        if self.expected is None:
            return None
        return sum(
            int((ours.view(theirs.dtype).reshape(theirs.shape) != theirs).sum())
            for ours, theirs in zip(self.outputs, self.expected, strict=True)
        )


@dataclass(frozen=True)
class Original:
    """The network before it was compiled, to compare with."""

    path: Path
    model: bytes
    network: Network

    @classmethod
    def read(cls, path: Path) -> Original:
        """Read the file. Raises UserError."""
        model = path.read_bytes()
        with about(path):
            return cls(path, model, read_network(model))

    def check_inputs(self, compiled: Network) -> None:
        """Check that a compiled network has the same inputs. Raises UserError."""
        mine, others = (
            [(np.dtype(n.tensors[i].dtype).name, n.tensors[i].shape) for i in n.inputs]
            for n in (self.network, compiled)
        )
        if mine != others:
            raise self._other(f"inputs {_signature(mine)} (got {_signature(others)})")

    def typed(self, values: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return inputs given as bytes with the network's types and shapes. Raises UserError."""
        tensors = [self.network.tensors[index] for index in self.network.inputs]
        self._check_sizes("inputs", values, [tensor.size_bytes for tensor in tensors])
        return tuple(
            np.ascontiguousarray(value).reshape(-1).view(tensor.dtype).reshape(tensor.shape)
            for value, tensor in zip(values, tensors, strict=True)
        )

    def judge(self, values: tuple[Array, ...], result: Result) -> Result:
        """Return the result of these inputs with what TFLite Micro makes of them.

        Raises UserError.
        """
        with working("running TensorFlow Lite Micro"):
            expected = reference_runner(self.model)(values)
        self._check_sizes("outputs", result.outputs, [output.nbytes for output in expected])
        return replace(result, expected=tuple(expected))

    def arguments(
        self, program: Program, values: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return what a program of this network is given and should give, by TFLite Micro.

        ``values`` are the network's inputs; the program's arguments are found by their names, so
        that it may be any function of the network. Raises UserError.
        """
        arguments = (*program.inputs, *program.outputs)
        known = {tensor.name for tensor in self.network.tensors}
        for argument in arguments:
            if argument.name not in known:
                raise self._other(
                    f"it has no tensor {argument.name!r} (or the function begins inside of an "
                    "operator; tvm-ethosu run --check compares all that can be)"
                )
        with working("running TensorFlow Lite Micro"), about(self.path):
            reference = Reference(self.model, [argument.name for argument in arguments])
            arrays = reference.run(values)[len(self.network.outputs) :]
        self._check_sizes("tensors", arrays, [argument.size_bytes for argument in arguments])
        split = len(program.inputs)
        return tuple(arrays[:split]), tuple(arrays[split:])

    def _check_sizes(self, kind: str, arrays: Sequence[Array], sizes: list[int]) -> None:
        got = [array.nbytes for array in arrays]
        if got != sizes:
            raise self._other(f"{kind} of {sizes} bytes (got {got})")

    def _other(self, difference: str) -> UserError:
        return UserError(f"{self.path}: not the network that was compiled: {difference}")


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Put the file's name in front of what is wrong with it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def _signature(inputs: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape in inputs) or "none"
