"""Cycles and block configs of steps, each looked at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ethosu.scheduler.blocks import Integers, legal_blocks
from tvm_ethosu.scheduler.cost import Parameters, Work, operation_cycles, transfer_cycles
from tvm_ethosu.scheduler.engine import operations
from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, Move, NpuGraph, NpuOp, Shape
from tvm_ethosu.scheduler.plan import choose_layout
from tvm_ethosu.scheduler.ports import Block, Hardware
from tvm_ethosu.scheduler.stripes import Rows, Step, cut_op, input_rows


@dataclass(frozen=True)
class Timed:
    """A step's cycles, and the block config of each of its operations (one, save for moves)."""

    cycles: float
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class OpChoice:
    """Cycles and block config of each step of an operator, in the order of its steps.

    ``parameter_bytes`` is the size of its weights and scales, 0 where there are none or where
    steps need them encoded in more than one way.
    """

    steps: tuple[Timed, ...]
    parameter_bytes: int

    @property
    def cycles(self) -> float:
        """Return the cycles of all steps."""
        return sum(timed.cycles for timed in self.steps)


# What distinguishes the steps of an operator: the rows that it makes and reads.
_Cut = tuple[int, ...]


class Estimator:
    """Knows what the steps of one graph cost on some hardware."""

    def __init__(self, graph: NpuGraph, hardware: Hardware) -> None:
        self.graph = graph
        self.hardware = hardware
        self.layouts = {n: choose_layout(graph, t) for n, t in graph.tensors.items()}
        self._options: dict[tuple[int, _Cut, bool], Mapping[int, Timed]] = {}
        self._blocks: dict[tuple[int, _Cut], Integers] = {}
        self._deepest: dict[int, int] = {}
        self._sizes: dict[tuple[int, int], int] = {}

    def choose(self, index: int, rows: Sequence[Rows], in_sram: bool) -> OpChoice | None:
        """Return the blocks that make an operator's steps fastest.

        Steps share one depth of blocks, for which weights are encoded once, if they can; None if
        they cannot although the weights are to be ``in_sram``.
        """
        op = self.graph.ops[index]
        cuts = [_cut_of(op, r) for r in rows]
        options = [self._timed(index, r, cut, in_sram) for r, cut in zip(rows, cuts, strict=True)]
        distinct = dict(zip(cuts, options, strict=True))
        common = set.intersection(*(set(timed) for timed in distinct.values()))
        if not common:
            if in_sram:
                return None
            return OpChoice(tuple(min(t.values(), key=_by_cycles) for t in options), 0)
        counts = {cut: cuts.count(cut) for cut in distinct}
        depth = min(
            sorted(common, reverse=True),
            key=lambda d: sum(counts[cut] * distinct[cut][d].cycles for cut in distinct),
        )
        return OpChoice(tuple(t[depth] for t in options), self.parameter_bytes(index, depth))

    def step_cycles(self, step: Step, blocks: Sequence[Block], in_sram: bool) -> list[float]:
        """Return the cycles of each operation of a step with these block configs."""
        target = self.hardware.target
        memory = target.system.sram if in_sram else target.constants
        cycles = []
        parts = operations(cut_op(self.graph.ops[step.op], step.rows))
        for op, block in zip(parts, blocks, strict=True):
            size_bytes = self.parameter_bytes(step.op, block.c)
            parameters = Parameters(size_bytes, memory) if size_bytes else None
            only = np.array([(block.h, block.w, block.c)])
            work = Work(op, only, self.layouts, target, parameters)
            cycles.append(float(operation_cycles(work)[0]))
        return cycles

    def transfer_cycles(self, size_bytes: int) -> float:
        """Return how long weights and scales of a size take to be moved into SRAM."""
        target = self.hardware.target
        return transfer_cycles(size_bytes, target.constants, target)

    def parameter_bytes(self, index: int, depth: int) -> int:
        """Return the encoded size of an operator's weights and scales for a depth of blocks."""
        op = self.graph.ops[index]
        if not isinstance(op, Conv2D | DepthwiseConv2D):
            return 0
        key = (index, depth)
        if key not in self._sizes:
            self._sizes[key] = self.hardware.parameters.size_bytes(self.graph, op, depth)
        return self._sizes[key]

    def _timed(self, index: int, rows: Rows, cut: _Cut, in_sram: bool) -> Mapping[int, Timed]:
        """Return the fastest block of each depth for one step."""
        key = (index, cut, in_sram)
        if key not in self._options:
            op = cut_op(self.graph.ops[index], rows)
            if isinstance(op, Move):
                self._options[key] = {0: self._moved(op)}
            else:
                blocks = self._legal(index, cut, op)
                parameters = self._parameters(index, blocks, in_sram)
                self._options[key] = self._fastest(op, blocks, parameters)
        return self._options[key]

    def _legal(self, index: int, cut: _Cut, op: NpuOp) -> Integers:
        if (index, cut) not in self._blocks:
            self._blocks[index, cut] = legal_blocks(op, self.hardware.target.timing)
        return self._blocks[index, cut]

    def _fastest(
        self, op: NpuOp, blocks: Integers, parameters: Parameters | None = None
    ) -> Mapping[int, Timed]:
        work = Work(op, blocks, self.layouts, self.hardware.target, parameters)
        return _best_of_each_depth(blocks, operation_cycles(work))

    def _moved(self, op: Move) -> Timed:
        """Return the copies of a move, each with its fastest block."""
        found: dict[Shape, Timed] = {}
        copies = operations(op)
        for copy in copies:
            if copy.ofm.shape not in found:
                blocks = legal_blocks(copy, self.hardware.target.timing)
                found[copy.ofm.shape] = min(self._fastest(copy, blocks).values(), key=_by_cycles)
        parts = [found[copy.ofm.shape] for copy in copies]
        return Timed(
            sum(part.cycles for part in parts), tuple(block for p in parts for block in p.blocks)
        )

    def _parameters(self, index: int, blocks: Integers, in_sram: bool) -> Parameters | None:
        """Return the weights of a step.

        Their size differs by little from depth to depth, so that one of them stands for all while
        blocks are compared.
        """
        op, target = self.graph.ops[index], self.hardware.target
        if not isinstance(op, Conv2D | DepthwiseConv2D):
            return None
        depth = self._deepest.setdefault(index, int(blocks[:, 2].max()))
        memory = target.system.sram if in_sram else target.constants
        return Parameters(self.parameter_bytes(index, depth), memory)


def _by_cycles(timed: Timed) -> tuple[float, tuple[Block, ...]]:
    return timed.cycles, timed.blocks


def _cut_of(op: NpuOp, rows: Rows) -> _Cut:
    return (rows.count, *(input_rows(op, operand, rows).count for operand in op.inputs))


def _best_of_each_depth(blocks: Integers, cycles: np.ndarray) -> Mapping[int, Timed]:
    """Return the fastest block of each depth; the largest of those that are as fast."""
    order = np.lexsort((-blocks[:, 1], -blocks[:, 0], cycles))
    found: dict[int, Timed] = {}
    for position in order:
        h, w, c = (int(extent) for extent in blocks[position])
        found.setdefault(c, Timed(float(cycles[position]), (Block(h, w, c),)))
    return found
