"""What holds for every command: progress, --quiet, --verbose, --json, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.partition.networks import residual
from tvm_ethosu.backend.cli import main

CLI_PAGE = (REPOSITORY / "docs" / "cli.md").read_text()
START = "from tvm_ethosu.entry import main; main()"
PIPE_ENDED = 141
INTERRUPTED = 130


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a network, and with an NPU program of it."""
    path: Path = tmp_path_factory.mktemp("everyday")
    (path / "model.tflite").write_bytes(residual().data)
    assert main(["--quiet", "compile", str(path / "model.tflite"), "-o", str(path / "out")]) == 0
    return path


COMMANDS = {
    "compile": ["compile", "model.tflite", "-o", "c", "--sram-size", "64K"],
    "explain": ["explain", "model.tflite"],
    "run": ["run", "model.tflite", "--check"],
    "memory": ["memory", "model.tflite", "--npu", "ethos-u55-128"],
    "simulate": ["simulate", "out/npu/tvmgen_default_ethos_u_main_0.npu"],
    "disassemble": ["disassemble", "out/npu/tvmgen_default_ethos_u_main_0.npu"],
    "firmware": ["firmware", "model.tflite", "-o", "f"],
}


def _keys(data: Any) -> Iterator[str]:
    """Yield all keys of JSON data."""
    for key, value in data.items() if isinstance(data, dict) else ():
        yield key
        yield from _keys(value)
    for value in data if isinstance(data, list) else ():
        yield from _keys(value)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_alone_is_all_that_is_on_stdout_and_every_key_is_documented(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main([*COMMANDS[name], "--json"]) == 0
    out, err = capsys.readouterr()
    keys = set(_keys(json.loads(out)))
    assert len(keys) > 2
    assert not [key for key in keys if f"`{key}`" not in CLI_PAGE]
    assert err == ""


@pytest.mark.parametrize("name", ["explain", "disassemble"])
def test_quiet_leaves_nothing_and_verbose_tells_the_steps_with_their_times(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main([*COMMANDS[name], "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*COMMANDS[name], "--verbose"]) == 0
    out, err = capsys.readouterr()
    assert out
    assert re.search(r"^\S+ .+: \d+\.\d s$", err, re.MULTILINE)


def test_verbose_adds_the_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for position in (["--verbose", "explain", "absent"], ["explain", "absent", "-v"]):
        assert main(position) == 2
        assert "Traceback" in capsys.readouterr().err
    assert main(["explain", "absent"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_network_taken_for_the_file_of_json_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    before = (folder / "model.tflite").read_bytes()
    assert main(["explain", "--json", "model.tflite"]) == 2
    assert "--json took 'model.tflite'" in capsys.readouterr().err
    assert (folder / "model.tflite").read_bytes() == before


def _on_a_terminal(arguments: list[str], folder: Path) -> tuple[str, str]:
    """Return stdout, and what stderr shows where it is a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", START, *arguments]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        out = process.stdout.read()
        shown = os.read(ours, 1 << 16).decode() if process.wait() == 0 else ""
        os.close(ours)
    return out, shown


def test_progress_is_shown_on_a_terminal_and_only_there(folder: Path) -> None:
    out, shown = _on_a_terminal([*COMMANDS["compile"], "--json"], folder)
    assert json.loads(out)["sram_size"] == 65536
    assert "compiling model.tflite for ethos-u55-256" in shown
    assert "0:00:0" in shown


# Where Ctrl-C comes: the line of Python stands in front of the command.
MOMENTS = {
    "while TVM is loaded": "import sys; sys.meta_path.insert(0, Finder('tvm.relay'))",
    "inside of TVM, which loses it": (
        "import tvm_ethosu.backend.codegen as c; wrap(c, 'emit_program')"
    ),
    "while files are written": "import tvm_ethosu.backend.outputs as o; wrap(o, 'to_bytes')",
    "while folders are exchanged": "wrap(os, 'replace')",
}
PREFACE = """
import os, signal, sys
class Finder:
    def __init__(self, name):
        self.name = name
    def find_spec(self, name, path, target=None):
        if name == self.name:
            os.kill(os.getpid(), signal.SIGINT)
def wrap(owner, name):
    inner = getattr(owner, name)
    def outer(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return inner(*arguments, **options)
    setattr(owner, name, outer)
"""


@pytest.mark.parametrize(
    "moment",
    [*list(MOMENTS)[:-1], pytest.param(list(MOMENTS)[-1], marks=pytest.mark.slow)],
)
def test_ctrl_c_ends_a_compile_with_one_word_and_leaves_nothing_half_done(
    moment: str, folder: Path, tmp_path: Path
) -> None:
    code = f"{PREFACE}\n{MOMENTS[moment]}\n{START}"
    arguments = ["compile", str(folder / "model.tflite"), "-o", "out"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == "tvm-ethosu: interrupted\n"
    assert done.returncode == INTERRUPTED
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")}
    # What was being exchanged is exchanged whole.
    whole = {"out/src", "out/include", "out/npu"}
    assert left == (whole if moment == "while folders are exchanged" else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compile", "run", "firmware"])
def test_ctrl_c_at_any_time_is_code_130_or_the_work_was_done(name: str, folder: Path) -> None:
    command = [sys.executable, "-c", START, *COMMANDS[name]]
    codes = set()
    for tenths in range(3, 40, 4):
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(tenths / 10)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode in (0, INTERRUPTED), err
        assert err == ("" if process.returncode == 0 else "tvm-ethosu: interrupted\n")
        assert not list(folder.glob(".*"))
        codes.add(process.returncode)
    assert INTERRUPTED in codes


def test_a_reader_that_goes_away_is_no_fault_of_ours(folder: Path) -> None:
    command = [sys.executable, "-c", START, *COMMANDS["disassemble"]]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    assert (process.returncode, err) == (PIPE_ENDED, "")
