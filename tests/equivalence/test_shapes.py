"""Operators that only change the shape, and inputs that an operator leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.equivalence.harness import ACCELERATORS, assert_exact
from tests.equivalence.operators import dense_keeping_dimensions, expand_dims, squeeze
from tests.tflite_builder import NetBuilder

TWO = (ACCELERATORS[0], ACCELERATORS[-1])


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0, 2), (-2,), (0, 1, 2)])
@pytest.mark.parametrize("first", [False, True])
def test_squeeze(axes: tuple[int, ...], first: bool) -> None:
    net = NetBuilder(seed=1)
    x = net.input((1, 1, 1, 16))
    x = x if first else net.conv2d(x, filters=17, kernel=(1, 1))
    y = squeeze(net, x, axes)
    net.output(net.add(y, net.quantize(y, 0.1, 3)), y)
    assert_exact(net.build(), TWO)


@pytest.mark.parametrize("axis", [0, 1, 3, -1, -2, -4])
@pytest.mark.parametrize("first", [False, True])
def test_expand_dims(axis: int, first: bool) -> None:
    net = NetBuilder(seed=1)
    x = net.input((5, 6, 16))
    x = x if first else net.quantize(x, 0.07, 5)
    net.output(net.conv2d(net.reshape(expand_dims(net, x, axis), (1, 5, 6, 16)), filters=3), x)
    assert_exact(net.build(), TWO)


def test_chain_of_shapes() -> None:
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 1, 6, 8)), filters=16, kernel=(1, 1))
    row = squeeze(net, y, (0, 1))
    image = expand_dims(net, expand_dims(net, row, 1), 0)
    net.output(net.add(image, net.reshape(y, (1, 6, 1, 16))), row)
    assert_exact(net.build(), TWO)


def test_squeeze_without_axes() -> None:
    net = NetBuilder(seed=1)
    net.output(squeeze(net, net.conv2d(net.input((1, 1, 6, 8)), filters=3)))
    assert_exact(net.build())


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 2, 3, 8), (4, 8), (1, 1, 1, 8)])
def test_dense_over_the_last_dimension(shape: tuple[int, ...]) -> None:
    net = NetBuilder(seed=1)
    net.output(dense_keeping_dimensions(net, net.input(shape), 5, activation="RELU"))
    assert_exact(net.build(), TWO)


# TFLite Micro itself crashes on a depthwise convolution without bias written so.
@pytest.mark.parametrize("kind", ["dense", "conv2d"])
def test_bias_that_is_left_out_by_index(kind: str) -> None:
    net = NetBuilder(seed=1)
    x = net.input((1, 5, 6, 4))
    if kind == "dense":
        net.output(net.dense(x, units=3, bias=False))
    else:
        net.output(net.conv2d(x, filters=3, bias=False))
    operator = net._operators[0]
    net._operators[0] = replace(operator, inputs=(*operator.inputs, -1))
    assert_exact(net.build(), TWO)
