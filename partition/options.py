"""What users can ask for, in one frozen type behind Python, target and command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tvm_ethosu.scheduler.arch import ARCHS, Arch, MemoryMode, find_arch
from tvm_ethosu.scheduler.errors import UserError
from tvm_ethosu.scheduler.hardware import Target, make_target
from tvm_ethosu.scheduler.search import Objective

# One sentence per option of ``EthosUOptions``, for the help of every command that has them.
OPTION_HELP: Mapping[str, str] = MappingProxyType(
    {
        "accelerator_config": "NPU: " + ", ".join(arch.accelerator.value for arch in ARCHS) + ".",
        "sram_size": "SRAM for all tensors together, network inputs and outputs included, such as "
        "65536, 64K or 1M; no limit by default.",
        "memory_mode": "Shared_Sram: constants in flash. Sram_Only: constants in SRAM too, not "
        "counted in the SRAM size.",
        "system_config": "Memory system that cycles are estimated for, by Vela's name; the "
        "accelerator's usual one by default.",
        "optimise": "performance: fewest cycles within the SRAM size. size: least SRAM.",
        "overwrite_inputs": "Let the NPU use an input's memory once it has been read; the program "
        "then writes its inputs anew before each run.",
        "share_io": "Let an output lie in an input's memory, the program passing one buffer for "
        "both; inputs are then overwritten too.",
    }
)

_CASCADES = "cascades are planned whenever sram_size asks for them; set sram_size instead"
_SEARCH = "the scheduler has no such setting; leave it out"
# Options of TVM's former Ethos-U backend: what replaces them.
REPLACED: Mapping[str, str] = MappingProxyType(
    {
        "enable_cascader": _CASCADES,
        "enable_striping": _CASCADES,
        "disable_copying_constants": "where weights lie follows from memory_mode and sram_size",
        "dev_force_block_config": "block configs are chosen by the scheduler; leave it out",
        "dev_max_open_plans": _SEARCH,
        "dev_max_closed_plans": _SEARCH,
        "dev_select_proposal_idx": _SEARCH,
        "dev_disable_pareto_plans": _SEARCH,
        "dev_disable_pareto_proposals": _SEARCH,
        "dev_disable_block_culling": _SEARCH,
        "dev_cascader_logging": "tvm-ethosu compile --json writes what was planned",
    }
)

_UNITS = {"": 1, "K": 1024, "M": 1024 * 1024}


def parse_size(text: str | int) -> int:
    """Return bytes of a size such as ``65536``, ``64K`` or ``1M`` (K is 1024 bytes).

    Raises:
        UserError: it is no positive size.
    """
    match = re.fullmatch(r"(\d+)\s*([KM]?)(?:i?B)?", str(text).strip(), flags=re.IGNORECASE)
    size_bytes = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if size_bytes <= 0:
        raise UserError(f"size: not a number of bytes (got '{text}', write 65536, 64K or 1M)")
    return size_bytes


def check_names(names: Iterable[str], where: str) -> None:
    """Check that options are known; ``where`` says whose they are.

    Raises:
        UserError: one is not, or was one of TVM's former backend; the message says what to do.
    """
    for name in names:
        if name in REPLACED:
            raise UserError(f"{where}: option '{name}' is gone: {REPLACED[name]}")
        if name not in OPTION_HELP:
            known = ", ".join(OPTION_HELP)
            raise UserError(f"{where}: unknown option '{name}' (known: {known})")


@dataclass(frozen=True)
class EthosUOptions:
    """Options of one compilation.

    Attributes:
        accelerator_config: NPU: ethos-u55-32, ethos-u55-64, ethos-u55-128, ethos-u55-256,
            ethos-u65-256, ethos-u65-512.
        sram_size: SRAM for all tensors together, network inputs and outputs included, such as
            65536, 64K or 1M; no limit by default. Here in bytes, None for no limit.
        memory_mode: Shared_Sram: constants in flash. Sram_Only: constants in SRAM too, not counted
            in the SRAM size.
        system_config: Memory system that cycles are estimated for, by Vela's name; the
            accelerator's usual one by default.
        optimise: performance: fewest cycles within the SRAM size. size: least SRAM.
        overwrite_inputs: Let the NPU use an input's memory once it has been read; the program then
            writes its inputs anew before each run.
        share_io: Let an output lie in an input's memory, the program passing one buffer for both;
            inputs are then overwritten too.

    Raises:
        UserError: a value is unknown; the message lists the known ones.
    """

    accelerator_config: str = "ethos-u55-256"
    sram_size: int | None = None
    memory_mode: str = "Shared_Sram"
    system_config: str | None = None
    optimise: str = "performance"
    overwrite_inputs: bool = False
    share_io: bool = False

    def __post_init__(self) -> None:
        arch = find_arch(self.accelerator_config)
        _check_memory_mode(self.memory_mode)
        known_objectives = [objective.value for objective in Objective]
        if self.optimise not in known_objectives:
            known = ", ".join(known_objectives)
            raise UserError(f"optimise: unknown (got '{self.optimise}', known: {known})")
        if self.system_config is None:
            object.__setattr__(self, "system_config", arch.default_system_config)
        elif self.system_config not in arch.system_configs:
            known = ", ".join(arch.system_configs)
            raise UserError(
                f"system_config: unknown for {self.accelerator_config} "
                f"(got '{self.system_config}', known: {known})"
            )
        is_size = self.sram_size is None or (isinstance(self.sram_size, int) and self.sram_size > 0)
        if not is_size:
            raise UserError(f"sram_size: must be a positive number of bytes (got {self.sram_size})")
        for flag in ("overwrite_inputs", "share_io"):
            value = getattr(self, flag)
            if value not in (True, False):
                raise UserError(f"{flag}: is True or False (got {value!r})")
            object.__setattr__(self, flag, bool(value))

    @property
    def objective(self) -> Objective:
        """Return what plans are chosen for."""
        return Objective(self.optimise)

    @property
    def target(self) -> Target:
        """Return what plans are made for."""
        return make_target(self.arch, self.system_config, MemoryMode(self.memory_mode))

    @property
    def arch(self) -> Arch:
        """Return the accelerator's row of the hardware table."""
        return find_arch(self.accelerator_config)


def _check_memory_mode(name: str) -> None:
    known = [mode.value for mode in MemoryMode]
    if name not in known:
        raise UserError(f"memory_mode: unknown (got '{name}', known: {', '.join(known)})")
    if name == MemoryMode.DEDICATED_SRAM.value:
        raise UserError(
            "memory_mode: Dedicated_Sram is not supported yet, because the plan does not use SRAM "
            "as a cache of DRAM (use Shared_Sram or Sram_Only)"
        )
