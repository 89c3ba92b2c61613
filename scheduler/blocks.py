"""The block configs that the shared RAM of an accelerator can hold.

The rules are those of ethos-u-vela 5.2.0 (``architecture_allocator.py``): two halves of IFM banks,
two of accumulators, two banks of output, and what lookup tables take. Tests compare the result with
``npu_find_block_configs``, which leaves out blocks of odd size on U55-32 and -64.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.arch import BLOCK_SPLIT_CHANNELS, MAX_BLOCK, SUB_KERNEL
from tvm_ethosu.scheduler.engine import Engine, Unit, engine
from tvm_ethosu.scheduler.hardware import Timing
from tvm_ethosu.scheduler.ir import NpuOp

Integers: TypeAlias = npt.NDArray[np.int64]

_BANK_BYTES = 1024
_OUTPUT_BANKS = 2
_TABLE_BANKS = 2
_LARGE_SHARED_RAM = 16


def ceil_div(value: int | Integers, by: int | Integers) -> Integers:
    """Return the quotient rounded up."""
    return np.asarray(-(-value // by), np.int64)


def round_up(value: Integers, to: int) -> Integers:
    """Return the next multiple."""
    return ceil_div(value, to) * to


def ifm_depth(op: NpuOp, how: Engine) -> int:
    """Return how many IFM channels are read at a time by what sums over channels.

    That is 32, or 16 when the kernel comes first or elements have 16 bits.
    """
    depth = op.ifm.shape.c
    if op.ifm.dtype.size_bytes == 2:
        return -(-min(depth, 16) // 4) * 4
    return -(-min(depth, 16 if how.part_kernel_first else 32) // 8) * 8


def ifm_extent(outputs: Integers, stride: int, taps: int, dilation: int) -> Integers:
    """Return how many IFM rows (columns) a part of the kernel reads for some OFM rows."""
    return (outputs - 1) * stride + min((taps - 1) * dilation + 1, SUB_KERNEL)


def ifm_blocks(op: NpuOp, how: Engine, blocks: Integers, timing: Timing) -> Integers:
    """Return the IFM block (height, width, channels) as the shared RAM holds it, for each block."""
    kernel, (unit_h, unit_w, _) = how.kernel, timing.microblock
    height = ifm_extent(blocks[:, 0], kernel.stride_h, kernel.h, kernel.dilation_h)
    width = ifm_extent(blocks[:, 1], kernel.stride_w, kernel.w, kernel.dilation_w)
    depth = np.full_like(height, ifm_depth(op, how)) if how.sums_channels else blocks[:, 2]
    return np.stack([round_up(height, unit_h), round_up(width, unit_w), depth], axis=1)


def accumulates_40(op: NpuOp, how: Engine) -> bool:
    """Return whether accumulators have 40 bits: on 16 bits, save for pooling."""
    pools = how.unit in (Unit.MAX_POOL, Unit.AVERAGE_POOL)
    return op.ifm.dtype.size_bytes == 2 and not pools


def _candidates(op: NpuOp, timing: Timing) -> Integers:
    """Return all blocks of whole microblocks that the OFM could use, as rows (h, w, c)."""
    shape = op.ofm.shape
    axes = []
    for extent, most, unit in zip(
        (shape.h, shape.w, shape.c), MAX_BLOCK, timing.microblock, strict=True
    ):
        axes.append(np.arange(unit, min(extent, most) + unit, unit))
    splits = axes[2] % BLOCK_SPLIT_CHANNELS == 0
    axes[2] = axes[2][splits | (axes[2] >= min(shape.c, MAX_BLOCK[2]))]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3).astype(np.int64)


def legal_blocks(op: NpuOp, timing: Timing) -> Integers:
    """Return the legal blocks, as rows (height, width, channels) in ascending order."""
    how, blocks = engine(op), _candidates(op, timing)
    bits = op.ifm.dtype.size_bytes * 8
    wide = accumulates_40(op, how)
    elementwise = how.unit is Unit.ELEMENTWISE
    ifm = ifm_blocks(op, how, blocks, timing)
    granules = timing.elementwise_granules if elementwise else timing.ifm_granules
    granule = granules[(8, 16, 32).index(bits)]
    ifm_bytes = ifm[:, 0] * ifm[:, 1] * round_up(ifm[:, 2] * bits // 8, 8)
    ifm_banks = round_up(ceil_div(ifm_bytes, _BANK_BYTES) * 2, granule)
    banks = timing.shared_ram_banks
    reserved = _TABLE_BANKS if op.table or banks > _LARGE_SHARED_RAM else 0
    available = banks - _OUTPUT_BANKS - reserved
    if elementwise:
        fits = 2 * ifm_banks <= available
    else:
        height = blocks[:, 0]
        if how.kernel.h == 1 and op.ofm.shape.h == 1 and timing.microblock[0] == 2:
            height = np.minimum(height, 1)
        elements = height * blocks[:, 1] * round_up(blocks[:, 2], 8)
        accumulators = ceil_div(elements * (40 if wide else 32) // 8, _BANK_BYTES) * 2
        accumulators = round_up(accumulators, timing.accumulator_granules[wide])
        fits = ifm_banks + accumulators <= available
    return blocks[fits]
