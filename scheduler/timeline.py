"""The order in time: kernels and transfers side by side, as the command processor starts them.

It goes on until it must wait, or until an engine has no free slot (docs/cycle-model.md).
"""

from __future__ import annotations

_KERNELS_IN_FLIGHT = 2


class Timeline:
    """Times of the commands of a stream, in cycles; ``transfer_slots`` may be in flight."""

    def __init__(self, transfer_slots: int) -> None:
        self.transfer_slots = transfer_slots
        self.now = 0.0
        self.kernel_ends: list[float] = []
        self.transfer_ends: list[float] = []

    def transfer(self, cycles: float) -> int:
        """Start a transfer once all kernels so far have ended; return its number.

        That its memory may have been theirs is taken for granted.
        """
        if self.kernel_ends:
            self.now = max(self.now, self.kernel_ends[-1])
        before = self.transfer_ends
        if len(before) >= self.transfer_slots:
            self.now = max(self.now, before[-self.transfer_slots])
        before.append(max(self.now, before[-1] if before else 0.0) + cycles)
        return len(before) - 1

    def kernel(self, cycles: float, after: int | None = None) -> None:
        """Start a kernel, when the transfer of this number has ended."""
        if after is not None:
            self.now = max(self.now, self.transfer_ends[after])
        before = self.kernel_ends
        if len(before) >= _KERNELS_IN_FLIGHT:
            self.now = max(self.now, before[-_KERNELS_IN_FLIGHT])
        before.append(max(self.now, before[-1] if before else 0.0) + cycles)

    @property
    def end(self) -> float:
        """Return when everything has ended."""
        return max(self.kernel_ends[-1:] + self.transfer_ends[-1:], default=0.0)
