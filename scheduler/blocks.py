"""Choice of the block config among the legal ones."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_ethosu.scheduler.ir import Add, Conv2D, DepthwiseConv2D, Move, NpuOp, Pool, Requantize
from tvm_ethosu.scheduler.ports import Block

# Reading a byte of weights from flash costs about as much as this many bytes from SRAM: the
# flash of Vela's Ethos_U55_High_End_Embedded system has an eighth of the SRAM's bandwidth.
_FLASH_BYTE_COST = 8


def _ceil(value: int, by: int) -> int:
    return -(-value // by)


def _window(op: NpuOp) -> tuple[int, int, int, int]:
    """Return dilated kernel height and width, and the strides."""
    if isinstance(op, Conv2D | DepthwiseConv2D | Pool):
        kernel = op.kernel
        return kernel.dilated_h, kernel.dilated_w, kernel.stride_h, kernel.stride_w
    return 1, 1, 1, 1


def traffic_bytes(op: NpuOp, block: Block) -> int:
    """Return what the NPU reads with this block: IFM with its halo, and weights, weighted.

    Every block reads the IFM under it; a convolution reads all IFM channels again for each slice
    of OFM channels, and all weights of a slice again for each block of the plane.
    """
    ofm = op.ofm.shape
    rows, columns, slices = _ceil(ofm.h, block.h), _ceil(ofm.w, block.w), _ceil(ofm.c, block.c)
    kernel_h, kernel_w, stride_h, stride_w = _window(op)
    read_h = rows * ((min(block.h, ofm.h) - 1) * stride_h + kernel_h)
    read_w = columns * ((min(block.w, ofm.w) - 1) * stride_w + kernel_w)
    plane = read_h * read_w
    match op:
        case Conv2D():
            weights = op.kernel.elements * op.ifm.shape.c * ofm.c
            return plane * op.ifm.shape.c * slices + _FLASH_BYTE_COST * weights * rows * columns
        case DepthwiseConv2D():
            weights = op.kernel.elements * ofm.c
            return plane * ofm.c + _FLASH_BYTE_COST * weights * rows * columns
        case Pool() | Requantize() | Move():
            return plane * ofm.c
        case Add():
            return 2 * plane * ofm.c


def wasted_elements(op: NpuOp, block: Block) -> int:
    """Return OFM elements that blocks cover beyond the OFM."""
    ofm = op.ofm.shape
    covered = _ceil(ofm.h, block.h) * block.h * _ceil(ofm.w, block.w) * block.w
    return covered * _ceil(ofm.c, block.c) * block.c - ofm.elements


def choose_block(op: NpuOp, legal: Sequence[Block]) -> Block:
    """Return the legal block with the least traffic; then the least waste, then the largest."""
    return min(
        legal,
        key=lambda block: (
            traffic_bytes(op, block),
            wasted_elements(op, block),
            -block.h * block.w * block.c,
            block,
        ),
    )
