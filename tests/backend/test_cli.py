"""The command line as users meet it: what they get, and what bad input gets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.partition.networks import residual, two_functions
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.cli import main

NETWORK = residual().data


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(NETWORK)
    return path


def test_compile_writes_sources_headers_and_a_report(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report_path = tmp_path / "out", tmp_path / "report.json"
    arguments = ["compile", str(model), "-o", str(out), "--accelerator", "ethos-u55-128"]
    assert main([*arguments, "--sram-size", "64K", "--json", str(report_path)]) == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert "src/tvmgen_default_ethos_u_main_0.c" in names
    assert {"include/tvmgen_default.h", "include/tvm_ethosu/driver.h"} <= names
    report = json.loads(report_path.read_text())
    assert report["accelerator"] == "ethos-u55-128"
    (function,) = report["npu_functions"]
    assert function["used_memory_bytes"] == 8 * 8 * 3 + 10 + function["scratch_bytes"]
    assert function["macs"] == 8 * 8 * 16 * 27 + 8 * 8 * 16 * 9 * 16 + 256 * 10
    assert function["budget_bytes"] == 65536 - (8 * 8 * 3 + 10)
    assert report["sram_bytes"] == report["pool_bytes"] + 192 + 16
    assert report["cpu_operators"] == []
    assert report["compile_seconds"] > 0
    assert "whole arena" in capsys.readouterr().out
    program = out / "npu" / f"{function['name']}.npu"
    assert main(["simulate", str(program), "--json", str(report_path)]) == 0
    assert json.loads(report_path.read_text())["calls"][0]["macs"] == function["macs"]


def test_compile_replaces_what_an_earlier_compile_wrote(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compile", str(model), "-o", str(out)]) == 0
    (out / "src" / "stale.c").write_text("")
    (out / "mine.txt").write_text("kept")
    assert main(["compile", str(model), "-o", str(out)]) == 0
    assert not (out / "src" / "stale.c").exists()
    assert (out / "mine.txt").read_text() == "kept"


def test_explain_lists_every_operator_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.tflite"
    path.write_bytes(two_functions().data)
    report_path = tmp_path / "explain.json"
    assert main(["explain", str(path), "--json", str(report_path)]) == 0
    operators = json.loads(report_path.read_text())["operators"]
    assert [row["operator"] for row in operators] == [
        "CONV_2D", "CONV_2D", "LOG_SOFTMAX", "CONV_2D", "CONV_2D",
    ]  # fmt: skip
    assert [row["npu_function"] is None for row in operators] == [False, False, True, False, False]
    assert "no row for nn.log_softmax" in capsys.readouterr().out


def test_run_checks_against_tflite_micro(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_path = tmp_path / "run.json"
    arguments = ["run", str(model), "--check", "--seed", "3", "--count", "4"]
    assert main([*arguments, "--json", str(report_path)]) == 0
    report = json.loads(report_path.read_text())
    assert report["equal"] is True
    (comparison,) = report["comparisons"]
    assert comparison["on_npu"]
    assert (comparison["elements"], comparison["differing"]) == (40, 0)
    assert "differing" in capsys.readouterr().out


def test_run_takes_inputs_from_files_and_writes_outputs(model: Path, tmp_path: Path) -> None:
    given, out = tmp_path / "x.npy", tmp_path / "y.npz"
    np.save(given, np.full((1, 8, 8, 3), 7, np.int8))
    assert main(["run", str(model), "--input", str(given), "--output", str(out)]) == 0
    assert np.load(out)["output0"].shape == (1, 1, 10)


@pytest.mark.parametrize(
    ("command", "option", "known"),
    [
        ("run", "--output", ".npz"),
        ("memory", "--plot", ".svg, .html"),
        ("sweep", "--plot", ".svg, .png"),
    ],
)
def test_a_file_name_of_another_format_is_refused_before_any_work(
    command: str, option: str, known: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = model.with_name("result.txt")
    assert main([command, str(model), option, str(other)]) == 2
    assert f"{option}: unknown ending (got '.txt', known: {known})" in capsys.readouterr().err
    assert not other.exists()


Bad = Callable[[Path], list[str]]


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


BAD_INPUT: dict[str, tuple[Bad, str]] = {
    "no such file": (lambda d: [str(d / "absent.tflite")], "absent.tflite"),
    "a folder": (lambda d: [str(d)], "folder|directory"),
    "empty": (lambda d: [_write(d / "e.tflite", b"")], "empty"),
    "not TFLite": (lambda d: [_write(d / "t.tflite", b"hello, world, hello")], "not a TFLite file"),
    "truncated": (lambda d: [_write(d / "c.tflite", NETWORK[: len(NETWORK) // 2])], "c.tflite"),
    "accelerator": (lambda d: [str(d / "model.tflite"), "--accelerator", "ethos-u85"], "ethos-u85"),
    "size": (lambda d: [str(d / "model.tflite"), "--sram-size", "lots"], "lots"),
    "size zero": (lambda d: [str(d / "model.tflite"), "--sram-size", "0"], "not a number of bytes"),
    "too small": (lambda d: [str(d / "model.tflite"), "--sram-size", "1K"], "needs .* bytes"),
    "memory mode": (lambda d: [str(d / "model.tflite"), "--memory-mode", "Tape"], "Tape"),
    "system": (lambda d: [str(d / "model.tflite"), "--system-config", "Cray"], "Cray"),
    "option": (lambda d: [str(d / "model.tflite"), "--wings", "2"], "--wings"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence_and_leaves_nothing_behind(
    case: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, message = BAD_INPUT[case]
    arguments = make(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    written = ["-o", str(tmp_path / "out"), "--json", str(tmp_path / "report.json")]
    assert main(["compile", *arguments, *written]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tvm-ethosu: ")
    assert "Traceback" not in captured.err
    assert re.search(message, captured.err.replace("\n", " "))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_too_little_sram_names_the_smallest_size_and_that_size_works(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "out")]
    assert main(["compile", str(model), *out, "--sram-size", "1000"]) == 2
    text = capsys.readouterr().err
    smallest = int(text.split("the smallest --sram-size that works is ")[1].split()[0].strip(","))
    assert main(["compile", str(model), *out, "--sram-size", str(smallest)]) == 0
    assert main(["compile", str(model), *out, "--sram-size", str(smallest - 1)]) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((1, 8, 8, 3), np.uint8), "needs int8"),
        (np.zeros((8, 8, 3), np.int8), r"needs int8 \(1, 8, 8, 3\)"),
    ],
)
def test_an_input_file_that_does_not_fit_is_refused(
    data: np.ndarray, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, data)
    assert main(["run", str(model), "--input", str(path)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_an_input_that_is_no_array_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"nonsense")
    assert main(["run", str(model), "--input", str(path)]) == 2
    assert "not a readable .npy file" in capsys.readouterr().err


def test_too_many_inputs_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(model), "--input", "a.npy", "--input", "b.npy"]) == 2
    assert "the network has 1 (got 2 files)" in capsys.readouterr().err


def test_an_unexpected_error_is_our_fault_and_asks_for_a_report(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("tvm_ethosu.backend.network.partition_file", broken)
    assert main(["explain", str(model)]) == 1
    err = capsys.readouterr().err
    assert "our fault (ZeroDivisionError: division by zero)" in err
    assert "Traceback" not in err


def test_a_network_of_several_inputs_runs(tmp_path: Path) -> None:
    net = NetBuilder("int8", seed=2)
    net.output(net.add(net.input((1, 4, 4, 8)), net.input((1, 4, 4, 8))))
    path = tmp_path / "add.tflite"
    path.write_bytes(net.build())
    assert main(["run", str(path), "--check", "--count", "3"]) == 0


def test_a_cpu_operator_with_other_numbers_is_no_fault_of_the_npu_after_it(tmp_path: Path) -> None:
    net = NetBuilder("int8", seed=11)
    x = net.conv2d(net.input((1, 6, 6, 8)), filters=8)
    net.output(net.conv2d(net.log_softmax(x), filters=8, stride=(1, 1)))
    path, report_path = tmp_path / "log_softmax.tflite", tmp_path / "run.json"
    path.write_bytes(net.build())
    assert main(["run", str(path), "--check", "--count", "5", "--json", str(report_path)]) == 0
    comparisons = json.loads(report_path.read_text())["comparisons"]
    assert [c["differing"] for c in comparisons if c["on_npu"]] == [0, 0]


def test_what_tvm_cannot_compile_for_the_cpu_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object, **__: object) -> None:
        raise tvm.TVMError("Traceback (most recent call last):\n  0: f\nShift amount is 33")

    path = tmp_path / "two.tflite"
    path.write_bytes(two_functions().data)
    monkeypatch.setattr(relay, "build", build)
    assert main(["compile", str(path), "-o", str(tmp_path / "out")]) == 2
    text = capsys.readouterr().err
    assert "TVM can't compile what stays on the CPU (Shift amount is 33)" in text
    assert "no row for nn.log_softmax" in text
    assert "Traceback" not in text
