"""Every constraint that a TFLite file can meet: a network just inside, and one just outside.

Inside: on the NPU and exact. Outside: that operator stays on the CPU, the reason names what is
limited and the value, and the operators around it are still compiled. test_relay_forms.py does the
same for what only hand-made Relay can express, and checks that no constraint is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.equivalence.harness import ACCELERATORS, assert_exact, load, partition
from tests.equivalence.movement import reduce
from tests.equivalence.operators import expand_dims
from tests.equivalence.test_hosts import check_on_host
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.partition import constraints as c

Shape = tuple[int, ...]
Make = Callable[[NetBuilder, Value], Value]


@dataclass(frozen=True)
class Limit:
    """An operator on an input of that shape; ``reason`` is how the refusal of it begins."""

    shape: Shape
    make: Make
    constraint: c.Constraint | None = None
    reason: str = ""

    def __str__(self) -> str:
        return self.reason or "x".join(map(str, self.shape))


def _conv(kernel: tuple[int, int] = (3, 3), **options: Any) -> Make:
    return lambda net, x: net.conv2d(x, filters=2, kernel=kernel, **options)


def _depthwise(kernel: tuple[int, int] = (3, 3), **options: Any) -> Make:
    return lambda net, x: net.depthwise(x, kernel=kernel, **options)


def _average(kernel: tuple[int, int], stride: int = 1, padding: str = "VALID") -> Make:
    return lambda net, x: net.avg_pool(x, kernel=kernel, stride=(stride, stride), padding=padding)


def _maximum(kernel: tuple[int, int], stride: int = 1, padding: str = "VALID") -> Make:
    return lambda net, x: net.max_pool(x, kernel=kernel, stride=(stride, stride), padding=padding)


def _grouped(groups: int, height: int = 3, stride: int = 1) -> Make:
    def make(net: NetBuilder, x: Value) -> Value:
        shape = (4, height, 3, x.shape[3] // groups)
        weights = net.rng.integers(-127, 128, shape).astype(np.int8)
        return net.conv2d(x, weights=weights, stride=(stride, stride))

    return make


def _dense(value: int, width: int, zero_point: int = 0) -> Make:
    def make(net: NetBuilder, x: Value) -> Value:
        weights = np.full((2, width), value, np.int8)
        return net.dense(x, weights=weights, weight_zero_point=zero_point, bias=False, scale=4000.0)

    return make


def _scaled(factor: float) -> Make:
    def make(net: NetBuilder, x: Value) -> Value:
        weights = np.ones((2, 1, 1, x.shape[3]), np.int8)
        return net.conv2d(
            x, weights=weights, weight_scales=(0.5,), bias=False, scale=x.scale / 2 / factor
        )

    return make


def _add(*shape: int, scale: float = 0.05, result: float = 0.07) -> Make:
    return lambda net, x: net.add(x, net.input(shape, scale), scale=result)


def _quantize(factor: float, dtype: str = "int8") -> Make:
    return lambda net, x: net.quantize(x, float(np.float32(x.scale / factor)), 0, dtype)


INSIDE = [
    Limit((1, 10, 11, 3), _conv(stride=(3, 3))),
    Limit((1, 4, 11, 3), _conv(stride=(9, 3))),  # one row: its stride means nothing
    Limit((1, 10, 11, 3), _conv(dilation=(2, 2))),
    Limit((1, 65, 4, 3), _conv((64, 1), padding="VALID")),
    Limit((1, 64, 4, 3), _conv((32, 1), dilation=(2, 1), padding="VALID")),
    Limit((1, 65, 65, 1), _conv((64, 64), padding="VALID")),
    Limit((1, 1, 4097, 2), _conv((1, 4096), padding="VALID")),
    Limit((1, 1, 4097, 2), _depthwise((1, 4096), padding="VALID")),
    Limit((1, 2, 70, 3), _conv((1, 64))),  # 31 columns of padding at the left, 32 at the right
    Limit((1, 70, 2, 3), _depthwise((64, 1))),
    Limit((1, 6, 6, 4), _grouped(1)),
    Limit((1, 6, 6, 1), lambda net, x: net.depthwise(x, multiplier=5)),
    Limit((1, 9, 10, 3), _average((8, 8), padding="SAME")),
    Limit((1, 9, 10, 3), _average((9, 9))),
    Limit((1, 256, 256, 2), _average((256, 256))),
    Limit((1, 256, 256, 2), _maximum((256, 256))),
    Limit((1, 9, 10, 3), _maximum((255, 255), padding="SAME")),
    Limit((1, 10, 10, 3), _maximum((2, 2), stride=3)),
    Limit((1, 1, 65536, 1), _maximum((1, 2))),
    Limit((1, 65536, 1, 1), _average((2, 1))),
    Limit((1, 65536), _dense(127, 65536)),
    Limit((4, 60), _dense(-128, 60, 127)),
    Limit((1, 4, 4, 1), _scaled(2.0**20)),
    Limit((2, 5, 3), _add(2, 5, 3)),
    Limit((1, 4, 5, 3), _add(1, 1, 5, 1)),
    Limit((1, 4, 5, 3), _add(1, 4, 5, 3, scale=0.05 * 2.0**-29)),
    Limit((2, 4, 5, 3), _quantize(2.0**20)),
    Limit((2, 4, 5, 3), _quantize(1.0, "uint8")),
    Limit((4, 5, 3), lambda net, x: net.quantize(expand_dims(net, x, 0), 0.1, 3)),
    Limit((1, 2, 2, 3, 4), _quantize(0.7)),
    Limit((1, 80000), _quantize(0.7)),
    Limit((1, 80000), _add(1, 80000)),
    Limit((2, 2, 2, 3, 4), _add(2, 2, 2, 3, 4)),
    Limit((2, 2, 2, 3, 4), _add(3, 4)),
    Limit((2, 4, 5, 3), _add(1, 4, 1, 1)),
    Limit((3, 2, 2, 3, 4), lambda net, x: net.softmax(x)),
    Limit((2, 3, 2, 3, 2, 3), lambda net, x: net.curve("LOGISTIC", x, 1 / 256, -128)),
    Limit((2, 3, 4, 5, 6), lambda net, x: reduce(net, "MEAN", x, (3, 4))),
    Limit((1, 70000), lambda net, x: net.reshape(net.quantize(x, 0.07, 3), (7, 10000))),
]

CONV = (1, 14, 15, 3)
TALL = (1, 140, 5, 4)
# A kernel of this size is too large either way round.
WIDE = (64, 65)
# Over a limit, and broken down into operators within it.
BROKEN_DOWN = [
    Limit((1, 17, 19, 3), _conv(stride=(4, 4))),
    Limit((1, 32, 32, 3), _conv((16, 16), stride=(16, 16), padding="VALID")),
    Limit((1, 33, 30, 5), _conv((7, 7), stride=(4, 4), padding="SAME")),
    Limit((1, 33, 30, 5), _conv((3, 5), stride=(4, 1))),
    Limit((1, 33, 30, 5), _conv((3, 3), stride=(5, 5), padding="VALID")),
    Limit(CONV, _conv(stride=(1, 4))),
    Limit((1, 33, 30, 5), _depthwise(stride=(4, 4))),
    Limit((1, 33, 30, 5), _depthwise(stride=(5, 5))),
    Limit(CONV, _maximum((2, 2), stride=4)),
    Limit(CONV, _average((2, 2), stride=4)),
    Limit((1, 16, 16, 8), _maximum((4, 4), stride=4)),
    Limit((1, 16, 16, 8), _average((5, 5), stride=5, padding="SAME")),
    Limit(CONV, _conv(dilation=(3, 1))),
    Limit(CONV, _conv(dilation=(4, 6))),
    Limit(CONV, _depthwise(dilation=(3, 3))),
    Limit((1, 6, 6, 4), _grouped(2)),
    Limit((1, 6, 6, 4), _grouped(4)),
    Limit((1, 17, 17, 4), _grouped(2, stride=4)),
    Limit((1, 6, 6, 2), lambda net, x: net.depthwise(x, multiplier=2)),
    Limit((1, 6, 6, 24), lambda net, x: net.depthwise(x, multiplier=3)),
    Limit((2, 6, 6, 3), _conv()),
    Limit((3, 7, 6, 3), _conv(stride=(2, 2))),
    Limit((3, 7, 6, 3), _conv((1, 1))),
    Limit((3, 9, 9, 3), _conv((2, 3), stride=(3, 2), padding="VALID")),
    Limit((2, 12, 12, 3), _conv(stride=(4, 4))),
    Limit((2, 6, 6, 20), _depthwise()),
    Limit((2, 6, 6, 3), _maximum((2, 2))),
    Limit((2, 6, 6, 3), _average((2, 2))),
    Limit((20, 6, 6, 3), _average((3, 3), padding="SAME")),
    Limit((2, 6, 6, 3), _add(1, 6, 6, 3)),
    Limit((2, 6, 6, 3), _add(2, 1, 1, 3)),
    Limit((1, 257, 2, 2), _maximum((257, 1))),
    Limit((1, 256, 257, 1), _maximum((256, 257))),
    Limit((1, 300, 270, 1), _maximum((300, 270))),
    Limit(TALL, _conv((65, 1), stride=(4, 1))),
    Limit(TALL, _depthwise((65, 1), stride=(4, 4))),
    Limit(TALL, _maximum((257, 1), 4, "SAME")),
    Limit(TALL, _conv((30, 1), dilation=(3, 1))),
    Limit(TALL, _depthwise((30, 1), dilation=(3, 3))),
    Limit(TALL, _grouped(2, 65)),
    Limit(TALL, lambda net, x: net.depthwise(x, kernel=(65, 1), multiplier=2)),
    Limit((2, *TALL[1:]), _conv((65, 1))),
    Limit((1, 66, 4, 3), _conv((65, 1), padding="VALID")),
    Limit((1, 66, 4, 3), _conv((33, 1), dilation=(2, 1), padding="VALID")),
    Limit((1, 200, 1, 3), _conv((129, 1))),
    Limit((1, 64, 65, 1), _conv((64, 65), padding="VALID")),
    Limit((1, 2, 70, 3), _conv((1, 65))),
    Limit((1, 9, 10, 3), _maximum((256, 3), padding="SAME")),
    Limit((3, 140, 5, 4), _maximum((300, 3), padding="SAME")),
    Limit((1, 1, 80000, 1), _conv((1, 80), stride=(1, 4))),
    Limit((1, 1, 80000, 1), _conv((1, 10), stride=(1, 5), padding="VALID")),
    Limit((1, 80000, 1, 2), _conv((80, 1), stride=(16, 1), padding="VALID")),
    Limit((1, 33, 30, 5), _conv((6, 5), stride=(5, 7))),
    Limit((1, 31, 29, 2), _conv((2, 2), stride=(7, 9), padding="VALID")),
    Limit((1, 1, 41, 5), _conv((1, 6), stride=(1, 5))),
    Limit((2, 3, 4, 5, 6), _add(1, 3, 1, 5, 1)),
    Limit((2, 4, 1, 3), _add(1, 1, 5, 3)),
    Limit((1, 4, 1, 3), _add(5, 3)),
]

# Also what is over another limit when it has been broken down.
OUTSIDE = [
    Limit((1, 80, 80, 2), _depthwise(WIDE, stride=(4, 4)), c.strides_fit, "stride in height is 4"),
    Limit((1, 270, 5, 4), _average((257, 1), 4), c.strides_fit, "stride in height is 4"),
    Limit(
        (1, 200, 70, 1),
        _conv((64, 22), dilation=(3, 3), padding="VALID"),
        c.dilation_fits,
        "dilation in height is 3",
    ),
    Limit(
        (1, 64, 66, 1),
        _conv(WIDE, padding="VALID"),
        c.kernel_fits,
        "dilated kernel is 64x65",
    ),
    Limit(
        (1, 1, 4098, 2),
        _depthwise((1, 4097), padding="VALID"),
        c.kernel_fits,
        "dilated kernel is 1x4097",
    ),
    Limit((1, 1, 65536, 1), _conv((1, 65)), c.conv_padding_fits, "padding at the left is 32"),
    Limit((1, 1500, 5, 4), _grouped(2, 1400), c.groups_fit, "groups is 2"),
    Limit(
        (1, 66, 70, 3),
        lambda net, x: net.depthwise(x, kernel=WIDE, multiplier=2, padding="VALID"),
        c.depth_multiplier_is_one,
        "depth multiplier is 2",
    ),
    Limit((2, 66, 70, 1), _conv(WIDE, padding="VALID"), c.batch_is_one, "input batch is 2"),
    Limit((2, 257, 2, 3), _average((257, 1)), c.batch_is_one, "input batch is 2"),
    Limit((2, 65537), _add(1, 65537), c.operands_have_three_dims, "output shape is 2x65537"),
    Limit(
        (1, 9, 10, 3),
        _average((9, 8), padding="SAME"),
        c.pool_window_fits,
        "pooling window is 9x8",
    ),
    Limit(
        (1, 9, 10, 3),
        _average((8, 9), padding="SAME"),
        c.pool_window_fits,
        "pooling window is 8x9",
    ),
    Limit((1, 257, 2, 2), _average((257, 1)), c.pool_window_fits, "pooling window is 257x1"),
    Limit(
        (1, 1, 65500, 1),
        _maximum((1, 300), padding="SAME"),
        c.pool_padding_fits,
        "padding at the left is 149",
    ),
    Limit((1, 1, 65537, 1), _maximum((1, 2)), c.dims_fit, "input shape is 1x1x65537x1"),
    Limit((1, 80001, 1, 1), _conv((80, 1), stride=(4, 1)), c.dims_fit, "input shape is 1x80001x1"),
    Limit((1, 65537), _quantize(0.7), c.elementwise_extents_fit, "output shape is 1x65537"),
    Limit((1, 65536), _dense(-128, 65536), c.weights_fit, "sum of a channel's absolute weights"),
    Limit((1, 4, 4, 3), _scaled(2.0**33), c.conv_scales_fit, "rescale factor is 8.58993e+09"),
    Limit(
        (1, 4, 1, 3),
        _add(1, 1, 5, 3, scale=0.05 * 2.0**-31),
        c.one_side_broadcasts,
        "broadcast is 1x4x1x3 with 1x1x5x3",
    ),
    Limit(
        (1, 4, 5, 3),
        _add(1, 4, 5, 3, scale=0.05 * 2.0**-31),
        c.add_scales_fit,
        "scales is 0.05",
    ),
    Limit((2, 4, 5), _quantize(2.0**33), c.requantize_scales_fit, "rescale factor is"),
]


def _ids(limits: list[Limit]) -> list[str]:
    return [f"{index}-{limit}" for index, limit in enumerate(limits)]


def _network(limit: Limit, alone: bool) -> NetBuilder:
    """Return the operator, alone or beside a part of the network that the NPU takes."""
    net = NetBuilder(seed=9)
    x = net.input(limit.shape)
    if alone:
        net.output(limit.make(net, x))
        return net
    side = net.input((1, 3, 3, 4))
    y = limit.make(net, x)
    net.output(y, net.conv2d(net.max_pool(side, kernel=(2, 2), stride=(1, 1)), filters=3))
    return net


@pytest.mark.parametrize("limit", INSIDE, ids=_ids(INSIDE))
def test_inside(limit: Limit) -> None:
    assert_exact(_network(limit, alone=True).build(), ACCELERATORS)


@pytest.mark.parametrize("limit", BROKEN_DOWN, ids=_ids(BROKEN_DOWN))
def test_broken_down(limit: Limit) -> None:
    assert_exact(_network(limit, alone=True).build(), (ACCELERATORS[0], ACCELERATORS[-1]))


@pytest.mark.parametrize("limit", OUTSIDE, ids=_ids(OUTSIDE))
def test_outside(limit: Limit) -> None:
    network = partition(_network(limit, alone=False).build())
    (reason,) = network.cpu_reasons.values()
    assert reason.startswith(limit.reason)
    assert ", the NPU takes " in reason
    (graph,) = network.graphs.values()
    assert [type(op).__name__ for op in graph.ops] == ["Pool", "Conv2D"]
    assert load(network, "ethos-u65-512")


# TVM itself cannot compile a factor of 2**33 ("Shift amount must be ... less than 32").
ON_THE_CPU = [limit for limit in OUTSIDE if limit.constraint is not c.conv_scales_fit]


@pytest.mark.slow
@pytest.mark.parametrize("limit", ON_THE_CPU, ids=_ids(ON_THE_CPU))
def test_outside_is_built_for_the_cpu(limit: Limit) -> None:
    check_on_host(_network(limit, alone=False).build(), "ethos-u55-128", functions=1)


@pytest.mark.parametrize("constraint", [c.strides_fit, c.depth_multiplier_is_one])
def test_refused_operators_run_on_the_cpu(constraint: c.Constraint) -> None:
    limit = next(limit for limit in OUTSIDE if limit.constraint is constraint)
    net = NetBuilder(seed=9)
    x = net.conv2d(net.input(limit.shape), filters=limit.shape[3])
    net.output(net.max_pool(limit.make(net, x), kernel=(2, 2), stride=(1, 1)))
    check_on_host(net.build(), "ethos-u55-128", functions=2)
