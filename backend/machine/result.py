"""What a machine gives back, the same for all of them: the console's text, and what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tvm_ethosu.backend.machine.npu import NpuRun
from tvm_ethosu.scheduler.errors import UserError

# Printed last by the firmware; the FVP is told to end there, and so does our machine.
END_TOKEN: Final = "EXITTHESIM"
_STATUS = re.compile(r"^tvm-ethosu: exit (-?\d+)\s*$", re.MULTILINE)
_BYTES = re.compile(r"^case (\d+) output (\d+) bytes ([0-9a-f]+)\s*$", re.MULTILINE)
_VERDICT = re.compile(
    r"^case (\d+) output (\d+) (\S+) (\S+): (\d+) of (\d+) bytes differ\s*$", re.MULTILINE
)
_CYCLES = re.compile(r"^case (\d+) took (\d+) NPU cycles\s*$", re.MULTILINE)


class Ending(Enum):
    """Why a machine stopped; the value completes the sentence "the firmware ..."."""

    EXIT = "ended by itself"
    TIME_LIMIT = "was still running at the time limit"
    LOCKED_UP = "met a fault in its fault handler"
    ASLEEP = "sleeps, and nothing would wake it"
    NPU = "gave the NPU a command stream that the simulator refuses"
    MACHINE = "was ended by the machine without a word"


@dataclass(frozen=True)
class Output:
    """One output of one inference, as the firmware printed it."""

    case: int
    index: int
    name: str
    differing_bytes: int
    data: npt.NDArray[Any]


@dataclass(frozen=True)
class MachineResult:
    """A finished run.

    ``status`` is what the firmware said last, None where it did not end; ``detail`` says more of
    other endings. ``npu_runs`` is known of our own machine only.
    """

    machine: str
    ending: Ending
    status: int | None
    console: str
    detail: str = ""
    npu_runs: tuple[NpuRun, ...] = ()

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return what the console shows of the network's outputs, flat, in the order printed."""
        parts: dict[tuple[int, int], list[str]] = {}
        for case, index, digits in _BYTES.findall(self.console):
            parts.setdefault((int(case), int(index)), []).append(digits)
        return tuple(
            _output(verdict, parts.get((int(verdict[0]), int(verdict[1])), []))
            for verdict in _VERDICT.findall(self.console)
        )

    @property
    def cycles(self) -> Mapping[int, int]:
        """Return NPU cycles by case."""
        return {int(case): int(cycles) for case, cycles in _CYCLES.findall(self.console)}

    def report(self) -> dict[str, Any]:
        """Return the result as JSON data; the keys are described in docs/cli.md."""
        return {
            "machine": self.machine,
            "status": self.status,
            "ending": self.ending.name.lower(),
            "detail": self.detail,
            "npu_cycles": list(self.cycles.values()),
            "outputs": [
                {
                    "case": output.case,
                    "index": output.index,
                    "name": output.name,
                    "differing_bytes": output.differing_bytes,
                    "dtype": str(output.data.dtype),
                    "values": output.data.tolist(),
                }
                for output in self.outputs
            ],
            "console": self.console,
        }

    def __str__(self) -> str:
        """Return the ending in one line."""
        if self.status is not None:
            return f"{self.machine}: the firmware ended with status {self.status}"
        more = f" ({self.detail})" if self.detail else ""
        return f"{self.machine}: the firmware {self.ending.value}{more}"


def _output(verdict: Sequence[str], parts: Sequence[str]) -> Output:
    case, index, name, dtype, differing, size_bytes = verdict
    data = bytes.fromhex("".join(parts))
    if len(data) != int(size_bytes):
        raise UserError(
            f"console: output {index} of case {case} is incomplete "
            f"(got {len(data)} bytes, says {size_bytes})"
        )
    return Output(int(case), int(index), name, int(differing), np.frombuffer(data, dtype))


def status_in(console: str) -> int | None:
    """Return the status that the firmware printed last, None where it printed none."""
    found = _STATUS.findall(console)
    return int(found[-1]) if found else None


def has_ended(console: str) -> bool:
    """Return whether the firmware has printed its last line; a simulator may have printed more."""
    return any(line.strip() == END_TOKEN for line in console.splitlines())
