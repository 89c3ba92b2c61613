"""The FVP's command line and what is made of its output, with a stand-in for the executable."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tvm_ethosu.backend.machine.fvp import executable_name, find_fvp, fvp_command, run_fvp
from tvm_ethosu.backend.machine.image import Image
from tvm_ethosu.backend.machine.result import Ending
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.scheduler.errors import UserError

U55, U65 = Accelerator.U55_128, Accelerator.U65_512
IMAGE = Image(Path("firmware.elf"), (), {}, {})


def _stand_in(folder: Path, accelerator: Accelerator, program: str) -> Path:
    """Return an executable with the FVP's name that notes its arguments and runs a program."""
    path = folder / "models" / executable_name(accelerator)
    path.parent.mkdir(exist_ok=True)
    notes = folder / "arguments.json"
    head = f"#!{sys.executable}\nimport json, sys, time\n"
    note = f"json.dump(sys.argv[1:], open({str(notes)!r}, 'w'))\n"
    path.write_text(head + note + program)
    path.chmod(0o755)
    return path


def test_the_command_line_has_what_the_fvp_needs(tmp_path: Path) -> None:
    command = fvp_command(Path("FVP"), Path("a.elf"), U55, 60.0)
    parameters = {command[i + 1] for i, word in enumerate(command) if word == "-C"}
    assert command[0] == "FVP"
    assert command[command.index("-a") + 1] == "a.elf"
    assert command[command.index("--timelimit") + 1] == "60"
    assert {
        "ethosu.num_macs=128",
        "mps3_board.uart0.out_file=-",
        "mps3_board.uart0.shutdown_tag=EXITTHESIM",
        "mps3_board.visualisation.disable-visualisation=1",
        "cpu0.semihosting-enable=1",
        "cpu0.CFGITCMSZ=15",
        "cpu0.CFGDTCMSZ=15",
    } <= parameters


@pytest.mark.parametrize(("seconds", "limit"), [(0.2, "1"), (1.0, "1"), (1.4, "2")])
def test_its_time_limit_is_whole_seconds_and_never_none(seconds: float, limit: str) -> None:
    command = fvp_command(Path("FVP"), Path("a.elf"), U55, seconds)
    assert command[command.index("--timelimit") + 1] == limit


@pytest.mark.parametrize("accelerator", [U55, U65])
def test_it_is_run_and_its_text_decides(tmp_path: Path, accelerator: Accelerator) -> None:
    """The real one ends with a code that says nothing, and adds lines of its own."""
    program = (
        "print('terminal_0: Listening\\r')\n"
        "print('case 0 took 12 NPU cycles\\r\\ntvm-ethosu: exit 1\\r\\nEXITTHESIM\\r')\n"
        "print('Info: Simulation stopped')\nsys.exit(1)\n"
    )
    _stand_in(tmp_path, accelerator, program)
    environment = {"FVP_CORSTONE_300_PATH": str(tmp_path)}
    result = run_fvp(IMAGE, accelerator, 60.0, environment)
    assert (result.machine, result.ending, result.status) == ("fvp", Ending.EXIT, 1)
    assert dict(result.cycles) == {0: 12}
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert f"ethosu.num_macs={accelerator.macs}" in arguments
    assert arguments[-2:] == ["-a", "firmware.elf"]


@pytest.mark.parametrize(
    "text", ["", "tvm-ethosu: exit 0", "EXITTHESIM", "simulation timed out"], ids=repr
)
def test_without_a_last_line_it_did_not_end(tmp_path: Path, text: str) -> None:
    executable = _stand_in(tmp_path, U55, f"print({text!r})\n")
    result = run_fvp(IMAGE, U55, 60.0, {"FVP_CORSTONE_300_PATH": str(executable)})
    assert (result.ending, result.status) == (Ending.MACHINE, None)
    assert "exit code 0" in str(result)


def test_it_is_found_on_the_path_or_by_its_variable(tmp_path: Path) -> None:
    executable = _stand_in(tmp_path, U65, "")
    assert find_fvp(U65, {"PATH": str(executable.parent)}) == executable
    assert find_fvp(U65, {"FVP_CORSTONE_300_PATH": str(tmp_path)}) == executable
    assert find_fvp(U55, {"FVP_CORSTONE_300_PATH": str(tmp_path)}) is None
    assert find_fvp(U65, {"PATH": str(tmp_path)}) is None


def test_where_there_is_none_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Ethos-U55 was not found .* --machine unicorn"):
        run_fvp(IMAGE, U55, 60.0, {"PATH": str(tmp_path)})
