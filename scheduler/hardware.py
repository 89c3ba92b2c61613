"""What the cost of a plan depends on: the NPU's timing and the memories of the system around it.

All figures are published ones: of the NPUs, the performance tables of Arm's compiler (ethos-u-vela
5.2.0, ``architecture_features.py``); of the systems, its ``config_files/Arm/vela.ini``. Bandwidths
are in bytes per cycle of the NPU, latencies in such cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tvm_ethosu.scheduler.arch import Accelerator, Arch, MemoryMode
from tvm_ethosu.scheduler.errors import UserError


@dataclass(frozen=True)
class Memory:
    """A memory behind an AXI port.

    ``share`` is the part of the port's bandwidth that it delivers, ``burst_bytes`` the shortest
    access that uses all of it. ``port`` tells memories apart that are reached side by side.
    """

    share: float
    burst_bytes: int
    read_latency: int
    write_latency: int
    port: int


_SRAM = Memory(1.0, 32, 32, 32, 0)


def _flash(share: float) -> Memory:
    return Memory(share, 128, 64, 0, 1)


def _dram(share: float) -> Memory:
    return Memory(share, 128, 500, 250, 1)


@dataclass(frozen=True)
class SystemConfig:
    """A system: the SRAM behind port 0, the memory behind port 1."""

    name: str
    sram: Memory
    second: Memory


SYSTEM_CONFIGS: tuple[SystemConfig, ...] = (
    SystemConfig("Ethos_U55_Deep_Embedded", _SRAM, _flash(0.0625)),
    SystemConfig("Ethos_U55_High_End_Embedded", _SRAM, _flash(0.125)),
    SystemConfig("Ethos_U65_Embedded", _SRAM, _flash(0.0625)),
    SystemConfig("Ethos_U65_Mid_End", _SRAM, _dram(0.46875)),
    SystemConfig("Ethos_U65_High_End", _SRAM, _dram(0.234375)),
    SystemConfig("Ethos_U65_Client_Server", _SRAM, _dram(0.75)),
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
    """An NPU: its microblock (OFM height, width, channels), and how long an element takes.

    ``lookup`` and ``clamp`` are cycles per element of the activation stage. Granules are the banks
    that the shared RAM deals out at a time: for IFMs by the size of an element in bytes, for
    accumulators of 32 and 40 bits. ``accumulator_delay`` is what a step of a single microblock
    waits for its accumulators, of 32 and 40 bits.
    """

    microblock: tuple[int, int, int]
    output: OutputCycles
    lookup: float
    clamp: float
    ifm_granules: Mapping[int, int]
    accumulator_granules: tuple[int, int]
    accumulator_delay: tuple[int, int]
    port_bytes: int = 8
    transfers_in_flight: int = 1


_U55_32 = Timing(
    microblock=(1, 1, 4),
    output=OutputCycles(2.0, 3.0, 3.0, 3.0, 6.0, 1.0, 2.0),
    lookup=1.0,
    clamp=1.0,
    ifm_granules=MappingProxyType({1: 2, 2: 2, 4: 4}),
    accumulator_granules=(4, 4),
    accumulator_delay=(3, 7),
)
_U55_64 = replace(
    _U55_32,
    microblock=(1, 1, 8),
    output=OutputCycles(1.0, 1.5, 1.5, 1.5, 3.0, 0.5, 1.0),
    accumulator_granules=(4, 8),
    accumulator_delay=(2, 3),
)
_U55_128 = replace(
    _U55_64,
    microblock=(1, 2, 8),
    output=OutputCycles(0.75, 1.25, 0.75, 0.75, 1.5, 0.25, 0.5),
    clamp=0.5,
    ifm_granules=MappingProxyType({1: 4, 2: 4, 4: 8}),
    accumulator_granules=(8, 12),
)
_U55_256 = replace(
    _U55_128,
    microblock=(2, 2, 8),
    output=OutputCycles(0.625, 1.125, 0.5, 0.375, 0.75, 0.125, 0.25),
    clamp=0.25,
    ifm_granules=MappingProxyType({1: 8, 2: 8, 4: 16}),
    accumulator_granules=(16, 20),
    accumulator_delay=(2, 2),
)
_U65_256 = replace(_U55_256, port_bytes=16, transfers_in_flight=2)
_U65_512 = replace(
    _U65_256,
    output=OutputCycles(0.3125, 0.5625, 0.25, 0.1875, 0.375, 0.0625, 0.125),
    lookup=0.5,
    clamp=0.125,
)
_TIMINGS: Mapping[Accelerator, Timing] = MappingProxyType(
    {
        Accelerator.U55_32: _U55_32,
        Accelerator.U55_64: _U55_64,
        Accelerator.U55_128: _U55_128,
        Accelerator.U55_256: _U55_256,
        Accelerator.U65_256: _U65_256,
        Accelerator.U65_512: _U65_512,
    }
)


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
            return replace(self.system.sram, port=1)
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
