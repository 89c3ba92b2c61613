"""How long a command stream takes: an estimate from registers and published figures.

The formulas are those of the Python core of ethos-u-vela 5.2.0 (``npu_performance.py``), rewritten
for what a stream's registers say. docs/cycle-model.md has each of them, and what is not modelled.
All times are in cycles of the NPU's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.geometry import SUB_KERNEL, sub_kernels
from tvm_ethosu.backend.sim.hardware import (
    TIMINGS,
    Memory,
    MemoryKind,
    MemoryMode,
    SystemConfig,
    Timing,
)
from tvm_ethosu.backend.sim.operations import (
    AnyOperation,
    Block,
    BlockOperation,
    Conv,
    Depthwise,
    Dma,
    DmaWait,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Function,
    KernelWait,
    Layout,
    Pool,
    PoolMode,
    Shape,
    Stream,
    Upscale,
)

_BRICK: Final = 16
_MAX_KERNELS: Final = 2
_SCALE_BYTES: Final = 10
_ACCUMULATE_40: Final = 1


@dataclass(frozen=True)
class InterfaceCycles:
    """Bytes that cross the interface of one memory, and the cycles that takes."""

    memory: MemoryKind
    read_bytes: int
    write_bytes: int
    cycles: float


@dataclass(frozen=True)
class OperationCycles:
    """One kernel operation or transfer: ``total`` is the most of NPU and memories.

    A transfer has no NPU cycles; its ``total`` includes the latency of its source. ``start`` and
    ``end`` are its place in time.
    """

    kind: str
    offset: int
    npu_cycles: int
    interfaces: tuple[InterfaceCycles, ...]
    total: float
    start: float
    end: float


@dataclass(frozen=True)
class CycleReport:
    """The estimate of a stream; ``total`` counts cycles until everything has ended."""

    operations: tuple[OperationCycles, ...]
    total: float
    core_clock_hz: float

    @property
    def seconds(self) -> float:
        """Return the time that ``total`` takes at the system's clock."""
        return self.total / self.core_clock_hz


def estimate(stream: Stream, system: SystemConfig, memory_mode: MemoryMode) -> CycleReport:
    """Return the cycles of each operation of a stream, and of all with their overlap.

    Raises SimulationError when the system has no memory for a region of the stream.
    """
    machine = _Machine(stream.accelerator, system, memory_mode)
    line = _Timeline(stream.accelerator.max_outstanding_dma)
    operations = tuple(
        report for op in stream.operations if (report := _advance(op, machine, line)) is not None
    )
    total = max((op.end for op in operations), default=0.0)
    return CycleReport(operations, total, system.core_clock_hz)


# --- the order in time --------------------------------------------------------------------------


class _Queue:
    """Ends of the operations given to the MAC engine or to the DMA engine, one after the other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.ends: list[float] = []

    def finished(self, outstanding: int) -> float:
        """Return when at most so many operations are still in flight."""
        return self.ends[-1 - outstanding] if len(self.ends) > outstanding else 0.0


class _Timeline:
    """The command processor: it goes on until a wait, or until an engine's slots are full."""

    def __init__(self, dma_slots: int) -> None:
        self.now = 0.0
        self.kernels = _Queue(_MAX_KERNELS)
        self.transfers = _Queue(dma_slots)

    def wait(self, queue: _Queue, outstanding: int) -> None:
        """Stop until at most so many operations of an engine are in flight."""
        self.now = max(self.now, queue.finished(outstanding))

    def issue(self, queue: _Queue, cycles: float) -> tuple[float, float]:
        """Give an operation to an engine; return its start and end."""
        self.wait(queue, queue.slots - 1)
        start = max(self.now, queue.finished(0))
        queue.ends.append(start + cycles)
        return start, start + cycles


def _advance(op: AnyOperation, machine: _Machine, line: _Timeline) -> OperationCycles | None:
    """Pass one command; return what it costs if it is a kernel operation or a transfer."""
    if isinstance(op, DmaWait):
        line.wait(line.transfers, op.outstanding)
    elif isinstance(op, KernelWait):
        line.wait(line.kernels, op.outstanding)
    elif isinstance(op, Dma):
        cycles, interfaces = _transfer(op, machine)
        start, end = line.issue(line.transfers, cycles)
        return OperationCycles(op.kind, op.offset, 0, interfaces, cycles, start, end)
    elif isinstance(op, BlockOperation):
        work = _Work(op, machine)
        npu, interfaces = _npu_cycles(work), _interfaces(work)
        total = max(npu, *(interface.cycles for interface in interfaces))
        start, end = line.issue(line.kernels, total)
        return OperationCycles(op.kind, op.offset, npu, interfaces, total, start, end)
    return None


# --- what an operation is made of ---------------------------------------------------------------


@dataclass(frozen=True)
class _Machine:
    """The NPU and the system around it."""

    accelerator: Accelerator
    system: SystemConfig
    mode: MemoryMode

    @property
    def timing(self) -> Timing:
        return TIMINGS[self.accelerator]

    def memory(self, region: int) -> Memory:
        """Return the memory that holds a region."""
        return self.system.place(region, self.mode)

    def bytes_per_cycle(self, memory: Memory) -> float:
        """Return the bandwidth of a memory."""
        return self.timing.port_bytes * memory.bandwidth_share


@dataclass(frozen=True)
class _Work:
    """A kernel operation on a machine, and the blocks in which it is done."""

    op: BlockOperation
    machine: _Machine

    @property
    def is_convolution(self) -> bool:
        return isinstance(self.op, Conv | Depthwise)

    @property
    def sums_channels(self) -> bool:
        """Tell whether each OFM element needs all IFM channels."""
        op = self.op
        return isinstance(op, Conv) or (isinstance(op, Pool) and op.mode is PoolMode.REDUCE_SUM)

    @property
    def part_kernel_first(self) -> bool:
        return isinstance(self.op, Conv) and self.op.kernel.part_kernel_first

    @property
    def accumulates_40(self) -> bool:
        return self.op.acc_format == _ACCUMULATE_40

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Return the taps of each part of the kernel, which spans at most 8x8 elements."""
        return tuple(
            (rows[1] - rows[0]) * (columns[1] - columns[0])
            for rows, columns in sub_kernels(self.op.kernel)
        )

    @cached_property
    def microblock(self) -> Block:
        """Return the OFM elements of one step; 2x2 becomes 1x4 for a row of even width."""
        size, op = self.machine.timing.microblock, self.op
        is_row = op.ofm.shape.height == 1 and op.ofm.shape.width % 2 == 0 and op.kernel.height == 1
        if size.height == 2 and is_row and self.is_convolution:
            return Block(1, 4, size.depth)
        return size

    @cached_property
    def ofm_block(self) -> Block:
        """Return the OFM block without what lies outside of the OFM."""
        return _clip(self.op.block, self.op.ofm.shape)

    @cached_property
    def block_grid(self) -> tuple[int, int]:
        """Return the number of OFM blocks per plane, and of slices of channels."""
        shape, block = self.op.ofm.shape, self.ofm_block
        plane = _ceil(shape.height, block.height) * _ceil(shape.width, block.width)
        return plane, _ceil(shape.depth, block.depth)

    @cached_property
    def ifm_buffer(self) -> Block:
        """Return the IFM block as the shared RAM holds it for one OFM block."""
        op, unit = self.op, self.machine.timing.microblock
        depth = _ifm_depth(op, self.part_kernel_first) if self.sums_channels else op.block.depth
        kernel = op.kernel
        height = _reach(op, op.block.height, kernel.stride_y, kernel.height, kernel.dilation_y)
        width = _reach(op, op.block.width, kernel.stride_x, kernel.width, kernel.dilation_x)
        return Block(_round_up(height, unit.height), _round_up(width, unit.width), depth)

    @cached_property
    def ifm_block(self) -> Block:
        """Return the IFM block without what lies outside of the IFM."""
        return _clip(self.ifm_buffer, self.op.ifm.shape)


def _ifm_depth(op: BlockOperation, part_kernel_first: bool) -> int:
    """Return how many IFM channels are read at a time: 32, 16 part-kernel-first or of 16 bits."""
    depth = op.ifm.shape.depth
    if op.ifm.type.bits == 16:
        return _round_up(min(depth, 16), 4)
    return _round_up(min(depth, 16 if part_kernel_first else 32), 8)


def _reach(op: BlockOperation, outputs: int, stride: int, taps: int, dilation: int) -> int:
    """Return how many IFM rows (columns) a part of the kernel reads for some OFM rows."""
    covered = min((taps - 1) * dilation + 1, SUB_KERNEL)
    if isinstance(op, Elementwise) or op.upscale is Upscale.NONE:
        return (outputs - 1) * stride + covered
    return _ceil((outputs - 1) * stride + covered + (op.upscale is Upscale.NEAREST), 2)


def _clip(block: Block, shape: Shape) -> Block:
    return Block(
        min(block.height, shape.height),
        min(block.width, shape.width),
        min(block.depth, shape.depth),
    )


def _elements(block: Block) -> int:
    return block.height * block.width * block.depth


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _round_up(value: int, multiple: int) -> int:
    return _ceil(value, multiple) * multiple


# --- the NPU ------------------------------------------------------------------------------------


def _npu_cycles(work: _Work) -> int:
    """Return the cycles of the MAC engine and output stage, as if memories never held them up."""
    if isinstance(work.op, Elementwise):
        return math.ceil(_cycles_per_element(work) * _stored(work.op.ofm, work.op.ofm.shape))
    macs, output = _mac_cycles(work), _output_cycles(work)
    command = (sum(_block_latencies(work)) + output + macs) / 4
    macs, output = max(macs, command), max(output, command)
    plane, slices = work.block_grid
    return int(max(macs, output) * plane * slices + min(macs, output))


def _mac_cycles(work: _Work) -> float:
    """Return the cycles of one OFM block in the MAC engine of each core."""
    block, unit = work.ofm_block, work.microblock
    columns, rows = _ceil(block.width, unit.width), _ceil(block.height, unit.height)
    slices = _ceil(block.depth, unit.depth)
    cycles = 0
    for taps in work.parts:
        steps, per_step = _steps(work, taps, columns * rows)
        cycles += steps * per_step * slices
        cycles += _stalls(work, steps, columns, rows, slices)
    if work.part_kernel_first:
        cycles *= _ceil(work.ifm_block.depth, 8)
    if work.sums_channels:
        cycles *= _ceil(work.op.ifm.shape.depth, work.ifm_block.depth)
    return cycles / work.machine.accelerator.cores


def _steps(work: _Work, taps: int, plane: int) -> tuple[int, int]:
    """Return the steps of a part of the kernel, and the cycles of each per slice of channels.

    ``plane`` counts microblocks. A step takes four cycles per microblock, and not less than the
    weights of a step take to be loaded.
    """
    op, is_16 = work.op, work.op.ifm.type.bits == 16
    load = 4 * work.microblock.depth
    if isinstance(op, Pool) and op.mode is not PoolMode.REDUCE_SUM:
        doubled = 2 if is_16 and work.machine.accelerator is not Accelerator.U55_32 else 1
        return 1, max(4, taps) * plane * doubled
    if isinstance(op, Depthwise):
        return _ceil(taps, 4), max(load, 4 * plane * (2 if is_16 else 1))
    if work.part_kernel_first:
        return _ceil(taps, 2 if is_16 else 4), max(load, 4 * plane)
    return taps, max(load, 4 * plane)


def _stalls(work: _Work, steps: int, columns: int, rows: int, slices: int) -> int:
    """Return the cycles lost because a step needs accumulators that the last one still holds."""
    accelerator, wide = work.machine.accelerator, work.accumulates_40
    smallest = accelerator is Accelerator.U55_32
    if smallest:
        delay = 7 if wide else 3
    else:
        delay = 3 if wide and accelerator in (Accelerator.U55_64, Accelerator.U55_128) else 2
    lost = 0
    if columns == rows == 1:
        lost = delay * (steps if slices == 1 else (steps - 1) * slices)
    if smallest and wide and slices > 1 and 1 in (columns, rows):
        lost += delay * slices
    return lost


def _output_cycles(work: _Work) -> float:
    """Return the cycles of one OFM block in the output stage, its scales included."""
    cycles = math.ceil(_cycles_per_element(work) * _elements(work.ofm_block))
    op = work.op
    if isinstance(op, Conv | Depthwise) and (scales := op.parameters[0].scales) is not None:
        latency = work.machine.memory(scales.region).read_latency
        return max(cycles, _SCALE_BYTES * work.ofm_block.depth * latency / 256)
    return cycles


def _cycles_per_element(work: _Work) -> float:
    """Return the cycles per element of the output stage; elementwise, the blocks' latency too."""
    cycles = max(_output_rate(work), _activation_rate(work))
    if isinstance(work.op, Elementwise):
        elements = _elements(work.op.block)
        command = (sum(_block_latencies(work)) + cycles * elements) / 4
        cycles = max(cycles, command / elements)
    return cycles


def _output_rate(work: _Work) -> float:
    op, rates = work.op, work.machine.timing.output
    if isinstance(op, Elementwise):
        if op.ifm.type.bits == 32:
            return rates.unary_32 if op.mode.is_unary else rates.binary_32
        if op.mode is ElementwiseMode.MUL:
            return rates.multiply_32 if op.ofm.type.bits == 32 else rates.multiply
        is_sum = op.mode in (ElementwiseMode.ADD, ElementwiseMode.SUB)
        return rates.add if is_sum else rates.other
    if work.accumulates_40:
        return rates.multiply
    is_max = isinstance(op, Pool) and op.mode is PoolMode.MAX
    return rates.max_pool if is_max else rates.other


def _activation_rate(work: _Work) -> float:
    activation, element = work.op.activation, work.op.ofm.type
    if activation.function is not Function.CLAMP:
        return work.machine.timing.lookup
    is_tight = activation.minimum > element.minimum or activation.maximum < element.maximum
    return work.machine.timing.clamp if is_tight else 0.0


def _block_latencies(work: _Work) -> Iterator[float]:
    """Yield the cycles until one IFM block has been read, and until one OFM block is written."""
    machine, op = work.machine, work.op
    source, target = machine.memory(op.ifm.region), machine.memory(op.ofm.region)
    read = _elements(work.ifm_block) * op.ifm.type.size_bytes
    read_waste = _waste(op.ifm, source, work.ifm_buffer, None)
    yield source.read_latency + read * read_waste / machine.bytes_per_cycle(source)
    written = _elements(work.ofm_block) * op.ofm.type.size_bytes
    waste = _waste(op.ofm, target, op.block, machine.accelerator.cores)
    yield target.write_latency + written * waste / machine.bytes_per_cycle(target)


# --- the memories -------------------------------------------------------------------------------


def _waste(feature_map: FeatureMap, memory: Memory, block: Block, cores: int | None) -> float:
    """Return by which factor accesses shorter than a burst lower the bandwidth.

    ``cores`` is how many cores write; None for a read.
    """
    size = feature_map.type.size_bytes
    if feature_map.layout is Layout.NHCWB16:
        run = _BRICK * size * block.width * (cores or 1)
    elif cores is None:
        run = block.depth * size
    else:
        run = min(64, _BRICK * size * cores, block.depth * size)
    return memory.burst_bytes / min(memory.burst_bytes, run)


def _stored(feature_map: FeatureMap, shape: Shape) -> int:
    """Return the elements of ``shape`` with the layout's padding: channels in bricks of 16."""
    brick = _BRICK if feature_map.layout is Layout.NHCWB16 else 1
    return shape.height * shape.width * _round_up(shape.depth, brick)


@dataclass(frozen=True)
class _Access:
    """Bytes to or from a memory, and the factor by which short bursts slow them."""

    memory: Memory
    read_bytes: int = 0
    write_bytes: int = 0
    waste: float = 1.0


def _interfaces(work: _Work) -> tuple[InterfaceCycles, ...]:
    return _by_memory(list(_accesses(work)), work.machine)


def _by_memory(accesses: list[_Access], machine: _Machine) -> tuple[InterfaceCycles, ...]:
    """Return the sums per memory."""
    found = []
    for memory in dict.fromkeys(access.memory for access in accesses):
        own = [access for access in accesses if access.memory == memory]
        slowed = sum((access.read_bytes + access.write_bytes) * access.waste for access in own)
        found.append(
            InterfaceCycles(
                memory.kind,
                sum(access.read_bytes for access in own),
                sum(access.write_bytes for access in own),
                slowed / machine.bytes_per_cycle(memory),
            )
        )
    return tuple(found)


def _accesses(work: _Work) -> Iterator[_Access]:
    """Yield what an operation reads and writes: OFM, IFM, second operand, weights, scales."""
    op, machine = work.op, work.machine
    target = machine.memory(op.ofm.region)
    written = _stored(op.ofm, op.ofm.shape) * op.ofm.type.size_bytes
    waste = _waste(op.ofm, target, op.block, machine.accelerator.cores)
    yield _Access(target, write_bytes=written, waste=waste)
    if isinstance(op, Elementwise):
        operands = [op.ifm] if op.ifm2 is None else [op.ifm, op.ifm2]
        for operand in operands:
            yield _read(operand, _operand_elements(operand, op.ofm.shape), work)
    else:
        yield _read(op.ifm, _ifm_elements(work), work)
    if isinstance(op, Conv | Depthwise):
        yield from _parameters(op, work)


def _read(operand: FeatureMap, elements: int, work: _Work) -> _Access:
    memory = work.machine.memory(operand.region)
    waste = _waste(operand, memory, work.ifm_buffer, None)
    return _Access(memory, read_bytes=elements * operand.type.size_bytes, waste=waste)


def _operand_elements(operand: FeatureMap, ofm: Shape) -> int:
    """Return the elements read of an operand: what is broadcast is read for each OFM element."""
    return 1 if operand.shape.elements == 1 else _stored(operand, ofm)


def _ifm_elements(work: _Work) -> int:
    """Return the elements of the IFM that all blocks read together."""
    plane, slices = work.block_grid
    shape = Shape(work.ifm_block.height, work.ifm_block.width, work.op.ifm.shape.depth)
    repeats = slices if work.sums_channels else 1
    return _stored(work.op.ifm, shape) * len(work.parts) * plane * repeats


def _parameters(op: Conv | Depthwise, work: _Work) -> Iterator[_Access]:
    """Yield the reads of encoded weights and scales, once for each block of the OFM's plane."""
    plane, _ = work.block_grid
    for core in op.parameters:
        for data in (core.weights, core.scales):
            if data is not None:
                memory = work.machine.memory(data.region)
                yield _Access(memory, read_bytes=data.length * plane)


def _transfer(op: Dma, machine: _Machine) -> tuple[float, tuple[InterfaceCycles, ...]]:
    """Return the cycles of a transfer, source latency included, and what it moves per memory.

    The shared RAM takes the port's bandwidth and costs nothing more.
    """
    length = op.length
    if op.source.stride_mode or op.destination.stride_mode:
        length *= op.rows * op.planes
    accesses, cycles = [], length // machine.timing.port_bytes
    for end, is_source in ((op.source, True), (op.destination, False)):
        if end.internal:
            continue
        memory = machine.memory(end.region)
        moved = {"read_bytes" if is_source else "write_bytes": length}
        accesses.append(_Access(memory, **moved))
        latency = memory.read_latency if is_source else 0
        cycles = max(cycles, int(length // machine.bytes_per_cycle(memory)) + latency)
    return float(cycles), _by_memory(accesses, machine)
