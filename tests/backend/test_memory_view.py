from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.partition.networks import two_functions
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.network import FirmwareNetwork, compile_for_firmware
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite

PLANE = 8 * 8


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(two_functions().data)
    return path


def _compiled(model: Path, options: EthosUOptions) -> FirmwareNetwork:
    return compile_for_firmware(load_tflite(model), options)


def _report(arguments: list[str], tmp_path: Path) -> dict[str, object]:
    path = tmp_path / "memory.json"
    assert main(["memory", *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())


def test_npu_calls_show_their_scratch_and_what_they_leave(model: Path, tmp_path: Path) -> None:
    report = _report([str(model), "--npu", "ethos-u55-128", "--sram-size", "64K"], tmp_path)
    npu = [call for call in report["calls"] if call["is_npu"]]
    options = EthosUOptions("ethos-u55-128", 1 << 16)
    (scratch, _) = (f.program.scratch_bytes for f in _compiled(model, options).functions)
    roles = [(t["role"], t["bytes"]) for t in npu[0]["live"]]
    assert sorted(roles) == [
        ("inner", PLANE * 32),
        ("input", PLANE * 16),
        ("scratch", scratch),
    ]
    # The feature map between the two convolutions lies there, and weights where that is faster.
    assert scratch >= PLANE * 16
    assert npu[0]["used_memory_bytes"] == PLANE * (16 + 32) + scratch
    assert npu[0]["left_bytes"] == 65536 - npu[0]["used_memory_bytes"] - PLANE * 8
    assert report["peak_bytes"] == max(call["during_bytes"] for call in report["calls"])


def test_a_cpu_network_needs_no_npu(model: Path, tmp_path: Path) -> None:
    report = _report([str(model)], tmp_path)
    assert report["accelerator"] is None
    assert not any(call["is_npu"] for call in report["calls"])


def test_a_float_network_can_be_looked_at(tmp_path: Path) -> None:
    net = NetBuilder("float32")
    net.output(net.conv2d(net.input((1, 8, 8, 3)), filters=4))
    path = tmp_path / "float.tflite"
    path.write_bytes(net.build())
    report = _report([str(path)], tmp_path)
    assert report["peak_bytes"] >= 4 * PLANE * (3 + 4)
    assert main(["memory", str(path), "--npu", "ethos-u55-128"]) == 2


def test_the_picture_stacks_the_live_tensors_of_each_call(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    arguments = [str(model), "--npu", "ethos-u55-128", "--plot", str(path)]
    report = _report(arguments, tmp_path)
    titles = [element.text for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}title")]
    live = sum(len(call["live"]) for call in report["calls"])
    assert sum("bytes, from" in (title or "") for title in titles) == live
    assert sum("runs on the NPU" in (title or "") for title in titles) == 2
    assert f"peak {report['peak_bytes']} bytes" in path.read_text()


def test_the_page_holds_all_it_shows(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.html"
    assert main(["memory", str(model), "--plot", str(path), "--sram-size", "1M"]) == 0
    text = path.read_text()
    assert "<svg" in text
    assert not re.search(r"(src|href)=", text)


def test_an_unknown_kind_of_picture_is_refused(model: Path, tmp_path: Path) -> None:
    assert main(["memory", str(model), "--plot", str(tmp_path / "memory.gif")]) == 2
    assert not (tmp_path / "memory.gif").exists()
