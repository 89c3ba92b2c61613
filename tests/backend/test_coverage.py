"""The page of what is on the NPU: multiply-accumulates counted by hand, refusals, suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.backend import coverage
from tvm_ethosu.backend.coverage import coverage_of, main


def _write(folder: Path, name: str, net: NetBuilder, *outputs: Value) -> Path:
    net.output(*outputs)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.tflite"
    path.write_bytes(net.build())
    return path


def _parted(folder: Path) -> Path:
    """Write a convolution, an operator of the CPU, and a dense layer."""
    net = NetBuilder(seed=1)
    x = net.conv2d(net.input((1, 4, 5, 3)), filters=7, kernel=(3, 2))
    y = net.quantize(net.log_softmax(x), 0.05, 0)
    return _write(folder, "parted", net, net.dense(net.reshape(y, (1, 140)), units=10))


def test_macs_and_functions(tmp_path: Path) -> None:
    found = coverage_of(_parted(tmp_path))
    assert found.macs == found.npu_macs == 4 * 5 * 7 * (3 * 2 * 3) + 140 * 10
    assert found.functions == 2
    assert [row.name for row in found.on_cpu] == ["LOG_SOFTMAX"]


def test_macs_left_to_the_cpu(tmp_path: Path) -> None:
    net = NetBuilder(seed=1)
    x = net.depthwise(net.input((1, 20, 20, 8)), kernel=(65, 65))
    found = coverage_of(_write(tmp_path, "kernel", net, net.max_pool(x)))
    assert (found.macs, found.npu_macs) == (20 * 20 * 8 * 65 * 65, 0)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "list_networks", tuple)
    net = NetBuilder(seed=1)
    _write(tmp_path / "suite", "whole", net, net.max_pool(net.input((1, 4, 4, 8))))
    _parted(tmp_path / "suite")
    (tmp_path / "suite" / "broken.tflite").write_bytes(b"no network")
    page = tmp_path / "page.md"
    parted = str(_parted(tmp_path))
    assert main([parted, "--suite", str(tmp_path / "suite"), "-o", str(page)]) == 0
    text = page.read_text()
    assert "| parted | 5 | 3920 | 100 % | 2 | LOG_SOFTMAX: " in text
    assert "1 of 3 networks are on the NPU as a whole" in text
    assert "| broken | not imported: " in text
    assert "| whole |" not in text


def test_a_folder_without_networks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage, "list_networks", tuple)
    assert main([str(tmp_path)]) == 2
    assert "holds no .tflite files" in capsys.readouterr().err
