"""Softmax against TFLite Micro's integer kernel: all differences, row lengths, scales, factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import (
    SEEDS,
    TWO_ACCELERATORS,
    ZERO_POINTS,
    Array,
    float32,
    scales,
)
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    input_sets,
    load,
    partition,
    plan_between,
    plan_for_size,
    plan_for_speed,
    run_on_npu,
)
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.tflite_builder import NetBuilder
from tvm_ethosu.scheduler.arch import find_arch

# Sums of more elements may reach 512, where TFLite's kernel shifts by 32 bits and more.
LONGEST_ALWAYS_DEFINED = 511


@dataclass(frozen=True)
class Softmax:
    """One softmax over the last dimension."""

    shape: tuple[int, ...]
    scale: float
    zero_point: int
    beta: float
    seed: int
    accelerators: tuple[str, ...]

    def build(self) -> NetBuilder:
        net = NetBuilder(seed=self.seed)
        x = net.input(self.shape, self.scale, self.zero_point)
        net.output(net.softmax(x, beta=self.beta))
        return net


ROWS = st.one_of(st.integers(1, 40), st.sampled_from((16, 32, 48, 128, 511)))


@st.composite
def softmaxes(draw: st.DrawFn) -> Softmax:
    """Draw ranks 2 to 4: TFLite Micro takes vectors for a batch."""
    outer = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    beta = draw(st.sampled_from((1.0, 1.0, 1.0, 0.5, 3.0, float32(0.1))))
    return Softmax(
        (*outer, draw(ROWS)),
        # Above 2**-26 / beta; at the other end all but the largest value vanish.
        draw(st.one_of(scales(-8, 1), scales(-22, 8))),
        draw(ZERO_POINTS),
        beta,
        draw(SEEDS),
        draw(TWO_ACCELERATORS),
    )


def _inputs(case: Softmax) -> list[list[Array]]:
    """Return full-range inputs, the ends of the range, and rows of values close to each other."""
    data = case.build().build()
    rng = np.random.default_rng(case.seed)
    close = 127 - rng.geometric(0.1, case.shape).clip(0, 255)
    return [*input_sets(data, case.seed, count=1), [close.astype(np.int8)]]


def check(case: Softmax) -> None:
    """Compare in int8."""
    assert_exact(case.build().build(), case.accelerators, inputs=_inputs(case))


def check_uint8(case: Softmax) -> None:
    """Compare in uint8."""
    assert_exact_in_uint8(case.build(), case.accelerators[:1], inputs=_inputs(case))


test_softmax, test_softmax_thoroughly = examples_of(softmaxes(), check)
test_uint8, test_uint8_thoroughly = examples_of(softmaxes(), check_uint8, quick=10)


def _case(shape: tuple[int, ...], scale: float = 0.05, *accelerators: str) -> Softmax:
    return Softmax(shape, scale, 3, 1.0, 1, accelerators or ("ethos-u55-128",))


@pytest.mark.parametrize("scale", [2.0**-20, 0.001, 0.02, 0.1, 0.5, 40.0])
def test_all_differences_to_the_largest_value(scale: float) -> None:
    case = _case((256, 2), scale, *ACCELERATORS)
    pairs = np.stack([np.full(256, 127), np.arange(-128, 128)], axis=1).astype(np.int8)
    assert_exact(case.build().build(), case.accelerators, inputs=[[pairs]])


@pytest.mark.parametrize("channels", [1, 2, 255, 256, LONGEST_ALWAYS_DEFINED])
def test_rows_of_equal_values(channels: int) -> None:
    """The sum is then the row's length: from 1 up to the largest that TFLite can invert."""
    case = _case((1, channels))
    assert_exact(case.build().build(), case.accelerators)


@pytest.mark.parametrize("channels", [512, 1001, 4095])
def test_long_rows(channels: int) -> None:
    case = _case((2, channels), 0.1)
    inputs = input_sets(case.build().build(), 5)[:2]
    assert_exact(case.build().build(), case.accelerators, inputs=inputs)


@pytest.mark.parametrize("channels", [512, 600, 4095])
def test_shares_too_small_to_be_written_are_zero(channels: int) -> None:
    """Rows of equal values whose share of 1 / channels rounds to 0: no case for TFLite's kernel."""
    case = _case((1, channels))
    network = partition(case.build().build(), "ethos-u55-128")
    equal = np.full((1, channels), 17, np.int8)
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [equal])
    np.testing.assert_array_equal(result, np.full((1, channels), -128, np.int8))


def test_rows_of_a_feature_map_in_all_plans() -> None:
    case = _case((1, 6, 20, 5), 0.05, "ethos-u55-32")
    plans = (plan_for_speed, plan_for_size, plan_between)
    network = assert_exact(case.build().build(), case.accelerators, plans=plans)
    (graph,) = network.graphs.values()
    assert len(graph.ops) == 29
    # Whole tensors of 32 bits would take 2 * 4 bytes for each of the 600 elements.
    arch = find_arch("ethos-u55-32")
    assert plan_for_size(graph, arch).scratch_bytes < 600 * 8 // 2


def test_between_convolutions_on_all_accelerators() -> None:
    net = NetBuilder(seed=4)
    x = net.conv2d(net.input((1, 6, 6, 8)), filters=16)
    y = net.quantize(net.softmax(x), 0.03, -7)
    net.output(net.conv2d(y, filters=8), x)
    assert_exact(net.build(), ACCELERATORS)


REFUSED = {
    "elements of a softmax row is 4096": _case((1, 4096)),
    "rows of a softmax is 65792": _case((1, 257, 256, 1)),
    "input scale times beta is 1.49012e-08": _case((1, 10), 2.0**-26),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_over_a_limit_it_stays_on_the_cpu(reason: str) -> None:
    reasons = partition(REFUSED[reason].build().build()).cpu_reasons
    assert [reason in found for found in reasons.values()] == [True]
