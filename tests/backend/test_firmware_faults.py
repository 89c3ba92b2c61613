"""The driver where things go wrong: its code in bounded time, then a correct inference."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from tests.backend.bare_metal import build, with_word
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.machine.image import Image, read_image
from tvm_ethosu.backend.machine.npu import NpuConfig
from tvm_ethosu.backend.machine.result import Ending
from tvm_ethosu.backend.machine.unicorn_machine import Limits, run_unicorn
from tvm_ethosu.backend.network import compile_for_firmware
from tvm_ethosu.backend.project import make_cases, write_project
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite

PROGRAM = Path(__file__).with_name("faults.c")
COPY_BYTES = 65536 * 4
BAD_WORD, OTHER_MACS, UNMAPPED, MISALIGNED, EMPTY, NO_SUCH_REGION, HANG = range(1, 8)


class Security(Enum):
    """The addresses that the CPU uses, and the level at which the NPU accesses memory."""

    SECURE = "ALIAS=0x10000000", "TVM_ETHOSU_PRIVILEGED"
    NON_SECURE = "ALIAS=0", "TVM_ETHOSU_PRIVILEGED|TVM_ETHOSU_NON_SECURE"


@dataclass(frozen=True)
class Build:
    """How the board is configured, and whether the driver knows the memories."""

    completion: str
    security: Security
    checks_addresses: bool = True

    @property
    def settings(self) -> tuple[str, ...]:
        alias, access = self.security.value
        flags = "-O2 -Wl,--wrap=tvm_ethosu_invoke -DBOARD_NPU_MAX_WAITS=2000u"
        flags += f" -DBOARD_NPU_ACCESS='({access})'"
        if not self.checks_addresses:
            flags += " -DBOARD_NPU_ANY_ADDRESS"
        folder = f"BUILD={self.completion}-{self.security.name}-{self.checks_addresses}"
        return f"COMPLETION={self.completion}", alias, f"CFLAGS={flags}", folder


CHECKED = tuple(Build(how, of) for how in ("polling", "interrupt") for of in Security)
UNCHECKED = tuple(
    Build(how, of, checks_addresses=False)
    for how, of in (("polling", Security.NON_SECURE), ("interrupt", Security.SECURE))
)


@pytest.fixture(scope="module")
def images(arm_gcc: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Build, Image]:
    folder = tmp_path_factory.mktemp("faults")
    net = NetBuilder("int8", seed=5)
    x = net.conv2d(net.input((1, 8, 8, 3)), filters=8, activation="RELU")
    net.output(net.dense(x, units=5))
    (folder / "small.tflite").write_bytes(net.build())
    file = load_tflite(folder / "small.tflite")
    options = EthosUOptions("ethos-u55-128")
    network = compile_for_firmware(file, options)
    write_project(file, network, make_cases(file, options), folder)
    shutil.copy(PROGRAM, folder / "app" / "main.c")
    # The program's own buffer lies in the arena's section.
    settings = f"NETWORK_SRAM_BYTES := {network.sram.total_bytes + COPY_BYTES}\n"
    (folder / "network.mk").write_text(settings)
    return {b: read_image(build(folder, *b.settings)) for b in (*CHECKED, *UNCHECKED)}


FAULTS = {
    BAD_WORD: -5,
    OTHER_MACS: -2,
    UNMAPPED: -10,
    MISALIGNED: -1,
    EMPTY: -9,
    NO_SUCH_REGION: -9,
    HANG: -4,
}


@pytest.mark.parametrize(
    ("how", "fault", "code"),
    [
        *((how, fault, code) for how in CHECKED for fault, code in FAULTS.items()),
        *((how, UNMAPPED, -3) for how in UNCHECKED),
    ],
    ids=lambda value: "-".join(value.settings[-1:]) if isinstance(value, Build) else str(value),
)
def test_a_fault_has_its_code_and_the_next_inference_is_right(
    images: dict[Build, Image], how: Build, fault: int, code: int
) -> None:
    image = with_word(images[how], "fault_kind", fault)
    hangs_at = frozenset({0} if fault == HANG else ())
    npu = NpuConfig(Accelerator.U55_128, hangs_at)
    result = run_unicorn(image, npu, Limits(seconds=30))
    assert (result.ending, result.status) == (Ending.EXIT, 0), result.console
    before, start, with_fault, after = result.console.splitlines()[:4]
    assert before == "before the start: run -01, driver -06, outputs wrong +01"
    assert start == "start +00"
    assert with_fault == f"with the fault: run -01, driver {code:+03d}, outputs wrong +01"
    assert after == f"after it: run +00, driver {code:+03d}, outputs wrong +00"


@pytest.mark.parametrize("how", CHECKED, ids=lambda how: how.settings[-1])
def test_an_npu_that_stays_in_reset_is_reset_again_by_the_next_inference(
    images: dict[Build, Image], how: Build
) -> None:
    # The first reset is that of the start, the second one that after the fault.
    npu = NpuConfig(Accelerator.U55_128, hangs_at=frozenset({0}), stuck_at=frozenset({1}))
    result = run_unicorn(with_word(images[how], "fault_kind", HANG), npu, Limits(seconds=30))
    with_fault, after = result.console.splitlines()[2:4]
    assert with_fault == "with the fault: run -01, driver -04, outputs wrong +01"
    assert after == "after it: run +00, driver -04, outputs wrong +00"


@pytest.mark.parametrize("how", CHECKED, ids=lambda how: how.settings[-1])
def test_without_a_fault_there_is_none(images: dict[Build, Image], how: Build) -> None:
    result = run_unicorn(images[how], NpuConfig(Accelerator.U55_128))
    lines = result.console.splitlines()
    assert lines[2] == "with the fault: run +00, driver +00, outputs wrong +00"
