"""The board's Makefile and start-up, where no network is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.bare_metal import build, build_program
from tvm_ethosu.backend.machine.image import Image, read_image

SOURCE = "int main(void);\nint main(void) { return 0; }\n"
SYSTICK_EXCEPTION, NPU_EXCEPTION = 15, 16 + 56


def _word(image: Image, address: int) -> int:
    for segment in image.segments:
        offset = address - segment.address
        if 0 <= offset <= len(segment.data) - 4:
            return int.from_bytes(segment.data[offset : offset + 4], "little")
    raise AssertionError(f"no word at {address:#x}")


@pytest.mark.parametrize(
    "changed",
    ["COMPLETION=interrupt", "CONSOLE=uart", "ALIAS=0x10000000", "CFLAGS=-Os -DX='(1|2)'"],
)
def test_what_is_chosen_anew_is_built_anew(tmp_path: Path, arm_gcc: str, changed: str) -> None:
    elf = build_program(tmp_path, SOURCE)
    before, built = elf.stat().st_mtime_ns, (tmp_path / "build" / "board" / "board.o").stat()
    build(tmp_path)
    assert elf.stat().st_mtime_ns == before
    build(tmp_path, changed)
    assert elf.stat().st_mtime_ns > before
    assert (tmp_path / "build" / "board" / "board.o").stat().st_mtime_ns > built.st_mtime_ns


def test_the_handlers_of_npu_and_ticks_are_in_their_places(tmp_path: Path, arm_gcc: str) -> None:
    image = read_image(build_program(tmp_path, SOURCE, "COMPLETION=interrupt"))
    table = image.symbols["vectors"].address
    for number, name in ((SYSTICK_EXCEPTION, "tick_interrupt"), (NPU_EXCEPTION, "npu_interrupt")):
        assert _word(image, table + 4 * number) == image.symbols[name].address | 1
