"""Fully connected layers against TFLite Micro: batches, ranks, weights of nine bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import (
    CHANNELS,
    SEEDS,
    TWO_ACCELERATORS,
    Array,
    Filter,
    filter_options,
    filters,
    network,
)
from tests.equivalence.harness import ACCELERATORS, assert_exact, examples_of
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value


@dataclass(frozen=True)
class Dense:
    """A layer on an input of any rank; ``batch`` is the first dimension."""

    batch: int
    inner: tuple[int, ...]
    units: int
    filter: Filter
    accelerators: tuple[str, ...]

    def input(self, net: NetBuilder) -> Value:
        return net.input(
            (self.batch, *self.inner), self.filter.ifm_scale, self.filter.zero_points[0]
        )

    def add_to(self, net: NetBuilder, x: Value) -> Value:
        options = filter_options(self.filter, (self.units, math.prod(self.inner)), 0, net.dtype)
        return net.dense(x, activation=self.filter.activation, **options)


INNER = st.one_of(
    st.tuples(st.sampled_from((1, 3, 8, 15, 16, 17, 100, 256))),
    st.tuples(st.integers(1, 6), CHANNELS),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 20)),
)
LAYERS = st.builds(
    Dense,
    st.sampled_from((1, 1, 2, 3, 17)),
    INNER,
    CHANNELS,
    filters(),
    TWO_ACCELERATORS,
)


def check(case: Dense) -> None:
    """Build, compile, run and compare one layer."""
    assert_exact(network(case), case.accelerators, case.filter.seed)


test_dense, test_dense_thoroughly = examples_of(LAYERS, check)


@dataclass(frozen=True)
class WideWeights:
    """Weights whose distance from their zero point takes up to nine bits."""

    seed: int
    weight_zero_point: int
    accelerators: tuple[str, ...]


def wide_layer(case: WideWeights) -> NetBuilder:
    """Return a layer whose weights' zero point may be at an end of the range."""
    rng = np.random.default_rng(case.seed)
    net = NetBuilder()
    x = net.input((3, 40), 0.5, int(rng.integers(-128, 128)))
    weights = rng.choice(np.arange(-128, 128, dtype=np.int8), (19, 40))
    weights[0], weights[1] = -128, 127
    y = net.dense(
        x,
        weights=weights,
        weight_zero_point=case.weight_zero_point,
        weight_scales=(0.01,),
        scale=40.0,
        zero_point=3,
    )
    net.output(y)
    return net


def check_wide_weights(case: WideWeights) -> None:
    """Compare such a layer."""
    assert_exact(wide_layer(case).build(), case.accelerators, case.seed)


test_wide_weights, test_wide_weights_thoroughly = examples_of(
    st.builds(WideWeights, SEEDS, st.sampled_from((-128, 127, -127, 0, 5, -90)), TWO_ACCELERATORS),
    check_wide_weights,
    quick=8,
)


def _accumulator_at_the_end() -> tuple[bytes, list[list[Array]]]:
    """Return 65536 products of the largest weight and input: just below 2**31."""
    net = NetBuilder()
    x = net.input((1, 65536), 1.0, -128)
    weights = np.full((2, 65536), 127, np.int8)
    weights[1] = -127
    y = net.dense(x, weights=weights, weight_scales=(1.0,), bias=False, scale=2.0**24, zero_point=0)
    net.output(y)
    return net.build(), [[np.full((1, 65536), value, np.int8)] for value in (-128, 0, 126, 127)]


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_longest_sum(accelerator: str) -> None:
    data, inputs = _accumulator_at_the_end()
    assert_exact(data, (accelerator,), inputs=inputs)


@pytest.mark.parametrize(
    ("inputs", "units", "batch"),
    [pytest.param(1, 65536, 1, marks=pytest.mark.slow), (1, 1, 65536), (3, 1, 700)],
)
def test_longest_dimensions(inputs: int, units: int, batch: int) -> None:
    net = NetBuilder(seed=1)
    net.output(net.dense(net.input((batch, inputs)), units=units))
    assert_exact(net.build(), ("ethos-u55-32", "ethos-u65-512"))
