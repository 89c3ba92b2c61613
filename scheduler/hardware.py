"""What the cost of a plan depends on: the NPU's timing and the memories of the system around it.

All figures are published ones: of the NPUs, the performance tables of Arm's compiler (ethos-u-vela
5.2.0, ``architecture_features.py``); of the systems, its ``config_files/Arm/vela.ini``. Bandwidths
are in bytes per cycle of the NPU, latencies in such cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tvm_ethosu.scheduler.arch import ARCHS, Accelerator, Arch, MemoryMode
from tvm_ethosu.scheduler.errors import UserError


class MemoryKind(Enum):
    """A memory of the system; the value is its usual name."""

    SRAM = "sram"
    DRAM = "dram"
    FLASH = "flash"


@dataclass(frozen=True)
class Memory:
    """A memory behind an AXI port.

    ``share`` is the part of the port's bandwidth that it delivers, ``burst_bytes`` the shortest
    access that uses all of it. ``port`` tells memories apart that are reached side by side.
    """

    kind: MemoryKind
    share: float
    burst_bytes: int
    read_latency: int
    write_latency: int
    port: int


_SRAM = Memory(MemoryKind.SRAM, 1.0, 32, 32, 32, 0)


def _flash(share: float) -> Memory:
    return Memory(MemoryKind.FLASH, share, 128, 64, 0, 1)


def _dram(share: float) -> Memory:
    return Memory(MemoryKind.DRAM, share, 128, 500, 250, 1)


@dataclass(frozen=True)
class SystemConfig:
    """A system: core clock in Hz, the SRAM behind port 0, the memory behind port 1."""

    name: str
    core_clock_hz: float
    sram: Memory
    second: Memory


SYSTEM_CONFIGS: tuple[SystemConfig, ...] = (
    SystemConfig("Ethos_U55_Deep_Embedded", 200e6, _SRAM, _flash(0.0625)),
    SystemConfig("Ethos_U55_High_End_Embedded", 500e6, _SRAM, _flash(0.125)),
    SystemConfig("Ethos_U65_Embedded", 500e6, _SRAM, _flash(0.0625)),
    SystemConfig("Ethos_U65_Mid_End", 500e6, _SRAM, _dram(0.46875)),
    SystemConfig("Ethos_U65_High_End", 1e9, _SRAM, _dram(0.234375)),
    SystemConfig("Ethos_U65_Client_Server", 1e9, _SRAM, _dram(0.75)),
)


@dataclass(frozen=True)
class OutputCycles:
    """Cycles per OFM element of the output stage, by what makes the element.

    ``multiply`` also stands for whatever accumulates in 40 bits.
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
    """An NPU: its microblock (OFM height, width, channels), shared RAM, cycles per element.

    ``lookup`` and ``clamp`` are those of the activation stage. ``granules`` are the banks that the
    shared RAM deals out at a time: for IFMs of 8, 16 and 32 bits, elementwise IFMs of the same,
    accumulators of 32 and 40 bits. ``accumulator_delay`` is what a step of a single microblock
    waits for its accumulators, of 32 and 40 bits.
    """

    microblock: tuple[int, int, int]
    port_bytes: int
    output: OutputCycles
    lookup: float
    clamp: float
    shared_ram_banks: int
    ifm_granules: tuple[int, int, int]
    elementwise_granules: tuple[int, int, int]
    accumulator_granules: tuple[int, int]
    accumulator_delay: tuple[int, int]
    transfers_in_flight: int


_U55_256 = OutputCycles(0.625, 1.125, 0.5, 0.375, 0.75, 0.125, 0.25)
_U65_512 = OutputCycles(0.3125, 0.5625, 0.25, 0.1875, 0.375, 0.0625, 0.125)
_LARGE_IFM, _LARGE_ACCUMULATORS = (8, 8, 16), (16, 20)
_SMALL_IFM = (2, 2, 4)

_TIMINGS: dict[Accelerator, Timing] = {
    Accelerator.U55_32: Timing(
        (1, 1, 4),
        8,
        OutputCycles(2.0, 3.0, 3.0, 3.0, 6.0, 1.0, 2.0),
        1.0,
        1.0,
        16,
        _SMALL_IFM,
        _SMALL_IFM,
        (4, 4),
        (3, 7),
        1,
    ),
    Accelerator.U55_64: Timing(
        (1, 1, 8),
        8,
        OutputCycles(1.0, 1.5, 1.5, 1.5, 3.0, 0.5, 1.0),
        1.0,
        1.0,
        16,
        _SMALL_IFM,
        _SMALL_IFM,
        (4, 8),
        (2, 3),
        1,
    ),
    Accelerator.U55_128: Timing(
        (1, 2, 8),
        8,
        OutputCycles(0.75, 1.25, 0.75, 0.75, 1.5, 0.25, 0.5),
        1.0,
        0.5,
        24,
        (4, 4, 8),
        (4, 4, 8),
        (8, 12),
        (2, 3),
        1,
    ),
    Accelerator.U55_256: Timing(
        (2, 2, 8),
        8,
        _U55_256,
        1.0,
        0.25,
        48,
        _LARGE_IFM,
        _LARGE_IFM,
        _LARGE_ACCUMULATORS,
        (2, 2),
        1,
    ),
    Accelerator.U65_256: Timing(
        (2, 2, 8),
        16,
        _U55_256,
        1.0,
        0.25,
        48,
        _LARGE_IFM,
        _LARGE_IFM,
        _LARGE_ACCUMULATORS,
        (2, 2),
        2,
    ),
    Accelerator.U65_512: Timing(
        (2, 2, 8),
        16,
        _U65_512,
        0.5,
        0.125,
        48,
        _LARGE_IFM,
        _LARGE_IFM,
        _LARGE_ACCUMULATORS,
        (2, 2),
        2,
    ),
}


@dataclass(frozen=True)
class Target:
    """What a plan is made for: an accelerator in a system, with data dealt out by a memory mode."""

    arch: Arch
    system: SystemConfig
    memory_mode: MemoryMode = MemoryMode.SHARED_SRAM

    @property
    def timing(self) -> Timing:
        """Return the accelerator's figures."""
        return _TIMINGS[self.arch.accelerator]

    @property
    def constants(self) -> Memory:
        """Return the memory of weights, scales and tables."""
        if self.memory_mode is MemoryMode.SRAM_ONLY:
            return Memory(MemoryKind.SRAM, 1.0, 32, 32, 32, 1)
        return self.system.second

    @property
    def feature_maps(self) -> Memory:
        """Return the memory of the scratch, of inputs and of outputs."""
        return self.system.sram

    def bytes_per_cycle(self, memory: Memory) -> float:
        """Return the bandwidth of a memory."""
        return self.timing.port_bytes * memory.share


def make_target(
    arch: Arch, system_config: str | None, memory_mode: MemoryMode = MemoryMode.SHARED_SRAM
) -> Target:
    """Return the target of these names; None takes the accelerator's usual system.

    Raises:
        UserError: there is no such system.
    """
    name = system_config or arch.default_system_config
    for system in SYSTEM_CONFIGS:
        if system.name == name:
            return Target(arch, system, memory_mode)
    known = ", ".join(system.name for system in SYSTEM_CONFIGS)
    raise UserError(f"system_config: unknown name (got '{name}', known: {known})")


def all_targets() -> tuple[Target, ...]:
    """Return each accelerator in its usual system, constants in flash or DRAM."""
    return tuple(make_target(arch, None) for arch in ARCHS)
