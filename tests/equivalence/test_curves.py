"""Functions of one value against TFLite Micro: all 256 values, scales, zero points, shapes."""

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
    Array,
    float32,
    scales,
)
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    load,
    partition,
    run_on_npu,
)
from tests.equivalence.operators import relu
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value


@dataclass(frozen=True)
class Curve:
    """One operator; ``factor`` is the input's scale over the output's where that is free."""

    code: str
    scale: float
    factor: float
    zero_points: tuple[int, int]
    alpha: float
    shape: tuple[int, ...]
    seed: int
    accelerators: tuple[str, ...]

    def add_to(self, net: NetBuilder, x: Value) -> Value:
        fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
        free = (float32(self.scale / self.factor), self.zero_points[1])
        fields: Any = {0: ("Float32", self.alpha)} if self.code == "LEAKY_RELU" else None
        return net.curve(self.code, x, *fixed.get(self.code, free), fields)

    def build(self) -> bytes:
        net = NetBuilder(seed=self.seed)
        x = net.input(self.shape, self.scale, self.zero_points[0])
        net.output(self.add_to(net, x))
        return net.build()


SHAPES = st.one_of(
    st.just((1, 16, 16, 1)),
    st.tuples(st.integers(1, 300)),
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), CHANNELS),
)


def curves(code: str) -> st.SearchStrategy[Curve]:
    """Draw scales that TFLite Micro takes: hard-swish shifts its result to the right only."""
    # Ratios with which products are halves, or next to one: how scales are divided shows there.
    ratio = st.one_of(scales(-6, 6), st.sampled_from((0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 2.5)))
    return st.builds(
        Curve,
        st.just(code),
        scales(-12, 2) if code == "HARD_SWISH" else st.one_of(scales(-10, 0), scales(-20, 3)),
        st.one_of(st.just(1.0), ratio),
        st.tuples(ZERO_POINTS, ZERO_POINTS),
        st.sampled_from((0.01, 0.1, 0.2, 0.3, 0.5, 1.0, 1.5)).map(float32),
        SHAPES,
        SEEDS,
        TWO_ACCELERATORS,
    )


def _values(case: Curve) -> Array:
    order = np.random.default_rng(case.seed).permutation(np.arange(-128, 128))
    return np.resize(order.astype(np.int8), case.shape)


def check(case: Curve) -> None:
    """Compare one operator on all values, or as many as there is room for."""
    assert_exact(case.build(), case.accelerators, inputs=[[_values(case)]])


test_logistic, test_logistic_thoroughly = examples_of(curves("LOGISTIC"), check)
test_tanh, test_tanh_thoroughly = examples_of(curves("TANH"), check)
test_leaky_relu, test_leaky_relu_thoroughly = examples_of(curves("LEAKY_RELU"), check)
test_abs, test_abs_thoroughly = examples_of(curves("ABS"), check)
test_hard_swish, test_hard_swish_thoroughly = examples_of(curves("HARD_SWISH"), check)


def _case(code: str, scale: float = 0.05, factor: float = 1.3) -> Curve:
    return Curve(code, scale, factor, (3, -5), 0.1, (1, 16, 16, 1), 1, ("ethos-u55-128",))


def test_more_tables_than_the_npu_holds_at_once() -> None:
    """Eight tables of 256 bytes fit, and one of softmax takes the place of four."""
    net = NetBuilder(seed=2)
    x = net.conv2d(net.input((1, 6, 6, 8)), filters=8, scale=0.05, zero_point=3)
    for index in range(10):
        code = ("HARD_SWISH", "LEAKY_RELU", "ABS")[index % 3]
        x = _case(code, x.scale, 1 + index / 50).add_to(net, x)
        x = net.quantize(net.softmax(x), 0.05, 3) if index in (2, 7) else x
    net.output(_case("TANH").add_to(net, x), _case("LOGISTIC").add_to(net, x))
    assert_exact(net.build(), ACCELERATORS)


REFUSED = {
    "output scale is 0.01 with zero point 0, the NPU takes 1/128 with 0": ("TANH", 0.01, 0),
    "output scale is 0.01 with zero point 4, the NPU takes 1/256 with -128": ("LOGISTIC", 0.01, 4),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_scales_than_tflites_stay_on_the_cpu(reason: str) -> None:
    code, scale, zero_point = REFUSED[reason]
    net = NetBuilder()
    net.output(net.curve(code, net.input((1, 4)), scale, zero_point))
    assert list(partition(net.build()).cpu_reasons.values()) == [reason]


def test_uint8_without_a_kernel_in_tflite_stays_on_the_cpu() -> None:
    net = NetBuilder("uint8")
    net.output(net.curve("ABS", net.input((1, 4)), 0.05, 128))
    (reason,) = partition(net.build()).cpu_reasons.values()
    assert reason == "input type is uint8, the NPU takes int8 or int16"


def check_uint8(case: Curve) -> None:
    """Compare where TFLite's kernels of uint8 calculate as those of int8."""
    net = NetBuilder(seed=case.seed)
    net.output(case.add_to(net, net.input(case.shape, case.scale, case.zero_points[0])))
    assert_exact_in_uint8(net, case.accelerators[:1], inputs=[[_values(case)]])


test_unsigned_leaky_relu, test_unsigned_leaky_relu_thoroughly = examples_of(
    curves("LEAKY_RELU"), check_uint8, quick=5
)
test_unsigned_hard_swish, test_unsigned_hard_swish_thoroughly = examples_of(
    curves("HARD_SWISH"), check_uint8, quick=5
)


@pytest.mark.parametrize("code", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [0.001, 0.02, 0.11, 4.0])
def test_unsigned_curves_are_their_definition(code: str, scale: float) -> None:
    """TFLite Micro has no such kernels, and TFLite's are tables filled in float32."""
    net = NetBuilder("uint8")
    steps, zero = {"LOGISTIC": (256, 0), "TANH": (128, 128)}[code]
    x = net.input((1, 16, 16, 1), scale, 100)
    net.output(net.curve(code, x, 1 / steps, zero))
    values = np.arange(256, dtype=np.uint8).reshape(x.shape)
    network = partition(net.build())
    (actual,) = run_on_npu(network, load(network, "ethos-u55-128"), [values])
    reals = (values.astype(float) - 100) * x.scale
    results = np.tanh(reals) if code == "TANH" else 1 / (1 + np.exp(-reals))
    np.testing.assert_array_equal(actual, (np.rint(results * steps) + zero).clip(0, 255))


@pytest.mark.parametrize(
    ("code", "factor"), [("RELU", 1.0), ("RELU", 0.7), ("RELU", 2.3), ("RELU6", 1.0)]
)
@pytest.mark.parametrize("zero_point", [-128, 3, 127])
def test_limits_of_a_network_input(code: str, factor: float, zero_point: int) -> None:
    """Nothing is before them into which they could be fused."""
    net = NetBuilder(seed=1)
    x = net.input((1, 16, 16, 1), 0.05, zero_point)
    net.output(relu(net, x, code, float32(0.05 / factor)))
    case = _case(code)
    assert_exact(net.build(), case.accelerators, inputs=[[_values(case)]])


def test_limits_of_a_tensor_that_is_read_without_them_too() -> None:
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 5, 6, 4)), filters=4)
    net.output(net.add(relu(net, y), y))
    assert_exact(net.build(), ("ethos-u55-64",))


def test_limits_of_a_layer_on_the_cpu_stay_with_it() -> None:
    """An NPU function for them alone would only cost two copies."""
    net = NetBuilder(seed=1)
    x = net.input((1, 66, 66, 4))
    net.output(net.conv2d(x, filters=4, kernel=(65, 64), activation="RELU6"))
    network = partition(net.build())
    assert not network.graphs
    (reason,) = network.cpu_reasons.values()
    assert reason == "dilated kernel height is 65, the NPU takes 1 to 64"
