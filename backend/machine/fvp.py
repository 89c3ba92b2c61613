"""Arm's Fixed Virtual Platform of Corstone-300, where it is installed."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tvm_ethosu.backend.machine.image import Image
from tvm_ethosu.backend.machine.result import END_TOKEN, Ending, MachineResult, has_ended, status_in
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.scheduler.errors import UserError

NAME: Final = "fvp"
PATH_VARIABLE: Final = "FVP_CORSTONE_300_PATH"
# The FVP ends itself at its own limit; this much later we end it.
_GRACE_SECONDS: Final = 30
_TERMINALS: Final = (0, 1, 2, 5)


def executable_name(accelerator: Accelerator) -> str:
    """Return the name of the FVP that has such an NPU."""
    product = "U65" if accelerator.is_u65 else "U55"
    return f"FVP_Corstone_SSE-300_Ethos-{product}"


def find_fvp(accelerator: Accelerator, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the FVP's executable, or None.

    ``FVP_CORSTONE_300_PATH`` is the executable, or a folder above it; else PATH is searched.
    """
    name = executable_name(accelerator)
    given = environment.get(PATH_VARIABLE)
    if not given:
        found = shutil.which(name, path=environment.get("PATH"))
        return None if found is None else Path(found)
    path = Path(given)
    if path.is_dir():
        return next((file for file in sorted(path.rglob(name)) if file.is_file()), None)
    return path if path.is_file() and path.name == name else None


def fvp_command(executable: Path, elf: Path, accelerator: Accelerator, seconds: float) -> list[str]:
    """Return the command line that runs firmware with no window and prints what it prints."""
    parameters = {
        # Tightly coupled memories as large as they can be.
        "cpu0.CFGITCMSZ": "15",
        "cpu0.CFGDTCMSZ": "15",
        "cpu0.semihosting-enable": "1",
        "ethosu.num_macs": str(accelerator.macs),
        "ethosu.extra_args": "--fast",
        "mps3_board.uart0.out_file": "-",
        "mps3_board.uart0.unbuffered_output": "1",
        "mps3_board.uart0.shutdown_tag": END_TOKEN,
        "mps3_board.visualisation.disable-visualisation": "1",
        **{f"mps3_board.telnetterminal{n}.start_telnet": "0" for n in _TERMINALS},
    }
    options = [word for name, value in parameters.items() for word in ("-C", f"{name}={value}")]
    return [str(executable), *options, "--timelimit", str(math.ceil(seconds)), "-a", str(elf)]


def run_fvp(
    image: Image,
    accelerator: Accelerator,
    seconds: float,
    environment: Mapping[str, str] = os.environ,
) -> MachineResult:
    """Run firmware on the FVP; what it printed decides, not the FVP's own exit code.

    Raises:
        UserError: there is no FVP, or it does not start.
    """
    executable = find_fvp(accelerator, environment)
    if executable is None:
        raise UserError(
            f"{executable_name(accelerator)} was not found (PATH, {PATH_VARIABLE}"
            f"={environment.get(PATH_VARIABLE, '')}); install it as docs/fvp.md says, or use "
            "--machine unicorn"
        )
    command = fvp_command(executable, image.path, accelerator, seconds)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _GRACE_SECONDS,
            check=False,
        )
    except OSError as error:
        raise UserError(f"{executable}: does not start ({error.strerror})") from None
    except subprocess.TimeoutExpired as error:
        return _result(error.output or b"", Ending.TIME_LIMIT, "")
    return _result(done.stdout, Ending.MACHINE, f"exit code {done.returncode}")


def _result(output: bytes, otherwise: Ending, detail: str) -> MachineResult:
    console = output.decode("utf-8", errors="replace").replace("\r\n", "\n")
    status = status_in(console)
    if status is None or not has_ended(console):
        return MachineResult(NAME, otherwise, None, console, detail)
    return MachineResult(NAME, Ending.EXIT, status, console)
