"""Small networks as Relay, built once per test."""

from __future__ import annotations

from typing import Any

import tvm

from tests.tflite_builder import NetBuilder
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.tflite_file import TfliteFile, parse_tflite


def two_functions(inner_channels: int = 16) -> TfliteFile:
    """conv, conv, log_softmax (CPU), conv, conv: two NPU functions with CPU work between them."""
    net = NetBuilder("int8", seed=3)
    x = net.input((1, 8, 8, 16))
    before = net.conv2d(net.conv2d(x, filters=inner_channels), filters=32)
    after = net.conv2d(net.conv2d(net.log_softmax(before), filters=16), filters=8)
    net.output(after)
    return parse_tflite(net.build())


def residual() -> TfliteFile:
    """conv, conv, add, pool, dense: all on the NPU."""
    net = NetBuilder("int8", seed=5)
    x = net.conv2d(net.input((1, 8, 8, 3)), filters=16)
    y = net.conv2d(x, filters=16, activation="RELU")
    pooled = net.avg_pool(net.add(x, y), kernel=(2, 2), stride=(2, 2))
    net.output(net.dense(net.reshape(pooled, (1, 256)), units=10))
    return parse_tflite(net.build())


def partition(file: TfliteFile, **options: Any) -> tvm.IRModule:
    mod, params = to_relay(file)
    return partition_for_ethosu(mod, params, **options)
