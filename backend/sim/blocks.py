"""The blocks in which a kernel operation writes its OFM, and what each block reads.

Blocks follow one another with depth fastest, then width, then height. A block reads its IFM in one
or more jobs: per group of channels (convolutions and sums over channels) and, within it, per part
of the kernel of at most 8x8 elements. Source: EMIT, from how the compilers choose BLOCKDEP and
order weights.
"""

from __future__ import annotations

from tvm_ethosu.backend.sim.addressing import Window
from tvm_ethosu.backend.sim.geometry import (
    Axis,
    horizontal,
    ifm_block_depth,
    sub_kernels,
    vertical,
)
from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    Elementwise,
    FeatureMap,
    Pool,
    PoolMode,
    Upscale,
)


def block_count(op: BlockOperation) -> int:
    """Return the number of OFM blocks."""
    rows, columns, depths = _grid(op)
    return rows * columns * depths


def ofm_window(op: BlockOperation, index: int) -> Window:
    """Return the part of the OFM that block ``index`` writes."""
    _, columns, depths = _grid(op)
    rest, z = divmod(index, depths)
    y, x = divmod(rest, columns)
    shape, block = op.ofm.shape, op.block
    return Window(
        y * block.height,
        min((y + 1) * block.height, shape.height),
        x * block.width,
        min((x + 1) * block.width, shape.width),
        z * block.depth,
        min((z + 1) * block.depth, shape.depth),
    )


def jobs_per_block(op: BlockOperation) -> int:
    """Return in how many jobs a block reads its IFM."""
    groups = 1
    if _reads_all_channels(op):
        groups = -(-op.ifm.shape.depth // _ifm_block_depth(op))
    return groups * len(sub_kernels(op.kernel))


def ifm_window(op: BlockOperation, block: int, job: int | None = None) -> Window:
    """Return the part of the IFM that a block reads, or one of its jobs."""
    ofm = ofm_window(op, block)
    rows = vertical(op.ofm.shape, op.kernel, op.padding)
    columns = horizontal(op.ofm.shape, op.kernel, op.padding)
    up = 1 if op.upscale is Upscale.NONE or isinstance(op, Elementwise) else 2
    parts = sub_kernels(op.kernel)
    group, part = (None, None) if job is None else divmod(job, len(parts))
    taps_y, taps_x = ((0, rows.taps), (0, columns.taps)) if part is None else parts[part]
    y0, y1 = _reads(rows, (ofm.y0, ofm.y1), taps_y, up)
    x0, x1 = _reads(columns, (ofm.x0, ofm.x1), taps_x, up)
    c0, c1 = (ofm.c0, ofm.c1)
    if _reads_all_channels(op):
        depth, size = op.ifm.shape.depth, _ifm_block_depth(op)
        c0, c1 = (0, depth) if group is None else (group * size, min((group + 1) * size, depth))
    return Window(y0, y1, x0, x1, c0, c1)


def ifm2_window(ifm2: FeatureMap, ofm: Window) -> Window:
    """Return the part of IFM2 an elementwise block reads; broadcast axes have one element."""
    shape = ifm2.shape
    y = (0, 1) if shape.height == 1 else (ofm.y0, ofm.y1)
    x = (0, 1) if shape.width == 1 else (ofm.x0, ofm.x1)
    c = (0, 1) if shape.depth == 1 else (ofm.c0, ofm.c1)
    return Window(*y, *x, *c)


def _grid(op: BlockOperation) -> tuple[int, int, int]:
    shape, block = op.ofm.shape, op.block
    return (
        -(-shape.height // block.height),
        -(-shape.width // block.width),
        -(-shape.depth // block.depth),
    )


def _reads_all_channels(op: BlockOperation) -> bool:
    return isinstance(op, Conv) or (isinstance(op, Pool) and op.mode is PoolMode.REDUCE_SUM)


def _ifm_block_depth(op: BlockOperation) -> int:
    return ifm_block_depth(op.ifm.type.bits, part_kernel_first=op.kernel.part_kernel_first)


def _reads(axis: Axis, outputs: tuple[int, int], taps: tuple[int, int], up: int) -> tuple[int, int]:
    """Return the range of IFM rows (columns) under some taps at some outputs."""
    first = outputs[0] * axis.stride + taps[0] * axis.dilation - axis.before
    last = (outputs[1] - 1) * axis.stride + (taps[1] - 1) * axis.dilation - axis.before
    return max(first, 0) // up, min(last, axis.inputs - 1) // up + 1
