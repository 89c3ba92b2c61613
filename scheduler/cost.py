"""How long an NPU operation takes: the cycle estimate, before registers are written.

The formulas are those of ``docs/cycle-model.md``, evaluated for all block configs of an operation
at once. The simulator estimates the same from a stream's registers; a test holds both equal.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.arch import BRICK_CHANNELS, Accelerator, Layout
from tvm_ethosu.scheduler.blocks import accumulates_40, ifm_blocks
from tvm_ethosu.scheduler.engine import Engine, Unit, engine
from tvm_ethosu.scheduler.hardware import Memory, OutputCycles, Target
from tvm_ethosu.scheduler.integers import Integers, ceil_div, round_up
from tvm_ethosu.scheduler.ir import (
    Conv2D,
    DepthwiseConv2D,
    ElementKind,
    ElementWise,
    NpuOp,
    Operand,
    Pool,
    Requantize,
)

Reals: TypeAlias = npt.NDArray[np.float64]

_SCALE_BYTES = 10
# What a write to NHWC moves at a time at most.
_NHWC_RUN_BYTES = 64


@dataclass(frozen=True)
class Parameters:
    """Weights and scales of an operation: encoded bytes of all cores, and where they are read."""

    size_bytes: int
    memory: Memory


@dataclass(frozen=True, eq=False)
class Work:
    """An operation on a target, its blocks to compare, and where its data lies.

    ``blocks`` has rows (height, width, channels); ``layouts`` has those of all operands' tensors;
    ``parameters`` is there for what has weights; ``constants`` names operands that lie with them.
    """

    op: NpuOp
    blocks: Integers
    layouts: Mapping[str, Layout]
    target: Target
    parameters: Parameters | None = None
    constants: Container[str] = ()

    def memory_of(self, operand: Operand) -> Memory:
        """Return where an operand lies."""
        is_constant = operand.tensor in self.constants
        return self.target.constants if is_constant else self.target.feature_maps

    @cached_property
    def how(self) -> Engine:
        """Return how the hardware does the operation."""
        return engine(self.op)

    @cached_property
    def ofm(self) -> Integers:
        """Return the blocks without what lies outside of the OFM."""
        shape = self.op.ofm.shape
        return np.minimum(self.blocks, (shape.h, shape.w, shape.c))

    @cached_property
    def plane(self) -> Integers:
        """Return the number of blocks in the plane of the OFM."""
        shape = self.op.ofm.shape
        rows, columns = ceil_div(shape.h, self.ofm[:, 0]), ceil_div(shape.w, self.ofm[:, 1])
        return rows * columns

    @cached_property
    def slices(self) -> Integers:
        """Return the number of blocks in depth."""
        return ceil_div(self.op.ofm.shape.c, self.ofm[:, 2])

    @cached_property
    def ifm_buffer(self) -> Integers:
        """Return the IFM blocks as the shared RAM holds them."""
        return ifm_blocks(self.op, self.how, self.blocks, self.target.timing)

    @cached_property
    def ifm(self) -> Integers:
        """Return the IFM blocks without what lies outside of the IFM's rows and columns in use."""
        return np.minimum(self.ifm_buffer, _read_extent(self.op))

    @property
    def wide(self) -> bool:
        """Return whether accumulators have 40 bits."""
        return accumulates_40(self.op, self.how)


def _reals(values: npt.ArrayLike) -> Reals:
    return np.asarray(values, np.float64)


def _read_extent(op: NpuOp) -> tuple[int, int, int]:
    """Return the rows, columns and channels of the IFM that windows read; strides leave some."""
    shape = op.ifm.shape
    if not isinstance(op, Conv2D | DepthwiseConv2D | Pool):
        return shape.h, shape.w, shape.c
    kernel, padding, ofm = op.kernel, op.padding, op.ofm.shape
    rows = (ofm.h - 1) * kernel.stride_h + kernel.dilated_h - padding.top - padding.bottom
    columns = (ofm.w - 1) * kernel.stride_w + kernel.dilated_w - padding.left - padding.right
    return min(rows, shape.h), min(columns, shape.w), shape.c


def operation_cycles(work: Work) -> Reals:
    """Return the cycles of the operation with each of the blocks: the NPU's or a memory's."""
    return _reals(np.maximum.reduce([_npu_cycles(work), *_memory_cycles(work)]))


# --- the NPU ------------------------------------------------------------------------------------


def _npu_cycles(work: Work) -> Reals:
    if work.how.unit is Unit.ELEMENTWISE:
        return np.ceil(_elementwise_rate(work) * _stored(work, work.op.ofm))
    macs, output = _mac_cycles(work), _output_cycles(work)
    command = (_latency(work) + output + macs) / 4
    macs, output = np.maximum(macs, command), np.maximum(output, command)
    slower, faster = np.maximum(macs, output), np.minimum(macs, output)
    return _reals(np.floor(slower * work.plane * work.slices + faster))


def _mac_cycles(work: Work) -> Reals:
    """Return the cycles of one OFM block in the MAC engine of each core."""
    rows, columns, slices = _microblocks(work)
    cycles = np.zeros(len(work.blocks), np.int64)
    for taps in work.how.parts:
        steps, per_step = _steps(work, taps, rows * columns)
        cycles += steps * per_step * slices + _stalls(work, steps, columns, rows, slices)
    if work.how.part_kernel_first:
        cycles *= ceil_div(work.ifm[:, 2], 8)
    if work.how.sums_channels:
        cycles *= ceil_div(work.op.ifm.shape.c, work.ifm[:, 2])
    return cycles / work.target.arch.cores


def _microblocks(work: Work) -> tuple[Integers, Integers, Integers]:
    """Return rows, columns and slices of microblocks; 2x2 become 1x4 for a row of even width."""
    height, width, depth = work.target.timing.microblock
    shape = work.op.ofm.shape
    is_row = shape.h == 1 and shape.w % 2 == 0 and work.how.kernel.h == 1
    if height == 2 and is_row and work.how.has_weights:
        height, width = 1, 4
    block = work.ofm
    return (
        ceil_div(block[:, 0], height),
        ceil_div(block[:, 1], width),
        ceil_div(block[:, 2], depth),
    )


def _steps(work: Work, taps: int, plane: Integers) -> tuple[int, Integers]:
    """Return the steps of a part of the kernel, and the cycles of each per slice of channels."""
    is_16, unit = work.op.ifm.dtype.size_bytes == 2, work.how.unit
    load = 4 * work.target.timing.microblock[2]
    if unit in (Unit.MAX_POOL, Unit.AVERAGE_POOL):
        doubled = 2 if is_16 and work.target.arch.accelerator is not Accelerator.U55_32 else 1
        return 1, max(4, taps) * plane * doubled
    if unit is Unit.DEPTHWISE:
        return ceil_div(taps, 4), np.maximum(load, 4 * plane * (2 if is_16 else 1))
    if work.how.part_kernel_first:
        return ceil_div(taps, 2 if is_16 else 4), np.maximum(load, 4 * plane)
    return taps, np.maximum(load, 4 * plane)


def _stalls(
    work: Work, steps: int, columns: Integers, rows: Integers, slices: Integers
) -> Integers:
    """Return the cycles lost because a step needs accumulators that the last one still holds."""
    delay = work.target.timing.accumulator_delay[work.wide]
    alone = (columns == 1) & (rows == 1)
    lost = np.where(alone, delay * np.where(slices == 1, steps, (steps - 1) * slices), 0)
    if work.wide and work.target.arch.accelerator is Accelerator.U55_32:
        narrow = (slices > 1) & ((columns == 1) | (rows == 1))
        lost = lost + np.where(narrow, delay * slices, 0)
    return lost


def _output_cycles(work: Work) -> Reals:
    """Return the cycles of one OFM block in the output stage, its scales included."""
    rate = max(_output_rate(work), _activation_rate(work))
    cycles = np.ceil(rate * work.ofm.prod(axis=1))
    if work.parameters is None:
        return _reals(cycles)
    scales = _SCALE_BYTES * work.ofm[:, 2] * work.parameters.memory.read_latency / 256
    return _reals(np.maximum(cycles, scales))


def _elementwise_rate(work: Work) -> Reals:
    """Return the cycles per element; a quarter of a block's latency is a lower limit."""
    rate = max(_output_rate(work), _activation_rate(work))
    elements = work.blocks.prod(axis=1)
    return _reals(np.maximum(rate, (_latency(work) + rate * elements) / 4 / elements))


def _output_rate(work: Work) -> float:
    rates, unit = work.target.timing.output, work.how.unit
    if isinstance(work.op, ElementWise):
        return _element_rate(work.op, rates)
    if unit is Unit.ELEMENTWISE:
        return rates.add
    if work.wide:
        return rates.multiply
    return rates.max_pool if unit is Unit.MAX_POOL else rates.other


def _element_rate(op: ElementWise, rates: OutputCycles) -> float:
    if op.ifm.dtype.size_bytes == 4:
        return rates.unary_32 if op.kind.is_unary else rates.binary_32
    if op.kind is ElementKind.MUL:
        return rates.multiply_32 if op.ofm.dtype.size_bytes == 4 else rates.multiply
    return rates.add if op.kind in (ElementKind.ADD, ElementKind.SUB) else rates.other


def _activation_rate(work: Work) -> float:
    if work.op.table or (isinstance(work.op, Requantize) and work.op.curve):
        return work.target.timing.lookup
    clamp, dtype = work.op.clamp, work.op.ofm.dtype
    is_tight = clamp.minimum > dtype.minimum or clamp.maximum < dtype.maximum
    return work.target.timing.clamp if is_tight else 0.0


def _latency(work: Work) -> Reals:
    """Return the cycles until one IFM block has been read and one OFM block is written."""
    source, memory, target = work.memory_of(work.op.ifm), work.target.feature_maps, work.target
    bytes_per_cycle = target.bytes_per_cycle(memory)
    read = work.ifm.prod(axis=1) * work.op.ifm.dtype.size_bytes
    written = work.ofm.prod(axis=1) * work.op.ofm.dtype.size_bytes
    waste = _read_waste(work, work.op.ifm)
    reading = source.read_latency + read * waste / target.bytes_per_cycle(source)
    writing = memory.write_latency + written * _write_waste(work) / bytes_per_cycle
    return _reals(reading + writing)


# --- the memories -------------------------------------------------------------------------------


def _read_waste(work: Work, operand: Operand) -> Reals:
    """Return by which factor reads shorter than a burst lower the bandwidth."""
    size = operand.dtype.size_bytes
    if work.layouts[operand.tensor] is Layout.NHCWB16:
        run = BRICK_CHANNELS * size * work.ifm_buffer[:, 1]
    else:
        run = size * work.ifm_buffer[:, 2]
    burst = work.memory_of(operand).burst_bytes
    return burst / np.minimum(burst, run)


def _write_waste(work: Work) -> Reals:
    size, cores = work.op.ofm.dtype.size_bytes, work.target.arch.cores
    if work.layouts[work.op.ofm.tensor] is Layout.NHCWB16:
        run = BRICK_CHANNELS * size * work.blocks[:, 1] * cores
    else:
        most = min(_NHWC_RUN_BYTES, BRICK_CHANNELS * size * cores)
        run = np.minimum(most, size * work.blocks[:, 2])
    burst = work.target.feature_maps.burst_bytes
    return burst / np.minimum(burst, run)


def _stored(work: Work, operand: Operand) -> int:
    """Return the elements of the OFM as an operand's layout pads them."""
    shape = work.op.ofm.shape
    return shape.h * shape.w * _padded(work, operand, shape.c)


def _padded(work: Work, operand: Operand, channels: int) -> int:
    brick = BRICK_CHANNELS if work.layouts[operand.tensor] is Layout.NHCWB16 else 1
    return round_up(channels, brick)


def _memory_cycles(work: Work) -> Iterator[Reals]:
    """Yield the cycles of each memory."""
    feature_maps = work.target.feature_maps
    written = _stored(work, work.op.ofm) * work.op.ofm.dtype.size_bytes
    moved = [(feature_maps, written * _write_waste(work))]
    for operand in work.op.inputs:
        read = _read_elements(work, operand) * operand.dtype.size_bytes
        moved.append((work.memory_of(operand), read * _read_waste(work, operand)))
    parameters = work.parameters
    if parameters is not None:
        moved.append((parameters.memory, _reals(parameters.size_bytes * work.plane)))
    for memory in dict.fromkeys(memory for memory, _ in moved):
        total = sum(bytes_moved for where, bytes_moved in moved if where == memory)
        yield _reals(total / work.target.bytes_per_cycle(memory))


def _read_elements(work: Work, operand: Operand) -> Integers | int:
    """Return the elements of an operand that all blocks together read."""
    if work.how.unit is Unit.ELEMENTWISE:
        return 1 if operand.shape.elements == 1 else _stored(work, operand)
    repeats = work.slices if work.how.sums_channels else 1
    channels = _padded(work, operand, operand.shape.c)
    parts = len(work.how.parts)
    return work.ifm[:, 0] * work.ifm[:, 1] * channels * parts * work.plane * repeats


def transfer_cycles(size_bytes: int, source: Memory, target: Target) -> float:
    """Return the cycles of a transfer into SRAM, the source's latency included."""
    fast = size_bytes // target.timing.port_bytes
    slow = int(size_bytes // target.bytes_per_cycle(source)) + source.read_latency
    sram = int(size_bytes // target.bytes_per_cycle(target.system.sram))
    return float(max(fast, slow, sram))
