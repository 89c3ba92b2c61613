"""One spatial axis of a kernel operation, vertical or horizontal."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_ethosu.backend.sim.operations import Kernel, Padding, Shape


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
