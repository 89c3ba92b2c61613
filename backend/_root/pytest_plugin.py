"""The pytest fixture ``ethosu_machine``: a network built as firmware and run, in a few lines.

pytest loads this module wherever the package is installed, so TVM and the rest come later.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tvm_ethosu.backend.machine.result import MachineResult


class EthosUMachine:
    """Builds firmware in a folder of the test's own and runs it."""

    def __init__(self, directory: Path, machine: str) -> None:
        self.directory = directory
        self.machine = machine

    def run(
        self,
        model: Path | str,
        inputs: Sequence[Any],
        accelerator: str = "ethos-u55-256",
        sram_size: int | None = None,
        memory_mode: str = "Shared_Sram",
    ) -> MachineResult:
        """Compile a TFLite file, build it with Arm's gcc, run it once, and return what it printed.

        ``inputs`` are arrays in the order of the file; ``outputs`` of the result are flat arrays,
        with the number of bytes that differ from the same network run on this host.

        Raises:
            UserError: the network, an option or the machine is at fault.
            AssertionError: the project does not build.
        """
        from tvm_ethosu.backend.machine.run import run_elf
        from tvm_ethosu.backend.network import compile_for_firmware
        from tvm_ethosu.backend.project import make_cases, write_project
        from tvm_ethosu.partition import EthosUOptions
        from tvm_ethosu.partition.tflite_file import load_tflite

        file = load_tflite(Path(model))
        options = EthosUOptions(accelerator, sram_size, memory_mode)
        cases = make_cases(file, options, [inputs])
        write_project(file, compile_for_firmware(file, options), cases, self.directory)
        command = ["make", "-s", "-C", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return run_elf(self.directory / "build" / "firmware.elf", self.machine)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the machine."""
    parser.getgroup("tvm-ethosu").addoption(
        "--ethosu-machine",
        default="unicorn",
        choices=("unicorn", "fvp"),
        help="the machine of the fixture ethosu_machine (default: unicorn)",
    )


@pytest.fixture
def ethosu_machine(request: pytest.FixtureRequest, tmp_path: Path) -> EthosUMachine:
    """Return the machine that ``--ethosu-machine`` names."""
    return EthosUMachine(tmp_path / "firmware", request.config.getoption("--ethosu-machine"))
