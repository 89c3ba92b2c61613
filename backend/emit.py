"""From an allocation to a program: block configs, encoded constants, command streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from tvm_ethosu.backend import vela
from tvm_ethosu.backend.parameters import Encoder
from tvm_ethosu.backend.program import (
    CONSTANTS_REGION,
    FIRST_IO_REGION,
    FOR_EVER,
    SCRATCH_REGION,
    Argument,
    Binding,
    Invocation,
    Program,
    ScratchTensor,
    Source,
)
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ALIGN_BYTES, BRICK_CHANNELS, MAX_DIM, MAX_REGIONS, Layout
from tvm_ethosu.scheduler.engine import operations
from tvm_ethosu.scheduler.ir import (
    Conv2D,
    DepthwiseConv2D,
    Move,
    NpuGraph,
    NpuOp,
    Operand,
    Part,
    Strides,
)
from tvm_ethosu.scheduler.plan import Buffer, Schedule, Transfer
from tvm_ethosu.scheduler.ports import Block
from tvm_ethosu.scheduler.stripes import Step, cut_op, input_rows

_Pieces = list[vela.Range]

# More rows than any feature map has: such memory never wraps around.
_MANY_ROWS = MAX_DIM + 1


class _ConstantsBuilder:
    """The read-only bytes of one function; every piece starts at a 16-byte boundary."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, piece: bytes) -> vela.Range:
        """Append bytes, and padding up to the boundary, and return where they lie."""
        offset = len(self.data)
        self.data += piece + bytes(-len(piece) % ALIGN_BYTES)
        return vela.Range(CONSTANTS_REGION, offset, len(piece))


def _arguments(graph: NpuGraph) -> tuple[str, ...]:
    return (*graph.inputs, *graph.outputs)


def _io_tensors(graph: NpuGraph, ops: Iterable[int]) -> frozenset[str]:
    """Return which inputs and outputs of the function these operators touch."""
    return frozenset(_touched(graph, ops).intersection(_arguments(graph)))


def _touched(graph: NpuGraph, ops: Iterable[int]) -> set[str]:
    return {o.tensor for op in ops for o in (*graph.ops[op].inputs, graph.ops[op].ofm)}


@dataclass(frozen=True)
class Kernel:
    """A step of the schedule with the block configs of its kernel operations."""

    step: Step
    blocks: tuple[Block, ...]


Command = Kernel | Transfer


def commands(schedule: Schedule) -> list[Command]:
    """Return the commands of a schedule, transfers before the segment that they precede."""
    result: list[Command] = []
    begun = -1
    for step, timed in zip(schedule.steps, schedule.timed, strict=True):
        while begun < schedule.segment_of[step.op]:
            begun += 1
            result += [t for t in schedule.transfers if t.before == begun]
        result.append(Kernel(step, timed.blocks))
    return result


def split_invocations(schedule: Schedule) -> list[list[Command]]:
    """Return runs of commands that need no more inputs and outputs than there are base pointers.

    A transfer whose operator has not begun when a run ends belongs to the next one.
    """
    graph, room = schedule.graph, MAX_REGIONS - FIRST_IO_REGION
    runs: list[list[Command]] = [[]]
    touched: frozenset[str] = frozenset()
    begun: set[int] = set()
    for command in commands(schedule):
        if isinstance(command, Kernel):
            needed = _io_tensors(graph, [command.step.op])
            if len(touched | needed) > room:
                done, late = _split(runs[-1], begun)
                runs[-1:] = [done, late]
                touched = frozenset()
            touched |= needed
            begun.add(command.step.op)
        runs[-1].append(command)
    return runs


def _split(run: Sequence[Command], begun: Set[int]) -> tuple[list[Command], list[Command]]:
    """Return the commands of a run, and the transfers in it for operators yet to begin."""
    late: list[Command] = [c for c in run if isinstance(c, Transfer) and c.op not in begun]
    return [command for command in run if command not in late], late


def _whole(region: int, offset: int) -> vela.Placement:
    """Return the placement of a tensor that is in memory from its first row to its last."""
    return vela.Placement(region, offset, Layout.NHWC, _MANY_ROWS)


def _copy(
    part: Part, copy: NpuOp, block: Block, placements: Mapping[str, vela.Placement]
) -> vela.Operation:
    """Return the copy of one part of a move."""
    source, target = copy.ifm.tensor, copy.ofm.tensor
    views = {
        source: vela.View(placements[source], 0, part.read),
        target: vela.View(placements[target], 0, part.write),
    }
    operation = vela.make_operation(copy, views)
    vela.set_block(operation, block)
    return operation


class _Emitter:
    """Emits one function; the constants of all its invocations share one region."""

    def __init__(self, allocation: Allocation, encoder: Encoder) -> None:
        self.allocation = allocation
        self.encoder = encoder
        self.graph = allocation.schedule.graph
        self.constants = _ConstantsBuilder()
        self.placements = self._constant_placements()
        # Where memory is, by argument; the scratch has no name.
        self.regions = {"": SCRATCH_REGION}
        self.in_scratch = {t.op: t.buffer for t in allocation.schedule.transfers}
        self.ranges: dict[tuple[int, int], tuple[list[vela.Range], list[vela.Range]]] = {}
        self.tables: dict[str, vela.Range] = {}

    def _region(self, buffer: str) -> int:
        return self.regions[self.allocation.homes.get(buffer, "")]

    def _buffer_placements(self) -> dict[str, vela.Placement]:
        schedule = self.allocation.schedule
        return {
            buffer.tensor: vela.Placement(
                self._region(buffer.tensor),
                self.allocation.addresses[buffer.tensor],
                schedule.layouts.by_tensor[buffer.tensor],
                _MANY_ROWS if self._is_whole(buffer) else buffer.rows,
            )
            for buffer in schedule.buffers
            if buffer.rows and self.allocation.homes.get(buffer.tensor, "") in self.regions
        }

    def _is_whole(self, buffer: Buffer) -> bool:
        """Return whether a buffer holds all rows at once; other shapes may have more of them."""
        return buffer.rows >= self.graph.tensors[buffer.tensor].shape.h

    def _constant_placements(self) -> dict[str, vela.Placement]:
        placements = {}
        for name in self.graph.tensors:
            if name in self.graph.constants:
                at = self.constants.add(self.graph.constants[name].data.tobytes())
                placements[name] = _whole(at.region, at.offset)
        return placements

    def _constant_ranges(self, index: int, depth: int) -> tuple[_Pieces, _Pieces]:
        """Return where scales and weights lie among the constants, one after the other."""
        key = (index, depth)
        if key not in self.ranges:
            op = self.graph.ops[index]
            assert isinstance(op, Conv2D | DepthwiseConv2D)
            encoded = self.encoder.encoded(self.graph, op, depth)
            self.ranges[key] = (
                [self.constants.add(piece) for piece in encoded.scales],
                [self.constants.add(piece) for piece in encoded.weights],
            )
        return self.ranges[key]

    def _parameters(self, index: int, depth: int) -> tuple[_Pieces, _Pieces]:
        """Return where an operation reads scales and weights: constants, or their copy."""
        scales, weights = self._constant_ranges(index, depth)
        buffer = self.in_scratch.get(index)
        if buffer is None:
            return scales, weights
        move = self.allocation.addresses[buffer] - scales[0].offset
        region = self._region(buffer)

        def moved(pieces: _Pieces) -> _Pieces:
            return [vela.Range(region, p.offset + move, p.size_bytes) for p in pieces]

        return moved(scales), moved(weights)

    def _transfer(self, transfer: Transfer) -> vela.Copy:
        schedule = self.allocation.schedule
        pairs = zip(schedule.steps, schedule.timed, strict=True)
        depth = next(timed.blocks[0].c for step, timed in pairs if step.op == transfer.op)
        scales, _ = self._constant_ranges(transfer.op, depth)
        at = self.allocation.addresses[transfer.buffer]
        return vela.make_copy(
            vela.Range(CONSTANTS_REGION, scales[0].offset, transfer.size_bytes),
            vela.Range(self._region(transfer.buffer), at, transfer.size_bytes),
        )

    def _view(
        self, operand: Operand, placements: Mapping[str, vela.Placement], first_row: int
    ) -> vela.View:
        placement = placements[operand.tensor]
        if not self.graph.is_slice(operand):
            return vela.View(placement, first_row)
        tensor, first = self.graph.tensors[operand.tensor].shape, operand.first_channel
        row_bytes = self.allocation.schedule.layouts.row_bytes(operand.tensor)
        row, column = row_bytes // operand.dtype.size_bytes, tensor.c
        if placement.layout is Layout.NHCWB16:
            # A slice begins with a brick, and each brick before it has 16 channels of all columns.
            column, first = BRICK_CHANNELS, first * tensor.w
        return vela.View(placement, 0, Strides(first + first_row * row, row, column))

    def _operation(
        self, kernel: Kernel, placements: Mapping[str, vela.Placement]
    ) -> vela.Operation:
        step, (block,) = kernel.step, kernel.blocks
        whole = self.graph.ops[step.op]
        views = {
            operand.tensor: self._view(
                operand, placements, input_rows(whole, operand, step.rows).start
            )
            for operand in whole.inputs
        }
        views[whole.ofm.tensor] = self._view(whole.ofm, placements, step.rows.start)
        operation = vela.make_operation(cut_op(whole, step.rows), views)
        vela.set_block(operation, block)
        if isinstance(whole, Conv2D | DepthwiseConv2D):
            vela.set_constants(operation, *self._parameters(step.op, block.c))
        if whole.table:
            operation = vela.with_table(operation, self._table(whole.table))
        return operation

    def _operations(
        self, kernel: Kernel, placements: Mapping[str, vela.Placement]
    ) -> list[vela.Operation]:
        op = self.graph.ops[kernel.step.op]
        if not isinstance(op, Move):
            return [self._operation(kernel, placements)]
        parts = zip(op.parts, operations(op), kernel.blocks, strict=True)
        return [_copy(part, copy, block, placements) for part, copy, block in parts]

    def _table(self, name: str) -> vela.Range:
        """Return where a table lies among the constants."""
        if name not in self.tables:
            self.tables[name] = self.constants.add(self.graph.constants[name].data.tobytes())
        return self.tables[name]

    def invocation(self, run: Sequence[Command]) -> Invocation:
        """Return the stream of these commands, and the base pointers that it needs."""
        io = self._arguments_of(run)
        regions = {name: FIRST_IO_REGION + index for index, name in enumerate(io)}
        self.regions = {"": SCRATCH_REGION} | regions
        placements = self.placements | self._buffer_placements()
        placements |= {
            name: _whole(regions[home], 0)
            for name in _arguments(self.graph)
            if (home := self.graph.home_of(name)) in regions
        }
        made: list[vela.Operation | vela.Copy] = []
        for command in run:
            if isinstance(command, Kernel):
                made += self._operations(command, placements)
            else:
                made.append(self._transfer(command))
        words = vela.command_stream(made, self.encoder.arch)
        bindings = tuple(self._io_binding(name, region) for name, region in regions.items())
        return Invocation(words, bindings)

    def _arguments_of(self, run: Sequence[Command]) -> list[str]:
        """Return the arguments that these commands touch, or what lies in their memory."""
        touched = _touched(self.graph, {c.step.op for c in run if isinstance(c, Kernel)})
        touched |= {command.buffer for command in run if isinstance(command, Transfer)}
        homes = self.allocation.homes
        touched |= {homes[name] for name in touched if name in homes}
        touched = {self.graph.home_of(name) for name in touched}
        return [name for name in _arguments(self.graph) if name in touched]

    def _io_binding(self, name: str, region: int) -> Binding:
        return Binding(
            region,
            Source.ARGUMENT,
            self.graph.tensors[name].size_bytes,
            read_only=name in self.graph.inputs and name not in _mapped(self.allocation),
            argument=_arguments(self.graph).index(name),
        )

    def common_bindings(self) -> tuple[Binding, ...]:
        size_bytes = len(self.constants.data)
        scratch_bytes = self.allocation.scratch_bytes
        return (
            Binding(CONSTANTS_REGION, Source.CONSTANTS, size_bytes, read_only=True),
            Binding(SCRATCH_REGION, Source.SCRATCH, scratch_bytes, read_only=False),
        )


def scratch_tensors(allocation: Allocation) -> tuple[ScratchTensor, ...]:
    """Return the memory map of the scratch, and of arguments that lend their memory."""
    schedule, homes = allocation.schedule, allocation.homes
    graph, used = schedule.graph, _used_positions(schedule)
    arguments, mapped = _arguments(graph), _mapped(allocation)

    def origin(buffer: Buffer) -> str:
        return graph.tensors[buffer.tensor].origin if buffer.rows else buffer.tensor

    return tuple(
        ScratchTensor(
            origin(buffer),
            allocation.addresses[buffer.tensor],
            buffer.size_bytes,
            used[buffer.tensor][0],
            used[buffer.tensor][-1],
            arguments.index(homes[buffer.tensor]) if buffer.tensor in homes else None,
        )
        for buffer in schedule.buffers
    ) + tuple(
        _argument_tensor(graph, name, used) for name in arguments if graph.home_of(name) in mapped
    )


def _mapped(allocation: Allocation) -> set[str]:
    """Return the arguments in whose memory more than themselves lies."""
    shared = allocation.schedule.graph.shared
    own = () if shared is None else (allocation.schedule.graph.home_of(shared.input),)
    return {*allocation.homes.values(), *own}


def _argument_tensor(
    graph: NpuGraph, name: str, used: Mapping[str, Sequence[int]]
) -> ScratchTensor:
    """Return when an argument itself is in its memory: an input from before the first kernel on."""
    tensor, argument = graph.tensors[name], _arguments(graph).index(graph.home_of(name))
    if name in graph.inputs:
        first, last = -1, used[name][-1]
    else:
        first, last = used[name][0], FOR_EVER
    return ScratchTensor(tensor.origin, 0, tensor.size_bytes, first, last, argument)


def _used_positions(schedule: Schedule) -> Mapping[str, Sequence[int]]:
    """Return at which kernels each buffer is in use; transfers come after the kernel before."""
    graph, used = schedule.graph, dict[str, list[int]]()
    buffers = {transfer.op: transfer.buffer for transfer in schedule.transfers}
    kernels = list(accumulate((len(timed.blocks) for timed in schedule.timed), initial=0))
    for transfer in schedule.transfers:
        start = schedule.segments[transfer.before].start
        after = next(n for n, step in enumerate(schedule.steps) if step.op >= start)
        used[transfer.buffer] = [kernels[after] - 1]
    for position, step in enumerate(schedule.steps):
        own = (kernels[position], kernels[position + 1] - 1)
        op = graph.ops[step.op]
        for operand in (*op.inputs, op.ofm):
            used.setdefault(operand.tensor, []).extend(own)
        if step.op in buffers:
            used[buffers[step.op]].extend(own)
    return used


def emit_program(allocation: Allocation, encoder: Encoder) -> Program:
    """Return the program of an allocated schedule for the encoder's accelerator."""
    emitter = _Emitter(allocation, encoder)
    graph = emitter.graph
    partial = [emitter.invocation(run) for run in split_invocations(allocation.schedule)]
    common = emitter.common_bindings()
    invocations = tuple(Invocation(p.words, (*common, *p.bindings)) for p in partial)

    def arguments(names: Sequence[str]) -> tuple[Argument, ...]:
        return tuple(
            Argument(graph.tensors[name].origin, graph.tensors[name].size_bytes) for name in names
        )

    return Program(
        graph.name,
        encoder.arch.accelerator.value,
        invocations,
        bytes(emitter.constants.data),
        arguments(graph.inputs),
        arguments(graph.outputs),
        allocation.scratch_bytes,
        graph.macs,
        scratch_tensors(allocation),
        _shared(graph),
    )


def _shared(graph: NpuGraph) -> tuple[int, int] | None:
    """Return the argument whose memory an input and an output share, and the other one."""
    if graph.shared is None:
        return None
    home = graph.home_of(graph.shared.input)
    guest = graph.shared.output if home == graph.shared.input else graph.shared.input
    return _arguments(graph).index(home), _arguments(graph).index(guest)
