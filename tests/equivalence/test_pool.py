"""Average and maximum pooling against TFLite Micro, and averages next to every tie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import (
    ACTIVATIONS,
    CHANNELS,
    SEEDS,
    TWO_ACCELERATORS,
    ZERO_POINTS,
    Array,
    Pair,
    Window,
    network,
    scales,
    windows,
)
from tests.equivalence.harness import assert_exact, examples_of
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value


@dataclass(frozen=True)
class Pool:
    """One pooling operator."""

    seed: int
    maximum: bool
    window: Window
    channels: int
    scale: float
    zero_point: int
    activation: str
    accelerators: tuple[str, ...]

    def input(self, net: NetBuilder) -> Value:
        return net.input((1, *self.window.size, self.channels), self.scale, self.zero_point)

    def add_to(self, net: NetBuilder, x: Value) -> Value:
        add = net.max_pool if self.maximum else net.avg_pool
        return add(
            x,
            kernel=self.window.kernel,
            stride=self.window.stride,
            padding=self.window.padding,
            activation=self.activation,
        )


def pools(maximum: bool) -> st.SearchStrategy[Pool]:
    """Draw maximum or average pooling; both take windows of 8x8 in any padding."""
    return st.builds(
        Pool,
        SEEDS,
        st.just(maximum),
        windows(largest=8, dilated=False),
        CHANNELS,
        scales(),
        ZERO_POINTS,
        ACTIVATIONS,
        TWO_ACCELERATORS,
    )


def check(case: Pool) -> None:
    """Build, compile, run and compare one operator."""
    assert_exact(network(case), case.accelerators, case.seed)


test_max_pool, test_max_pool_thoroughly = examples_of(pools(True), check)
test_average_pool, test_average_pool_thoroughly = examples_of(pools(False), check)


# --- averages of large windows --------------------------------------------------------------------


def _rows_with_sum(total: Array, elements: int) -> Array:
    """Return columns of int8 values with these sums: all equal, up to a difference of one."""
    least, more = np.divmod(total, elements)
    values = np.broadcast_to(least, (elements, total.size)).copy()
    values[np.arange(elements)[:, None] < more] += 1
    return np.asarray(values, np.int8)


def sums_next_to_ties(elements: int, count: int) -> Array:
    """Return sums whose averages are halves, or as near to them as whole sums can be."""
    halves = np.linspace(-128, 126, count, dtype=np.int64)
    at = (2 * halves + 1) * elements // 2
    sums = np.concatenate([at - 1, at, at + 1])
    return np.asarray(np.clip(sums, -128 * elements, 127 * elements))


# 4095, 8189, 8191 and 65025 elements are among those where rounding twice gives another average.
WINDOWS = [
    *[(1, 1), (1, 2), (1, 3), (3, 2), (3, 3), (5, 5), (7, 7), (8, 8), (3, 85), (16, 16), (31, 33)],
    *[(63, 65), (64, 64), (19, 431), (1, 8191), (15, 1091), (255, 255), (256, 256), (1, 65536)],
]


@pytest.mark.parametrize("kernel", WINDOWS)
def test_averages_next_to_ties(kernel: Pair) -> None:
    elements = kernel[0] * kernel[1]
    sums = sums_next_to_ties(elements, 255 if elements <= 4096 else 32)
    shape = (1, *kernel, sums.size)
    net = NetBuilder()
    net.output(net.avg_pool(net.input(shape), kernel=kernel, stride=(1, 1)))
    data = _rows_with_sum(sums, elements).reshape(shape)
    assert_exact(net.build(), ("ethos-u55-32", "ethos-u55-256"), inputs=[[data]])


@pytest.mark.parametrize("kernel", [(255, 3), (3, 8), (255, 255)])
def test_max_pool_of_padding_up_to_the_window(kernel: Pair) -> None:
    net = NetBuilder(seed=4)
    x = net.input((1, 9, 11, 5))
    net.output(net.max_pool(x, kernel=kernel, stride=(1, 2), padding="SAME"))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-256"))
