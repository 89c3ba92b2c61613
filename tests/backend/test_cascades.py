"""Cascades give the same bytes as whole tensors, at every budget, on every accelerator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiling import emit, plan
from tests.conftest import MLPERF_TINY
from tests.scheduler.builders import random_chain
from tvm_ethosu.backend.check import Checker, load_for_host, random_inputs, run_once
from tvm_ethosu.backend.host import Bytes, load_program, run_on
from tvm_ethosu.backend.network import compile_for_firmware
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ARCHS, Arch
from tvm_ethosu.scheduler.search import Objective

SEED = 7


def _run(allocation: Allocation, arch: Arch, inputs: list[Bytes]) -> list[bytes]:
    return [o.tobytes() for o in run_on(load_program(emit(allocation, arch)), inputs)]


@given(st.integers(0, 100_000), st.integers(0, 3), st.sampled_from(ARCHS))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_any_budget_gives_the_bytes_of_whole_tensors(seed: int, share: int, arch: Arch) -> None:
    graph = random_chain(seed)
    rng = np.random.default_rng(seed)
    size_bytes = graph.tensors["x"].size_bytes
    inputs = [rng.integers(0, 256, size_bytes).astype(np.uint8)]
    whole = plan(graph, arch)
    least = plan(graph, arch, None, Objective.SIZE)
    budget = least.scratch_bytes + (whole.scratch_bytes - least.scratch_bytes) * share // 4
    assert _run(plan(graph, arch, budget), arch, inputs) == _run(whole, arch, inputs)


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_networks_optimised_for_size_equal_tflite_micro(
    shared: Path, name: str, accelerator: str
) -> None:
    file = load_tflite(shared / "models" / f"{name}.tflite")
    network = load_for_host(file, EthosUOptions(accelerator, optimise="size"))
    checker = Checker(network)
    rng = np.random.default_rng(SEED)
    for _ in range(5):
        inputs = random_inputs(file, rng)
        checker.add(inputs, run_once(network, inputs))
    assert all(c.is_equal for c in checker.comparisons() if c.on_npu)


# Whole arena, network input and output included, of Vela 5.2 in Size mode on ethos-u55-128, the
# better of its two cores (`vela --optimise Size`).
VELA_SIZE_BYTES = {
    "mlperf_tiny/kws_ref_model": 16000,
    "mlperf_tiny/pretrainedResnet_quant": 35840,
    "mlperf_tiny/str_ww_ref_model": 5904,
    "mlperf_tiny/vww_96_int8": 49152,
}


@pytest.mark.parametrize(
    "name", ["kws_ref_model", "pretrainedResnet_quant", "str_ww_ref_model", "vww_96_int8"]
)
def test_the_least_sram_is_below_velas(shared: Path, name: str) -> None:
    file = load_tflite(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    options = EthosUOptions("ethos-u55-128", optimise="size")
    assert (
        compile_for_firmware(file, options).sram.total_bytes
        < VELA_SIZE_BYTES[f"mlperf_tiny/{name}"]
    )
