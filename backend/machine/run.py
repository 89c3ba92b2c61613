"""Firmware on whichever machine is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tvm_ethosu.backend.machine import RUNNABLE
from tvm_ethosu.backend.machine.fvp import run_fvp
from tvm_ethosu.backend.machine.image import Image, read_image
from tvm_ethosu.backend.machine.npu import NpuConfig
from tvm_ethosu.backend.machine.result import MachineResult
from tvm_ethosu.backend.machine.unicorn_machine import Limits, run_unicorn
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.scheduler.errors import UserError

DEFAULT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Job:
    """What to run, with which NPU, for how long at most."""

    image: Image
    accelerator: Accelerator
    seconds: float = DEFAULT_SECONDS


def _on_unicorn(job: Job) -> MachineResult:
    return run_unicorn(job.image, NpuConfig(job.accelerator), Limits(job.seconds))


def _on_fvp(job: Job) -> MachineResult:
    return run_fvp(job.image, job.accelerator, job.seconds)


MACHINES: Final[Mapping[str, Callable[[Job], MachineResult]]] = MappingProxyType(
    dict(zip(RUNNABLE, (_on_unicorn, _on_fvp), strict=True))
)


def run_elf(
    elf: Path,
    machine: str = "unicorn",
    accelerator: str | None = None,
    seconds: float = DEFAULT_SECONDS,
) -> MachineResult:
    """Run an ELF file on a machine; the accelerator is the one that it names, if not given.

    Raises:
        UserError: the file cannot be run there, or no such machine or accelerator is known.
    """
    if machine not in MACHINES:
        raise UserError(f"--machine: got {machine!r}, there are {', '.join(MACHINES)}")
    image = read_image(elf)
    return MACHINES[machine](Job(image, _accelerator(image, accelerator), seconds))


def _accelerator(image: Image, given: str | None) -> Accelerator:
    if given is not None:
        try:
            return Accelerator(given)
        except ValueError:
            known = ", ".join(accelerator.value for accelerator in Accelerator)
            raise UserError(f"--accelerator: got {given!r}, there are {known}") from None
    named = image.accelerator
    if named is None:
        raise UserError(
            f"{image.path}: does not say for which NPU it is; name one with --accelerator"
        )
    return named
