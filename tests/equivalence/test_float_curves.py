"""Functions whose tables TFLite fills in float32, against TFLite Micro: all 256 values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, ZERO_POINTS, Array, float32, scales
from tests.equivalence.definitions import looked_up
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    load,
    partition,
    run_on_npu,
)
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Fields, Value
from tvm_ethosu.backend.reference import Reference

OPTIONS = {
    "EXP": "ExpOptions",
    "NEG": "NegOptions",
    "GELU": "GeluOptions",
    "ABS": "AbsOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "SOFTMAX": "SoftmaxOptions",
}
SHAPE = (1, 16, 8, 2)


@dataclass(frozen=True)
class FloatCurve:
    """One operator on all values; ``between``: a float one between DEQUANTIZE and QUANTIZE."""

    code: str
    scales: tuple[float, float]
    zero_points: tuple[int, int]
    between: bool = False
    seed: int = 0
    accelerator: str = "ethos-u55-128"

    def build(self, fields: Fields | None = None) -> bytes:
        net = NetBuilder(seed=self.seed)
        x = net.input(SHAPE, self.scales[0], self.zero_points[0])
        quantized = net.dtype
        if self.between:
            net.dtype = "float32"
            x = self._add(
                net,
                net._add(
                    "DEQUANTIZE", (x.index,), net._result(SHAPE, 1, 0, ""), "DequantizeOptions", {}
                ),
                fields or {},
            )
            net.dtype = quantized
            net.output(net.quantize(x, self.scales[1], self.zero_points[1]))
        else:
            net.output(self._add(net, x, fields or {}))
        return net.build()

    def _add(self, net: NetBuilder, x: Value, fields: Fields) -> Value:
        result = net._result(SHAPE, self.scales[1], self.zero_points[1], "")
        return net._add(self.code, (x.index,), result, OPTIONS.get(self.code, "NONE"), fields)

    def values(self) -> Array:
        """Return all values that the function has a result for."""
        least = {"LOG": self.zero_points[0] + 1, "RSQRT": self.zero_points[0]}.get(self.code, -128)
        return np.arange(-128, 128).clip(least, 127).astype(np.int8).reshape(SHAPE)


def check(case: FloatCurve) -> None:
    """Compare all values."""
    assert_exact(case.build(), (case.accelerator,), inputs=[[case.values()]])


def float_curves(code: str, between: bool) -> st.SearchStrategy[FloatCurve]:
    """Draw scales with which exp stays below 2**31 steps, and zero points below values."""
    below = (
        ZERO_POINTS.map(lambda zero: min(zero, 126)) if code in ("LOG", "RSQRT") else ZERO_POINTS
    )
    return st.builds(
        FloatCurve,
        st.just(code),
        st.tuples(scales(-12, -5).filter(lambda s: s < 0.06), scales(-10, 0)),
        st.tuples(below, ZERO_POINTS),
        st.just(between),
        SEEDS,
        st.sampled_from(ACCELERATORS),
    )


test_elu, test_elu_thoroughly = examples_of(float_curves("ELU", False), check, quick=8)
test_rsqrt, test_rsqrt_thoroughly = examples_of(float_curves("RSQRT", False), check, quick=8)
test_float_exp, test_float_exp_thoroughly = examples_of(float_curves("EXP", True), check, quick=8)
test_float_log, test_float_log_thoroughly = examples_of(float_curves("LOG", True), check, quick=8)
test_float_neg, test_float_neg_thoroughly = examples_of(float_curves("NEG", True), check, quick=8)


# --- float operators that the importer writes as it writes the quantized ones ---------------------


@dataclass(frozen=True)
class Between:
    """A float operator between DEQUANTIZE and QUANTIZE."""

    curve: FloatCurve
    alpha: float


def check_between(case: Between) -> None:
    """Compare all values with TFLite Micro's float kernel."""
    fields: Fields = {0: ("Float32", case.alpha)} if case.curve.code == "LEAKY_RELU" else {}
    data = case.curve.build(fields)
    assert_exact(data, (case.curve.accelerator,), inputs=[[case.curve.values()]])


def between(code: str) -> st.SearchStrategy[Between]:
    """Draw scales from far below to far above those of the quantized operator."""
    curve = st.builds(
        FloatCurve,
        st.just(code),
        st.tuples(scales(-14, 2), scales(-12, 2)),
        st.tuples(ZERO_POINTS, ZERO_POINTS),
        st.just(True),
        SEEDS,
        st.sampled_from(ACCELERATORS),
    )
    return st.builds(Between, curve, st.sampled_from((0.01, 0.1, 0.3, 1.5)).map(float32))


test_float_tanh, test_float_tanh_thoroughly = examples_of(between("TANH"), check_between, quick=8)
test_float_logistic, test_float_logistic_thoroughly = examples_of(
    between("LOGISTIC"), check_between, quick=8
)
test_float_abs, test_float_abs_thoroughly = examples_of(between("ABS"), check_between, quick=8)
test_float_leaky_relu, test_float_leaky_relu_thoroughly = examples_of(
    between("LEAKY_RELU"), check_between, quick=8
)
test_float_hard_swish, test_float_hard_swish_thoroughly = examples_of(
    between("HARD_SWISH"), check_between, quick=8
)


def test_just_below_a_half_is_rounded_down() -> None:
    """The hyperbolic tangent of 9 is less than 1; adding a half to it in float32 gives 1."""
    check_between(Between(FloatCurve("TANH", (1.0, 2.0), (-128, -128), between=True), 0.1))


def test_a_float_softmax_is_not_the_quantized_one() -> None:
    case = FloatCurve("SOFTMAX", (0.05, 1 / 256), (3, -128), between=True)
    reasons = partition(case.build({0: ("Float32", 1.0)})).cpu_reasons.values()
    expected = "operator is float32 between DEQUANTIZE and QUANTIZE, the NPU takes a quantized one"
    assert expected in reasons


def _on_npu(data: bytes, values: Array) -> Array:
    network = partition(data, "ethos-u55-128")
    assert not network.cpu_reasons
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [values])
    return result


@pytest.mark.parametrize("code", ["EXP", "LOG"])
@pytest.mark.parametrize("result_scale", [2.0**-7, 2.0**-4, 2.0**-1])
def test_quantized_operators_that_tflite_micro_lacks(code: str, result_scale: float) -> None:
    """With a power of two, multiplying by its inverse and dividing by it are the same."""
    pair = float32(0.037), result_scale
    case = FloatCurve(code, pair, (-100, -20), between=True)
    expected = Reference(case.build()).run([case.values()])[0]
    np.testing.assert_array_equal(
        _on_npu(FloatCurve(code, pair, (-100, -20)).build(), case.values()), expected
    )


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu(approximate: bool) -> None:
    """Its definition in float64: TFLite Micro has no such kernel, TFLite's is a table too."""
    case = FloatCurve("GELU", (float32(0.04), float32(0.031)), (-10, -50))
    actual = _on_npu(case.build({0: ("Bool", approximate)}), case.values())
    x = case.scales[0] * (case.values().astype(np.float64) + 10)
    share = np.vectorize(lambda v: (1 + math.erf(v / math.sqrt(2))) / 2)(x)
    if approximate:
        share = (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    expected = np.clip(np.rint(x * share / case.scales[1]) - 50, -128, 127)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("code", "function"), [("EXP", math.exp), ("LOG", math.log)])
@pytest.mark.parametrize("result_scale", [2.0**-12, float32(0.00041)])
def test_int16_is_interpolated(
    code: str, function: Callable[[float], float], result_scale: float
) -> None:
    """TFLite's own table of 513 points: TFLite Micro has no such kernel."""
    scale = float32(0.00006)
    net = NetBuilder("int16")
    x = net.input((1, 256, 128, 2), scale)
    net.output(net.curve(code, x, result_scale, 0))
    values = np.arange(-(1 << 15), 1 << 15).astype(np.int16).reshape(x.shape)
    least = -(1 << 15) * result_scale

    def defined(real: float) -> float:
        return function(real) if code == "EXP" or real > 0 else least

    expected = looked_up(defined, values, scale, result_scale)
    np.testing.assert_array_equal(_on_npu(net.build(), values), expected)


REFUSED = {
    "largest result in steps": FloatCurve("EXP", (1.0, 1.0), (-128, 0)),
    "the NPU's operator table has no row for": FloatCurve("RSQRT", (0.1, 0.1), (-128, 0), True),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_uncertain_stays_on_the_cpu(reason: str) -> None:
    reasons = partition(REFUSED[reason].build()).cpu_reasons.values()
    assert any(reason in found for found in reasons)


def test_in_a_network_on_all_accelerators() -> None:
    net = NetBuilder(seed=3)
    x = net.conv2d(net.input((1, 9, 9, 8)), filters=20, scale=0.02, zero_point=3)
    y = net.curve("ELU", x, 0.02, -5)
    net.output(net.conv2d(net.curve("ELU", y, 0.01, 7), filters=4))
    assert_exact(net.build(), ACCELERATORS)
