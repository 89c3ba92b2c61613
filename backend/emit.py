"""From an allocation to a program: block configs, encoded constants, command streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from tvm_ethosu.scheduler.arch import ALIGN_BYTES, MAX_REGIONS, Arch
from tvm_ethosu.scheduler.blocks import choose_block
from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, NpuGraph, NpuOp
from tvm_ethosu.scheduler.plan import Layout
from tvm_ethosu.scheduler.ports import Block


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


def _io_tensors(graph: NpuGraph, ops: Sequence[NpuOp]) -> tuple[str, ...]:
    """Return which inputs and outputs of the function these operators touch, in argument order."""
    touched = {operand.tensor for op in ops for operand in (*op.inputs, op.ofm)}
    return tuple(name for name in _arguments(graph) if name in touched)


def split_invocations(graph: NpuGraph) -> Iterator[tuple[NpuOp, ...]]:
    """Yield runs of operators that need no more inputs and outputs than there are base pointers."""
    run: list[NpuOp] = []
    for op in graph.ops:
        if len(_io_tensors(graph, [*run, op])) > MAX_REGIONS - FIRST_IO_REGION:
            yield tuple(run)
            run = []
        run.append(op)
    yield tuple(run)


class _Emitter:
    """Emits one function; the constants of all its invocations share one region."""

    def __init__(self, allocation: Allocation, arch: Arch) -> None:
        self.allocation = allocation
        self.arch = arch
        self.graph = allocation.schedule.graph
        self.constants = _ConstantsBuilder()
        self.placements: dict[str, vela.Placement] = {}
        layouts = allocation.schedule.layouts
        for name, offset in allocation.addresses.items():
            self.placements[name] = vela.Placement(SCRATCH_REGION, offset, layouts[name])
        for name in self.graph.tensors:
            if name in self.graph.constants:
                at = self.constants.add(self.graph.constants[name].data.tobytes())
                self.placements[name] = vela.Placement(at.region, at.offset, Layout.NHWC)

    def _encode(self, operation: vela.Operation, block: Block) -> None:
        """Encode scales and weights of a convolution, core by core, and tell the operation."""
        op = operation.op
        if not isinstance(op, Conv2D | DepthwiseConv2D):
            return
        bias = self.graph.constants[op.bias].data.astype(np.int64)
        weights = self.graph.constants[op.weights].data.astype(np.int16)
        scales = vela.encode_scales(self.arch, bias, op.rescale)
        streams = vela.encode_weights(operation, self.arch, weights, block)
        vela.set_constants(
            operation,
            [self.constants.add(piece) for piece in scales],
            [self.constants.add(piece) for piece in streams],
        )

    def invocation(self, ops: Sequence[NpuOp]) -> Invocation:
        io = _io_tensors(self.graph, ops)
        regions = {name: FIRST_IO_REGION + index for index, name in enumerate(io)}
        placements = self.placements | {
            name: vela.Placement(region, 0, Layout.NHWC) for name, region in regions.items()
        }
        operations = [vela.make_operation(op, placements) for op in ops]
        for operation in operations:
            block = choose_block(operation.op, vela.legal_blocks(operation, self.arch))
            vela.set_block(operation, block)
            self._encode(operation, block)
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
    partial = [emitter.invocation(ops) for ops in split_invocations(graph)]
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
