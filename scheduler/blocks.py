"""The block configs that the shared RAM of an accelerator can hold.

The rules are those of ethos-u-vela 5.2.0 (``architecture_allocator.py``): two halves of IFM banks,
two of accumulators, two banks of output, and what lookup tables take. Tests compare the result with
``npu_find_block_configs``, which leaves out blocks of odd extents on U55-32, -64 and -128.
"""

from __future__ import annotations

import numpy as np

from tvm_ethosu.scheduler.arch import BLOCK_SPLIT_CHANNELS, MAX_BLOCK, SUB_KERNEL, TABLE_BYTES
from tvm_ethosu.scheduler.engine import Engine, Unit, engine
from tvm_ethosu.scheduler.hardware import Target, Timing
from tvm_ethosu.scheduler.integers import Integers, ceil_div, round_up
from tvm_ethosu.scheduler.ir import NpuOp

_BANK_BYTES = 1024
_OUTPUT_BANKS = 2


def ifm_depth(op: NpuOp, how: Engine) -> int:
    """Return how many IFM channels are read at a time by what sums over channels.

    That is 32, or 16 when the kernel comes first or elements have 16 bits.
    """
    depth = op.ifm.shape.c
    if op.ifm.dtype.size_bytes == 2:
        return round_up(min(depth, 16), 4)
    return round_up(min(depth, 16 if how.part_kernel_first else 32), 8)


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


def legal_blocks(op: NpuOp, target: Target) -> Integers:
    """Return the legal blocks, as rows (height, width, channels) in ascending order."""
    how, blocks, timing = engine(op), _candidates(op, target.timing), target.timing
    ifm = ifm_blocks(op, how, blocks, timing)
    size_bytes = op.ifm.dtype.size_bytes
    ifm_bytes = ifm[:, 0] * ifm[:, 1] * round_up(ifm[:, 2] * size_bytes, 8)
    ifm_banks = round_up(ceil_div(ifm_bytes, _BANK_BYTES) * 2, timing.ifm_granules[size_bytes])
    if how.unit is Unit.ELEMENTWISE:
        needed = 2 * ifm_banks
    else:
        needed = ifm_banks + _accumulator_banks(op, how, blocks, timing)
    return blocks[needed <= _free_banks(op, target)]


def _free_banks(op: NpuOp, target: Target) -> int:
    """Return the banks for IFM and accumulators: all but those of the OFM and of tables."""
    arch = target.arch
    tables = TABLE_BYTES // _BANK_BYTES if op.table or arch.tables_are_kept else 0
    return arch.shared_ram_bytes // _BANK_BYTES - _OUTPUT_BANKS - tables


def _accumulator_banks(op: NpuOp, how: Engine, blocks: Integers, timing: Timing) -> Integers:
    height = blocks[:, 0]
    if how.kernel.h == 1 and op.ofm.shape.h == 1 and timing.microblock[0] == 2:
        height = np.minimum(height, 1)
    wide = accumulates_40(op, how)
    elements = height * blocks[:, 1] * round_up(blocks[:, 2], 8)
    banks = ceil_div(elements * (5 if wide else 4), _BANK_BYTES) * 2
    return round_up(banks, timing.accumulator_granules[wide])
