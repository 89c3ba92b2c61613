"""Additions against TFLite Micro: all pairs of values, broadcasts, constants, add(x, x)."""

from __future__ import annotations

from dataclasses import dataclass
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
from tests.equivalence.harness import Array, assert_exact, examples_of, partition
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.backend.sim import elementwise
from tvm_ethosu.backend.sim.context import Context
from tvm_ethosu.backend.sim.operations import Elementwise, Rounding, ScaleMode
from tvm_ethosu.backend.sim.scaling import scale

VALUES = np.arange(-128, 128, dtype=np.int8)
LEFT = np.repeat(VALUES, 256).reshape(1, 256, 256, 1)
RIGHT = np.tile(VALUES, 256).reshape(1, 256, 256, 1)


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points of both operands and the result; TFLite Micro has limits to them."""

    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]
    activation: str


@st.composite
def quantizations(draw: st.DrawFn) -> Quantization:
    """Draw scales: equal ones, powers of two, ratios up to 2**20 between the operands."""
    first = draw(scales(-8, 2))
    ratio = draw(st.one_of(st.just(1.0), scales(-3, 3), scales(-20, 20)))
    second = float32(first * ratio)
    # TFLite Micro aborts when the sum's factor is 1 or more: 2 * larger / (2**20 * result).
    result = float32(max(first, second) * draw(scales(-6, 6)))
    zero_points = draw(st.tuples(ZERO_POINTS, ZERO_POINTS, ZERO_POINTS))
    return Quantization((first, second, result), zero_points, draw(ACTIVATIONS))


def add_all_pairs(of: Quantization) -> NetBuilder:
    """Return the network whose inputs ``LEFT`` and ``RIGHT`` make all pairs of values."""
    net = NetBuilder()
    a = net.input(LEFT.shape, of.scales[0], of.zero_points[0])
    b = net.input(RIGHT.shape, of.scales[1], of.zero_points[1])
    result: dict[str, Any] = {"scale": of.scales[2], "zero_point": of.zero_points[2]}
    net.output(net.add(a, b, activation=of.activation, **result))
    return net


def check_all_pairs(case: Quantization) -> None:
    """Compare all 65536 pairs of values; scales may be refused, by that name only."""
    data = add_all_pairs(case).build()
    reasons = partition(data).cpu_reasons
    if reasons:
        assert all("scales is" in reason for reason in reasons.values()), reasons
        return
    assert_exact(data, ("ethos-u55-128",), inputs=[[LEFT, RIGHT]])


test_all_pairs, test_all_pairs_thoroughly = examples_of(quantizations(), check_all_pairs)

# Triples of scales for which the operand's two roundings give another sum than one would.
DELICATE = [
    (0.21514554, 0.35382998, 0.17346573),
    (1.6125949621200562, 0.9387958645820618, 1.0740444660186768),
    (0.07776708155870438, 0.03251359611749649, 0.03728465363383293),
    (0.10701259970664978, 0.17778660356998444, 0.15744169056415558),
    (0.0449291355907917, 0.0645856037735939, 0.09956765174865723),
    (0.05, 0.05, 0.0737),
    (0.05, 0.05, 0.025),
]


@pytest.mark.parametrize("of", DELICATE)
@pytest.mark.parametrize("zero_points", [(0, 0, 0), (127, -128, -5), (-128, 127, 9)])
def test_all_pairs_of_delicate_scales(
    of: tuple[float, float, float], zero_points: tuple[int, int, int]
) -> None:
    check_all_pairs(Quantization(of, zero_points, "NONE"))


def _scale_rounding_once(
    op: Elementwise, a: Array, b: Array, _context: Context
) -> tuple[Array, Array]:
    """Scale 8-bit operands as ``_scale_operands`` does, but round the precise one only once."""
    if op.scale_mode is ScaleMode.BOTH_16:
        return a * op.opa_scale.multiplier, b * op.opb_scale
    factor = op.opa_scale

    def precise(values: Array) -> Array:
        return scale(values, factor.multiplier, factor.shift, Rounding.DOUBLE)

    if op.scale_mode is ScaleMode.OPA_32:
        return precise(a), b << 19
    return a << 19, precise(b)


@pytest.mark.parametrize("of", DELICATE)
def test_all_pairs_if_the_operand_is_rounded_once(
    of: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How often the NPU rounds there is not documented: both ways must give TFLite's sums."""
    monkeypatch.setattr(elementwise, "_scale_operands", _scale_rounding_once)
    check_all_pairs(Quantization(of, (3, -4, 5), "NONE"))


# --- shapes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shapes:
    """Operands of which at most one is broadcast; ``constant`` names the constant operand."""

    seed: int
    full: tuple[int, ...]
    part: tuple[int, ...]
    swapped: bool
    constant: str
    quantization: Quantization
    accelerators: tuple[str, ...]


@st.composite
def shapes(draw: st.DrawFn) -> Shapes:
    """Draw ranks 1 to 4; the smaller operand has extents of 1, lacks the first ones, or neither."""
    sizes = (1, draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(CHANNELS))
    rank = draw(st.integers(1, 4))
    full = sizes[4 - rank :]
    kept = draw(st.tuples(*(st.booleans() for _ in full)))
    part = tuple(size if keep else 1 for size, keep in zip(full, kept, strict=True))
    dropped = draw(st.integers(0, rank))
    part = part[dropped:] if draw(st.booleans()) else part
    return Shapes(
        draw(SEEDS),
        full,
        draw(st.sampled_from((full, part, part))),
        draw(st.booleans()),
        draw(st.sampled_from(("neither", "neither", "full", "part"))),
        draw(quantizations()),
        draw(TWO_ACCELERATORS),
    )


def _add_of_shapes(case: Shapes) -> bytes:
    net = NetBuilder(seed=case.seed)
    of = case.quantization

    def operand(which: str, shape: tuple[int, ...], index: int) -> Value:
        scale, zero_point = of.scales[index], of.zero_points[index]
        if case.constant == which and shape:
            data = net.rng.integers(-128, 128, shape).astype(np.int8)
            return net.constant(data, scale, zero_point)
        if case.constant == which or not shape:
            return net.constant(np.array(net.rng.integers(-128, 128), np.int8), scale, zero_point)
        return net.input(shape, scale, zero_point)

    operands = [operand("full", case.full, 0), operand("part", case.part, 1)]
    a, b = reversed(operands) if case.swapped else operands
    result: dict[str, Any] = {"scale": of.scales[2], "zero_point": of.zero_points[2]}
    net.output(net.add(a, b, activation=of.activation, **result))
    return net.build()


def check_shapes(case: Shapes) -> None:
    """Compare one addition; two constants make no network."""
    if case.constant == "full" and not case.part:
        return
    data = _add_of_shapes(case)
    reasons = partition(data).cpu_reasons
    if reasons:
        assert all("scales is" in reason for reason in reasons.values()), reasons
        return
    assert_exact(data, case.accelerators, case.seed)


test_shapes, test_shapes_thoroughly = examples_of(shapes(), check_shapes)


@dataclass(frozen=True)
class Doubled:
    """``add(x, x)``, of an input or of an inner tensor."""

    seed: int
    channels: int
    inner: bool
    quantization: Quantization
    accelerators: tuple[str, ...]


def check_doubled(case: Doubled) -> None:
    """Compare the sum of a tensor with itself."""
    net = NetBuilder(seed=case.seed)
    of = case.quantization
    x = net.input((1, 5, 6, case.channels), of.scales[0], of.zero_points[0])
    x = net.conv2d(x, filters=case.channels) if case.inner else x
    result: dict[str, Any] = {"scale": float32(x.scale * 1.7), "zero_point": of.zero_points[2]}
    net.output(net.add(x, x, activation=of.activation, **result))
    assert_exact(net.build(), case.accelerators, case.seed)


test_doubled, test_doubled_thoroughly = examples_of(
    st.builds(Doubled, SEEDS, CHANNELS, st.booleans(), quantizations(), TWO_ACCELERATORS),
    check_doubled,
    quick=10,
)


@pytest.mark.parametrize("exponent", [-120, 120])
def test_scales_far_from_one(exponent: int) -> None:
    unit = 2.0**exponent
    check_all_pairs(Quantization((unit, 0.7 * unit, 1.3 * unit), (3, -4, 5), "NONE"))
