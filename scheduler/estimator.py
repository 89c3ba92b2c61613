"""Cycles and block configs of steps, each looked at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tvm_ethosu.scheduler.arch import Layout
from tvm_ethosu.scheduler.blocks import legal_blocks
from tvm_ethosu.scheduler.cost import Parameters, Reals, Work, operation_cycles, transfer_cycles
from tvm_ethosu.scheduler.engine import operations
from tvm_ethosu.scheduler.integers import Integers
from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, Move, NpuOp, Shape
from tvm_ethosu.scheduler.layouts import Layouts, can_be_bricks, choose_layouts
from tvm_ethosu.scheduler.ports import Block, Hardware, Timed
from tvm_ethosu.scheduler.stripes import Rows, cut_op, input_rows

# Of a dense layer's depths that are within so much of the best, so many are compared exactly.
_NEARLY = 1.005
_TRIED = 4
# Padded bricks must save so much of a graph's cycles.
_WORTHWHILE = 0.005


@dataclass(frozen=True)
class OpChoice:
    """Cycles and block configs of each step of an operator, in the order of its steps.

    ``parameter_bytes`` is the size of its weights and scales, 0 where there are none or where
    steps need them encoded in more than one way.
    """

    steps: tuple[Timed, ...]
    parameter_bytes: int

    @property
    def cycles(self) -> float:
        """Return the cycles of all steps."""
        return sum(timed.cycles for timed in self.steps)


@dataclass(frozen=True)
class Choices:
    """An operator's steps with weights where they are, and (if there is a way) out of SRAM."""

    streamed: OpChoice
    buffered: OpChoice | None


# What distinguishes the steps of an operator: the rows that it makes and reads.
_Cut = tuple[int, ...]


@dataclass(frozen=True)
class _Blocks:
    """The fastest blocks of each cut of an operator, with the size of its weights and scales."""

    timed: Mapping[_Cut, Timed]
    parameter_bytes: int

    def cycles(self, counts: Mapping[_Cut, int]) -> float:
        """Return the cycles of cuts that are made so often."""
        return sum(count * self.timed[cut].cycles for cut, count in counts.items())

    def choice(self, cuts: Sequence[_Cut]) -> OpChoice:
        """Return those of steps in their order."""
        return OpChoice(tuple(self.timed[cut] for cut in cuts), self.parameter_bytes)


# An operator by its number in _Known, and how its operands lie.
_Laid = tuple[int, tuple[Layout, ...]]


@dataclass(frozen=True)
class _Known:
    """What has been found out about operators on some hardware, whatever the layouts.

    An operator is the same one in a graph in which others are done in slices; so it has a number.
    """

    numbers: dict[NpuOp, int] = field(default_factory=dict)
    fastest: dict[tuple[_Laid, _Cut, bool], Mapping[int, Timed]] = field(default_factory=dict)
    exact: dict[tuple[_Laid, _Cut, bool, int], Timed] = field(default_factory=dict)
    blocks: dict[tuple[int, _Cut], Integers] = field(default_factory=dict)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    cuts: dict[tuple[int, int, int], _Cut] = field(default_factory=dict)
    best: dict[tuple[_Laid, frozenset[tuple[_Cut, int]]], tuple[_Blocks, _Blocks | None]] = field(
        default_factory=dict
    )


class Estimator:
    """Knows what the steps of one graph cost on some hardware, its tensors laid out in one way."""

    def __init__(self, layouts: Layouts, hardware: Hardware, known: _Known | None = None) -> None:
        self.layouts = layouts
        self.graph = layouts.graph
        self.hardware = hardware
        self._known = known or _Known()
        numbers = self._known.numbers
        self._laid = [
            (
                numbers.setdefault(op, len(numbers)),
                tuple(layouts.by_tensor[o.tensor] for o in (*op.inputs, op.ofm)),
            )
            for op in self.graph.ops
        ]

    def with_layouts(self, layouts: Layouts) -> Estimator:
        """Return an estimator for other layouts, be it with some operators in slices."""
        return Estimator(layouts, self.hardware, self._known)

    def whole_cycles(self, index: int) -> float:
        """Return the cycles of an operator in one go, its weights where they are."""
        rows = Rows(0, self.graph.ops[index].ofm.shape.h)
        return self.choices(index, [rows]).streamed.cycles

    def choices(self, index: int, rows: Sequence[Rows]) -> Choices:
        """Return the blocks that make an operator's steps fastest, both ways."""
        cuts = [self._cut(index, r) for r in rows]
        examples = dict(zip(cuts, rows, strict=True))
        streamed, buffered = self._best(index, Counter(cuts), examples)
        return Choices(streamed.choice(cuts), None if buffered is None else buffered.choice(cuts))

    def transfer_cycles(self, size_bytes: int) -> float:
        """Return how long weights and scales of a size take to be moved into SRAM."""
        target = self.hardware.target
        return transfer_cycles(size_bytes, target.constants, target)

    def _best(
        self, index: int, counts: Mapping[_Cut, int], examples: Mapping[_Cut, Rows]
    ) -> tuple[_Blocks, _Blocks | None]:
        """Return what ``choices`` does for each cut that is made so often."""
        key, best = (self._laid[index], frozenset(counts.items())), self._known.best
        if key not in best:
            depth = self._common_depth(index, counts, examples, in_sram=False)
            streamed = self._blocks(index, examples, depth, in_sram=False)
            depth = None
            if streamed.parameter_bytes:
                depth = self._common_depth(index, counts, examples, in_sram=True)
            buffered = None
            if depth is not None:
                buffered = self._blocks(index, examples, depth, in_sram=True)
            best[key] = streamed, buffered
        return best[key]

    def _common_depth(
        self,
        index: int,
        counts: Mapping[_Cut, int],
        examples: Mapping[_Cut, Rows],
        *,
        in_sram: bool,
    ) -> int | None:
        """Return the depth of blocks for which weights are best encoded once for all steps.

        None if no depth is legal for all of them.
        """
        options = {c: self._by_depth(index, examples[c], c, in_sram) for c in sorted(counts)}
        common = set.intersection(*(set(timed) for timed in options.values()))

        def cycles(depth: int) -> float:
            return sum(counts[cut] * options[cut][depth].cycles for cut in options)

        best = min(sorted(common, reverse=True), key=cycles, default=None)
        if best is None or not self._reads_weights_once(index):
            return best
        # What decides is how long its weights are, which each depth encodes a little differently.
        limit = cycles(best) * _NEARLY
        near = sorted(depth for depth in common if cycles(depth) <= limit)
        tried = {best, *near[:: max(1, len(near) // _TRIED)]}
        return min(
            sorted(tried, reverse=True),
            key=lambda depth: self._blocks(index, examples, depth, in_sram=in_sram).cycles(counts),
        )

    def _reads_weights_once(self, index: int) -> bool:
        """Return whether an operator is a dense layer, which has one position."""
        op = self.graph.ops[index]
        return isinstance(op, Conv2D) and op.ofm.shape.h == op.ofm.shape.w == 1

    def _blocks(
        self, index: int, examples: Mapping[_Cut, Rows], depth: int | None, *, in_sram: bool
    ) -> _Blocks:
        """Return the fastest blocks of a depth; each cut's own depth where there is none."""
        timed = {}
        for cut, rows in examples.items():
            own = depth
            if own is None:
                options = self._by_depth(index, rows, cut, in_sram)
                own = min(options, key=lambda d: (options[d].cycles, -d))
            timed[cut] = self._timed(index, rows, cut, own, in_sram)
        return _Blocks(timed, 0 if depth is None else self._parameter_bytes(index, depth))

    def _number(self, index: int) -> int:
        return self._laid[index][0]

    def _cut(self, index: int, rows: Rows) -> _Cut:
        key, cuts = (self._number(index), rows.start, rows.stop), self._known.cuts
        if key not in cuts:
            op = self.graph.ops[index]
            read = (input_rows(op, operand, rows).height for operand in op.inputs)
            cuts[key] = rows.height, *read
        return cuts[key]

    def _by_depth(self, index: int, rows: Rows, cut: _Cut, in_sram: bool) -> Mapping[int, Timed]:
        """Return the fastest block of each depth for one step.

        The size of weights differs by little from depth to depth: that of the deepest stands for
        all while depths are compared.
        """
        key, known = (self._laid[index], cut, in_sram), self._known
        if key not in known.fastest:
            op = cut_op(self.graph.ops[index], rows)
            if isinstance(op, Move):
                known.fastest[key] = {0: self._moved(op)}
            else:
                blocks = self._legal(index, cut, op)
                depth = int(blocks[:, 2].max())
                cycles = self._cycles(op, blocks, self._parameters(index, depth, in_sram))
                known.fastest[key] = _best_of_each_depth(blocks, cycles)
        return known.fastest[key]

    def _timed(self, index: int, rows: Rows, cut: _Cut, depth: int, in_sram: bool) -> Timed:
        """Return the fastest block of a depth with the size that weights have for it."""
        found = self._by_depth(index, rows, cut, in_sram)[depth]
        parameters = self._parameters(index, depth, in_sram)
        if parameters is None:
            return found
        key, exact = (self._laid[index], cut, in_sram, depth), self._known.exact
        if key not in exact:
            op = cut_op(self.graph.ops[index], rows)
            blocks = self._legal(index, cut, op)
            blocks = blocks[blocks[:, 2] == depth]
            cycles = self._cycles(op, blocks, parameters)
            exact[key] = _best_of_each_depth(blocks, cycles)[depth]
        return exact[key]

    def _legal(self, index: int, cut: _Cut, op: NpuOp) -> Integers:
        key, blocks = (self._number(index), cut), self._known.blocks
        if key not in blocks:
            blocks[key] = legal_blocks(op, self.hardware.target)
        return blocks[key]

    def _cycles(self, op: NpuOp, blocks: Integers, parameters: Parameters | None) -> Reals:
        layouts = self.layouts.by_tensor
        target, constants = self.hardware.target, self.graph.constants
        return operation_cycles(Work(op, blocks, layouts, target, parameters, constants))

    def _moved(self, op: Move) -> Timed:
        """Return the copies of a move, each with its fastest block."""
        found: dict[Shape, Timed] = {}
        copies = operations(op)
        for copy in copies:
            if copy.ofm.shape not in found:
                blocks = legal_blocks(copy, self.hardware.target)
                timed = _best_of_each_depth(blocks, self._cycles(copy, blocks, None))
                found[copy.ofm.shape] = min(timed.values(), key=lambda t: (t.cycles, t.blocks))
        parts = [found[copy.ofm.shape] for copy in copies]
        return Timed(
            sum(part.cycles for part in parts), tuple(block for p in parts for block in p.blocks)
        )

    def _parameters(self, index: int, depth: int, in_sram: bool) -> Parameters | None:
        """Return weights and scales encoded for a depth, if the operator has any."""
        size_bytes, target = self._parameter_bytes(index, depth), self.hardware.target
        if not size_bytes:
            return None
        return Parameters(size_bytes, target.system.sram if in_sram else target.constants)

    def _parameter_bytes(self, index: int, depth: int) -> int:
        op, key = self.graph.ops[index], (self._number(index), depth)
        if not isinstance(op, Conv2D | DepthwiseConv2D):
            return 0
        if key not in self._known.sizes:
            self._known.sizes[key] = self.hardware.parameters.size_bytes(self.graph, op, depth)
        return self._known.sizes[key]


def _best_of_each_depth(blocks: Integers, cycles: Reals) -> Mapping[int, Timed]:
    """Return the fastest block of each depth; the largest of those that are as fast."""
    order = np.lexsort((-blocks[:, 1], -blocks[:, 0], cycles))
    _, first = np.unique(blocks[order, 2], return_index=True)
    found: dict[int, Timed] = {}
    for position in order[first]:
        h, w, c = (int(extent) for extent in blocks[position])
        found[c] = Timed(float(cycles[position]), (Block(h, w, c),))
    return found


def worth_padding(compact: Estimator) -> Layouts | None:
    """Return layouts with bricks also where they take more bytes but fewer cycles, if any do.

    A tensor gains if the operators that touch it do so together, each in one go. None where all
    of them together gain too little to search for plans twice.
    """
    graph = compact.graph
    candidates = [t.name for t in graph.tensors.values() if can_be_bricks(graph, t)]
    everything = choose_layouts(graph, candidates)
    if not everything.padded:
        return None
    padded, gains = compact.with_layouts(everything), dict.fromkeys(everything.padded, 0.0)
    for index, op in enumerate(graph.ops):
        touched = gains.keys() & {operand.tensor for operand in (*op.inputs, op.ofm)}
        if touched:
            gain = compact.whole_cycles(index) - padded.whole_cycles(index)
            for name in touched:
                gains[name] += gain
    gaining = {name: gain for name, gain in gains.items() if gain > 0}
    total = sum(compact.whole_cycles(index) for index in range(len(graph.ops)))
    if sum(gaining.values()) < _WORTHWHILE * total:
        return None
    return choose_layouts(graph, gaining)
