"""The order in time: kernels and transfers side by side, as the command processor starts them.

It goes on until it must wait, or until an engine has no free slot (docs/cycle-model.md). A kernel
begins when the one before it ends, so that the limit of two kernels in flight never holds one up.
"""

from __future__ import annotations


class Timeline:
    """Times of the commands of a stream, in cycles; ``transfer_slots`` may be in flight."""

    def __init__(self, transfer_slots: int) -> None:
        self.now = 0.0
        self.kernel_end = 0.0
        # Those before the first one ended when everything began.
        self.transfer_ends = [0.0] * transfer_slots

    def transfer(self, cycles: float) -> float:
        """Start a transfer once all kernels so far have ended; return when it ends.

        That its memory may have been theirs is taken for granted.
        """
        self.now = max(self.now, self.kernel_end, self.transfer_ends[0])
        end = max(self.now, self.transfer_ends[-1]) + cycles
        self.transfer_ends = [*self.transfer_ends[1:], end]
        return end

    def kernels(self, cycles: float, after: float = 0.0) -> None:
        """Start a run of kernels of so many cycles, not before the time ``after``."""
        self.now = max(self.now, after)
        self.kernel_end = max(self.now, self.kernel_end) + cycles

    @property
    def state(self) -> tuple[float, ...]:
        """Return all that later commands depend on: when both engines are free."""
        free = max(self.now, self.kernel_end)
        return (free, *(max(free, end) for end in self.transfer_ends))

    @classmethod
    def at(cls, state: tuple[float, ...]) -> Timeline:
        """Return a timeline that goes on from a state."""
        line = cls(len(state) - 1)
        line.now = line.kernel_end = state[0]
        line.transfer_ends = list(state[1:])
        return line

    @property
    def end(self) -> float:
        """Return when everything has ended."""
        return max(self.kernel_end, self.transfer_ends[-1])
