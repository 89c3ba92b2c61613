"""The commands simulate and disassemble, on a network that Vela compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ethosu.vela.api import NpuAccelerator, npu_create_driver_payload

from tests.backend.sim.assembler import assemble
from tests.backend.sim.test_memory import absolute
from tests.backend.sim.test_networks import build_small
from tvm_ethosu.backend.cli_simulate import disassemble, read_listings, simulate
from tvm_ethosu.backend.sim import Accelerator, decode
from tvm_ethosu.backend.sim.disassemble import disassemble as lines_of
from tvm_ethosu.backend.vela_files import Core, VelaOptions, compile_with_vela
from tvm_ethosu.scheduler.errors import UserError


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "small.tflite"
    path.write_bytes(build_small("int8"))
    return path


@pytest.fixture(scope="module")
def compiled(original: Path) -> Path:
    return compile_with_vela(original, original.parent, VelaOptions(Accelerator.U55_128))


def test_simulate_and_check(original: Path, compiled: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = [str(compiled), "--check", str(original), "--seed", "7", "--trace"]
    result = CliRunner().invoke(simulate, [*arguments, "--json", str(report)])
    assert result.exit_code == 0, result.output
    assert "0 elements differ" in result.output
    assert "CONV, ifm 12x12x5 s8" in result.output
    data = json.loads(report.read_text())
    assert data["differing"] == 0
    assert len(data["outputs"][0][0]) == 4
    kinds = [operation["kind"] for operation in data["calls"][0]["operations"]]
    assert kinds[-1] == "STOP"
    assert f"{len(kinds)} operations" in result.output


def test_check_finds_another_network(compiled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(build_small("int8", seed=4))
    result = CliRunner().invoke(simulate, [str(compiled), "--check", str(other)])
    assert result.exit_code == 1
    assert "elements differ" in result.output


def test_given_inputs(original: Path, compiled: Path, tmp_path: Path) -> None:
    values = tmp_path / "x.npy"
    np.save(values, np.full((1, 12, 12, 5), 3, np.int8))
    arguments = [str(compiled), "--input", str(values), "--check", str(original)]
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(simulate, [*arguments, "--input", str(values)])
    assert isinstance(result.exception, UserError)
    assert "wrong number of inputs (got 2, limit 1)" in str(result.exception)


@pytest.mark.parametrize("core", Core)
def test_raw_output(original: Path, tmp_path: Path, core: Core) -> None:
    options = VelaOptions(Accelerator.U55_128, core)
    raw = compile_with_vela(original, tmp_path, options, raw=True)
    result = CliRunner().invoke(simulate, [str(raw), "--check", str(original)])
    assert result.exit_code == 0, result.output
    assert "0 elements differ" in result.output
    listing = CliRunner().invoke(disassemble, [str(raw)])
    assert "# raw output, ethos-u55-128" in listing.output


def test_disassembly_can_be_diffed(compiled: Path) -> None:
    plain = CliRunner().invoke(disassemble, [str(compiled)])
    assert plain.exit_code == 0, plain.output
    lines = plain.output.splitlines()
    assert lines[0] == "# NPU call 0, ethos-u55-128"
    assert lines[-1] == "STOP mask=65535"
    with_offsets = CliRunner().invoke(disassemble, [str(compiled), "--offsets"])
    assert [line[8:] for line in with_offsets.output.splitlines()[1:]] == lines[1:]
    words = list(read_listings(compiled)[0].words)
    at = next(op.offset for op in decode(words, Accelerator.U55_128).operations)
    longer = [*words[:at], 0x0000012F, *words[at:]]
    changed = list(lines_of(longer, Accelerator.U55_128))
    assert sorted(set(changed) - set(lines)) in ([], ["    BLOCKDEP 0"])
    assert len(changed) == len(lines)


def test_lines_of_one_operation() -> None:
    text = "\n".join(lines_of(assemble(absolute(OFM_SCALE=5 | 3 << 32)), Accelerator.U55_128))
    assert "    OFM_SCALE 5 >> 3" in text
    assert "    IFM_PRECISION signed=1 bits=0 layout=0 rounding=0 scale_mode=0" in text
    assert "ELEMENTWISE_ABS, ifm 2x2x4 s8 NHWC r1+0x0, ofm 2x2x4 s8 NHWC r1+0x20" in text


def test_driver_payload(tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    words = assemble(absolute())
    file.write_bytes(npu_create_driver_payload(words, NpuAccelerator.Ethos_U65_512))
    listing = read_listings(file)[0]
    assert listing.words == tuple(words)
    assert listing.accelerator is Accelerator.U65_512


def test_a_bad_stream_is_the_users_error(tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    file.write_bytes(npu_create_driver_payload([0xFF], NpuAccelerator.Ethos_U55_128))
    result = CliRunner().invoke(disassemble, [str(file)])
    assert isinstance(result.exception, UserError)
    assert "simulator: word 0: unknown CMD0 code 0x0ff" in str(result.exception)
    file.write_bytes(b"something else")
    result = CliRunner().invoke(disassemble, [str(file)])
    assert "neither TFLite" in str(result.exception)
