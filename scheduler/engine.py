"""How the NPU sees an operator: which unit does it, in which order, in which pieces."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tvm_ethosu.scheduler.arch import SUB_KERNEL
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.integers import round_up
from tvm_ethosu.scheduler.ir import (
    Add,
    Clamp,
    Conv2D,
    DepthwiseConv2D,
    ElementWise,
    Kernel,
    Move,
    NpuOp,
    Operand,
    Pool,
    PoolKind,
    Requantize,
    SumChannels,
)


class Unit(Enum):
    """What does the work of an operation."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    MAX_POOL = "max pool"
    AVERAGE_POOL = "average pool"
    CHANNEL_SUM = "sum over channels"
    ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class Engine:
    """An operator as the hardware takes it; a kernel of one element where there is no window."""

    unit: Unit
    kernel: Kernel
    part_kernel_first: bool = False

    @property
    def has_weights(self) -> bool:
        """Return whether weights and scales are read."""
        return self.unit in (Unit.CONVOLUTION, Unit.DEPTHWISE)

    @property
    def sums_channels(self) -> bool:
        """Return whether each OFM element needs all IFM channels."""
        return self.unit in (Unit.CONVOLUTION, Unit.CHANNEL_SUM)

    @property
    def parts(self) -> tuple[int, ...]:
        """Return the taps of each part of the kernel, which spans at most 8x8 elements."""
        kernel = self.kernel
        rows = _pieces(kernel.h, kernel.dilation_h)
        return tuple(
            row * column for row in rows for column in _pieces(kernel.w, kernel.dilation_w)
        )


def _pieces(taps: int, dilation: int) -> list[int]:
    size = SUB_KERNEL // dilation
    return [min(size, taps - start) for start in range(0, taps, size)]


def part_kernel_first(op: Conv2D) -> bool:
    """Return whether all elements of the kernel come before the next IFM channels.

    The order of weights that keeps the multipliers busier: depth first fills 32 IFM channels at a
    time (16 of 16 bits), part kernel first 8 channels and 4 (2) kernel elements; for 8 channels
    or fewer the latter always wins.
    """
    depth, elements = op.ifm.shape.c, op.kernel.elements
    halves = op.ifm.dtype.size_bytes
    depth_use = depth / round_up(depth, 32 // halves)
    part_use = depth / round_up(depth, 8) * elements / round_up(elements, 4 // halves)
    return depth <= 8 or part_use > depth_use


def operations(op: NpuOp) -> tuple[NpuOp, ...]:
    """Return the operations that an operator is made of: itself, or the copies of a Move."""
    if not isinstance(op, Move):
        return (op,)
    dtype = op.ofm.dtype
    limits = Clamp(dtype.minimum, dtype.maximum)
    return tuple(
        Requantize(
            op.name,
            Operand(op.inputs[part.source].tensor, part.shape, dtype),
            Operand(op.ofm.tensor, part.shape, dtype),
            limits,
            origin=op.origin,
        )
        for part in op.parts
    )


def engine(op: NpuOp) -> Engine:
    """Return how the NPU does an operation.

    Raises:
        InternalError: it is a Move, whose parts are operations of their own.
    """
    unit_kernel = Kernel(1, 1)
    match op:
        case Conv2D():
            return Engine(Unit.CONVOLUTION, op.kernel, part_kernel_first(op))
        case DepthwiseConv2D():
            return Engine(Unit.DEPTHWISE, op.kernel)
        case Pool():
            unit = Unit.MAX_POOL if op.kind is PoolKind.MAX else Unit.AVERAGE_POOL
            return Engine(unit, op.kernel)
        case Requantize():
            return Engine(Unit.AVERAGE_POOL, unit_kernel)
        case SumChannels():
            return Engine(Unit.CHANNEL_SUM, unit_kernel)
        case Move():
            raise InternalError(f"{op.name}: parts of a move are operations of their own")
        case Add() | ElementWise():
            return Engine(Unit.ELEMENTWISE, unit_kernel)
