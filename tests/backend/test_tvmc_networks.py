"""TVM's own ``tvmc`` over all networks that TVM imports: each format, each result as of ours."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tvm.driver.tvmc import main as tvmc_main

from tests.backend.test_tvmc import MLF
from tests.conftest import MLPERF_TINY
from tvm_ethosu.backend.check import random_inputs
from tvm_ethosu.backend.cli import main
from tvm_ethosu.partition.tflite_file import load_tflite

NETWORKS = (
    *MLPERF_TINY,
    "tflm/hello_world_int8",
    "tflm/micro_speech_quantized",
    "tflm/mobilenet_v2_quantized_1x3x224x224",
    "generated/convnet_int16x8",
    "generated/convstack_320x240_int8",
    "generated/mobilenet_v1_1.0_224_int8",
    "generated/mobilenet_v2_1.0_224_int8",
    "generated/unet_128_int8",
    "generated/yolo_tiny_like_256_rnn_int8",
)
LARGE_BYTES = 1 << 20
HOST = "--target=ethos-u -accelerator_config=ethos-u55-128, llvm"

pytestmark = [
    pytest.mark.slow,
    # TVM leaves files open.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


def tvmc(*words: str | Path) -> None:
    # Its run ends without a code where all went well.
    assert not tvmc_main._main([str(word) for word in words])


@pytest.mark.parametrize("name", NETWORKS)
def test_all_formats_and_the_same_numbers(
    name: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shared / "models" / f"{name}.tflite"
    file = load_tflite(model)
    values = random_inputs(file, np.random.default_rng(5))
    names = [file.tensors[index].name for index in file.inputs]
    np.savez(tmp_path / "x.npz", **dict(zip(names, values, strict=True)))
    arguments: list[str] = []
    for index, value in enumerate(values):
        np.save(tmp_path / f"{index}.npy", value)
        arguments += ["--input", str(tmp_path / f"{index}.npy")]
    ours = ["run", str(model), "--accelerator", "ethos-u55-128", *arguments]
    assert main([*ours, "--output", str(tmp_path / "ours.npz")]) == 0
    with np.load(tmp_path / "ours.npz") as archive:
        expected = [archive[f"output{index}"][0] for index in range(len(archive.files))]
    for kind in ("so", "tar"):
        package, outputs = tmp_path / f"m.{kind}", tmp_path / f"{kind}.npz"
        tvmc("compile", HOST, "-f", kind, "-o", package, model)
        if kind == "tar" and model.stat().st_size > LARGE_BYTES:
            continue  # the same objects, linked later
        tvmc("run", "--inputs", tmp_path / "x.npz", "--outputs", outputs, package)
        with np.load(outputs) as archive:
            for index, array in enumerate(expected):
                np.testing.assert_array_equal(archive[f"output_{index}"], array)
    _check_archive(model, tmp_path, capsys)


def _check_archive(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C for firmware is made, or TVM refuses an operator on the CPU, which is told by name.

    For ``c`` TVM takes other ways than for our own target, and lacks more functions there.
    """
    capsys.readouterr()
    words = ["compile", *MLF, "-o", str(tmp_path / "mlf.tar"), str(model)]
    if tvmc_main._main(words):
        refusal = capsys.readouterr().err.removeprefix("Error: ")
        assert refusal.startswith("TVM can't compile what stays on the CPU (")
        assert "; there are: " in refusal
        assert refusal.count("\n") == 1
        return
    with tarfile.open(tmp_path / "mlf.tar") as archive:
        described = archive.extractfile("./metadata.json")
        assert described is not None
        (memory,) = json.load(described)["modules"]["default"]["memory"]["functions"]["main"]
        assert memory["constants_size_bytes"] > 0
