"""The fixture as a user's test has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.reference import Reference


def _model(path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    net = NetBuilder("int8", seed=3)
    x = net.conv2d(net.input((1, 8, 8, 3)), filters=8, activation="RELU")
    net.output(net.dense(x, units=5))
    path.write_bytes(net.build())
    return path, net.random_inputs()[0]


def test_the_fixture_builds_runs_and_shows_outputs(
    ethosu_machine: Any, tmp_path: Path, arm_gcc: str
) -> None:
    model, x = _model(tmp_path / "model.tflite")
    result = ethosu_machine.run(model, [x], accelerator="ethos-u55-128")
    assert result.status == 0
    (expected,) = Reference(model.read_bytes()).run([x])
    np.testing.assert_array_equal(result.outputs[0].data, expected.reshape(-1))
