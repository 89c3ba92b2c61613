"""Functions of one int16 value against TFLite Micro: all 65536 values, scales, shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, Array, float32, scales
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    load,
    partition,
    run_on_npu,
)
from tests.tflite_builder import NetBuilder

UNIT = 2.0**-15
FIXED = ("LOGISTIC", "TANH")


@dataclass(frozen=True)
class WideCurve:
    """One operator on all values; ``factor`` is the input's scale over the output's."""

    code: str
    scale: float
    factor: float = 1.0
    alpha: float = 0.1
    seed: int = 0
    accelerator: str = "ethos-u55-128"

    def build(self) -> bytes:
        net = NetBuilder("int16", seed=self.seed)
        x = net.input((1, 256, 128, 2), self.scale)
        result = UNIT if self.code in FIXED else float32(self.scale / self.factor)
        fields: Any = {0: ("Float32", self.alpha)} if self.code == "LEAKY_RELU" else None
        net.output(net.curve(self.code, x, result, 0, fields))
        return net.build()


def _values(code: str) -> Array:
    """Return all values; for RSQRT those that TFLite Micro takes."""
    least = 0 if code == "RSQRT" else -(1 << 15)
    values = np.arange(-(1 << 15), 1 << 15).clip(least)
    return values.astype(np.int16).reshape(1, 256, 128, 2)


def check(case: WideCurve) -> None:
    """Compare all values."""
    assert_exact(case.build(), (case.accelerator,), inputs=[[_values(case.code)]])


def _is_certain(scale: float) -> bool:
    """Return whether TFLite Micro takes a scale, and it is not just about to be a power of two."""
    border = min(abs(abs(np.log2(scale) - power) - 0.001) for power in (-12, -11))
    return scale < 8 / 3 and border > 1e-5


@st.composite
def wide_curves(draw: st.DrawFn, code: str) -> WideCurve:
    """Draw scales up to the ends of what TFLite Micro takes; powers of two are special there."""
    near = st.sampled_from((-12, -11, -10)).flatmap(
        lambda e: st.sampled_from((1, 1.0004, 0.9996, 1.002)).map(lambda f: float32(f * 2.0**e))
    )
    curved = st.one_of(near, scales(-16, -8), scales(-40, 1)).filter(_is_certain)
    if code == "RSQRT":
        scale = draw(scales(-16, 0))
        # Results are 1 / sqrt(steps) times this in steps, so that they fill the range or less.
        factor = draw(st.one_of(scales(10, 19), scales(-10, 19), scales(19, 29)))
        result = 1 / (math.sqrt(scale) * factor)
        accelerator = draw(st.sampled_from(ACCELERATORS))
        return WideCurve(code, scale, scale / result, seed=draw(SEEDS), accelerator=accelerator)
    ratio = st.one_of(st.just(1.0), scales(-6, 6), scales(-20, 14))
    return WideCurve(
        code,
        draw(curved if code in FIXED else scales(-16, 0)),
        draw(ratio),
        draw(st.one_of(st.sampled_from((0.01, 0.1, 0.3, 1.5)), st.floats(1e-3, 2.0)).map(float32)),
        draw(SEEDS),
        draw(st.sampled_from(ACCELERATORS)),
    )


test_logistic, test_logistic_thoroughly = examples_of(wide_curves("LOGISTIC"), check, quick=4)
test_tanh, test_tanh_thoroughly = examples_of(wide_curves("TANH"), check, quick=4)
test_abs, test_abs_thoroughly = examples_of(wide_curves("ABS"), check, quick=4)
test_leaky_relu, test_leaky_relu_thoroughly = examples_of(wide_curves("LEAKY_RELU"), check, quick=4)


test_rsqrt, test_rsqrt_thoroughly = examples_of(wide_curves("RSQRT"), check, quick=2)


def test_roots_of_what_has_none_are_the_largest_value() -> None:
    """TFLite Micro gives it for 0, and refuses negative values."""
    net = NetBuilder("int16")
    net.output(net.curve("RSQRT", net.input((1, 5), 0.01), 0.001, 0))
    network = partition(net.build())
    (graph,) = network.graphs.values()
    assert len(graph.ops) == 47
    values = np.array([[-32768, -3, 0, 1, 32767]], np.int16)
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [values])
    np.testing.assert_array_equal(result, [[32767, 32767, 32767, 10000, 55]])


def test_equal_scales_are_one_operator() -> None:
    """The NPU has a leaky ReLU of its own that leaves positive values as they are."""
    for code, factor, count in (("LEAKY_RELU", 1.0, 1), ("LEAKY_RELU", 1.3, 3), ("ABS", 1.3, 1)):
        (graph,) = partition(WideCurve(code, 0.01, factor).build()).graphs.values()
        assert len(graph.ops) == count


def test_in_a_network_on_all_accelerators() -> None:
    net = NetBuilder("int16", seed=3)
    x = net.conv2d(net.input((1, 9, 9, 8)), filters=20, scale=2**-12)
    gate = net.curve("LOGISTIC", x, UNIT, 0)
    y = net.arithmetic("MUL", net.curve("TANH", x, UNIT, 0), gate, scale=UNIT, zero_point=0)
    z = net.curve("LEAKY_RELU", y, 2 * UNIT, 0, {0: ("Float32", 0.2)})
    net.output(net.conv2d(net.curve("ABS", z, UNIT, 0), filters=4))
    assert_exact(net.build(), ACCELERATORS)


REFUSED = {
    "input scale is 2.7": WideCurve("TANH", float32(2.7)),
    "input scale is 0.00024431": WideCurve("TANH", float32(2.0**-11.999)),
    "largest result in steps of the output's scale is": WideCurve("EXP", 0.01),
    "input scale is 1e-14": WideCurve("LOGISTIC", float32(1e-14)),
    "factor to the output is 40000": WideCurve("ABS", 1.0, 40000.0),
    "lower slope is -0.5": WideCurve("LEAKY_RELU", 0.01, 1.0, -0.5),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_over_a_limit_it_stays_on_the_cpu(reason: str) -> None:
    (found,) = partition(REFUSED[reason].build()).cpu_reasons.values()
    assert reason in found


def test_zero_points_stay_on_the_cpu() -> None:
    net = NetBuilder("int16")
    net.output(net.curve("ABS", net.input((1, 4)), 0.001, 7))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert found == "output zero point is 7, the NPU takes 0 for int16"


def test_other_scales_than_tflites_stay_on_the_cpu() -> None:
    net = NetBuilder("int16")
    net.output(net.curve("TANH", net.input((1, 4)), 0.001, 0))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert found == "output scale is 0.001 with zero point 0, the NPU takes 1/32768 with 0"
