"""Firmware from a network to its last line: built by Arm's gcc, run on the machine, compared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pytest
from elftools.elf.elffile import ELFFile

from tests.backend.bare_metal import CallRecorder, build
from tests.conftest import MLPERF_TINY, REPOSITORY, shared_folder
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.check import Checker, Inference, load_for_host
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.demo_network import cache_folder
from tvm_ethosu.backend.machine.fvp import find_fvp
from tvm_ethosu.backend.machine.image import Image, accelerator_number, read_image
from tvm_ethosu.backend.machine.npu import NpuConfig
from tvm_ethosu.backend.machine.result import MachineResult
from tvm_ethosu.backend.machine.run import run_elf
from tvm_ethosu.backend.machine.unicorn_machine import run_unicorn
from tvm_ethosu.backend.mlf import write_mlf
from tvm_ethosu.backend.network import FirmwareNetwork, compile_for_firmware
from tvm_ethosu.backend.outputs import INCLUDE_DIR
from tvm_ethosu.backend.project import Case, make_cases, write_project
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite

SEED = 20240229
DEMO_NETWORKS = ("keyword_spotting", "image_classification")
SHARED_NETWORKS = ("mlperf_tiny/kws_ref_model", "mlperf_tiny/pretrainedResnet_quant")
QUICK = DEMO_NETWORKS if shared_folder() is None else SHARED_NETWORKS
# A network's SRAM in bytes: what it takes without a limit, and a limit that makes it smaller.
TIGHT = {
    "mlperf_tiny/ad01_int8": 1700,
    "mlperf_tiny/kws_ref_model": 12 << 10,
    "mlperf_tiny/pretrainedResnet_quant": 40 << 10,
    "mlperf_tiny/str_ww_ref_model": 12 << 10,
    "mlperf_tiny/vww_96_int8": 64 << 10,
    "tflm/person_detect": 40 << 10,
}


@dataclass(frozen=True, eq=False)
class Firmware:
    """A network with its project and the ELF file that was built there."""

    file: TfliteFile
    network: FirmwareNetwork
    cases: tuple[Case, ...]
    directory: Path
    image: Image


def _firmware(
    path: Path, options: EthosUOptions, directory: Path, *settings: str, count: int = 2
) -> Firmware:
    file = load_tflite(path)
    network = compile_for_firmware(file, options)
    cases = make_cases(file, options, count=count, seed=SEED)
    write_project(file, network, cases, directory)
    return Firmware(file, network, cases, directory, read_image(build(directory, *settings)))


def _check_sections(firmware: Firmware) -> None:
    """The ELF's own sizes: the arena as predicted, no weight in SRAM that is not meant to be."""
    sections = firmware.image.sections
    assert sections[".arena"].size_bytes == firmware.network.sram.total_bytes
    constants = sum(len(f.program.constants) for f in firmware.network.functions)
    streams = sum(f.program.command_stream_bytes for f in firmware.network.functions)
    in_sram = firmware.network.options.memory_mode == "Sram_Only"
    assert (
        (sections[".npu_sram"].size_bytes >= constants)
        if in_sram
        else (".npu_sram" not in sections or sections[".npu_sram"].size_bytes == 0)
    )
    assert sections[".npu_flash"].size_bytes >= streams + (0 if in_sram else constants)
    symbols = firmware.image.symbols
    place = sections[".npu_sram" if in_sram else ".npu_flash"]
    weights = [symbol for name, symbol in symbols.items() if name.endswith("_constants")]
    assert sum(symbol.size_bytes for symbol in weights) == constants
    end = place.address + place.size_bytes
    assert all(place.address <= w.address <= end - w.size_bytes for w in weights)
    assert not {"malloc", "_malloc_r", "_sbrk", "free"} & set(symbols)


def _check_outputs(firmware: Firmware, result: MachineResult) -> None:
    """What the console shows is, as a whole, what was expected."""
    assert (result.status, result.detail) == (0, ""), result.console
    shown = iter(result.outputs)
    for number, case in enumerate(firmware.cases):
        for index, expected in enumerate(case.expected):
            output = next(shown)
            assert (output.case, output.index, output.differing_bytes) == (number, index, 0)
            np.testing.assert_array_equal(output.data.reshape(expected.shape), expected)
    assert next(shown, None) is None
    assert set(result.cycles) == set(range(len(firmware.cases)))


def _check_npu_boundaries(firmware: Firmware, recorder: CallRecorder) -> None:
    """Every tensor that an NPU function wrote is TFLite Micro's."""
    roomy = replace(firmware.network.options, sram_size=None)
    checker = Checker(load_for_host(firmware.file, roomy))
    functions = len(firmware.network.functions)
    assert len(recorder.calls) == functions * len(firmware.cases)
    for number, case in enumerate(firmware.cases):
        calls = recorder.calls[number * functions : (number + 1) * functions]
        checker.add(case.inputs, Inference(case.expected, tuple(calls)))
    on_npu = [comparison for comparison in checker.comparisons() if comparison.on_npu]
    assert on_npu
    assert [comparison for comparison in on_npu if not comparison.is_equal] == []


def _check(firmware: Firmware) -> MachineResult:
    _check_sections(firmware)
    accelerator = firmware.image.accelerator
    assert accelerator is not None
    recorder = CallRecorder([f.program for f in firmware.network.functions])
    result = run_unicorn(firmware.image, NpuConfig(accelerator), observer=recorder)
    _check_outputs(firmware, result)
    _check_npu_boundaries(firmware, recorder)
    return result


def _mlf_sizes(file: IO[bytes] | None) -> list[dict[str, int]]:
    """Return what an archive's metadata say of the memory of the network."""
    assert file is not None
    functions = json.load(file)["modules"]["default"]["memory"]["functions"]
    sizes: list[dict[str, int]] = functions["main"]
    return sizes


def _network(name: str, request: pytest.FixtureRequest) -> Path:
    """Return the file of a network of the shared folder or of the demo; skip where it is absent."""
    if name in DEMO_NETWORKS:
        path = cache_folder() / f"{name}.tflite"
        if not path.exists():
            pytest.skip(f"{name} was not fetched: make demo")
        return path
    folder: Path = request.getfixturevalue("shared")
    return folder / "models" / f"{name}.tflite"


def _mixed_network() -> bytes:
    """Return a network whose operators alternate between NPU and CPU, with two outputs."""
    net = NetBuilder("int8", seed=11)
    x = net.conv2d(net.input((1, 16, 16, 3)), filters=8, stride=(2, 2), activation="RELU")
    y = net.log_softmax(net.reshape(x, (64, 8)))
    z = net.conv2d(net.reshape(y, (1, 8, 8, 8)), filters=4)
    net.output(net.dense(net.max_pool(z), units=5), y)
    return net.build()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed network.tflite"
    path.write_bytes(_mixed_network())
    return path


# --- whole networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK)
def test_a_trained_network_runs_as_firmware(
    tmp_path: Path, arm_gcc: str, request: pytest.FixtureRequest, name: str
) -> None:
    options = EthosUOptions("ethos-u55-128", TIGHT.get(name))
    _check(_firmware(_network(name, request), options, tmp_path / "project"))


def test_an_output_in_the_memory_of_an_input(tmp_path: Path, arm_gcc: str) -> None:
    """One buffer in the ELF, which the NPU reads and writes; the arena is smaller by the other."""
    net = NetBuilder("int8", seed=5)
    x = net.input((1, 8, 8, 16))
    net.output(net.conv2d(net.max_pool(net.conv2d(x, filters=8)), filters=24))
    model = tmp_path / "shared.tflite"
    model.write_bytes(net.build())
    options = EthosUOptions("ethos-u55-128", optimise="size", share_io=True)
    firmware = _firmware(model, options, tmp_path / "project")
    assert firmware.network.sram.io_bytes == 8 * 8 * 16
    assert len(firmware.network.shared) == 1
    _check(firmware)
    with tarfile.open(write_mlf(firmware.network.factory, tmp_path / "net.tar")) as archive:
        (sizes,) = _mlf_sizes(archive.extractfile("./metadata.json"))
    assert sizes["io_size_bytes"] == firmware.network.sram.io_bytes


@pytest.mark.slow
@pytest.mark.parametrize("is_tight", [False, True], ids=["roomy", "tight"])
@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_every_network_on_two_npus_at_two_sram_sizes(
    tmp_path: Path,
    arm_gcc: str,
    request: pytest.FixtureRequest,
    name: str,
    accelerator: str,
    is_tight: bool,
) -> None:
    options = EthosUOptions(accelerator, TIGHT[name] if is_tight else None)
    firmware = _firmware(_network(name, request), options, tmp_path / "project")
    assert not is_tight or firmware.network.sram.total_bytes <= TIGHT[name]
    result = _check(firmware)
    # A row of a table: pytest -q -rP -m slow shows them all.
    sections = firmware.image.sections
    sizes = (f"{sections[part].size_bytes:,}" for part in (".arena", ".npu_flash", ".text"))
    limit = f"{TIGHT[name]:,}" if is_tight else "none"
    cycles = f"{result.cycles[0]:,}"
    print("|", " | ".join((name, accelerator, limit, *sizes, cycles)), "|")


@pytest.mark.parametrize("memory_mode", ["Shared_Sram", "Sram_Only"])
def test_cpu_operators_and_several_functions(
    mixed: Path, tmp_path: Path, arm_gcc: str, memory_mode: str
) -> None:
    options = EthosUOptions("ethos-u55-64", memory_mode=memory_mode)
    firmware = _firmware(mixed, options, tmp_path / "project", count=3)
    assert len(firmware.network.functions) > 1
    _check(firmware)


@pytest.mark.parametrize("accelerator", [accelerator.value for accelerator in Accelerator])
def test_the_elf_says_for_which_npu_it_is(
    mixed: Path, tmp_path: Path, arm_gcc: str, accelerator: str
) -> None:
    firmware = _firmware(mixed, EthosUOptions(accelerator), tmp_path / "project", count=1)
    assert firmware.image.accelerator is Accelerator(accelerator)
    _check_outputs(firmware, run_elf(firmware.image.path))


# --- variants of the board ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        ("COMPLETION=interrupt",),
        ("CONSOLE=uart", "COMPLETION=interrupt"),
        ("ALIAS=0x10000000", "CONSOLE=uart", "CFLAGS=-Og"),
        ("CFLAGS=-Os -DBOARD_NPU_ACCESS=TVM_ETHOSU_NON_SECURE",),
        ("CFLAGS=-O3 -DBOARD_NPU_ACCESS='(TVM_ETHOSU_PRIVILEGED|TVM_ETHOSU_NON_SECURE)'",),
    ],
    ids=" ".join,
)
def test_console_completion_and_security_can_be_chosen(
    mixed: Path, tmp_path: Path, arm_gcc: str, settings: tuple[str, ...]
) -> None:
    options = EthosUOptions("ethos-u55-128")
    firmware = _firmware(mixed, options, tmp_path / "project", *settings, count=1)
    _check_outputs(firmware, run_elf(firmware.image.path))


@pytest.mark.fvp
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256"])
def test_the_fvp_gives_what_our_machine_gives(
    mixed: Path, tmp_path: Path, arm_gcc: str, accelerator: str
) -> None:
    if find_fvp(Accelerator(accelerator)) is None:
        pytest.skip("the FVP is not installed (PATH, FVP_CORSTONE_300_PATH): docs/fvp.md")
    firmware = _firmware(mixed, EthosUOptions(accelerator), tmp_path / "project")
    _check_outputs(firmware, run_elf(firmware.image.path, "fvp"))


STRICT = (
    "-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wundef "
    "-Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wswitch-default -fanalyzer "
    "-Werror"
)


@pytest.mark.parametrize("console", ["SEMIHOSTING", "UART"])
def test_the_firmware_is_c99_without_a_warning(tmp_path: Path, arm_gcc: str, console: str) -> None:
    base = INCLUDE_DIR.parent
    folders = [base / name for name in ("include", "src", "corstone300")]
    sources = sorted(path for folder in folders for path in folder.glob("*.c"))
    flags = ["-mcpu=cortex-m33", "-mthumb", "-O2", f"-DBOARD_CONSOLE_{console}", *STRICT.split()]
    includes = [f"-I{folder}" for folder in folders]
    command = [arm_gcc, *flags, *includes, "-c", *map(str, sources)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.stem for path in tmp_path.iterdir()} == {path.stem for path in sources}


@pytest.mark.slow
def test_departures_from_misra_are_those_of_the_page(tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed (Debian: cppcheck)")
    base = INCLUDE_DIR.parent
    found: set[str] = set()
    for console in ("SEMIHOSTING", "UART"):
        command = [
            *("cppcheck", "--addon=misra", "--std=c99", "--enable=style", "-q", "-D__ARM_ARCH=8"),
            *(f"-DBOARD_CONSOLE_{console}", "-DBOARD_ALIAS=0u"),
            "-DBOARD_NPU_COMPLETION=TVM_ETHOSU_POLLING",
            *(f"-I{base / name}" for name in ("include", "src", "corstone300")),
            *(str(base / name) for name in ("src", "corstone300")),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        found |= set(re.findall(r"\[misra-c2012-([\d.]+)\]", done.stderr))
    page = (REPOSITORY / "docs" / "firmware.md").read_text()
    section = page.split("### MISRA")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d.*?) \|", section, re.MULTILINE)
    assert found == {rule for row in rows for rule in re.findall(r"\d+\.\d+", row)}


def test_a_cortex_m55_can_be_built_for(mixed: Path, tmp_path: Path, arm_gcc: str) -> None:
    """Not run: our machine lacks its vector and loop instructions."""
    options = EthosUOptions("ethos-u55-128")
    firmware = _firmware(mixed, options, tmp_path / "project", "CPU=cortex-m55", count=1)
    _check_sections(firmware)
    with firmware.image.path.open("rb") as file:
        attributes = ELFFile(file).get_section_by_name(".ARM.attributes").data()
    assert b"8.1-M.MAIN" in attributes or b"cortex-m55" in attributes.lower()


# --- Model Library Format -------------------------------------------------------------------------


def test_the_code_of_an_mlf_archive_runs_and_is_as_large_as_it_says(
    mixed: Path, tmp_path: Path, arm_gcc: str
) -> None:
    """Board and cases are the project's; network, headers and driver are the archive's."""
    archive, tree = tmp_path / "net.tar", tmp_path / "tree"
    options = EthosUOptions("ethos-u55-128")
    arguments = ["firmware", str(mixed), "--accelerator", options.accelerator_config]
    assert main([*arguments, "-o", str(archive), "--format", "mlf"]) == 0
    with tarfile.open(archive) as file:
        file.extractall(tree, filter="data")
    project = tmp_path / "project"
    firmware = _firmware(mixed, options, project)
    for folder, parts in {
        "src": ("codegen/host/src",),
        "include": ("codegen/host/include", "runtime/include"),
        "driver": ("runtime/src",),
    }.items():
        shutil.rmtree(project / folder)
        for part in parts:
            shutil.copytree(tree / part, project / folder, dirs_exist_ok=True)
    with (tree / "metadata.json").open("rb") as file:
        (sizes,) = _mlf_sizes(file)
    arena = sizes["workspace_size_bytes"] + sizes["io_size_bytes"]
    (project / "network.mk").write_text(f"NETWORK_SRAM_BYTES := {arena}\n")
    image = read_image(build(project, "BUILD=of_archive"))
    _check_outputs(firmware, run_elf(image.path))
    assert image.sections[".arena"].size_bytes == arena == firmware.network.sram.total_bytes
    names = [name for name in image.symbols if name.endswith("_constants")]
    assert len(names) == len(firmware.network.functions) > 1
    assert sum(image.symbols[n].size_bytes for n in names) == sizes["constants_size_bytes"]


def test_an_mlf_archive_takes_no_inputs(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["firmware", str(mixed), "-o", str(tmp_path / "net.tar"), "--format", "mlf"]
    assert main([*arguments, "--count", "2"]) == 2
    assert "firmware: --count is for --format project" in capsys.readouterr().err
    assert not (tmp_path / "net.tar").exists()


# --- what is compared -----------------------------------------------------------------------------


def test_a_wrong_output_is_seen(mixed: Path, tmp_path: Path, arm_gcc: str) -> None:
    file = load_tflite(mixed)
    options = EthosUOptions("ethos-u55-128")
    (case,) = make_cases(file, options)
    first, second = case.expected
    wrong = first.copy()
    wrong.reshape(-1)[3] ^= 0x10
    wrong.reshape(-1)[4] ^= 0x01
    network = compile_for_firmware(file, options)
    write_project(file, network, [replace(case, expected=(wrong, second))], tmp_path / "project")
    elf = build(tmp_path / "project")
    result = run_elf(elf)
    assert result.status == 1
    assert [output.differing_bytes for output in result.outputs] == [2, 0]
    np.testing.assert_array_equal(result.outputs[0].data, first.reshape(-1))
    assert main(["machine", "run", str(elf)]) == 3


def test_inputs_of_the_user_go_in(mixed: Path, tmp_path: Path, arm_gcc: str) -> None:
    data = np.full((1, 16, 16, 3), 17, np.int8)
    np.save(tmp_path / "x.npy", data)
    project = tmp_path / "project"
    arguments = ["firmware", str(mixed), "-o", str(project), "--accelerator", "ethos-u55-128"]
    assert main([*arguments, "--input", str(tmp_path / "x.npy")]) == 0
    elf = build(project)
    report = tmp_path / "report.json"
    assert main(["machine", "run", str(elf), "--json", str(report)]) == 0
    values = json.loads(report.read_text())["outputs"][0]["values"]
    assert values == _reference(mixed, [data])[0].reshape(-1).tolist()


def _reference(model: Path, inputs: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
    options = EthosUOptions("ethos-u55-128")
    (case,) = make_cases(load_tflite(model), options, [inputs])
    return case.expected


# --- the wrong NPU --------------------------------------------------------------------------------


def test_firmware_for_another_npu_says_so_and_ends(
    mixed: Path, tmp_path: Path, arm_gcc: str
) -> None:
    firmware = _firmware(mixed, EthosUOptions("ethos-u55-128"), tmp_path / "project", count=1)
    result = run_elf(firmware.image.path, accelerator="ethos-u55-256")
    assert result.status == 2
    assert "case 0 failed with -1, NPU driver -2," in result.console
    assert accelerator_number(Accelerator.U55_256) == 0x100
