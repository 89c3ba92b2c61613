"""Cascades give the same bytes as whole tensors, at every budget, on every accelerator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiling import emit, plan
from tests.conftest import MLPERF_TINY
from tests.scheduler.builders import random_chain
from tvm_ethosu.backend.check import Checker, load_for_host, random_inputs, run_once
from tvm_ethosu.backend.codegen import compile_function
from tvm_ethosu.backend.host import Bytes, load_program, run_on, run_program
from tvm_ethosu.backend.network import compile_for_firmware, partition_file
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ARCHS, Arch
from tvm_ethosu.scheduler.ir import Shared
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


@given(st.integers(0, 50_000), st.integers(0, 3), st.sampled_from(ARCHS))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_an_output_may_lie_in_the_memory_of_the_input(seed: int, share: int, arch: Arch) -> None:
    """With one buffer for both or with two, at any budget, the bytes are those of whole tensors."""
    graph = random_chain(2 * seed + 1)
    sharing = replace(graph, shared=Shared("x", graph.outputs[0]))
    rng = np.random.default_rng(seed)
    given_bytes, made_bytes = (graph.tensors[n].size_bytes for n in ("x", graph.outputs[0]))
    data = rng.integers(0, 256, given_bytes).astype(np.uint8)
    whole = plan(graph, arch)
    least = plan(sharing, arch, None, Objective.SIZE)
    budget = least.scratch_bytes + max(0, whole.scratch_bytes - least.scratch_bytes) * share // 4
    allocation = plan(sharing, arch, budget)
    assert allocation.scratch_bytes <= budget
    loaded = load_program(emit(allocation, arch))
    buffer = np.zeros(max(given_bytes, made_bytes), np.uint8)
    buffer[:given_bytes] = data
    scratch = np.zeros(max(allocation.scratch_bytes, 1), np.uint8)
    run_program(loaded, [buffer, buffer, scratch])
    expected = _run(whole, arch, [data])
    assert [buffer[:made_bytes].tobytes()] == expected
    assert [output.tobytes() for output in run_on(loaded, [data])] == expected


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
    "mlperf_tiny/ad01_int8": 768,
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


@pytest.mark.parametrize("lending", [{"overwrite_inputs": True}, {"share_io": True}], ids=str)
def test_memory_of_inputs_makes_no_plan_slower(shared: Path, lending: dict[str, bool]) -> None:
    """The search within what both need finds a plan of three times the cycles, and drops it."""
    file = load_tflite(shared / "models" / "mlperf_tiny" / "str_ww_ref_model.tflite")
    keeping = EthosUOptions("ethos-u55-128", 5904)
    assert _cycles(file, replace(keeping, **lending)) <= _cycles(file, keeping)


def _cycles(file: TfliteFile, options: EthosUOptions) -> float:
    functions = npu_functions(partition_file(file, options)).values()
    return sum(compile_function(one).allocation.schedule.cycles for one in functions)


def test_an_auto_encoder_takes_no_more_than_velas(shared: Path) -> None:
    """Its output is as large as its input, and lies in the input's memory, as in Vela's arena."""
    name = "mlperf_tiny/ad01_int8"
    file = load_tflite(shared / "models" / f"{name}.tflite")
    options = EthosUOptions("ethos-u55-128", optimise="size", share_io=True)
    network = compile_for_firmware(file, options)
    assert network.sram.total_bytes <= VELA_SIZE_BYTES[name]
    checker = Checker(load_for_host(file, options))
    inputs = random_inputs(file, np.random.default_rng(SEED))
    checker.add(inputs, run_once(checker.network, inputs))
    assert all(c.is_equal for c in checker.comparisons())
