"""The four ways a compile can end badly, told apart by whose turn it is to act.

Every message has the form ``where: what (got X, limit Y)`` and names a next step when there is one.
"""

from __future__ import annotations


class EthosUError(Exception):
    """Base of everything this project raises on purpose; the message is meant for users."""


class UserError(EthosUError):
    """The input or the options are at fault: a damaged file, an unknown accelerator."""


class Unsupported(EthosUError):
    """The NPU cannot do what was asked for; the operator should have stayed on the CPU."""


class Infeasible(EthosUError):
    """The plan does not fit the memory it may use.

    ``required_bytes`` and ``available_bytes`` describe the same memory; the message repeats both.
    """

    def __init__(self, message: str, *, required_bytes: int, available_bytes: int) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes

    @property
    def excess_bytes(self) -> int:
        """Return by how many bytes the requirement exceeds what is available."""
        return self.required_bytes - self.available_bytes


class InternalError(EthosUError):
    """A promise between two of our own stages was broken; please report it."""
