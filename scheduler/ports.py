"""What the scheduler asks of the outside: whoever encodes weights implements it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm_ethosu.scheduler.hardware import Target
from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, NpuGraph


@dataclass(frozen=True, order=True)
class Block:
    """Extent of the OFM that the NPU computes at a time (the block config)."""

    h: int
    w: int
    c: int

    def __str__(self) -> str:
        return f"{self.h}x{self.w}x{self.c}"


@dataclass(frozen=True)
class Timed:
    """A step's cycles, and the block config of each of its operations (one, save for moves)."""

    cycles: float
    blocks: tuple[Block, ...]


class ParameterSizes(Protocol):
    """Knows how many bytes weights and scales take when they are encoded."""

    def size_bytes(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> int:
        """Return the bytes of an operator's weights and scales for blocks of ``depth`` channels.

        All cores' pieces together, each a multiple of 16 bytes long.
        """
        ...


@dataclass(frozen=True)
class Hardware:
    """What plans are made for: the target, and the encoder of its weights."""

    target: Target
    parameters: ParameterSizes
