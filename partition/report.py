"""Why an operator stays on the CPU, and what the partitioner decided for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rejection:
    """One constraint that an operator breaks: what is limited, what it has, what is allowed."""

    constraint: str
    value: str
    limit: str

    def __str__(self) -> str:
        return f"{self.constraint} is {self.value}, the NPU takes {self.limit}"


@dataclass(frozen=True)
class Decision:
    """Where one operator of the model runs.

    ``operator`` is the model's operation in Relay's words, ``origin`` the name of its result in
    the model, ``npu_function`` the function that holds it or None, ``reason`` why it is not there.
    """

    operator: str
    origin: str
    npu_function: str | None
    reason: str = ""

    @property
    def on_npu(self) -> bool:
        """Return whether the NPU runs it."""
        return self.npu_function is not None
