"""A compiled NPU function: command streams, constants, and what each base pointer must hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from tvm_ethosu.scheduler.errors import InternalError

CONSTANTS_REGION = 0
SCRATCH_REGION = 1
FIRST_IO_REGION = 2

# The last kernel of a tensor that outlives the program: more than any has.
FOR_EVER = (1 << 31) - 1


class Source(Enum):
    """Where the memory behind a base pointer comes from."""

    CONSTANTS = "constants"
    SCRATCH = "scratch"
    ARGUMENT = "argument"


@dataclass(frozen=True)
class Binding:
    """One base pointer: ``argument`` counts the function's inputs, then its outputs."""

    region: int
    source: Source
    size_bytes: int
    read_only: bool
    argument: int = -1


@dataclass(frozen=True)
class Invocation:
    """One run of the NPU: its command stream and its base pointers."""

    words: tuple[int, ...]
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class Argument:
    """An input or output of the function."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class ScratchTensor:
    """A tensor's place in the scratch memory, and from which kernel to which it is in use.

    Kernel operations count through all invocations, from 0; ``first`` and ``last`` are included.
    With ``argument`` it lies in the memory of that argument, counted as in a ``Binding``.
    """

    name: str
    offset: int
    size_bytes: int
    first: int
    last: int
    argument: int | None = None


@dataclass(frozen=True)
class Program:
    """All that is needed to run one NPU function.

    The function is called with ``inputs``, ``outputs`` and the scratch memory, in this order.
    There is one invocation, or several where there are more inputs and outputs than base pointers.
    ``tensors`` is the memory map of the scratch and of arguments that hold other data for a time,
    for whoever checks what the program does there.

    With ``shared``, an input and an output are expected in one piece of memory, that of the first
    of these two arguments. Called with two, the function copies the second one to it or from it.
    """

    name: str
    accelerator: str
    invocations: tuple[Invocation, ...]
    constants: bytes
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    scratch_bytes: int
    macs: int
    tensors: tuple[ScratchTensor, ...] = ()
    shared: tuple[int, int] | None = None

    @property
    def command_stream_bytes(self) -> int:
        """Return the bytes of all command streams."""
        return sum(4 * len(invocation.words) for invocation in self.invocations)

    @property
    def copied_in(self) -> tuple[int, int] | None:
        """Return the arguments to and from which an input is copied if they are not the same."""
        return self.shared if self.shared and self.shared[1] < len(self.inputs) else None

    @property
    def copied_out(self) -> tuple[int, int] | None:
        """Return the arguments to and from which an output is copied if they are not the same."""
        return self.shared[::-1] if self.shared and self.shared[1] >= len(self.inputs) else None

    @property
    def argument_count(self) -> int:
        """Return how many pointers the function takes, the scratch included."""
        return len(self.inputs) + len(self.outputs) + 1


def to_bytes(program: Program) -> bytes:
    """Return the program as bytes that ``from_bytes`` reads: a JSON line, then the constants."""
    head = asdict(program) | {"constants": len(program.constants)}
    text = json.dumps(head, default=lambda source: source.value, separators=(",", ":"))
    return text.encode() + b"\n" + program.constants


def from_bytes(data: bytes) -> Program:
    """Return the program that ``to_bytes`` wrote.

    Raises:
        InternalError: the bytes are not of that form, as in a module of another version.
    """
    text, separator, constants = data.partition(b"\n")
    try:
        head = json.loads(text)
        sized = separator and head["constants"] == len(constants)
        if not sized:
            raise InternalError("NPU program: the constants have another size than stated")
        return Program(
            **head
            | {
                "constants": constants,
                "invocations": tuple(map(_invocation, head["invocations"])),
                "inputs": tuple(Argument(**argument) for argument in head["inputs"]),
                "outputs": tuple(Argument(**argument) for argument in head["outputs"]),
                "tensors": tuple(ScratchTensor(**tensor) for tensor in head["tensors"]),
                "shared": None if head["shared"] is None else tuple(head["shared"]),
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InternalError(f"NPU program: not readable ({error})") from error


def _invocation(head: dict[str, Any]) -> Invocation:
    bindings = (Binding(**b | {"source": Source(b["source"])}) for b in head["bindings"])
    return Invocation(tuple(head["words"]), tuple(bindings))
