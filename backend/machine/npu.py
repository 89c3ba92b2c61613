"""The NPU's register block: what the driver reads and writes, the work done by the simulator.

Registers, bits and reset values are those of Arm's public ``ethosu55_interface.h``. A command
stream that the simulator cannot judge ends the machine: only what hardware would report becomes a
bit of STATUS.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.machine.corstone300 import Bytes, SystemMemory
from tvm_ethosu.scheduler.arch import ALIGN_BYTES, MAX_REGIONS

_ID = 0x10104201
_STREAM_VERSION = 1


class Register(IntEnum):
    """Byte offsets of the registers that do something; others keep what is written."""

    ID = 0x00
    STATUS = 0x04
    CMD = 0x08
    RESET = 0x0C
    QBASE = 0x10
    QBASE_HIGH = 0x14
    QREAD = 0x18
    QCONFIG = 0x1C
    QSIZE = 0x20
    PROT = 0x24
    CONFIG = 0x28
    REGIONCFG = 0x3C
    BASEP0 = 0x80
    PMCR = 0x180
    PMCNTENSET = 0x184
    PMCNTENCLR = 0x188
    PMCCNTR = 0x1A0
    PMCCNTR_HIGH = 0x1A4


class Status(IntFlag):
    """Bits of STATUS."""

    NONE = 0
    RUNNING = 1 << 0
    IRQ = 1 << 1
    BUS_ERROR = 1 << 2
    RESETTING = 1 << 3
    PARSE_ERROR = 1 << 4
    END_REACHED = 1 << 5


class Command(IntFlag):
    """Bits of CMD."""

    RUN = 1 << 0
    CLEAR_IRQ = 1 << 1
    CLOCK_OFF_ALLOWED = 1 << 2
    POWER_OFF_ALLOWED = 1 << 3
    STOP = 1 << 4


_IDLE = Command.CLOCK_OFF_ALLOWED | Command.POWER_OFF_ALLOWED
_READ_ONLY = frozenset(
    {Register.ID, Register.STATUS, Register.QREAD, Register.PROT, Register.CONFIG}
)
_PMCR_ENABLE = 1
_PMCR_RESET_CYCLES = 4
_COUNT_CYCLES = 1 << 31


@dataclass(frozen=True)
class NpuRun:
    """One start of the NPU: the stream as it was in memory, and where the base pointers led.

    ``detail`` is the simulator's sentence where the run failed.
    """

    words: tuple[int, ...]
    addresses: tuple[int, ...]
    status: Status = Status.NONE
    cycles: int = 0
    detail: str = ""


class Observer:
    """Told of every run before and after; does nothing by itself."""

    def before(self, run: NpuRun, memory: SystemMemory) -> None:
        """See the memory before a run that will take place."""

    def after(self, run: NpuRun, memory: SystemMemory) -> None:
        """See the memory after it."""


@dataclass(frozen=True)
class NpuConfig:
    """What NPU it is.

    To test a driver's time limits: ``hangs_at`` counts starts from 0 that never end, ``stuck_at``
    resets from 0 that do not end before the next one.
    """

    accelerator: sim.Accelerator
    hangs_at: frozenset[int] = frozenset()
    stuck_at: frozenset[int] = frozenset()


@functools.lru_cache(maxsize=32)
def _decode(words: bytes, accelerator: sim.Accelerator) -> sim.Stream:
    return sim.decode(np.frombuffer(words, "<u4"), accelerator)


@functools.lru_cache(maxsize=32)
def _cycles(words: bytes, accelerator: sim.Accelerator) -> int:
    """Return the estimate for the usual system with this NPU, weights in flash or DRAM."""
    name = "Ethos_U65_High_End" if accelerator.is_u65 else "Ethos_U55_High_End_Embedded"
    stream = _decode(words, accelerator)
    report = sim.estimate(stream, sim.SYSTEM_CONFIGS[name], sim.MemoryMode.SHARED_SRAM)
    return round(report.total)


class NpuBlock:
    """The registers of one NPU; ``complaint`` is what the simulator refused to judge, or None."""

    def __init__(self, config: NpuConfig, memory: SystemMemory, observer: Observer) -> None:
        self.config = config
        self.memory = memory
        self.observer = observer
        self.runs: list[NpuRun] = []
        self.complaint: sim.SimulationError | None = None
        self._starts = self._resets = 0
        self._values: dict[int, int] = {}
        self._status = Status.NONE
        self._protection = 0
        self._reset(0)

    @property
    def irq(self) -> bool:
        """Return whether the interrupt line is high."""
        return bool(self._status & Status.IRQ)

    def read(self, offset: int) -> int:
        """Return the 32-bit register at a byte offset."""
        match offset:
            case Register.ID:
                return _ID
            case Register.STATUS:
                return int(self._status)
            case Register.PROT:
                return self._protection
            case Register.CONFIG:
                return self._config_value()
        return self._values.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        """Store a 32-bit register, and do what it stands for."""
        if offset in _READ_ONLY:
            return
        match offset:
            case Register.RESET:
                self._reset(value & 3)
                if self._resets in self.config.stuck_at:
                    self._status = Status.RESETTING
                self._resets += 1
            case Register.CMD:
                self._command(Command(value & 0x1F))
            case Register.PMCR:
                self._control_counter(value)
            case Register.PMCNTENSET:
                self._values[offset] = self._values.get(offset, 0) | value
            case Register.PMCNTENCLR:
                kept = self._values.get(Register.PMCNTENSET, 0) & ~value
                self._values[Register.PMCNTENSET] = kept
            case _:
                self._values[offset] = value
                if offset in (Register.QBASE, Register.QSIZE):
                    self._status &= ~Status.END_REACHED

    def _config_value(self) -> int:
        accelerator = self.config.accelerator
        macs = int(math.log2(accelerator.macs))
        shram_kb = accelerator.shram_banks * accelerator.cores
        product = int(accelerator.is_u65)
        return macs | _STREAM_VERSION << 4 | shram_kb << 8 | product << 28

    def _reset(self, protection: int) -> None:
        self._values = {int(Register.CMD): int(_IDLE)}
        self._status = Status.NONE
        self._protection = protection

    def _control_counter(self, value: int) -> None:
        if value & _PMCR_RESET_CYCLES:
            self._values[Register.PMCCNTR] = self._values[Register.PMCCNTR_HIGH] = 0
        self._values[Register.PMCR] = value & ~_PMCR_RESET_CYCLES

    def _command(self, value: Command) -> None:
        self._values[Register.CMD] = int(value & _IDLE)
        if value & Command.CLEAR_IRQ:
            self._status &= ~Status.IRQ
        # A stop takes effect at once: the simulator is never half way through a stream.
        if value & Command.RUN and not self._status & Status.RUNNING:
            self._start()

    def _start(self) -> None:
        index, self._starts = self._starts, self._starts + 1
        self._status = Status.RUNNING
        if index in self.config.hangs_at:
            return
        words = self._stream_bytes()
        addresses = tuple(
            self._values.get(Register.BASEP0 + 8 * i, 0)
            | self._values.get(Register.BASEP0 + 8 * i + 4, 0) << 32
            for i in range(MAX_REGIONS)
        )
        if words is None:
            run = NpuRun((), addresses, Status.BUS_ERROR, detail="no memory at QBASE")
        else:
            run = self._execute(words, addresses)
        self.runs.append(run)
        self._status = run.status | Status.IRQ
        self._count(run.cycles)

    def _stream_bytes(self) -> bytes | None:
        """Return the stream, or None where QBASE and QSIZE do not lead to memory."""
        base = self._values.get(Register.QBASE, 0)
        size_bytes = self._values.get(Register.QSIZE, 0)
        window = self.memory.window(base, by_npu=True)
        if window is None or base % ALIGN_BYTES or not 0 < size_bytes <= window.size:
            return None
        return window[: size_bytes - size_bytes % 4].tobytes()

    def _regions(self, addresses: tuple[int, ...]) -> dict[int, sim.Region]:
        """Return the memory behind each base pointer that leads to some."""
        windows: dict[int, Bytes | None] = {
            region: self.memory.window(address, by_npu=True)
            for region, address in enumerate(addresses)
            if address % ALIGN_BYTES == 0
        }
        return {region: sim.Region(data) for region, data in windows.items() if data is not None}

    def _execute(self, words: bytes, addresses: tuple[int, ...]) -> NpuRun:
        run = NpuRun(tuple(np.frombuffer(words, "<u4").tolist()), addresses)
        accelerator = self.config.accelerator
        try:
            stream = _decode(words, accelerator)
            self.observer.before(run, self.memory)
            sim.run(stream, self._regions(addresses))
            cycles = _cycles(words, accelerator)
        except sim.DecodeError as error:
            return self._failed(run, Status.PARSE_ERROR, error)
        except sim.MemoryFault as error:
            return self._failed(run, Status.BUS_ERROR, error)
        except sim.SimulationError as error:
            self.complaint = error
            return self._failed(run, Status.PARSE_ERROR, error)
        self._values[Register.QREAD] = len(words)
        done = NpuRun(run.words, addresses, Status.END_REACHED, cycles)
        self.observer.after(done, self.memory)
        return done

    def _failed(self, run: NpuRun, status: Status, error: sim.SimulationError) -> NpuRun:
        self._values[Register.QREAD] = 4 * (error.offset or 0)
        return NpuRun(run.words, run.addresses, status, 0, str(error))

    def _count(self, cycles: int) -> None:
        counts = self._values.get(Register.PMCR, 0) & _PMCR_ENABLE
        if counts and self._values.get(Register.PMCNTENSET, 0) & _COUNT_CYCLES:
            low = self._values.get(Register.PMCCNTR, 0)
            total = (self._values.get(Register.PMCCNTR_HIGH, 0) << 32 | low) + cycles
            self._values[Register.PMCCNTR] = total & 0xFFFFFFFF
            self._values[Register.PMCCNTR_HIGH] = total >> 32 & 0xFFFF
