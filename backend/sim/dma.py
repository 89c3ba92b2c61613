"""DMA transfers between regions and into the shared RAM."""

from __future__ import annotations

from typing import Final

import numpy as np

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.errors import MemoryFault
from tvm_ethosu.backend.sim.limits import check_elements
from tvm_ethosu.backend.sim.memory import SHRAM_REGION, Array
from tvm_ethosu.backend.sim.operations import Dma, DmaEnd

_ALIGNMENT: Final = 16


def run_dma(op: Dma, context: Context) -> int:
    """Execute a transfer; it has no multiply-accumulates.

    2-D and 3-D transfers exist on Ethos-U65 but no compiler emits them: in strict mode they are
    ambiguous, otherwise SKIP0 (SKIP1) bytes follow each row (plane) at the ends whose stride mode
    asks for it.
    """
    _check_alignment(op, context)
    for source, target in _pieces(op, context):
        context.memory.copy(
            (_region(op.source), source), (_region(op.destination), target), op.length
        )
    return 0


def _region(end: DmaEnd) -> int:
    return SHRAM_REGION if end.internal else end.region


def _pieces(op: Dma, context: Context) -> list[tuple[int, int]]:
    """Return (source, destination) of each row."""
    strided = op.source.stride_mode or op.destination.stride_mode
    if not strided:
        return [(op.source.address, op.destination.address)]
    context.ambiguous("2-D or 3-D DMA")
    rows, planes = op.rows, op.planes
    check_elements("the DMA transfer", rows * planes * max(op.length, 1))

    def starts(end: DmaEnd) -> Array:
        row = op.length + (op.skip_rows if end.stride_mode >= 1 else 0)
        plane = row * rows + (op.skip_planes if end.stride_mode >= 2 else 0)
        grid = np.arange(planes)[:, None] * plane + np.arange(rows)[None, :] * row
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
