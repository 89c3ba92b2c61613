"""SUB, MUL, MINIMUM and MAXIMUM against TFLite Micro: pairs of values, broadcasts, constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import (
    ACTIVATIONS,
    CHANNELS,
    SEEDS,
    TWO_ACCELERATORS,
    ZERO_POINTS,
    float32,
    scales,
)
from tests.equivalence.harness import assert_exact, examples_of, input_sets, partition
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.equivalence.test_add import (
    DELICATE,
    LEFT,
    RIGHT,
    Quantization,
    _scale_rounding_once,
    quantizations,
)
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.backend.sim import elementwise

Pair = tuple[Value, Value]


def _result(of: Quantization) -> dict[str, Any]:
    return {"scale": of.scales[2], "zero_point": of.zero_points[2]}


def _all_pairs(code: str, of: Quantization) -> NetBuilder:
    net = NetBuilder()
    a = net.input(LEFT.shape, of.scales[0], of.zero_points[0])
    b = net.input(RIGHT.shape, of.scales[1], of.zero_points[1])
    activation = of.activation if code in ("SUB", "MUL") else "NONE"
    net.output(net.arithmetic(code, a, b, activation=activation, **_result(of)))
    return net


def _all_pairs_checker(code: str) -> Callable[[Quantization], None]:
    """Return a check of all 65536 pairs of values; scales may be refused, by that name only."""

    def check(case: Quantization) -> None:
        net = _all_pairs(code, case)
        reasons = partition(net.build()).cpu_reasons
        if reasons:
            assert all("scales is" in reason for reason in reasons.values()), reasons
            return
        assert_exact(net.build(), ("ethos-u55-128",), inputs=[[LEFT, RIGHT]])

    return check


check_sub = _all_pairs_checker("SUB")
check_mul = _all_pairs_checker("MUL")


@st.composite
def products(draw: st.DrawFn) -> Quantization:
    """Draw scales whose products fill the range, and such as leave little or almost nothing."""
    first, second = draw(scales(-8, 2)), draw(scales(-8, 2))
    factor = draw(st.one_of(st.just(2.0**-7), scales(-12, 2), scales(-30, 12)))
    result = float32(first * second / factor)
    zero_points = draw(st.tuples(ZERO_POINTS, ZERO_POINTS, ZERO_POINTS))
    return Quantization((first, second, result), zero_points, draw(ACTIVATIONS))


test_sub, test_sub_thoroughly = examples_of(quantizations(), check_sub)
test_mul, test_mul_thoroughly = examples_of(products(), check_mul)


@pytest.mark.parametrize("of", DELICATE)
def test_differences_of_delicate_scales(
    of: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both readings of how often the NPU rounds, both orders of operands."""
    first, second, result = of
    for scales_ in ((first, second, result), (second, first, result)):
        check_sub(Quantization(scales_, (3, -4, 5), "NONE"))
        with monkeypatch.context() as patch:
            patch.setattr(elementwise, "_scale_operands", _scale_rounding_once)
            check_sub(Quantization(scales_, (3, -4, 5), "NONE"))


@pytest.mark.parametrize("code", ["MINIMUM", "MAXIMUM"])
@pytest.mark.parametrize("zero_point", [-128, 0, 127])
def test_comparison_of_all_pairs(code: str, zero_point: int) -> None:
    case = Quantization((0.05, 0.05, 0.05), (zero_point,) * 3, "NONE")
    net = _all_pairs(code, case)
    assert_exact(net.build(), ("ethos-u55-128",), inputs=[[LEFT, RIGHT]])
    assert_exact_in_uint8(net, ("ethos-u55-128",), inputs=[[LEFT, RIGHT]])


@pytest.mark.parametrize("code", ["SUB", "MUL"])
def test_uint8(code: str) -> None:
    for of in ((0.0517, 0.0711, 0.0613), (0.05, 0.05, 0.025)):
        net = _all_pairs(code, Quantization(of, (3, -4, 5), "RELU6"))
        assert_exact_in_uint8(net, ("ethos-u55-128",), inputs=[[LEFT, RIGHT]])


# --- shapes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shapes:
    """Operands of which one may be broadcast, be a constant, or stand on the other side."""

    code: str
    seed: int
    full: tuple[int, ...]
    part: tuple[int, ...]
    swapped: bool
    constant: str
    accelerators: tuple[str, ...]

    def build(self) -> NetBuilder:
        net = NetBuilder(seed=self.seed)
        full = self._operand(net, "full", self.full, 0.05)
        part = self._operand(net, "part", self.part, self._scale(0.031))
        a, b = (part, full) if self.swapped else (full, part)
        result = {"scale": self._scale(0.02), "zero_point": self._zero_point(7)}
        net.output(net.arithmetic(self.code, a, b, **result))
        return net

    def _scale(self, scale: float) -> float:
        return scale if self.code in ("SUB", "MUL") else 0.05

    def _zero_point(self, zero_point: int) -> int:
        return zero_point if self.code in ("SUB", "MUL") else 3

    def _operand(self, net: NetBuilder, which: str, shape: tuple[int, ...], scale: float) -> Value:
        zero_point = self._zero_point(-9 if which == "part" else 3)
        if self.constant == which or not shape:
            data = net.rng.integers(-128, 128, shape).astype(np.int8)
            return net.constant(np.asarray(data, np.int8), scale, zero_point)
        return net.input(shape, scale, zero_point)


@st.composite
def shapes(draw: st.DrawFn) -> Shapes:
    """Draw ranks 1 to 4; the smaller operand has extents of 1, lacks the first ones, or neither."""
    rank = draw(st.integers(1, 4))
    full = (1, draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(CHANNELS))[4 - rank :]
    kept = draw(st.tuples(*(st.booleans() for _ in full)))
    part = tuple(size if keep else 1 for size, keep in zip(full, kept, strict=True))
    part = part[draw(st.integers(0, rank)) :] if draw(st.booleans()) else part
    part = draw(st.sampled_from((full, part, part)))
    constants = ("neither", "full", "part") if part else ("neither", "part")
    return Shapes(
        draw(st.sampled_from(("SUB", "MUL", "MINIMUM", "MAXIMUM"))),
        draw(SEEDS),
        full,
        part,
        draw(st.booleans()),
        draw(st.sampled_from(constants)),
        draw(TWO_ACCELERATORS),
    )


def check_shapes(case: Shapes) -> None:
    """Compare one operator."""
    data = case.build().build()
    assert_exact(data, case.accelerators, inputs=input_sets(data, case.seed))


test_shapes, test_shapes_thoroughly = examples_of(shapes(), check_shapes, quick=30)


@pytest.mark.parametrize("code", ["SUB", "MUL", "MINIMUM"])
def test_a_tensor_with_itself(code: str) -> None:
    net = NetBuilder(seed=3)
    x = net.conv2d(net.input((1, 6, 5, 16)), filters=16)
    result = {"scale": x.scale, "zero_point": x.zero_point}
    net.output(net.arithmetic(code, x, x, **result))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-512"))


def test_split_order_of_operands() -> None:
    """The same two tensors in both orders, the broadcast one first and second."""
    net = NetBuilder(seed=5)
    x = net.conv2d(net.input((1, 6, 5, 16)), filters=16)
    pooled = net.avg_pool(x, kernel=(6, 5), stride=(1, 1))
    result = {"scale": x.scale, "zero_point": 5}
    net.output(net.arithmetic("SUB", x, pooled, **result))
    net.output(net.arithmetic("SUB", pooled, x, **result))
    assert_exact(net.build(), ("ethos-u55-32", "ethos-u65-512"))


def test_factors_over_the_limit_stay_on_the_cpu() -> None:
    case = replace(Quantization((1.0, 1.0, 2.0**-15), (0, 0, 0), "NONE"))
    reasons = partition(_all_pairs("MUL", case).build()).cpu_reasons
    assert list(reasons.values()) == [
        "rescale factor is 32768, the NPU takes a positive number up to 2**14"
    ]


@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL", "MAXIMUM"])
def test_a_batch_of_several(code: str) -> None:
    net = NetBuilder(seed=4)
    a, b = (net.input((3, 5, 4, 17), 0.05, 3) for _ in range(2))
    result = {"scale": 0.05, "zero_point": 3}
    net.output(net.add(a, b) if code == "ADD" else net.arithmetic(code, a, b, **result))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-512"))


@pytest.mark.parametrize("first", [(3, 5, 4, 17), (1, 5, 4, 17)])
def test_a_batch_that_is_broadcast(first: tuple[int, ...]) -> None:
    net = NetBuilder(seed=4)
    second = (4 - first[0], *first[1:])
    a, b = net.input(first, 0.05, 3), net.input(second, 0.05, 3)
    net.output(net.arithmetic("MUL", a, b, scale=0.05, zero_point=3))
    assert_exact(net.build(), ("ethos-u55-64", "ethos-u65-512"))
