"""Chains of convolutions of any length, to see how compile time grows with their number.

``python -m tvm_ethosu.backend.bench.chains OPERATORS OPTIMISE`` compiles one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relay

from tvm_ethosu.backend.network import build_for_firmware
from tvm_ethosu.partition import EthosUOptions, partition_for_ethosu

LENGTHS = (10, 20, 40, 80, 160)
_ACCELERATOR = "ethos-u55-128"
_SIZE, _CHANNELS = 32, 16
_SCALE = 0.05


def _constant(value: float, dtype: str) -> relay.Constant:
    return relay.const(np.asarray(value, dtype), dtype)


def _convolution(data: relay.Expr, weights: npt.NDArray[np.int8], groups: int) -> relay.Expr:
    """Return a 3x3 convolution with bias and requantisation, as TVM's importer writes it."""
    sums = relay.qnn.op.conv2d(
        data,
        relay.const(weights),
        _constant(0, "int32"),
        _constant(0, "int32"),
        _constant(_SCALE, "float32"),
        _constant(_SCALE, "float32"),
        kernel_size=(3, 3),
        channels=_CHANNELS,
        padding=(1, 1, 1, 1),
        groups=groups,
        data_layout="NHWC",
        kernel_layout="HWIO" if groups == 1 else "HWOI",
        out_dtype="int32",
    )
    biased = relay.nn.bias_add(sums, relay.const(np.zeros(_CHANNELS, np.int32)), axis=3)
    return relay.qnn.op.requantize(
        biased,
        _constant(_SCALE**2, "float32"),
        _constant(0, "int32"),
        _constant(_SCALE, "float32"),
        _constant(0, "int32"),
        axis=3,
        rounding="UPWARD",
        out_dtype="int8",
    )


def chain(operators: int) -> tvm.IRModule:
    """Return a network of so many convolutions of 32x32x16 int8, every second one depthwise."""
    rng = np.random.default_rng(operators)
    data = relay.var("data", shape=(1, _SIZE, _SIZE, _CHANNELS), dtype="int8")
    value: relay.Expr = data
    for index in range(operators):
        depthwise = index % 2 == 1
        shape = (3, 3, _CHANNELS, 1 if depthwise else _CHANNELS)
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        value = _convolution(value, weights, _CHANNELS if depthwise else 1)
    return tvm.IRModule.from_expr(relay.Function([data], value))


def compile_chain(operators: int, optimise: str) -> int:
    """Compile a chain to C and return the bytes of its arena."""
    options = EthosUOptions(_ACCELERATOR, optimise=optimise)
    params: dict[str, Any] = {}
    module = partition_for_ethosu(
        chain(operators), params, accelerator_config=_ACCELERATOR, optimise=optimise
    )
    network = build_for_firmware(module, options)
    on_npu = sum(decision.on_npu for decision in network.decisions)
    if on_npu != operators:
        raise RuntimeError(f"chain: {on_npu} of {operators} operators are on the NPU")
    return network.sram.total_bytes


if __name__ == "__main__":
    print(compile_chain(int(sys.argv[1]), sys.argv[2]))
