"""Bare-metal programs for tests: built by Arm's gcc, run on the machine, NPU calls recorded."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tvm_ethosu.backend.host import Bytes, LoadedProgram, NpuCall, load_program
from tvm_ethosu.backend.machine.corstone300 import SystemMemory
from tvm_ethosu.backend.machine.image import Image, Segment
from tvm_ethosu.backend.machine.npu import NpuRun, Observer
from tvm_ethosu.backend.outputs import INCLUDE_DIR
from tvm_ethosu.backend.program import Invocation, Program, Source

FIRMWARE = INCLUDE_DIR.parent


def build(directory: Path, *settings: str) -> Path:
    """Build a project as its user would, and return the ELF file; no compiler says a word."""
    command = ["make", "-s", "-C", str(directory), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    folder = next((s.partition("=")[2] for s in settings if s.startswith("BUILD=")), "build")
    return directory / folder / "firmware.elf"


def build_program(directory: Path, source: str, *settings: str) -> Path:
    """Build one C file with the board's files and the driver, but no network."""
    for folder, names in (
        ("board", ("corstone300/board.c", "corstone300/startup.c", "corstone300/link.ld")),
        ("driver", ("src/tvm_ethosu_driver.c", "src/tvm_ethosu_io.c")),
        ("board", ("corstone300/board.h",)),
        ("driver", ("src/tvm_ethosu_registers.h",)),
    ):
        (directory / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(FIRMWARE / name, directory / folder)
    shutil.copytree(INCLUDE_DIR, directory / "include", dirs_exist_ok=True)
    shutil.copy(FIRMWARE / "corstone300" / "Makefile", directory)
    (directory / "network.mk").write_text("NETWORK_SRAM_BYTES := 0\n")
    (directory / "app").mkdir(exist_ok=True)
    (directory / "app" / "main.c").write_text(source)
    return build(directory, *settings)


def with_word(image: Image, symbol: str, value: int) -> Image:
    """Return an image in which a constant of four bytes has another value."""
    address = image.symbols[symbol].address
    segments = tuple(_patch(segment, address, value) for segment in image.segments)
    assert segments != image.segments, f"{symbol} has no bytes in the file, or has this value"
    return replace(image, segments=segments)


def _patch(segment: Segment, address: int, value: int) -> Segment:
    start = address - segment.address
    if not 0 <= start <= len(segment.data) - 4:
        return segment
    word = value.to_bytes(4, "little")
    return replace(segment, data=segment.data[:start] + word + segment.data[start + 4 :])


class CallRecorder(Observer):
    """Puts the NPU's runs together to calls of NPU functions, with inputs and outputs."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.calls: list[NpuCall] = []
        self._loaded = [load_program(program) for program in programs]
        self._arguments: dict[int, Bytes] = {}

    def _find(self, run: NpuRun) -> tuple[LoadedProgram, Invocation]:
        found = (
            (loaded, invocation)
            for loaded in self._loaded
            for invocation in loaded.program.invocations
            if invocation.words == run.words
        )
        return next(found)

    def _note(self, run: NpuRun, memory: SystemMemory, inputs: bool) -> None:
        loaded, invocation = self._find(run)
        count = len(loaded.program.inputs)
        for binding in invocation.bindings:
            if binding.source is not Source.ARGUMENT or (binding.argument < count) is not inputs:
                continue
            data = memory.read(run.addresses[binding.region], binding.size_bytes)
            self._arguments.setdefault(binding.argument, np.frombuffer(data, np.uint8))

    def _note_shared(self, run: NpuRun, memory: SystemMemory) -> None:
        """Note an output that lies in the memory of an input."""
        loaded, invocation = self._find(run)
        pair = loaded.program.copied_out
        if pair is not None:
            output, home = pair
            size_bytes = loaded.program.outputs[output - len(loaded.program.inputs)].size_bytes
            region = next(b.region for b in invocation.bindings if b.argument == home)
            data = memory.read(run.addresses[region], size_bytes)
            self._arguments[output] = np.frombuffer(data, np.uint8)

    def before(self, run: NpuRun, memory: SystemMemory) -> None:
        self._note(run, memory, inputs=True)

    def after(self, run: NpuRun, memory: SystemMemory) -> None:
        self._note(run, memory, inputs=False)
        self._note_shared(run, memory)
        loaded, invocation = self._find(run)
        program = loaded.program
        if invocation is program.invocations[-1]:
            given = [self._arguments[i] for i in range(program.argument_count - 1)]
            count = len(program.inputs)
            self.calls.append(NpuCall(loaded, tuple(given[:count]), tuple(given[count:]), ()))
            self._arguments = {}
