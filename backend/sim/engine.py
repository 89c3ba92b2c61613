"""Execution of a decoded stream in program order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.convolution import macs, run_convolution
from tvm_ethosu.backend.sim.dma import run_dma
from tvm_ethosu.backend.sim.elementwise import run_elementwise
from tvm_ethosu.backend.sim.errors import SimulationError
from tvm_ethosu.backend.sim.evidence import open_questions
from tvm_ethosu.backend.sim.hazards import HazardChecker
from tvm_ethosu.backend.sim.limits import (
    MAX_MACS,
    MAX_STREAM_STEPS,
    MAX_WINDOW_ELEMENTS,
    STEPS_PER_ELEMENT,
    check_elements,
    check_work,
)
from tvm_ethosu.backend.sim.live import LiveTensor
from tvm_ethosu.backend.sim.memory import Memory, Region
from tvm_ethosu.backend.sim.operations import (
    AnyOperation,
    BlockOperation,
    Conv,
    Depthwise,
    Dma,
    Elementwise,
    Pool,
    Stream,
)
from tvm_ethosu.backend.sim.output import clobber_lut
from tvm_ethosu.backend.sim.pooling import run_pool

_ORDERED: Final = "no hazards"


@dataclass(frozen=True)
class OperationReport:
    """One executed operation; ``macs`` are multiply-accumulates of convolutions."""

    kind: str
    offset: int
    macs: int


@dataclass(frozen=True)
class RunReport:
    """What a run executed, in order."""

    operations: tuple[OperationReport, ...]

    @property
    def total_macs(self) -> int:
        """Return the multiply-accumulates of all operations."""
        return sum(operation.macs for operation in self.operations)


def run(
    stream: Stream,
    regions: Mapping[int, Region],
    *,
    strict: bool = True,
    tensors: Sequence[LiveTensor] = (),
) -> RunReport:
    """Execute a stream in place on the arrays of ``regions``.

    ``tensors`` is what is known of the memory map. Their regions must not be ``initialised``.
    Reading bytes of a tensor after its last use is a MemoryFault; so is writing a feature map
    to bytes that belong to none, in regions where some tensor lives during the stream.

    In strict mode a stream that relies on behaviour without evidence raises AmbiguousError;
    otherwise the guess documented in docs/simulator.md applies. The order of accesses depends on
    the registers only and is checked in the first run of a stream. Raises SimulationError.
    """
    memory = Memory(regions, stream.accelerator.shram_banks * 1024, tensors)
    context = Context(stream, memory, strict)
    checker = None if _ORDERED in stream.cache else HazardChecker(stream.accelerator)
    _check_stream(stream)
    report = RunReport(tuple(_execute(op, context, checker) for op in stream.operations))
    stream.cache[_ORDERED] = True
    return report


def _steps(op: AnyOperation) -> int:
    if isinstance(op, Conv):
        return macs(op)
    if isinstance(op, BlockOperation):
        return STEPS_PER_ELEMENT * op.ofm.shape.elements * op.kernel.taps
    return 0


def _check_stream(stream: Stream) -> None:
    """Raise LimitError when all operations together would take hours."""
    steps = sum(_steps(op) for op in stream.operations)
    check_work(steps, MAX_STREAM_STEPS, "the stream takes {} steps")


def _execute(op: AnyOperation, context: Context, checker: HazardChecker | None) -> OperationReport:
    """Execute an operation; then its addresses are known to be good, and its order is checked."""
    try:
        count = _dispatch(op, context)
        if checker is not None:
            checker.check(op)
    except SimulationError as error:
        raise error.at(op.offset, op.kind) from None
    return OperationReport(op.kind, op.offset, count)


def _dispatch(op: AnyOperation, context: Context) -> int:
    if isinstance(op, Dma):
        return run_dma(op, context)
    if not isinstance(op, BlockOperation):
        return 0
    context.memory.begin(f"{op.kind} at word {op.offset}")
    _check_block(op, context)
    match op:
        case Conv() | Depthwise():
            result = run_convolution(op, context)
        case Pool():
            result = run_pool(op, context)
        case Elementwise():
            result = run_elementwise(op, context)
        case _:
            raise SimulationError(f"no execution for {op.kind}")
    clobber_lut(op, context)
    return result


def _check_block(op: BlockOperation, context: Context) -> None:
    for question in open_questions(op):
        context.ambiguous(question)
    check_elements("OFM", op.ofm.shape.elements)
    if isinstance(op, Conv):
        check_work(macs(op), MAX_MACS)
    else:
        check_work(op.ofm.shape.elements * op.kernel.taps, MAX_WINDOW_ELEMENTS)
