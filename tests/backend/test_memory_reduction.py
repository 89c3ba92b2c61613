"""The two networks on which TVM's former Ethos-U backend showed what cascades save.

Upstream's tests (tests/python/contrib/test_ethosu/cascader/test_memory_reduction.py of TVM 0.18)
assert the workspace that each takes with striping, network input and output apart.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.check import Checker, load_for_host, random_inputs, run_once
from tvm_ethosu.backend.network import compile_for_firmware
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite

SEED = 6


def _tall() -> bytes:
    net = NetBuilder("int8", seed=SEED)
    x = net.input((1, 321, 212, 6))
    x = net.conv2d(x, filters=10, kernel=(3, 2), dilation=(2, 1), padding="VALID")
    net.output(net.conv2d(x, filters=3, kernel=(1, 1), stride=(3, 2)))
    return net.build()


def _four_operators() -> bytes:
    net = NetBuilder("int8", seed=SEED)
    x = net.input((1, 80, 75, 3))
    x = net.conv2d(x, filters=7, kernel=(3, 2), padding="VALID")
    x = net.depthwise(x, padding="VALID", activation="RELU")
    x = net.conv2d(x, filters=2, kernel=(3, 2))
    net.output(net.max_pool(x, kernel=(3, 3), stride=(1, 1)))
    return net.build()


NETWORKS = {"tall": _tall(), "four operators": _four_operators()}
# Network, accelerator -> bytes of workspace with striping, as upstream asserts them.
UPSTREAM = {
    ("tall", "ethos-u55-256"): 14_208,
    ("tall", "ethos-u55-128"): 4_080,
    ("tall", "ethos-u55-64"): 4_080,
    ("tall", "ethos-u55-32"): 4_064,
    ("four operators", "ethos-u55-256"): 15_200,
    ("four operators", "ethos-u55-128"): 15_200,
    ("four operators", "ethos-u55-64"): 14_432,
    ("four operators", "ethos-u55-32"): 14_416,
}


@pytest.mark.parametrize(("name", "accelerator"), UPSTREAM)
def test_cascades_take_no_more_than_in_the_former_backend(
    tmp_path: Path, name: str, accelerator: str
) -> None:
    (tmp_path / "net.tflite").write_bytes(NETWORKS[name])
    file = load_tflite(tmp_path / "net.tflite")
    options = EthosUOptions(accelerator, optimise="size")
    sram = compile_for_firmware(file, options).sram
    assert sram.pool_bytes <= UPSTREAM[name, accelerator]
    limit = sram.io_bytes + UPSTREAM[name, accelerator]
    fast = replace(options, sram_size=limit, optimise="performance")
    assert compile_for_firmware(file, fast).sram.total_bytes <= limit


@pytest.mark.parametrize("name", NETWORKS)
def test_the_bytes_are_tflite_micros(tmp_path: Path, name: str) -> None:
    (tmp_path / "net.tflite").write_bytes(NETWORKS[name])
    file = load_tflite(tmp_path / "net.tflite")
    checker = Checker(load_for_host(file, EthosUOptions("ethos-u55-128", optimise="size")))
    inputs = random_inputs(file, np.random.default_rng(SEED))
    checker.add(inputs, run_once(checker.network, inputs))
    assert all(comparison.is_equal for comparison in checker.comparisons())
