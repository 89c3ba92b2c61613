"""What an operation needs from the run it is part of."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ethosu.backend.sim.errors import AmbiguousError
from tvm_ethosu.backend.sim.memory import Memory
from tvm_ethosu.backend.sim.operations import Stream


@dataclass(frozen=True)
class Context:
    """The stream, its memory and the mode of one run."""

    stream: Stream
    memory: Memory
    strict: bool

    def ambiguous(self, message: str) -> None:
        """Raise AmbiguousError in strict mode; otherwise the documented guess applies."""
        if self.strict:
            raise AmbiguousError(message)

    def ambiguous_if(self, condition: bool, message: str) -> None:
        """Raise AmbiguousError in strict mode when the stream relies on ``condition``."""
        if condition:
            self.ambiguous(message)
