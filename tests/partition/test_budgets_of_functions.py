"""Several NPU functions in one program: each has its own budget, and they fit together."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import tvm

from tests.partition.networks import residual
from tests.scheduler.builders import plan
from tests.tflite_builder import NetBuilder, Value
from tvm_ethosu.backend.network import (
    FirmwareNetwork,
    build_for_firmware,
    compile_for_firmware,
)
from tvm_ethosu.partition import EthosUOptions, partition_for_ethosu
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.tflite_file import TfliteFile, parse_tflite
from tvm_ethosu.scheduler.errors import Infeasible, UserError

PLANE = 4 * 4
INNER, WIDE = PLANE * 1024, PLANE * 512
SRAM = 26_000


def three_functions() -> TfliteFile:
    """A wide inner tensor first, wide tensors between CPU operators later."""
    net = NetBuilder("int8", seed=9)

    def on_cpu(x: Value) -> Value:
        # Too large a factor for the NPU; element by element, so the CPU needs no memory besides.
        return net.quantize(x, 1e-12, 0)

    x = net.conv2d(net.input((1, 4, 4, 16)), filters=1024)
    x = on_cpu(net.conv2d(x, filters=512, scale=0.05))
    x = on_cpu(net.conv2d(x, filters=512, scale=0.05))
    net.output(net.conv2d(net.conv2d(x, filters=32), filters=8))
    return parse_tflite(net.build())


@pytest.fixture(scope="module")
def network() -> FirmwareNetwork:
    return compile_for_firmware(three_functions(), EthosUOptions("ethos-u55-128", SRAM))


def test_each_function_keeps_to_its_own_budget(network: FirmwareNetwork) -> None:
    assert len(network.functions) == 3
    for function in network.functions:
        assert function.budget_bytes is not None
        assert function.program.scratch_bytes <= function.budget_bytes
    io = PLANE * 16, PLANE * 8
    assert [function.budget_bytes for function in network.functions] == [
        SRAM - (io[0] + WIDE) - io[1],
        SRAM - 2 * WIDE - sum(io),
        SRAM - (WIDE + io[1]) - io[0],
    ]


def test_what_tvm_plans_for_all_keeps_to_the_sram(network: FirmwareNetwork) -> None:
    assert network.sram.pool_bytes == INNER + WIDE
    assert network.sram.total_bytes <= SRAM


def test_the_smallest_remainder_for_all_would_not_fit(network: FirmwareNetwork) -> None:
    budgets = [f.budget_bytes for f in network.functions if f.budget_bytes is not None]
    smallest = min(budgets)
    mod, params = to_relay(three_functions())
    from tvm_ethosu.partition.relay.legalize import to_npu_graph
    from tvm_ethosu.partition.relay.rewrite import npu_functions

    partitioned = partition_for_ethosu(mod, params, accelerator_config="ethos-u55-128")
    name, function = next(iter(npu_functions(partitioned).items()))
    graph = to_npu_graph(function, name, with_scratch=True)
    assert plan(graph, budgets[0]).scratch_bytes == INNER
    with pytest.raises(Infeasible):
        plan(graph, smallest)


def test_the_old_sum_over_functions_would_leave_nothing(network: FirmwareNetwork) -> None:
    # The in-tree backend subtracted the sum of all functions' maxima from the pool.
    pressure = sum(max(f.used_memory_bytes) for f in network.functions)
    assert pressure > SRAM


def _arena_bytes(mod: tvm.IRModule, params: dict[str, object], sram_size: int) -> int:
    options = EthosUOptions(sram_size=sram_size)
    module = partition_for_ethosu(mod, params, **asdict(options))
    return build_for_firmware(module, options).sram.total_bytes


@pytest.mark.parametrize("sram_size", [64, 1000])
def test_the_size_that_a_refusal_names_is_the_smallest_one(sram_size: int) -> None:
    """Also where the other tensors alone are more than there is."""
    mod, params = to_relay(residual())
    with pytest.raises(Infeasible) as caught:
        partition_for_ethosu(mod, params, sram_size=sram_size)
    smallest = caught.value.required_bytes
    assert caught.value.available_bytes == sram_size
    assert "smallest sram_size for this function, with each tensor" in str(caught.value)
    assert f"rounded up to 16 bytes: {smallest} bytes)" in str(caught.value)
    assert _arena_bytes(mod, params, smallest) == smallest
    with pytest.raises(Infeasible):
        _arena_bytes(mod, params, smallest - 1)


def test_a_size_may_be_written_with_its_unit() -> None:
    mod, params = to_relay(residual())
    of_text, of_bytes = (partition_for_ethosu(mod, params, sram_size=s) for s in ("64K", 65536))
    assert tvm.ir.structural_equal(of_text, of_bytes)
    with pytest.raises(UserError, match="size: not a number of bytes"):
        partition_for_ethosu(mod, params, sram_size="much")
