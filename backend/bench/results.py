"""What the benchmark measures, as plain data that can be kept as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.vela_files import MemoryMode, VelaOptions

UNLIMITED = "no limit"
TIME_LIMIT_SECONDS = 300
OWN_LEAST = "own least"
AT_FASTEST = "Vela's fastest"
AT_LEAST = "Vela's least"


@dataclass(frozen=True)
class Case:
    """A network on an accelerator, in the memory mode that suits it."""

    network: str
    model: Path
    accelerator: str

    @property
    def vela_options(self) -> VelaOptions:
        """Return Vela's options for it, which name memory mode and system for both compilers."""
        return VelaOptions(sim.Accelerator(self.accelerator))

    @property
    def memory_mode(self) -> MemoryMode:
        """Return where the arena lies."""
        return self.vela_options.mode


@dataclass(frozen=True)
class Point:
    """What one compiler made of a network under one setting.

    Attributes:
        compiler: ``regor``, ``legacy`` or ``ours``.
        setting: Vela's option, or the name of the SRAM budget.
        limit_bytes: the SRAM that was asked for; None if none was.
        sram_bytes: SRAM of the whole arena; None where nothing was compiled.
        cycles: the simulator's estimate of all NPU calls of one inference.
        cpu_operators: operators that stayed on the CPU; their cycles are not counted.
        npu_live_bytes: the most that is live at any NPU call by TVM's count; None for Vela.
        compared: elements compared with TFLite Micro.
        differing: how many of them differ.
        refusal: why there are no figures; empty if there are.
        complaint: what the simulator refused to run, a race for one, or how a compiler of ours
            broke down; empty if nothing.
    """

    compiler: str
    setting: str
    limit_bytes: int | None = None
    sram_bytes: int | None = None
    cycles: float | None = None
    cpu_operators: int = 0
    npu_live_bytes: int | None = None
    compared: int = 0
    differing: int = 0
    refusal: str = ""
    complaint: str = ""

    @property
    def is_measured(self) -> bool:
        """Return whether there are figures."""
        return self.sram_bytes is not None and self.cycles is not None

    @property
    def is_right(self) -> bool:
        """Return whether it ran without a report, and gave the reference's values."""
        return self.is_measured and not self.is_wrong

    @property
    def is_wrong(self) -> bool:
        """Return whether something is at fault; a refusal is not."""
        return bool(self.complaint or self.differing)


@dataclass(frozen=True)
class CaseResult:
    """All points of a case; ``compile_seconds`` of a whole process, None if it was not timed."""

    case: Case
    vela: tuple[Point, ...]
    ours: tuple[Point, ...]
    compile_seconds: float | None = None


@dataclass(frozen=True)
class Chain:
    """Seconds of a whole process that compiles a chain; infinite beyond TIME_LIMIT_SECONDS."""

    operators: int
    optimise: str
    seconds: float


@dataclass(frozen=True)
class Results:
    """One run of the benchmark."""

    cases: tuple[CaseResult, ...]
    chains: tuple[Chain, ...]

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Return the accelerators in the order in which they were asked for."""
        return tuple(dict.fromkeys(result.case.accelerator for result in self.cases))

    def on(self, accelerator: str) -> tuple[CaseResult, ...]:
        """Return the cases of an accelerator."""
        return tuple(r for r in self.cases if r.case.accelerator == accelerator)
