"""What the cycle estimate knows of the NPUs and of the systems around them.

All figures are published ones: of the NPUs, the performance tables of Arm's compiler (ethos-u-vela
5.2.0, ``architecture_features.py``); of the systems, its ``config_files/Arm/vela.ini``. None was
measured on silicon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.errors import SimulationError
from tvm_ethosu.backend.sim.operations import Block

CONSTANTS_REGION: Final = 0
FAST_REGION: Final = 2


class MemoryKind(Enum):
    """A memory of the system; the value is its usual name."""

    SRAM = "sram"
    DRAM = "dram"
    ON_CHIP_FLASH = "on-chip flash"
    OFF_CHIP_FLASH = "off-chip flash"

    @property
    def is_flash(self) -> bool:
        """Tell whether the NPU can only read it."""
        return self in (MemoryKind.ON_CHIP_FLASH, MemoryKind.OFF_CHIP_FLASH)


class MemoryMode(Enum):
    """Which data lies in which memory; the value is the name in Vela's file."""

    SHARED_SRAM = "Shared_Sram"
    SRAM_ONLY = "Sram_Only"
    DEDICATED_SRAM = "Dedicated_Sram"


@dataclass(frozen=True)
class Memory:
    """A memory behind an AXI port.

    ``bandwidth_share`` is the part of the port's bytes per cycle that it delivers, latencies are in
    core cycles, ``burst_bytes`` is the shortest access that uses the whole bandwidth.
    """

    kind: MemoryKind
    bandwidth_share: float
    burst_bytes: int
    read_latency: int
    write_latency: int


@dataclass(frozen=True)
class SystemConfig:
    """A system: core clock in Hz, the SRAM behind AXI port 0, the memory behind port 1."""

    name: str
    core_clock_hz: float
    sram: Memory
    second: Memory

    def place(self, region: int, mode: MemoryMode) -> Memory:
        """Return the memory of a region, as Vela deals them out.

        Region 0 has the constants, region 2 the fast scratch, all others (scratch, inputs,
        outputs) lie in the arena. With Sram_Only the constants have a port of their own with the
        SRAM's figures. Raises SimulationError when the arena would lie in flash.
        """
        if region == CONSTANTS_REGION:
            if mode is MemoryMode.SRAM_ONLY:
                return replace(self.sram, kind=MemoryKind.ON_CHIP_FLASH)
            return self.second
        if region == FAST_REGION or mode is not MemoryMode.DEDICATED_SRAM:
            return self.sram
        if self.second.kind.is_flash:
            raise SimulationError(f"{mode.value} needs DRAM, which {self.name} does not have")
        return self.second


@dataclass(frozen=True)
class OutputCycles:
    """Cycles per OFM element, by what produces it.

    ``binary_32`` and ``unary_32`` are elementwise operations on 32-bit operands, ``multiply_32``
    is MUL with a 32-bit result, ``multiply`` any other MUL and whatever accumulates in 40 bits.
    """

    binary_32: float
    unary_32: float
    multiply_32: float
    multiply: float
    add: float
    max_pool: float
    other: float


@dataclass(frozen=True)
class Timing:
    """An NPU: OFM elements per step of one core, bytes per cycle of one port, cycles per element.

    ``lookup`` and ``clamp`` are the cycles per element of the activation stage: table, tanh or
    sigmoid, and a clamp tighter than the type.
    """

    microblock: Block
    port_bytes: int
    output: OutputCycles
    lookup: float
    clamp: float


_U55_256: Final = OutputCycles(0.625, 1.125, 0.5, 0.375, 0.75, 0.125, 0.25)
_U65_512: Final = OutputCycles(0.3125, 0.5625, 0.25, 0.1875, 0.375, 0.0625, 0.125)

TIMINGS: Final[Mapping[Accelerator, Timing]] = MappingProxyType(
    {
        Accelerator.U55_32: Timing(
            Block(1, 1, 4), 8, OutputCycles(2.0, 3.0, 3.0, 3.0, 6.0, 1.0, 2.0), 1.0, 1.0
        ),
        Accelerator.U55_64: Timing(
            Block(1, 1, 8), 8, OutputCycles(1.0, 1.5, 1.5, 1.5, 3.0, 0.5, 1.0), 1.0, 1.0
        ),
        Accelerator.U55_128: Timing(
            Block(1, 2, 8), 8, OutputCycles(0.75, 1.25, 0.75, 0.75, 1.5, 0.25, 0.5), 1.0, 0.5
        ),
        Accelerator.U55_256: Timing(Block(2, 2, 8), 8, _U55_256, 1.0, 0.25),
        Accelerator.U65_256: Timing(Block(2, 2, 8), 16, _U55_256, 1.0, 0.25),
        Accelerator.U65_512: Timing(Block(2, 2, 8), 16, _U65_512, 0.5, 0.125),
    }
)

_SRAM: Final = Memory(MemoryKind.SRAM, 1.0, 32, 32, 32)


def _flash(share: float) -> Memory:
    return Memory(MemoryKind.OFF_CHIP_FLASH, share, 128, 64, 0)


def _dram(share: float) -> Memory:
    return Memory(MemoryKind.DRAM, share, 128, 500, 250)


SYSTEM_CONFIGS: Final[Mapping[str, SystemConfig]] = MappingProxyType(
    {
        config.name: config
        for config in (
            SystemConfig("Ethos_U55_Deep_Embedded", 200e6, _SRAM, _flash(0.0625)),
            SystemConfig("Ethos_U55_High_End_Embedded", 500e6, _SRAM, _flash(0.125)),
            SystemConfig("Ethos_U65_Embedded", 500e6, _SRAM, _flash(0.0625)),
            SystemConfig("Ethos_U65_Mid_End", 500e6, _SRAM, _dram(0.46875)),
            SystemConfig("Ethos_U65_High_End", 1e9, _SRAM, _dram(0.234375)),
            SystemConfig("Ethos_U65_Client_Server", 1e9, _SRAM, _dram(0.75)),
        )
    }
)
