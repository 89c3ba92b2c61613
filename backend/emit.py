"""From an allocation to a program: block configs, encoded constants, command streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tvm_ethosu.backend import vela
from tvm_ethosu.backend.program import (
    CONSTANTS_REGION,
    FIRST_IO_REGION,
    SCRATCH_REGION,
    Argument,
    Binding,
    Invocation,
    Program,
    Source,
)
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ALIGN_BYTES, MAX_DIM, MAX_REGIONS, Arch
from tvm_ethosu.scheduler.blocks import choose_block
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Conv2D,
    DepthwiseConv2D,
    Move,
    NpuGraph,
    NpuOp,
    Operand,
    Part,
    Requantize,
)
from tvm_ethosu.scheduler.plan import Buffer, Layout, Schedule
from tvm_ethosu.scheduler.ports import Block
from tvm_ethosu.scheduler.stripes import Step, cut_op, input_rows

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


def _io_tensors(graph: NpuGraph, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return which inputs and outputs of the function these steps touch, in argument order."""
    ops = [graph.ops[index] for index in dict.fromkeys(step.op for step in steps)]
    touched = {operand.tensor for op in ops for operand in (*op.inputs, op.ofm)}
    return tuple(name for name in _arguments(graph) if name in touched)


def split_invocations(schedule: Schedule) -> Iterator[tuple[Step, ...]]:
    """Yield runs of steps that need no more inputs and outputs than there are base pointers."""
    run: list[Step] = []
    for step in schedule.steps:
        if _is_full(schedule.graph, run, step):
            yield tuple(run)
            run = []
        run.append(step)
    yield tuple(run)


def _is_full(graph: NpuGraph, run: Sequence[Step], step: Step) -> bool:
    return len(_io_tensors(graph, [*run, step])) > MAX_REGIONS - FIRST_IO_REGION


def _whole(region: int, offset: int) -> vela.Placement:
    """Return the placement of a tensor that is in memory from its first row to its last."""
    return vela.Placement(region, offset, Layout.NHWC, _MANY_ROWS)


class _Emitter:
    """Emits one function; the constants of all its invocations share one region."""

    def __init__(self, allocation: Allocation, arch: Arch) -> None:
        self.allocation = allocation
        self.arch = arch
        self.graph = allocation.schedule.graph
        self.constants = _ConstantsBuilder()
        self.placements = self._scratch_placements() | self._constant_placements()
        self.blocks: dict[NpuOp, Block] = {}
        self.depths: dict[str, int] = {}
        self.ranges: dict[tuple[str, int], tuple[list[vela.Range], list[vela.Range]]] = {}

    def _scratch_placements(self) -> dict[str, vela.Placement]:
        schedule = self.allocation.schedule
        return {
            buffer.tensor: vela.Placement(
                SCRATCH_REGION,
                self.allocation.addresses[buffer.tensor],
                schedule.layouts[buffer.tensor],
                _MANY_ROWS if self._is_whole(buffer) else buffer.rows,
            )
            for buffer in schedule.buffers
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

    def _constant_ranges(
        self, operation: vela.Operation, op: Conv2D | DepthwiseConv2D, block: Block
    ) -> tuple[list[vela.Range], list[vela.Range]]:
        """Return where scales and weights lie; they are encoded once for each block depth."""
        key = (op.name, block.c)
        if key not in self.ranges:
            bias = self.graph.constants[op.bias].data.astype(np.int64)
            weights = self.graph.constants[op.weights].data.astype(np.int16)
            scales = vela.encode_scales(self.arch, bias, op.rescale)
            streams = vela.encode_weights(operation, self.arch, weights, block)
            self.ranges[key] = (
                [self.constants.add(piece) for piece in scales],
                [self.constants.add(piece) for piece in streams],
            )
        return self.ranges[key]

    def _block(self, operation: vela.Operation) -> Block:
        """Return the block config of an operation; of the same depth for all stripes if it can."""
        op = operation.op
        if op not in self.blocks:
            legal = vela.legal_blocks(operation, self.arch)
            depth = self.depths.get(op.name)
            same = [block for block in legal if block.c == depth]
            self.blocks[op] = choose_block(op, same or legal)
            self.depths.setdefault(op.name, self.blocks[op].c)
        return self.blocks[op]

    def _operation(self, step: Step, placements: Mapping[str, vela.Placement]) -> vela.Operation:
        whole = self.graph.ops[step.op]
        views = {
            operand.tensor: vela.View(
                placements[operand.tensor], input_rows(whole, operand, step.rows).start
            )
            for operand in whole.inputs
        }
        views[whole.ofm.tensor] = vela.View(placements[whole.ofm.tensor], step.rows.start)
        operation = vela.make_operation(cut_op(whole, step.rows), views)
        block = self._block(operation)
        vela.set_block(operation, block)
        if isinstance(whole, Conv2D | DepthwiseConv2D):
            vela.set_constants(operation, *self._constant_ranges(operation, whole, block))
        return operation

    def _operations(
        self, step: Step, placements: Mapping[str, vela.Placement]
    ) -> list[vela.Operation]:
        op = self.graph.ops[step.op]
        if not isinstance(op, Move):
            return [self._operation(step, placements)]
        return [self._copy(op, part, placements) for part in op.parts]

    def _copy(
        self, op: Move, part: Part, placements: Mapping[str, vela.Placement]
    ) -> vela.Operation:
        """Return the copy of one part of a move."""
        source, dtype = op.inputs[part.source].tensor, op.ofm.dtype
        ifm = Operand(source, part.shape, dtype)
        ofm = Operand(op.ofm.tensor, part.shape, dtype)
        copy = Requantize(op.name, ifm, ofm, Clamp(dtype.minimum, dtype.maximum), origin=op.origin)
        views = {
            source: vela.View(placements[source], 0, part.read),
            ofm.tensor: vela.View(placements[ofm.tensor], 0, part.write),
        }
        operation = vela.make_operation(copy, views)
        vela.set_block(operation, choose_block(copy, vela.legal_blocks(operation, self.arch)))
        return operation

    def invocation(self, steps: Sequence[Step]) -> Invocation:
        io = _io_tensors(self.graph, steps)
        regions = {name: FIRST_IO_REGION + index for index, name in enumerate(io)}
        placements = self.placements | {name: _whole(region, 0) for name, region in regions.items()}
        operations = [
            operation for step in steps for operation in self._operations(step, placements)
        ]
        words = vela.command_stream(operations, self.arch)
        bindings = tuple(self._io_binding(name, region) for name, region in regions.items())
        return Invocation(words, bindings)

    def _io_binding(self, name: str, region: int) -> Binding:
        return Binding(
            region,
            Source.ARGUMENT,
            self.graph.tensors[name].size_bytes,
            read_only=name in self.graph.inputs,
            argument=_arguments(self.graph).index(name),
        )

    def common_bindings(self) -> tuple[Binding, ...]:
        size_bytes = len(self.constants.data)
        scratch_bytes = self.allocation.scratch_bytes
        return (
            Binding(CONSTANTS_REGION, Source.CONSTANTS, size_bytes, read_only=True),
            Binding(SCRATCH_REGION, Source.SCRATCH, scratch_bytes, read_only=False),
        )


def emit_program(allocation: Allocation, arch: Arch) -> Program:
    """Return the program of an allocated schedule for one accelerator."""
    emitter = _Emitter(allocation, arch)
    graph = emitter.graph
    partial = [emitter.invocation(steps) for steps in split_invocations(allocation.schedule)]
    common = emitter.common_bindings()
    invocations = tuple(Invocation(p.words, (*common, *p.bindings)) for p in partial)

    def arguments(names: Sequence[str]) -> tuple[Argument, ...]:
        return tuple(
            Argument(graph.tensors[name].origin, graph.tensors[name].size_bytes) for name in names
        )

    return Program(
        graph.name,
        arch.accelerator.value,
        invocations,
        bytes(emitter.constants.data),
        arguments(graph.inputs),
        arguments(graph.outputs),
        allocation.scratch_bytes,
        graph.macs,
    )
