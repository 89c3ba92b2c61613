"""RESIZE_BILINEAR against TFLite Micro: factors of 1 to 8 in either direction, all three modes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence import movement as m
from tests.equivalence.cases import CHANNELS, SEEDS, TWO_ACCELERATORS, ZERO_POINTS, Pair
from tests.equivalence.definitions import blended
from tests.equivalence.harness import (
    assert_exact,
    examples_of,
    load,
    partition,
    plan_for_size,
    plan_for_speed,
    run_on_npu,
)
from tests.tflite_builder import NetBuilder

FACTORS = st.sampled_from((1, 2, 2, 4, 8))


@dataclass(frozen=True)
class Case:
    """One resize; with aligned corners n elements become ``(n - 1) * factor + 1``."""

    size: Pair
    channels: int
    factors: Pair
    mode: str
    zero_point: int
    seed: int
    accelerators: tuple[str, ...]


CASES = st.builds(
    Case,
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    CHANNELS,
    st.tuples(FACTORS, FACTORS),
    st.sampled_from(("asymmetric", "half_pixel", "align_corners")),
    ZERO_POINTS,
    SEEDS,
    TWO_ACCELERATORS,
)


def check(case: Case) -> None:
    """Compare one resize."""
    net = NetBuilder(seed=case.seed)
    x = net.input((1, *case.size, case.channels), 0.05, case.zero_point)
    aligned = case.mode == "align_corners"
    height, width = (
        (n - 1) * factor + 1 if aligned else n * factor
        for n, factor in zip(case.size, case.factors, strict=True)
    )
    net.output(m.resize_bilinear(net, x, (height, width), aligned, case.mode == "half_pixel"))
    assert_exact(net.build(), case.accelerators, case.seed, plans=(plan_for_speed, plan_for_size))


test_bilinear, test_bilinear_thoroughly = examples_of(CASES, check)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ((9, 4), "resize in height is from 3 to 9, half_pixel"),
        ((6, 5), "resize in width is from 4 to 5, half_pixel"),
        ((2, 4), "resize in height is from 3 to 2, half_pixel"),
    ],
)
def test_other_factors_stay_on_the_cpu(size: Pair, reason: str) -> None:
    """A third is no multiple of the 2**-10 in which TFLite counts."""
    net = NetBuilder()
    net.output(m.resize_bilinear(net, net.input((1, 3, 4, 2)), size, False, True))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert found == f"{reason}, the NPU takes 1, 2, 4 or 8 times as large"


def check_other_types(case: Case, dtype: str) -> None:
    """Compare with sums of exact weights, rounded once: TFLite Micro takes int8 only."""
    net = NetBuilder(dtype, seed=case.seed)
    zero = 0 if dtype == "int16" else case.zero_point + 128
    x = net.input((1, *case.size, case.channels), 0.05, zero)
    (values,) = net.random_inputs()
    expected = blended(values, case.factors, case.mode)
    aligned = case.mode == "align_corners"
    net.output(m.resize_bilinear(net, x, expected.shape[1:3], aligned, case.mode == "half_pixel"))
    network = partition(net.build(), case.accelerators[0])
    (actual,) = run_on_npu(network, load(network, case.accelerators[0]), [values])
    np.testing.assert_array_equal(actual, expected)


test_int16, test_int16_thoroughly = examples_of(CASES, partial(check_other_types, dtype="int16"), 5)
test_uint8, test_uint8_thoroughly = examples_of(CASES, partial(check_other_types, dtype="uint8"), 5)


@pytest.mark.slow
def test_large_images() -> None:
    net = NetBuilder(seed=5)
    x = net.conv2d(net.input((1, 24, 20, 3)), filters=16)
    y = m.resize_bilinear(net, x, (48, 40), False, True)
    net.output(net.conv2d(m.resize_bilinear(net, y, (96, 160), False, False), filters=4))
    network = assert_exact(net.build(), ("ethos-u55-128", "ethos-u65-512"), plans=(plan_for_size,))
    assert len(network.graphs) == 1
