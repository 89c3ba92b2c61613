"""Who holds the memory at each call of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm_ethosu.partition.liveness import Role
from tvm_ethosu.scheduler.liveness import align


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that is in memory while a call runs.

    ``producer`` and ``last_consumer`` name functions, or say 'network input' or 'network output'.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    role: Role
    producer: str
    last_consumer: str

    @property
    def aligned_bytes(self) -> int:
        """Return the bytes that the tensor takes in an arena, where each starts at 16 bytes."""
        return align(self.size_bytes)


def total_bytes(tensors: Iterable[LiveTensor]) -> int:
    """Return the raw bytes of tensors."""
    return sum(tensor.size_bytes for tensor in tensors)


@dataclass(frozen=True)
class CallReport:
    """The memory around one call of a primitive function.

    Attributes:
        function: its name; an NPU function's global symbol.
        operators: what it computes.
        used_memory_bytes: TVM's number for this call: it counts renamed tensors and tuple fields
            again, and constants that the program binds to a variable.
        before_bytes, during_bytes, after_bytes: raw bytes of tensors needed when the call begins,
            while it runs, and when it has ended; every tensor once, constants never.
        live: the tensors that are in use while it runs.
        idle_io: network inputs and outputs that are not; they still have memory unless TVM plans
            them together with the rest.
        is_npu: whether this project's code generator compiles it.
        ending: positions of the arguments whose memory nobody reads after the call.
        ending_inputs: those of them that are inputs of the network.
        made_outputs: positions of the results that are outputs of the network, each one once.
        arguments: per argument the name of its tensor, empty where it is several or a constant.
    """

    function: str
    operators: tuple[str, ...]
    used_memory_bytes: int
    before_bytes: int
    during_bytes: int
    after_bytes: int
    live: tuple[LiveTensor, ...]
    idle_io: tuple[LiveTensor, ...]
    is_npu: bool = False
    ending: frozenset[int] = frozenset()
    ending_inputs: frozenset[int] = frozenset()
    made_outputs: frozenset[int] = frozenset()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class UsedMemoryReport:
    """The memory of a whole program, call by call, in the order of execution.

    ``prepared_by`` names the passes that brought the module into the form that can be analysed.
    """

    calls: tuple[CallReport, ...]
    io_used_memory_bytes: int
    prepared_by: tuple[str, ...]

    @property
    def peak_index(self) -> int:
        """Return the index of the (first) call with the most bytes in use; -1 without calls."""
        indices = range(len(self.calls))
        return max(indices, key=lambda index: self.calls[index].during_bytes, default=-1)

    @property
    def peak_bytes(self) -> int:
        """Return the most bytes in use at any call."""
        return max((call.during_bytes for call in self.calls), default=0)

    def used_memory(self) -> dict[str, tuple[int, ...]]:
        """Return TVM's numbers per function, one per call, in order."""
        numbers: dict[str, tuple[int, ...]] = {}
        for call in self.calls:
            numbers[call.function] = (*numbers.get(call.function, ()), call.used_memory_bytes)
        return numbers
