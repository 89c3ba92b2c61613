"""Softmax of int16 against TFLite Micro: all differences, row lengths, scales, factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS, Array, float32, scales
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    input_sets,
    partition,
    plan_between,
    plan_for_size,
    plan_for_speed,
)
from tests.equivalence.test_softmax import ROWS
from tests.tflite_builder import NetBuilder


@dataclass(frozen=True)
class WideSoftmax:
    """One softmax over the last dimension."""

    shape: tuple[int, ...]
    scale: float
    beta: float = 1.0
    seed: int = 0
    accelerators: tuple[str, ...] = ("ethos-u55-128",)

    def build(self) -> bytes:
        net = NetBuilder("int16", seed=self.seed)
        net.output(net.softmax(net.input(self.shape, self.scale), beta=self.beta))
        return net.build()


@st.composite
def softmaxes(draw: st.DrawFn) -> WideSoftmax:
    """Draw ranks 2 to 4, scales from where all is equal to where only the largest is left."""
    outer = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    return WideSoftmax(
        (*outer, draw(ROWS)),
        draw(st.one_of(scales(-18, -8), scales(-30, 0))),
        draw(st.sampled_from((1.0, 1.0, 0.5, 3.0, float32(0.1)))),
        draw(SEEDS),
        draw(TWO_ACCELERATORS),
    )


def _inputs(case: WideSoftmax) -> list[list[Array]]:
    """Return full-range inputs, the ends of the range, and rows of values close to each other."""
    rng = np.random.default_rng(case.seed)
    steps = rng.geometric(min(0.5, case.scale * case.beta), case.shape).clip(0, 65535)
    return [
        *input_sets(case.build(), case.seed, count=1),
        [(32767 - steps).astype(np.int16)],
    ]


def check(case: WideSoftmax) -> None:
    """Compare."""
    assert_exact(case.build(), case.accelerators, inputs=_inputs(case))


test_softmax, test_softmax_thoroughly = examples_of(softmaxes(), check, quick=8)


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 0.001])
def test_all_differences_to_the_largest_value(scale: float) -> None:
    case = WideSoftmax((256, 256, 2), float32(scale))
    values = np.arange(-(1 << 15), 1 << 15)
    pairs = np.stack([np.full(values.shape, values[-1]), values], axis=1)
    inputs = pairs.astype(np.int16).reshape(case.shape)
    assert_exact(case.build(), case.accelerators, inputs=[[inputs]])


@pytest.mark.parametrize("channels", [1, 2, 512, 4095, 20000])
def test_rows_of_equal_values_and_long_ones(channels: int) -> None:
    case = WideSoftmax((1, channels), 1e-5)
    inputs = input_sets(case.build(), 5, count=1)
    assert_exact(case.build(), case.accelerators, inputs=inputs)


def test_rows_of_a_feature_map_in_all_plans() -> None:
    case = WideSoftmax((1, 6, 20, 5), 1e-4, accelerators=("ethos-u55-32",))
    plans = (plan_for_speed, plan_for_size, plan_between)
    network = assert_exact(case.build(), case.accelerators, plans=plans)
    (graph,) = network.graphs.values()
    assert len(graph.ops) == 13


def test_between_convolutions_on_all_accelerators() -> None:
    net = NetBuilder("int16", seed=4)
    x = net.conv2d(net.input((1, 6, 6, 8)), filters=16)
    net.output(net.conv2d(net.softmax(x), filters=8), x)
    assert_exact(net.build(), ACCELERATORS)


REFUSED = {
    "rows of a softmax is 65792": WideSoftmax((1, 257, 256, 1), 1e-5),
    "input scale times beta is 6, the NPU takes up to 5": WideSoftmax((1, 10), 6.0),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_over_a_limit_it_stays_on_the_cpu(reason: str) -> None:
    reasons = partition(REFUSED[reason].build()).cpu_reasons
    assert [reason in found for found in reasons.values()] == [True]
