"""used_memory: the numbers by hand, TVM's own, and the pool that TVM plans from them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.partition.networks import partition, residual, two_functions
from tvm_ethosu.backend.network import FirmwareNetwork, compile_for_firmware
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.relay.partition import npu_target
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.relay.used_memory import learn_call_sites
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.errors import Infeasible

PLANE = 8 * 8
INPUT, MIDDLE, OUTPUT = PLANE * 16, PLANE * 32, PLANE * 8


def _compile(sram_size: int | None = None, inner_channels: int = 16) -> FirmwareNetwork:
    options = EthosUOptions("ethos-u55-128", sram_size)
    return compile_for_firmware(two_functions(inner_channels), options)


def test_used_memory_of_the_build_counts_inputs_outputs_and_scratch() -> None:
    first, second = _compile().functions
    scratch = [function.program.scratch_bytes for function in (first, second)]
    assert min(scratch) >= PLANE * 16
    assert first.used_memory_bytes == (INPUT + MIDDLE + scratch[0],)
    assert second.used_memory_bytes == (MIDDLE + OUTPUT + scratch[1],)


def test_used_memory_in_the_partitioner_is_what_tvm_writes_without_scratch() -> None:
    module = partition(two_functions())
    target = npu_target(find_arch("ethos-u55-128"))
    scratch = {n: int(f.attrs["scratch_bytes"]) for n, f in npu_functions(module).items()}
    learned = learn_call_sites(module, target)
    assert {
        name: [s.used_memory_bytes - scratch[name] for s in sites]
        for name, sites in learned.items()
    } == {
        "tvmgen_default_ethos_u_main_0": [INPUT + MIDDLE],
        "tvmgen_default_ethos_u_main_1": [MIDDLE + OUTPUT],
    }


def test_the_pool_that_tvm_plans_holds_the_scratch() -> None:
    inner = PLANE * 1024
    # No more than the inner tensor: what is left would hold weights.
    network = _compile(inner + MIDDLE + INPUT + OUTPUT, inner_channels=1024)
    assert network.functions[0].program.scratch_bytes == inner
    assert network.sram.pool_bytes == inner + MIDDLE
    assert network.sram.io_bytes == INPUT + OUTPUT


def test_each_function_gets_the_budget_that_its_own_call_leaves() -> None:
    size = 200_000
    first, second = _compile(size).functions
    # The network's output is idle during the first call, its input during the second.
    assert first.budget_bytes == size - (INPUT + MIDDLE) - OUTPUT
    assert second.budget_bytes == size - (MIDDLE + OUTPUT) - INPUT


def test_the_arena_fits_exactly_the_size_it_needs_and_no_byte_less() -> None:
    needed = _compile().sram.total_bytes
    assert _compile(needed).sram.total_bytes == needed
    with pytest.raises(Infeasible) as caught:
        _compile(needed - 1)
    assert str(needed) in str(caught.value)


def test_a_function_that_does_not_fit_is_refused_when_partitioning() -> None:
    with pytest.raises(Infeasible) as caught:
        partition(two_functions(1024), sram_size=INPUT + MIDDLE + OUTPUT + 100)
    message = str(caught.value)
    assert "tvmgen_default_ethos_u_main_0" in message
    # Rows of the wide tensor come and go: as many as a 3x3 kernel reads.
    rows = 8 * 1024
    assert f"needs {3 * rows} bytes, 100 bytes are left" in message
    assert caught.value.required_bytes == 3 * rows + INPUT + MIDDLE + OUTPUT


def test_scratch_is_the_last_result_and_its_size_stands_in_the_attributes() -> None:
    (function,) = npu_functions(partition(residual())).values()
    scratch = function.checked_type.ret_type.fields[-1]
    assert [int(dim) for dim in scratch.shape] == [int(function.attrs["scratch_bytes"])]
    assert str(scratch.dtype) == "int8"


def test_partitioning_does_not_change_the_callers_module() -> None:
    from tvm_ethosu.partition import partition_for_ethosu
    from tvm_ethosu.partition.relay.frontend import to_relay

    mod, params = to_relay(residual())
    before = tvm.ir.structural_hash(mod)
    weights = {name: np.array(value.numpy()) for name, value in params.items()}
    partition_for_ethosu(mod, params)
    assert tvm.ir.structural_hash(mod) == before
    for name, value in weights.items():
        np.testing.assert_array_equal(params[name].numpy(), value)
