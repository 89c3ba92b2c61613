"""Networks that do not fit."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from tests.backend.error_ways.build import build_c
from tests.backend.error_ways.desk import Desk, Way, cli, given, once, python
from tests.partition.networks import partition, residual
from tests.tflite_builder import NetBuilder
from tvm_ethosu.partition.relay.rewrite import npu_functions


def _with_less_sram() -> tvm.IRModule:
    """Return a partitioned module whose function was planned for more than it now may use."""
    module = partition(residual(), sram_size=1 << 16)
    ((name, function),) = npu_functions(module).items()
    module.update_func(module.get_global_var(name), function.with_attr("sram_size", 1500))
    return module


def _wide_cpu_operator(desk: Desk) -> None:
    """Put a network into the folder whose peak is an operator on the CPU."""
    net = NetBuilder("int8", seed=1)
    x = net.conv2d(net.input((1, 8, 8, 4)), filters=4)
    net.output(net.log_softmax(net.conv2d(x, filters=40)))
    desk.write("wide.tflite", net.build())


_TOO_LITTLE = once(cli("compile", "model.tflite", "-o", "out", "--sram-size", "1K"))


SRAM: Mapping[str, Way] = {
    "…: scratch memory does not fit (needs … bytes, … bytes are left for it …)": _TOO_LITTLE,
    "…; sram_size is … bytes, and other tensors hold … bytes during this call …": _TOO_LITTLE,
    "the smallest --sram-size that works is …": _TOO_LITTLE,
    "network: the arena does not fit (needs … bytes: … of tensors and scratch, "
    "… of network inputs and outputs …)": given(
        _wide_cpu_operator, "compile", "wide.tflite", "-o", "out", "--sram-size", "6000"
    ),
    "…: the scratch of … bytes was planned for another program than is built": python(
        lambda: build_c(_with_less_sram())
    ),
}
