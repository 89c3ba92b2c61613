"""Accesses whose order nothing establishes.

Operations are issued in order and complete as late as the stream allows. At most two kernel
operations and one (U65: two) DMA transfers are in flight; starting one more waits for the oldest.
DMA_WAIT and KERNEL_WAIT leave at most k in flight. DMA transfers keep their order among each other,
and so do kernel operations block by block, so between them only a read after a write can go wrong:
BLOCKDEP says how many blocks of the previous operation may be unfinished. Source: EMIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.addressing import Box, boxes, boxes_within
from tvm_ethosu.backend.sim.blocks import (
    block_count,
    ifm2_window,
    ifm_window,
    jobs_per_block,
    ofm_window,
)
from tvm_ethosu.backend.sim.errors import HazardError
from tvm_ethosu.backend.sim.limits import MAX_BLOCKS, check_work
from tvm_ethosu.backend.sim.memory import SHRAM_REGION
from tvm_ethosu.backend.sim.operations import (
    AnyOperation,
    BlockOperation,
    Conv,
    Depthwise,
    Dma,
    DmaEnd,
    DmaWait,
    Elementwise,
    FeatureMap,
    Function,
    KernelWait,
    Operation,
)
from tvm_ethosu.backend.sim.overlap import common_bytes, plain_box, rows_box, view_of

_T = TypeVar("_T")

_MAX_KERNELS: Final = 2
_LUT_BYTES: Final = 2048
_LUT_SLOT_BYTES: Final = 256


@dataclass(frozen=True)
class Access:
    """Bytes of one region that an operation reads or writes."""

    what: str
    region: int
    boxes: tuple[Box, ...]


@dataclass
class HazardChecker:
    """Follows a stream operation by operation; ``check`` must see each one, in order."""

    accelerator: Accelerator
    _kernels: list[BlockOperation] = field(default_factory=list)
    _transfers: list[Dma] = field(default_factory=list)

    def check(self, op: AnyOperation) -> None:
        """Account for an operation.

        Raises HazardError naming both operations, the region and the bytes.
        """
        if isinstance(op, DmaWait):
            self._transfers = _newest(self._transfers, op.outstanding)
        elif isinstance(op, KernelWait):
            self._kernels = _newest(self._kernels, op.outstanding)
        elif isinstance(op, Dma):
            for kernel in self._kernels:
                self._check_kernel_and_dma(kernel, op, first=kernel, second=op)
            self._transfers = _newest([*self._transfers, op], self.accelerator.max_outstanding_dma)
        elif isinstance(op, BlockOperation):
            for transfer in self._transfers:
                self._check_kernel_and_dma(op, transfer, first=transfer, second=op)
            check_in_place(op)
            if self._kernels:
                self._check_kernels(self._kernels[-1], op)
            self._kernels = _newest([*self._kernels, op], _MAX_KERNELS)

    def _check_kernel_and_dma(
        self, kernel: BlockOperation, transfer: Dma, *, first: Operation, second: Operation
    ) -> None:
        source, target = _dma_access(transfer, "source"), _dma_access(transfer, "destination")
        pairs = [(write, end) for write in self._writes(kernel) for end in (source, target)]
        pairs += [(read, target) for read in self._reads(kernel)]
        for mine, other in pairs:
            found = _overlap(mine, other)
            if found is not None:
                wait = "KERNEL_WAIT" if first is kernel else "DMA_WAIT"
                raise _error(second, first, (mine, other), found, f"no {wait} orders them")

    def _check_kernels(self, first: BlockOperation, second: BlockOperation) -> None:
        if second.blockdep == 0:
            return
        written = Access("OFM", first.ofm.region, boxes(first.ofm))
        for read in _constants(second):
            found = _overlap(written, read)
            if found is not None:
                raise _error(second, first, (written, read), found, "it needs BLOCKDEP 0")
        if self._loses_lut(first, second):
            start = self.accelerator.lut_address
            raise HazardError(
                f"accumulators overwrite the LUT, bytes [{start:#x}, {start + _LUT_BYTES:#x}) of "
                f"shared RAM, which {_name(first)} may still use: it needs BLOCKDEP 0"
            )
        self._check_blocks(first, second)

    def _check_blocks(self, first: BlockOperation, second: BlockOperation) -> None:
        """Compare the blocks of two operations that BLOCKDEP lets run at the same time.

        Job f of the second may start while block j from the end of the first is unfinished if
        ``f + j`` is below BLOCKDEP.
        """
        for name, region in _inputs(second):
            if region != first.ofm.region:
                continue
            for job in range(second.blockdep):
                read = _job_boxes(second, name, job)
                for back in range(second.blockdep - job):
                    index = block_count(first) - 1 - back
                    if index < 0 or not read:
                        break
                    written = boxes_within(first.ofm, ofm_window(first, index))
                    found = common_bytes(written, read)
                    if found is not None:
                        pair = Access("OFM", region, written), Access(name, region, read)
                        text = f"BLOCKDEP {second.blockdep} lets them overlap (limit {job + back})"
                        raise _error(second, first, pair, found, text)

    def _loses_lut(self, first: BlockOperation, second: BlockOperation) -> bool:
        uses = [op.activation.function is Function.LUT for op in (first, second)]
        return self.accelerator.lut_shares_accumulators and uses == [True, False]

    def _reads(self, op: BlockOperation) -> Iterator[Access]:
        yield Access("IFM", op.ifm.region, boxes(op.ifm))
        if isinstance(op, Elementwise) and op.ifm2 is not None:
            yield Access("IFM2", op.ifm2.region, boxes(op.ifm2))
        yield from _constants(op)
        if op.activation.function is Function.LUT:
            size = _LUT_BYTES if op.ofm.type.bits == 16 else 256 * op.ofm.type.size_bytes
            start = self.accelerator.lut_address + _LUT_SLOT_BYTES * op.activation.slot
            yield Access("LUT", SHRAM_REGION, (plain_box(start, start + size),))

    def _writes(self, op: BlockOperation) -> Iterator[Access]:
        yield Access("OFM", op.ofm.region, boxes(op.ofm))
        if self.accelerator.lut_shares_accumulators and op.activation.function is not Function.LUT:
            start = self.accelerator.lut_address
            yield Access("accumulators", SHRAM_REGION, (plain_box(start, start + _LUT_BYTES),))


def check_in_place(op: BlockOperation) -> None:
    """Check that no block reads what an earlier block of the same operation wrote.

    Raises HazardError. An operation may write over its input in the order it is read.
    """
    for name, region in _inputs(op):
        fm = op.ifm if name == "IFM" else _ifm2(op)
        whole = boxes(op.ofm)
        if region != op.ofm.region or fm is None or common_bytes(whole, boxes(fm)) is None:
            continue
        _check_block_order(op, name, whole)


def _check_block_order(op: BlockOperation, name: str, whole: Sequence[Box]) -> None:
    check_work(block_count(op), MAX_BLOCKS, "in place, the operation has {} blocks")
    inputs = [_block_boxes(op, name, index) for index in range(block_count(op))]
    every = [*whole, *(box for part in inputs for box in part)]
    base = min(box.start for box in every)
    mask = np.zeros(max(box.stop for box in every) - base, np.bool_)
    for index, read in enumerate(inputs):
        for box in read:
            if view_of(mask, box, base).any():
                raise HazardError(
                    f"block {index} reads {name} bytes [{box.start:#x}, {box.stop:#x}) of region "
                    f"{op.ofm.region} in which an earlier block has written its OFM"
                )
        for box in boxes_within(op.ofm, ofm_window(op, index)):
            view_of(mask, box, base)[...] = True


def _newest(items: list[_T], count: int) -> list[_T]:
    return items[len(items) - count :] if count < len(items) else items


def _inputs(op: BlockOperation) -> list[tuple[str, int]]:
    ifm2 = _ifm2(op)
    second = [] if ifm2 is None else [("IFM2", ifm2.region)]
    return [("IFM", op.ifm.region), *second]


def _ifm2(op: BlockOperation) -> FeatureMap | None:
    return op.ifm2 if isinstance(op, Elementwise) else None


def _block_boxes(
    op: BlockOperation, name: str, block: int, job: int | None = None
) -> tuple[Box, ...]:
    ifm2 = _ifm2(op)
    if name == "IFM" or ifm2 is None:
        return boxes_within(op.ifm, ifm_window(op, block, job))
    return boxes_within(ifm2, ifm2_window(ifm2, ofm_window(op, block)))


def _job_boxes(op: BlockOperation, name: str, job: int) -> tuple[Box, ...]:
    block, part = divmod(job, jobs_per_block(op))
    return _block_boxes(op, name, block, part) if block < block_count(op) else ()


def _constants(op: BlockOperation) -> Iterator[Access]:
    if not isinstance(op, Conv | Depthwise):
        return
    for core in op.parameters:
        for what, part in (("weights", core.weights), ("scales", core.scales)):
            if part is not None and part.length:
                yield Access(what, part.region, (plain_box(part.start, part.stop),))


def _dma_access(op: Dma, what: str) -> Access:
    end: DmaEnd = op.source if what == "source" else op.destination
    row, plane = op.steps(end)
    region = SHRAM_REGION if end.internal else end.region
    shape = (op.planes, op.rows, op.length)
    return Access(f"DMA {what}", region, rows_box(end.address, shape, (plane, row)))


def _overlap(first: Access, second: Access) -> tuple[int, int] | None:
    return common_bytes(first.boxes, second.boxes) if first.region == second.region else None


def _name(op: Operation) -> str:
    return f"{op.kind} at word {op.offset}"


def _error(
    op: Operation,
    other: Operation,
    pair: tuple[Access, Access],
    found: tuple[int, int],
    text: str,
) -> HazardError:
    region = pair[0].region
    place = "shared RAM" if region == SHRAM_REGION else f"region {region}"
    return HazardError(
        f"{pair[0].what} and {pair[1].what} share bytes [{found[0]:#x}, {found[1]:#x}) of {place} "
        f"with {_name(other)}, which may be unfinished: {text}"
    ).at(op.offset, op.kind)
