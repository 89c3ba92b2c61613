"""The axes of a kernel operation, and the pieces in which the hardware takes kernel and IFM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tvm_ethosu.backend.sim.operations import Kernel, Padding, Shape

SUB_KERNEL: Final = 8
"""Elements, height and width, that the hardware covers of a kernel at a time."""

Taps: TypeAlias = tuple[int, int]
"""Kernel taps ``[start, stop)`` along one axis."""


def sub_kernels(kernel: Kernel) -> list[tuple[Taps, Taps]]:
    """Return the taps, vertical and horizontal, of each part of the kernel, in their order."""

    def cut(taps: int, dilation: int) -> list[Taps]:
        size = SUB_KERNEL // dilation
        return [(start, min(start + size, taps)) for start in range(0, taps, size)]

    columns = cut(kernel.width, kernel.dilation_x)
    return [(rows, part) for rows in cut(kernel.height, kernel.dilation_y) for part in columns]


def ifm_block_depth(bits: int, *, part_kernel_first: bool) -> int:
    """Return how many IFM channels of this many bits are summed before the next are read.

    32 bytes of them, and 16 at most when all elements of a kernel come before the next channels.
    Source: EMIT, the order of the weights and the BLOCKDEP that regor sets.
    """
    depth = 256 // bits
    return min(depth, 16) if part_kernel_first else depth


@dataclass(frozen=True)
class Axis:
    """Output elements, stride, kernel taps, dilation and padding along one axis."""

    outputs: int
    stride: int
    taps: int
    dilation: int
    before: int
    after: int

    @property
    def span(self) -> int:
        """Return the elements between the first and the last kernel position, inclusive."""
        return (self.outputs - 1) * self.stride + 1

    @property
    def extent(self) -> int:
        """Return the elements under the kernel, padding included."""
        return self.span + (self.taps - 1) * self.dilation

    @property
    def inputs(self) -> int:
        """Return the elements under the kernel that are not padding."""
        return self.extent - self.before - self.after


def vertical(ofm: Shape, kernel: Kernel, padding: Padding) -> Axis:
    """Return the vertical axis."""
    return Axis(
        ofm.height, kernel.stride_y, kernel.height, kernel.dilation_y, padding.top, padding.bottom
    )


def horizontal(ofm: Shape, kernel: Kernel, padding: Padding) -> Axis:
    """Return the horizontal axis."""
    return Axis(
        ofm.width, kernel.stride_x, kernel.width, kernel.dilation_x, padding.left, padding.right
    )
