"""How much SRAM a call of an NPU function may use, from TVM's ``used_memory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CallSite:
    """What the program holds in SRAM while one call of an NPU function runs.

    Attributes:
        used_memory_bytes: TVM's number: all tensors that are live at the call, the function's
            own inputs, outputs and scratch included.
        scratch_bytes: the part of it that is the function's scratch.
        idle_io_bytes: network inputs and outputs that are not live at the call but keep their
            memory, because they lie outside of the pool that TVM plans; 0 if they lie inside.
    """

    used_memory_bytes: int
    scratch_bytes: int = 0
    idle_io_bytes: int = 0

    @property
    def others_bytes(self) -> int:
        """Return what is not available as scratch whatever this function does."""
        return self.used_memory_bytes - self.scratch_bytes + self.idle_io_bytes


def budget_bytes(sram_size_bytes: int | None, sites: Sequence[CallSite]) -> int | None:
    """Return the scratch that a function may use: the least that any of its call sites leaves.

    It is negative when the rest of the program alone exceeds ``sram_size_bytes``, and None
    when there is no limit.
    """
    if sram_size_bytes is None:
        return None
    return min(sram_size_bytes - site.others_bytes for site in sites)
