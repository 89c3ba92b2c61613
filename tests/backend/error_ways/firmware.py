"""Firmware that is not built, does not load, or ends badly."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.backend.bare_metal import build_program
from tests.backend.error_ways.desk import Desk, Way, cli, given, python
from tests.backend.sim.assembler import assemble
from tests.backend.sim.test_memory import absolute, dma
from tvm_ethosu.backend.machine.run import run_elf

_ARM, _X86 = 40, 3


_STACK = 0x20008000


_ENDLESS, _WAIT_FOR_INTERRUPT, _UNDEFINED = 0xE7FE, 0xBF30, 0xDE00


_EXIT_WITH_ANOTHER_REASON = (0x2018, 0x2123, 0xBEAB)  # r0: EXIT, r1: no reason of a normal end


def elf(code: tuple[int, ...] = (), address: int = 0, machine: int = _ARM) -> bytes:
    """Return an ELF file: a vector table whose entries all lead to this code; none without code."""
    entry = address + 4 * 16
    vectors = struct.pack("<16I", _STACK, *[entry | 1] * 15)
    data = vectors + struct.pack(f"<{len(code)}H", *code)
    segments = 1 if code else 0
    head = struct.pack(
        "<4s12B2H5I6H",
        *(b"\x7fELF", 1, 1, 1, *[0] * 9),
        *(2, machine, 1, entry, 52, 0, 0, 52, 32, segments, 40, 0, 0),
    )
    loaded = struct.pack("<8I", 1, 52 + 32, address, address, len(data), len(data), 7, 4)
    return head + (loaded + data if code else b"")


def machine(data: bytes, *options: str, code: int = 2, npu: bool = True) -> Way:
    """Run an ELF file on the machine."""
    named = ("--accelerator", "ethos-u55-128") if npu else ()
    return given(
        lambda desk: desk.write("firmware.elf", data),
        *("machine", "run", "firmware.elf", *named, *options),
        code=code,
    )


def _fvp(desk: Desk, script: str, mode: int = 0o755) -> None:
    """Put a stand-in for the FVP where it is looked for."""
    path = desk.folder / "FVP_Corstone_SSE-300_Ethos-U55"
    path.write_text(script)
    path.chmod(mode)
    desk.patch.setenv("FVP_CORSTONE_300_PATH", str(path))
    desk.write("firmware.elf", elf((_ENDLESS,)))


_TO_FVP = ("machine", "run", "firmware.elf", "--accelerator", "ethos-u55-128", "--machine", "fvp")


_INCOMPLETE = """#!/bin/sh
echo 'case 0 output 0 y int8: 0 of 4 bytes differ'
echo 'tvm-ethosu: exit 0'
echo 'EXITTHESIM'
"""


def _without_fvp(desk: Desk) -> None:
    desk.patch.setenv("FVP_CORSTONE_300_PATH", str(desk.folder))
    desk.write("firmware.elf", elf((_ENDLESS,)))


_PROGRAM = """#include "board.h"
#include "tvm_ethosu/driver.h"
int main(void) {
  static const uint32_t stream[] __attribute__((aligned(16))) = {%s};
  const tvm_ethosu_region_t regions[2] = {
    {0u, 64u, (void*)0x21000000u}, {1u, 64u, (void*)0x21000400u}};
  (void)board_start_npu();
  return tvm_ethosu_invoke(TVM_ETHOSU_U55_128, stream, sizeof(stream), regions, 2u);
}"""


def _refused_stream(desk: Desk) -> str:
    """Build and run firmware whose stream reads what a transfer may still be writing."""
    words = assemble([*dma(0, 0, 16), *absolute()])
    source = _PROGRAM % ", ".join(map(str, words))
    path = build_program(desk.folder / "project", source)
    return cli("machine", "run", str(path), "--accelerator", "ethos-u55-128", code=4)(desk)


FIRMWARE: Mapping[str, Way] = {
    "firmware: … is for --format project, an archive of --format mlf holds no inputs": cli(
        "firmware", "model.tflite", "-o", "m.tar", "--format", "mlf", "--seed", "1"
    ),
    "machine: the package '…' is not installed; …": given(
        lambda desk: (
            [
                desk.patch.delitem(sys.modules, f"tvm_ethosu.backend.machine.{name}")
                for name in ("run", "unicorn_machine")
            ]
            and desk.hide("unicorn")
        ),
        *("machine", "run", "firmware.elf"),
    ),
    "…: not a readable ELF file (…)": machine(b"text"),
    "…: not for a 32-bit Arm (…); build it with arm-none-eabi-gcc": machine(
        elf((_ENDLESS,), machine=_X86)
    ),
    "…: the ELF file holds nothing to load; is it an object file?": machine(elf()),
    "…: bytes … to … are in no memory of Corstone-300; …": machine(elf((_ENDLESS,), 0x40000000)),
    "…: no vector table at address 0 (…); …": machine(elf((_ENDLESS,), 0x20000000)),
    "…: does not say for which NPU it is; …": machine(elf((_ENDLESS,)), npu=False),
    "--machine: got …, there are …": python(lambda: run_elf(Path("any.elf"), "toaster")),
    "--accelerator: got …, there are …": machine(
        elf((_ENDLESS,)), "--accelerator", "ethos-u85-256", npu=False
    ),
    "… was not found (PATH, …); install it as docs/fvp.md says…": given(_without_fvp, *_TO_FVP),
    "…: does not start (…)": given(lambda desk: _fvp(desk, "no program"), *_TO_FVP),
    "console: output … of case … is incomplete (got … bytes, says …)": given(
        lambda desk: _fvp(desk, _INCOMPLETE), *_TO_FVP, "--json"
    ),
    "… was still running at the time limit": machine(elf((_ENDLESS,)), "--timeout", "0.2", code=4),
    "… met a fault in its fault handler (…)": machine(elf((_UNDEFINED,)), code=4),
    "… sleeps, and nothing would wake it (…)": machine(elf((_WAIT_FOR_INTERRUPT,)), code=4),
    "… gave the NPU a command stream that the simulator refuses (…)": _refused_stream,
    "… was ended by the machine without a word (…)": machine(
        elf(_EXIT_WITH_ANOTHER_REASON), code=4
    ),
}
