"""What can go wrong in a command stream, told apart by what the stream did.

A message reads ``word OFFSET (OPERATION): what happened``; the location is added by the engine,
so the arithmetic below it does not have to know where it was called from.
"""

from __future__ import annotations

from typing import TypeVar

_E = TypeVar("_E", bound="SimulationError")


class SimulationError(Exception):
    """Base of everything the simulator raises about a stream.

    ``offset`` is the index of the 32-bit word at fault, ``operation`` the name of its command.
    """

    def __init__(
        self, message: str, *, offset: int | None = None, operation: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.operation = operation

    def at(self: _E, offset: int, operation: str) -> _E:
        """Return this error with a location, keeping one it already has."""
        if self.offset is None:
            self.offset = offset
        if self.operation is None:
            self.operation = operation
        return self

    def __str__(self) -> str:
        if self.offset is None:
            return self.message
        name = f" ({self.operation})" if self.operation else ""
        return f"word {self.offset}{name}: {self.message}"


class DecodeError(SimulationError):
    """The words are not a command stream of this accelerator."""


class MemoryFault(SimulationError):
    """An access outside a region, misaligned, into constants, or of a byte that holds no data."""


class HazardError(SimulationError):
    """Two accesses whose order neither waits nor BLOCKDEP establish."""


class AmbiguousError(SimulationError):
    """The stream relies on behaviour for which there is no evidence."""


class LimitError(SimulationError):
    """The stream asks for more work or memory than the simulator allows itself."""
