"""How long NPU functions take by the simulator's estimate: in all, and step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.emit import split_invocations
from tvm_ethosu.backend.host import load_program
from tvm_ethosu.backend.network import NpuFunction
from tvm_ethosu.backend.sim.hardware import MemoryKind
from tvm_ethosu.backend.sim.operations import BlockOperation, Conv, Depthwise, Dma
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.plan import Schedule, Transfer
from tvm_ethosu.scheduler.stripes import Step

_Command = TypeVar("_Command")


@dataclass(frozen=True)
class Traffic:
    """Bytes that cross the interfaces: those of the SRAM, and of the memory of constants."""

    sram_read_bytes: int = 0
    sram_write_bytes: int = 0
    constants_read_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the bytes of both."""
        return Traffic(
            self.sram_read_bytes + other.sram_read_bytes,
            self.sram_write_bytes + other.sram_write_bytes,
            self.constants_read_bytes + other.constants_read_bytes,
        )


@dataclass(frozen=True)
class StepTime:
    """A kernel operation of a step: cycles from ``start`` to ``end`` within its function.

    ``npu_cycles``, ``sram_cycles`` and ``constants_cycles`` are what the NPU and the memories need;
    the most of them is how long it takes. ``parameters_bytes`` are its encoded weights and scales.
    """

    step: Step
    start: float
    end: float
    npu_cycles: float
    sram_cycles: float
    constants_cycles: float
    traffic: Traffic
    parameters_bytes: int

    @property
    def cycles(self) -> float:
        """Return how long it takes."""
        return self.end - self.start


@dataclass(frozen=True)
class TransferTime:
    """Weights and scales on their way into SRAM, for the operator of this index."""

    op: int
    start: float
    end: float
    traffic: Traffic


@dataclass(frozen=True)
class FunctionTimes:
    """One call of an NPU function; ``cycles`` until everything has ended."""

    steps: tuple[StepTime, ...]
    transfers: tuple[TransferTime, ...]
    cycles: float


def core_clock_hz(options: EthosUOptions) -> float:
    """Return the clock of the NPU in the system that was compiled for."""
    return _system(options).core_clock_hz


def constants_memory(options: EthosUOptions) -> str:
    """Return what the memory is called that weights are read from."""
    if options.memory_mode == sim.MemoryMode.SRAM_ONLY.value:
        return "SRAM of constants"
    return "flash" if _system(options).second.kind.is_flash else "DRAM"


def _system(options: EthosUOptions) -> sim.SystemConfig:
    return sim.SYSTEM_CONFIGS[str(options.system_config)]


def _reports(
    function: NpuFunction, options: EthosUOptions
) -> list[tuple[sim.Stream, sim.CycleReport]]:
    system, mode = _system(options), sim.MemoryMode(options.memory_mode)
    streams = load_program(function.program).streams
    return [(stream, sim.estimate(stream, system, mode)) for stream in streams]


def network_cycles(functions: Iterable[NpuFunction], options: EthosUOptions) -> float:
    """Return the cycles that one inference spends in NPU functions."""
    return sum(
        report.total * len(function.used_memory_bytes)
        for function in functions
        for _, report in _reports(function, options)
    )


def function_times(function: NpuFunction, options: EthosUOptions) -> FunctionTimes:
    """Return where the time of a call goes, invocation after invocation.

    Raises:
        InternalError: the command streams are not those of the function's plan.
    """
    schedule = function.allocation.schedule
    kernels = iter(_kernels(schedule))
    runs = split_invocations(schedule)
    steps: list[StepTime] = []
    transfers: list[TransferTime] = []
    begin = 0.0
    for run, (stream, report) in zip(runs, _reports(function, options), strict=True):
        moved = iter([command for command in run if isinstance(command, Transfer)])
        operations = {operation.offset: operation for operation in stream.operations}
        for time in report.operations:
            operation, span = operations[time.offset], (begin + time.start, begin + time.end)
            if isinstance(operation, BlockOperation):
                step = _next(kernels, function)
                steps.append(_step_time(step, span, time, _parameters_bytes(operation)))
            elif isinstance(operation, Dma) and not operation.destination.internal:
                op = _next(moved, function).op
                transfers.append(TransferTime(op, *span, _traffic(time)))
        begin += report.total
    if len(steps) != len(_kernels(schedule)):
        raise InternalError(f"{function.name}: the command streams are not those of the plan")
    return FunctionTimes(tuple(steps), tuple(transfers), begin)


def _next(commands: Iterator[_Command], function: NpuFunction) -> _Command:
    for command in commands:
        return command
    raise InternalError(f"{function.name}: the command streams are not those of the plan")


def _kernels(schedule: Schedule) -> list[Step]:
    """Return the step of each kernel operation; a move is several."""
    pairs = zip(schedule.steps, schedule.timed, strict=True)
    return [step for step, timed in pairs for _ in timed.blocks]


def _traffic(time: sim.OperationCycles) -> Traffic:
    sram = [i for i in time.interfaces if i.memory is MemoryKind.SRAM]
    others = [i for i in time.interfaces if i.memory is not MemoryKind.SRAM]
    return Traffic(
        sum(interface.read_bytes for interface in sram),
        sum(interface.write_bytes for interface in sram),
        sum(interface.read_bytes for interface in others),
    )


def _parameters_bytes(operation: BlockOperation) -> int:
    cores = operation.parameters if isinstance(operation, Conv | Depthwise) else ()
    pieces = (piece for core in cores for piece in (core.weights, core.scales))
    return sum(piece.length for piece in pieces if piece is not None)


def _step_time(
    step: Step, span: tuple[float, float], time: sim.OperationCycles, parameters_bytes: int
) -> StepTime:
    sram = (i.cycles for i in time.interfaces if i.memory is MemoryKind.SRAM)
    others = (i.cycles for i in time.interfaces if i.memory is not MemoryKind.SRAM)
    return StepTime(
        step,
        *span,
        time.npu_cycles,
        max(sram, default=0.0),
        max(others, default=0.0),
        _traffic(time),
        parameters_bytes,
    )
