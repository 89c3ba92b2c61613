"""What the scheduler asks of the outside: whoever knows the hardware's blocks implements it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Block:
    """Extent of the OFM that the NPU computes at a time (the block config)."""

    h: int
    w: int
    c: int

    def __str__(self) -> str:
        return f"{self.h}x{self.w}x{self.c}"
