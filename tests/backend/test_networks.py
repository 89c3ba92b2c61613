"""Real networks from file to bytes: equal to TFLite Micro in both host modes and as C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.backend.firmware import build_library, run_library
from tests.conftest import MLPERF_TINY
from tvm_ethosu.backend.check import (
    Checker,
    HostNetwork,
    load_for_host,
    random_inputs,
    run_once,
)
from tvm_ethosu.backend.network import compile_for_firmware, partition_file
from tvm_ethosu.backend.outputs import write_firmware
from tvm_ethosu.backend.report import operator_rows
from tvm_ethosu.partition import EthosUOptions, explain_partition
from tvm_ethosu.partition.relay.tensor_names import function_tensors
from tvm_ethosu.partition.tflite_file import load_tflite

ACCELERATORS = ("ethos-u55-128", "ethos-u55-256")
SEED = 20240229
RUNS = (10, pytest.param(100, marks=pytest.mark.slow))
SLOW = ("mlperf_tiny/vww_96_int8", "mlperf_tiny/ad01_int8")


def _check(network: HostNetwork, runs: int) -> None:
    checker = Checker(network)
    rng = np.random.default_rng(SEED)
    for _ in range(runs):
        inputs = random_inputs(network.file, rng)
        checker.add(inputs, run_once(network, inputs))
    comparisons = checker.comparisons()
    assert any(comparison.on_npu for comparison in comparisons)
    differing = [c for c in comparisons if c.on_npu and not c.is_equal]
    assert not differing, f"seed {SEED}: {differing}"


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_graph_executor_equals_tflite_micro(
    shared: Path, name: str, accelerator: str, runs: int
) -> None:
    file = load_tflite(shared / "models" / f"{name}.tflite")
    _check(load_for_host(file, EthosUOptions(accelerator)), runs)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_aot_executor_equals_tflite_micro(
    shared: Path,
    tmp_path: Path,
    name: str,
    accelerator: str,
    runs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    file = load_tflite(shared / "models" / f"{name}.tflite")
    module = partition_file(file, EthosUOptions(accelerator))
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target="llvm", executor=relay.backend.Executor("aot"))
    library = tmp_path / "network.so"
    built.export_library(str(library))
    loaded = tvm.runtime.load_module(str(library))
    executor = tvm.runtime.executor.AotModule(loaded["default"](tvm.cpu()))
    _check(HostNetwork(file, executor, function_tensors(module)), runs)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MLPERF_TINY],
)
def test_least_memory_with_the_input_overwritten_equals_tflite_micro(
    shared: Path, name: str
) -> None:
    file = load_tflite(shared / "models" / f"{name}.tflite")
    keeping = EthosUOptions("ethos-u55-128", optimise="size")
    options = replace(keeping, overwrite_inputs=True)
    _check(load_for_host(file, options), runs=3)
    sizes = [compile_for_firmware(file, o).sram.total_bytes for o in (options, keeping)]
    assert sizes[0] <= sizes[1]


@pytest.mark.parametrize("name", MLPERF_TINY)
def test_all_work_of_the_network_is_on_the_npu(shared: Path, name: str) -> None:
    file = load_tflite(shared / "models" / f"{name}.tflite")
    rows = operator_rows(file, explain_partition(partition_file(file, EthosUOptions())))
    assert {row.name for row in rows if row.npu_function is None} == set()
    assert len(rows) == len(file.operators)


@pytest.mark.parametrize("name", MLPERF_TINY)
def test_c_code_built_by_gcc_equals_the_host_module(
    shared: Path, tmp_path: Path, name: str, gcc: str
) -> None:
    file = load_tflite(shared / "models" / f"{name}.tflite")
    options = EthosUOptions("ethos-u55-128")
    write_firmware(compile_for_firmware(file, options), tmp_path / "out")
    library = build_library(tmp_path / "out", gcc)
    host = load_for_host(file, options)
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        inputs = random_inputs(file, rng)
        expected = run_once(host, inputs).outputs
        status, outputs = run_library(library, inputs, [data.nbytes for data in expected])
        assert status == 0
        for data, like in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(data.view(like.dtype).reshape(like.shape), like)
