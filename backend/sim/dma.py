"""DMA transfers between regions and into the shared RAM."""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.errors import MemoryFault
from tvm_ethosu.backend.sim.limits import check_transfer
from tvm_ethosu.backend.sim.memory import SHRAM_REGION, Array
from tvm_ethosu.backend.sim.operations import Dma, DmaEnd

_ALIGNMENT: Final = 16


def run_dma(op: Dma, context: Context) -> int:
    """Execute a transfer; it has no multiply-accumulates.

    Of 2-D and 3-D transfers (Ethos-U65) the header says that SKIP0 bytes are skipped after each
    row and SKIP1 after each plane, and SIZE0 and SIZE1 count them; the compiler's sources write
    them with a contiguous source and, in 3-D, with no SKIP0. The rest is ambiguous.
    """
    _check_alignment(op, context)
    _check_ends(op, context)
    for source, target in _pieces(op):
        context.memory.copy(
            (_region(op.source), source), (_region(op.destination), target), op.length
        )
    return 0


def _region(end: DmaEnd) -> int:
    return SHRAM_REGION if end.internal else end.region


def _check_ends(op: Dma, context: Context) -> None:
    context.ambiguous_if(op.source.internal, "DMA out of the shared RAM")
    every_core = (1 << context.stream.accelerator.cores) - 1
    context.ambiguous_if(
        op.destination.internal and op.destination.region & every_core != every_core,
        f"DMA into the shared RAM of some cores only (mask {op.destination.region})",
    )
    strided = op.source.stride_mode or op.destination.stride_mode
    context.ambiguous_if(strided != 0 and op.rows * op.planes == 0, "DMA of no rows or no planes")
    context.ambiguous_if(
        op.source.stride_mode != 0, "2-D or 3-D DMA with a source that is not contiguous"
    )
    context.ambiguous_if(op.planes > 1 and op.skip_rows != 0, "3-D DMA that skips bytes after rows")


def _pieces(op: Dma) -> list[tuple[int, int]]:
    """Return (source, destination) of each row."""
    check_transfer(op.rows * op.planes, op.length)

    def starts(end: DmaEnd) -> Array:
        row, plane = op.steps(end)
        grid = np.arange(op.planes)[:, None] * plane + np.arange(op.rows)[None, :] * row
        return np.asarray(grid.ravel() + end.address)

    source, destination = starts(op.source).tolist(), starts(op.destination).tolist()
    return list(zip(source, destination, strict=True))


def _check_alignment(op: Dma, context: Context) -> None:
    everywhere = not context.stream.accelerator.is_u65
    numbers = {}
    if everywhere or op.source.internal:
        numbers["source"] = op.source.address
    if everywhere or op.destination.internal:
        numbers["destination"] = op.destination.address
        numbers["length"] = op.length
    for name, number in numbers.items():
        if number % _ALIGNMENT:
            raise MemoryFault(f"DMA {name} {number:#x} is not a multiple of {_ALIGNMENT}")
