"""What a compilation comes to, in a few figures: for comparisons, and for tables of many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tvm

from tvm_ethosu.backend.network import FirmwareNetwork, build_for_firmware, partition_file
from tvm_ethosu.backend.report import REMOVED, operator_rows
from tvm_ethosu.backend.timing import core_clock_hz, network_cycles
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.errors import Infeasible


@dataclass(frozen=True)
class Compilation:
    """A network compiled for ``asked``, or where that is refused, for the least memory.

    ``refusal`` says why; it is empty where the network fits.
    """

    file: TfliteFile
    asked: EthosUOptions
    module: tvm.IRModule
    network: FirmwareNetwork
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Return whether the network keeps to the SRAM that was asked for."""
        return not self.refusal


@dataclass(frozen=True)
class Outcome:
    """The figures of a compilation; where it does not fit, those of the plan with least memory.

    Attributes:
        accelerator: what it was compiled for.
        sram_size: the limit in bytes; None if there was none.
        fits: whether the network keeps to it.
        sram_bytes: the whole arena; where it does not fit, the least that works.
        cycles: the NPU's, of one inference, estimated; operators on the CPU are not counted.
        milliseconds: the same at the system's clock.
        macs: multiply-accumulates of one inference on the NPU.
        mac_utilisation: their share of what the NPU could do in these cycles, 0 to 1.
        constants_bytes: encoded weights, scales and constant feature maps.
        command_stream_bytes: all command streams.
        npu_operators, cpu_operators: operators of the file by where they run.
        cascades: runs of operators that work stripe by stripe.
        refusal: why it does not fit; empty if it does.
    """

    accelerator: str
    sram_size: int | None
    fits: bool
    sram_bytes: int
    cycles: float
    milliseconds: float
    macs: int
    mac_utilisation: float
    constants_bytes: int
    command_stream_bytes: int
    npu_operators: int
    cpu_operators: int
    cascades: int
    refusal: str = ""


def compile_or_least(file: TfliteFile, options: EthosUOptions) -> Compilation:
    """Compile a network, for the least memory where it does not fit ``options.sram_size``.

    Raises:
        UserError: TVM's importer does not take the network.
    """
    try:
        return compile_within(file, options)
    except Infeasible as error:
        least = replace(options, sram_size=None, optimise="size")
        return replace(compile_within(file, least), asked=options, refusal=str(error))


def compile_within(file: TfliteFile, options: EthosUOptions) -> Compilation:
    """Compile a network.

    Raises:
        UserError: TVM's importer does not take the network.
        Infeasible: it does not fit ``options.sram_size``.
    """
    module = partition_file(file, options)
    return Compilation(file, options, module, build_for_firmware(module, options))


def outcome_of(compilation: Compilation) -> Outcome:
    """Return the figures of a compilation."""
    asked, network = compilation.asked, compilation.network
    functions = network.functions
    cycles = network_cycles(functions, network.options)
    macs = sum(f.program.macs * len(f.used_memory_bytes) for f in functions)
    rows = operator_rows(compilation.file, network.decisions)
    return Outcome(
        accelerator=asked.accelerator_config,
        sram_size=asked.sram_size,
        fits=compilation.fits,
        sram_bytes=network.sram.total_bytes,
        cycles=cycles,
        milliseconds=1000 * cycles / core_clock_hz(network.options),
        macs=macs,
        mac_utilisation=utilisation(macs, cycles, asked.accelerator_config),
        constants_bytes=sum(len(f.program.constants) for f in functions),
        command_stream_bytes=sum(f.program.command_stream_bytes for f in functions),
        npu_operators=sum(row.npu_function is not None for row in rows),
        cpu_operators=sum(row.npu_function is None and row.reason != REMOVED for row in rows),
        cascades=sum(
            segment.stop - segment.start > 1
            for function in functions
            for segment in function.allocation.schedule.segments
        ),
        refusal=compilation.refusal,
    )


def utilisation(macs: int, cycles: float, accelerator: str) -> float:
    """Return the share of the accelerator's multipliers that work in these cycles, 0 to 1."""
    per_cycle = macs_per_cycle(accelerator)
    return macs / (cycles * per_cycle) if cycles else 0.0


def macs_per_cycle(accelerator: str) -> int:
    """Return the multiply-accumulates of a cycle, which end the accelerator's name."""
    return int(find_arch(accelerator).accelerator.value.rpartition("-")[2])
