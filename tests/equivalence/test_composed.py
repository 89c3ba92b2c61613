"""SQUARED_DIFFERENCE and PRELU of int8 and int16 against TFLite Micro."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import (
    CHANNELS,
    SEEDS,
    TWO_ACCELERATORS,
    ZERO_POINTS,
    float32,
    scales,
)
from tests.equivalence.harness import ACCELERATORS, assert_exact, examples_of, partition
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value


@dataclass(frozen=True)
class Pair:
    """Two inputs, or one and constant slopes; ``shapes`` of both, which may be broadcast."""

    code: str
    dtype: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int] = (0, 0, 0)
    seed: int = 0
    accelerators: tuple[str, ...] = ("ethos-u55-128",)

    def add_to(self, net: NetBuilder, x: Value) -> Value:
        zeros = (0, 0, 0) if self.dtype == "int16" else self.zero_points
        if self.code == "PRELU":
            data = net.rng.integers(-128, 128, self.shapes[1]).astype(np.int8)
            other, options = net._constant(data, (self.scales[1],), zeros[1]), "NONE"
        else:
            other = net.input(self.shapes[1], self.scales[1], zeros[1])
            options = "SquaredDifferenceOptions"
        shape = np.broadcast_shapes(*self.shapes)
        result = net._result(shape, self.scales[2], zeros[2], "")
        return net._add(self.code, (x.index, other.index), result, options, {})

    def build(self) -> bytes:
        net = NetBuilder(self.dtype, seed=self.seed)
        zero = 0 if self.dtype == "int16" else self.zero_points[0]
        net.output(self.add_to(net, net.input(self.shapes[0], self.scales[0], zero)))
        return net.build()


@st.composite
def _shapes(draw: st.DrawFn, code: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw equal shapes, or channels alone at either side; slopes lack the batch."""
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    channels = draw(CHANNELS)
    whole = (1, height, width, channels)
    if code == "PRELU":
        return whole, draw(st.sampled_from(((1, 1, channels), whole[1:], (channels,), (1,))))
    part = (1, 1, 1, channels)
    return draw(st.sampled_from(((whole, whole), (whole, part), (part, whole))))


@st.composite
def pairs(draw: st.DrawFn, code: str, dtype: str) -> Pair:
    """Draw scales with which results fill the range, or less, or more."""
    first = draw(scales(-12, 0))
    if code == "PRELU":
        second = draw(scales(-9, 0))
        result = first * draw(st.one_of(st.just(1.0), scales(-3, 3)))
    else:
        second = float32(first * draw(st.one_of(st.just(1.0), scales(-3, 3), scales(-12, 12))))
        least = 1.01 if dtype == "int16" else 2.0**-14
        unit = 4 * max(first, second) ** 2
        result = unit * draw(st.one_of(st.floats(8, 300), st.floats(least, 1e5)))
    return Pair(
        code,
        dtype,
        draw(_shapes(code)),
        (first, second, float32(result)),
        draw(st.tuples(ZERO_POINTS, ZERO_POINTS, ZERO_POINTS)),
        draw(SEEDS),
        draw(TWO_ACCELERATORS),
    )


def check(case: Pair) -> None:
    """Compare."""
    assert_exact(case.build(), case.accelerators, case.seed)


def _tests(code: str, dtype: str) -> tuple[Any, Any]:
    return examples_of(pairs(code, dtype), check, quick=6)


test_difference, test_difference_thoroughly = _tests("SQUARED_DIFFERENCE", "int8")
test_wide_difference, test_wide_difference_thoroughly = _tests("SQUARED_DIFFERENCE", "int16")
test_prelu, test_prelu_thoroughly = _tests("PRELU", "int8")
test_wide_prelu, test_wide_prelu_thoroughly = _tests("PRELU", "int16")

WHOLE = (1, 6, 7, 20)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_in_a_network_on_all_accelerators(dtype: str) -> None:
    net = NetBuilder(dtype, seed=3)
    x = net.conv2d(net.input((1, 6, 7, 8)), filters=20, scale=0.02, zero_point=3)
    prelu = Pair("PRELU", dtype, (WHOLE, (20,)), (0.02, 0.005, 0.02), (3, 4, 0))
    y = prelu.add_to(net, x)
    squared = Pair("SQUARED_DIFFERENCE", dtype, (WHOLE, WHOLE), (0.02, 0.03, 0.02), (3, 1, -128))
    net.output(net.conv2d(squared.add_to(net, y), filters=4))
    assert_exact(net.build(), ACCELERATORS)


REFUSED = {
    "factor of the square is 4, the NPU takes below 1": Pair(
        "SQUARED_DIFFERENCE", "int16", (WHOLE, WHOLE), (1.0, 1.0, 1.0)
    ),
    "input type is uint8, the NPU takes int8 or int16": Pair(
        "SQUARED_DIFFERENCE", "uint8", (WHOLE, WHOLE), (0.1, 0.1, 0.1), (3, 3, 3)
    ),
    "input shape is 1x1x1x20, the NPU takes the output's shape": Pair(
        "PRELU", "int8", ((1, 1, 1, 20), WHOLE), (0.1, 0.1, 0.1)
    ),
    "factor of negative values is 512, the NPU takes positive and below 128": Pair(
        "PRELU", "int16", (WHOLE, (20,)), (1.0, 512.0, 1.0)
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_over_a_limit_it_stays_on_the_cpu(reason: str) -> None:
    reasons = partition(REFUSED[reason].build()).cpu_reasons
    assert reason in reasons.values()
