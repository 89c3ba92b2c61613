"""Limits of fused and separate activations where the limit's quantized value is near a half."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.equivalence.harness import assert_exact
from tests.equivalence.operators import relu
from tests.equivalence.test_hosts import check_on_host
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

# 6 / scale or 1 / scale is a half, or next to one: TFLite divides in float32 and rounds halves up.
SCALES = (2.0, 2.4, 0.4, 0.8, 12.0, 6 / 255, 6 / 127.5, 6 / 126.5)
Make = Callable[[NetBuilder, Value, float, str], Value]

LAYERS: dict[str, Make] = {
    "conv": lambda n, x, s, a: n.conv2d(x, filters=5, scale=s, activation=a),
    "dense": lambda n, x, s, a: n.dense(x, units=9, scale=s, activation=a),
    "add": lambda n, x, s, a: n.add(x, x, scale=s, activation=a),
    "average": lambda n, x, s, a: n.avg_pool(x, activation=a),
    "maximum": lambda n, x, s, a: n.max_pool(x, activation=a),
}


@pytest.mark.parametrize("activation", ["RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("layer", LAYERS)
def test_limits_at_halves(layer: str, activation: str) -> None:
    net = NetBuilder(seed=1)
    for scale, zero_point in product(SCALES, (0, -128)):
        x = net.input((1, 4, 4, 3), scale, zero_point)
        net.output(LAYERS[layer](net, x, scale, activation))
    assert_exact(net.build(), ("ethos-u55-64",))


@pytest.mark.parametrize(
    ("code", "scale", "result"),
    [("RELU", 0.05, 0.05), ("RELU", 0.05, 0.031), ("RELU", 0.05, 0.4)]
    + [("RELU6", scale, scale) for scale in (0.05, 2.4, 6 / 127.5, 0.8)],
)
def test_activation_as_an_operator(code: str, scale: float, result: float) -> None:
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 5, 6, 4)), filters=4, scale=scale, zero_point=-3)
    net.output(net.max_pool(relu(net, y, code, result)))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-512"))


def test_activation_of_a_tensor_that_is_read_without_it_too() -> None:
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 5, 6, 4)), filters=4)
    net.output(net.add(relu(net, y), y))
    check_on_host(net.build(), "ethos-u55-64")
