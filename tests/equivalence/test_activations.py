"""Limits of fused and separate activations where the limit's quantized value is near a half."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.equivalence.harness import assert_exact
from tests.equivalence.operators import relu
from tests.tflite_builder import NetBuilder, Value

# 6 / scale or 1 / scale is a half, or next to one: TFLite divides in float32 and rounds halves up.
SCALES = (2.0, 2.4, 0.4, 0.8, 1.2, 4.0, 12.0, 6 / 255, 6 / 127.5, 6 / 126.5, 12 / 255, 0.05)
ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1")
Make = Callable[[NetBuilder, Value, float, str], Value]

LAYERS: dict[str, Make] = {
    "conv": lambda n, x, s, a: n.conv2d(x, filters=5, scale=s, activation=a),
    "depthwise": lambda n, x, s, a: n.depthwise(x, scale=s, activation=a),
    "dense": lambda n, x, s, a: n.dense(x, units=9, scale=s, activation=a),
    "add": lambda n, x, s, a: n.add(x, x, scale=s, activation=a),
    "average": lambda n, x, s, a: n.avg_pool(x, activation=a),
    "maximum": lambda n, x, s, a: n.max_pool(x, activation=a),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("zero_point", [0, -128, 127, 126, -127])
def test_limits_at_halves(layer: str, zero_point: int) -> None:
    net = NetBuilder(seed=1)
    for scale in SCALES:
        for activation in ACTIVATIONS:
            x = net.input((1, 5, 6, 4), scale, zero_point)
            options = {} if layer in ("average", "maximum") else {"zero_point": zero_point}
            del options
            net.output(LAYERS[layer](net, x, scale, activation))
    assert_exact(net.build(), ("ethos-u55-64",))


@pytest.mark.parametrize("code", ["RELU", "RELU6"])
@pytest.mark.parametrize("scale", [0.05, 0.4, 0.031])
def test_activation_as_an_operator(code: str, scale: float) -> None:
    """A convolution's result that is activated, and read without activation as well."""
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 5, 6, 4)), filters=4, scale=0.05, zero_point=-3)
    active = relu(net, y, code, scale)
    net.output(net.add(active, y), net.max_pool(active))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-512"))
