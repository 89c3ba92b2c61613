"""What tests.tflite_builder makes: taken by TFLite Micro and by TVM, and computing what it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tflite_builder import NetBuilder, Value
from tvm_ethosu.backend.reference import run_reference
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.tflite_file import parse_tflite

Step = Callable[[NetBuilder, Value], Value]

STEPS: dict[str, Step] = {
    "conv": lambda n, x: n.conv2d(x, filters=5),
    "conv_valid_stride": lambda n, x: n.conv2d(
        x, filters=5, kernel=(3, 2), stride=(2, 1), padding="VALID"
    ),
    "conv_dilated": lambda n, x: n.conv2d(x, filters=5, dilation=(2, 3)),
    "conv_per_tensor_relu6": lambda n, x: n.conv2d(
        x, filters=5, per_channel=False, activation="RELU6"
    ),
    "conv_without_bias": lambda n, x: n.conv2d(x, filters=5, bias=False),
    "depthwise": lambda n, x: n.depthwise(x, activation="RELU"),
    "depthwise_multiplier": lambda n, x: n.depthwise(x, multiplier=3, stride=(2, 2)),
    "dense": lambda n, x: n.dense(x, units=7, activation="RELU"),
    "dense_per_channel": lambda n, x: n.dense(x, units=7, per_channel=n.dtype == "int8"),
    "avg_pool": lambda n, x: n.avg_pool(x),
    "max_pool_same": lambda n, x: n.max_pool(x, kernel=(3, 3), stride=(1, 2), padding="SAME"),
    "add": lambda n, x: n.add(x, n.conv2d(x, filters=4), activation="RELU"),
    "add_broadcast": lambda n, x: n.add(x, n.constant(np.arange(4, dtype=n.dtype))),
    "quantize": lambda n, x: n.quantize(x, 0.11, -4 if n.dtype == "int8" else 100),
    "reshape": lambda n, x: n.reshape(x, (1, 9, 4, 8)),
    "softmax": lambda n, x: n.softmax(n.dense(x, units=7)),
}


def _net(step: Step, dtype: str) -> tuple[NetBuilder, bytes]:
    net = NetBuilder(dtype, seed=7)
    net.output(step(net, net.input((1, 9, 8, 4))))
    return net, net.build()


@pytest.mark.parametrize("name", STEPS)
def test_tflite_micro_runs_the_net_and_results_use_the_range(name: str) -> None:
    net, data = _net(STEPS[name], "int8")
    file = parse_tflite(data)
    (out,) = run_reference(data, net.random_inputs())
    assert out.shape == file.tensors[file.outputs[0]].shape
    assert out.std() > 5


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", STEPS)
def test_tvm_imports_the_net_with_the_shapes_and_types_of_the_file(name: str, dtype: str) -> None:
    mod, _ = to_relay(parse_tflite(_net(STEPS[name], dtype)[1]))
    assert str(mod["main"].params[0].type_annotation.dtype) == dtype


def test_same_seed_same_bytes() -> None:
    assert _net(STEPS["add"], "int8")[1] == _net(STEPS["add"], "int8")[1]


def test_given_weights_bias_and_scales_are_what_runs() -> None:
    net = NetBuilder()
    x = net.input((1, 2, 2, 1), 1.0, 0)
    weights = np.array([2, -3], np.int8).reshape(2, 1, 1, 1)
    bias = np.array([1, 10], np.int32)
    net.output(
        net.conv2d(x, weights=weights, weight_scales=(1.0, 0.5), bias=bias, scale=1.0, zero_point=4)
    )
    pixels = np.array([[0, 1], [2, -8]], np.int8).reshape(1, 2, 2, 1)
    (out,) = run_reference(net.build(), [pixels])
    first = 2 * pixels[..., 0].astype(int) + 1 + 4
    second = (-3 * pixels[..., 0].astype(int) + 10) / 2 + 4  # halves go up
    np.testing.assert_array_equal(out[..., 0], first)
    np.testing.assert_array_equal(out[..., 1], np.floor(second + 0.5))


def test_branches_and_several_inputs_and_outputs() -> None:
    net = NetBuilder(seed=3)
    a, b = net.input((1, 4, 4, 2)), net.input((1, 4, 4, 2), 0.2, -7)
    both = net.add(a, b)
    net.output(both, net.max_pool(both))
    file = parse_tflite(net.build())
    assert [tensor.shape for tensor in map(file.tensors.__getitem__, file.outputs)] == [
        (1, 4, 4, 2),
        (1, 2, 2, 2),
    ]
    outputs = run_reference(file.data, net.random_inputs())
    expected = outputs[0].reshape(1, 2, 2, 2, 2, 2).max(axis=(2, 4))
    np.testing.assert_array_equal(outputs[1], expected)
