"""Faults put into streams that Arm's compilers made: how many does the simulator report?

``python -m tests.backend.sim.mutations`` measures and writes the table of docs/simulator.md, which
takes a quarter of an hour; ``test_mutations.py`` does the same with few streams.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from tests.backend.sim.test_hazards import slow_conflict
from tests.backend.sim.test_networks import MATRIX, random_inputs
from tests.conftest import REPOSITORY, shared_folder
from tvm_ethosu.backend.sim import HazardError, SimulationError, Stream
from tvm_ethosu.backend.sim.hazards import HazardChecker
from tvm_ethosu.backend.sim.operations import (
    AnyOperation,
    BlockOperation,
    DmaWait,
    KernelWait,
    Upscale,
)
from tvm_ethosu.backend.vela_files import (
    Array,
    Network,
    NpuOperator,
    VelaOptions,
    compile_with_vela,
    read_network,
    run_network,
)

PAGE: Final = REPOSITORY / "docs/simulator.md"
NETWORKS: Final = (
    "mlperf_tiny/ad01_int8",
    "mlperf_tiny/kws_ref_model",
    "mlperf_tiny/pretrainedResnet_quant",
    "mlperf_tiny/str_ww_ref_model",
    "mlperf_tiny/vww_96_int8",
    "tflm/person_detect",
    "tflm/micro_speech_quantized",
    "tflm/keyword_scrambled_8bit",
    "tflm/hello_world_int8",
)
SHIFTS: Final = (16, 64, 256)
SHIFTED_KERNELS: Final = 4
HARMLESS: Final = "are no hazards by sets of addresses"
HEAD: Final = "| mutation | made | reported | the others |"


@dataclass
class Found:
    """What became of the mutations of one kind; ``others`` by what an unreported one does."""

    made: int = 0
    reported: int = 0
    others: Counter[str] = field(default_factory=Counter)

    def add(self, is_reported: bool, otherwise: str) -> None:
        """Count one mutation."""
        self.made += 1
        self.reported += is_reported
        if not is_reported:
            self.others[otherwise] += 1


@dataclass
class Table:
    """The rows of the table."""

    dma_waits: Found = field(default_factory=Found)
    kernel_waits: Found = field(default_factory=Found)
    blockdep: Found = field(default_factory=Found)
    shifts: Found = field(default_factory=Found)

    def add(self, network: Network, inputs: Sequence[Array]) -> None:
        """Count the mutations of a network's streams."""
        for stream in network.streams:
            self._add_order(stream)
        expected = run_network(network, inputs).outputs
        for mutated in shifted(network):
            self._add_shift(mutated, inputs, expected)

    def lines(self) -> Iterator[str]:
        """Yield the rows as Markdown."""
        for text, found in (
            ("drop a DMA_WAIT", self.dma_waits),
            ("drop a KERNEL_WAIT", self.kernel_waits),
            ("BLOCKDEP 0, 1 or 2 set to 3", self.blockdep),
            ("shift the address of an IFM or OFM by 16, 64 or 256 bytes", self.shifts),
        ):
            others = ", ".join(f"{count} {what}" for what, count in sorted(found.others.items()))
            yield f"| {text} | {found.made} | {found.reported} | {others} |"

    def _add_order(self, stream: Stream) -> None:
        checker, before = HazardChecker(stream.accelerator), None
        for index, op in enumerate(stream.operations):
            rest = stream.operations[index:]
            if isinstance(op, DmaWait | KernelWait):
                found = self.dma_waits if isinstance(op, DmaWait) else self.kernel_waits
                found.add(bool(report_of(checker, rest[1:])), "unexplained")
            if isinstance(op, KernelWait) and op.outstanding == 0:
                before = None
            if isinstance(op, BlockOperation):
                if before is not None and op.blockdep < 3:
                    self._add_blockdep(checker, before, replace(op, blockdep=3))
                before = op
            checker.check(op)

    def _add_blockdep(
        self, checker: HazardChecker, before: BlockOperation, op: BlockOperation
    ) -> None:
        report, by_sets = report_of(checker, (op,)), conflict_of_sets(before, op)
        self.blockdep.add(bool(report), by_sets)
        if "lets them overlap" in report and by_sets == HARMLESS:
            self.blockdep.others["reported, but harmless"] += 1

    def _add_shift(
        self, mutated: Network, inputs: Sequence[Array], expected: Sequence[Array]
    ) -> None:
        try:
            outputs = run_network(mutated, inputs).outputs
        except SimulationError:
            self.shifts.add(True, "")
            return
        same = all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
        self.shifts.add(False, "do not change the output" if same else "change the output")


def report_of(checker: HazardChecker, operations: Sequence[AnyOperation]) -> str:
    """Return what a checker that has seen what came before says about these operations."""
    follower = copy(checker)  # its lists are replaced, not changed, by ``check``
    try:
        for op in operations:
            follower.check(op)
    except HazardError as error:
        return str(error)
    return ""


def conflict_of_sets(first: BlockOperation, second: BlockOperation) -> str:
    """Tell whether sets of addresses, compared element by element, show a hazard."""
    if second.upscale is not Upscale.NONE or max(second.kernel.height, second.kernel.width) > 8:
        return "not judged"
    if any(slow_conflict(first, second, f, j) for f in range(3) for j in range(3 - f)):
        return "missed"
    return HARMLESS


def shifted(network: Network) -> Iterator[Network]:
    """Yield the network with one feature map of one kernel operation at another address."""
    for position, operator in enumerate(network.operators):
        if not isinstance(operator, NpuOperator):
            continue
        operations = operator.stream.operations
        kernels = [i for i, op in enumerate(operations) if isinstance(op, BlockOperation)]
        step = max(1, len(kernels) // SHIFTED_KERNELS)
        for index in kernels[::step][:SHIFTED_KERNELS]:
            for moved in moved_maps(operations[index]):
                changed = (*operations[:index], moved, *operations[index + 1 :])
                stream = replace(operator.stream, operations=changed, cache={})
                operators = list(network.operators)
                operators[position] = replace(operator, stream=stream)
                yield replace(network, operators=tuple(operators))


def moved_maps(op: AnyOperation) -> Iterator[AnyOperation]:
    """Yield an operation with its IFM, or its OFM, a little further."""
    assert isinstance(op, BlockOperation)
    for shift in SHIFTS:
        for name in ("ifm", "ofm"):
            fm = getattr(op, name)
            bases = tuple(None if base is None else base + shift for base in fm.bases)
            yield replace(op, **{name: replace(fm, bases=bases)})


def with_rows(page: str, rows: Sequence[str]) -> str:
    """Return the page with these rows in the table of mutations."""
    before, head, behind = page.partition(f"{HEAD}\n")
    rule, *lines = behind.split("\n")
    end = next(index for index, line in enumerate(lines) if not line.startswith("|"))
    return before + head + "\n".join([rule, *rows, *lines[end:]])


def measure(folder: Path) -> list[str]:
    """Return the rows for all networks in all configurations; progress goes to stderr."""
    table = Table()
    for name in NETWORKS:
        source = folder / f"models/{name}.tflite"
        inputs = random_inputs(read_network(source.read_bytes()), np.random.default_rng(7))
        for accelerator, core, optimise in MATRIX:
            with tempfile.TemporaryDirectory() as made:
                options = VelaOptions(accelerator, core, optimise)
                compiled = compile_with_vela(source, Path(made), options)
                table.add(read_network(compiled.read_bytes()), inputs)
        print(name, *table.lines(), sep="\n", file=sys.stderr, flush=True)
    return list(table.lines())


def main() -> None:
    """Measure, and write the table of the page."""
    folder = shared_folder()
    if folder is None:
        sys.exit("the shared models are not on this machine (TVM_ETHOSU_SHARED)")
    rows = measure(folder)
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
