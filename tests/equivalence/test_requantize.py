"""QUANTIZE between types against TFLite Micro: all 8-bit values, all shapes, 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import CHANNELS, SEEDS, TWO_ACCELERATORS, float32, scales
from tests.equivalence.harness import Array, assert_exact, examples_of, partition
from tests.tflite_builder import NetBuilder

TYPES = (("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"))


@dataclass(frozen=True)
class Requantize:
    """One change of quantization; zero points are counted from the least value of the type."""

    types: tuple[str, str]
    scale: float
    factor: float
    zero_points: tuple[int, int]
    shape: tuple[int, ...]
    seed: int
    accelerators: tuple[str, ...]


STEPS = st.one_of(st.sampled_from((0, 128, 255)), st.integers(0, 255))
SHAPES = st.one_of(
    st.just((1, 16, 16, 1)),
    st.tuples(st.integers(1, 300)),
    st.tuples(st.integers(1, 9), st.integers(1, 9), CHANNELS),
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), CHANNELS),
)
CASES = st.builds(
    Requantize,
    st.sampled_from(TYPES),
    scales(),
    st.one_of(st.just(1.0), scales(-3, 3), scales(-40, 20)),
    st.tuples(STEPS, STEPS),
    SHAPES,
    SEEDS,
    TWO_ACCELERATORS,
)


def _least(dtype: str) -> int:
    return int(np.iinfo(dtype).min)


def _values(case: Requantize) -> Array:
    """Return all values of the type, or as many as there is room for, in random order."""
    info = np.iinfo(case.types[0])
    order = np.random.default_rng(case.seed).permutation(np.arange(info.min, info.max + 1))
    return np.resize(order.astype(case.types[0]), case.shape)


def check(case: Requantize) -> None:
    """Compare one operator on all values of its input's type."""
    source, target = case.types
    net = NetBuilder(source)
    x = net.input(case.shape, case.scale, _least(source) + case.zero_points[0])
    scale = float32(case.scale / case.factor)
    net.output(net.quantize(x, scale, _least(target) + case.zero_points[1], target))
    assert_exact(net.build(), case.accelerators, inputs=[[_values(case)]])


test_requantize, test_requantize_thoroughly = examples_of(CASES, check)


@pytest.mark.parametrize(
    "shape", [(300, 300, 1, 1), (65536, 2), (2, 65536), (7, 65536, 1, 1), (3, 300, 500)]
)
def test_many_rows(shape: tuple[int, ...]) -> None:
    check(Requantize(("int8", "int8"), 0.1, 0.7, (100, 200), shape, 1, ("ethos-u55-256",)))


@pytest.mark.parametrize("exponent", [-120, 120])
def test_scales_far_from_one(exponent: int) -> None:
    shape = (1, 16, 16, 1)
    case = Requantize(
        ("int8", "int8"), 2.0**exponent, 0.7, (100, 120), shape, 1, ("ethos-u55-256",)
    )
    check(case)


# --- 32 bits --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """One change from or to int32; ``ratio`` is the factor."""

    narrow: str
    is_widening: bool
    ratio: float
    zero_point: int
    shape: tuple[int, ...]
    seed: int
    accelerators: tuple[str, ...]


WORDS = st.builds(
    Words,
    st.sampled_from(("int8", "int16")),
    st.booleans(),
    st.one_of(scales(-33, -1), scales(-12, -2)),
    st.integers(-128, 127),
    SHAPES,
    SEEDS,
    TWO_ACCELERATORS,
)


def check_words(case: Words) -> None:
    """Compare one change from or to int32."""
    types = (case.narrow, "int32") if case.is_widening else ("int32", case.narrow)
    zero_point = case.zero_point if case.narrow == "int8" else 0
    zeros = (zero_point, 0) if case.is_widening else (0, zero_point)
    ratio = case.ratio * 2**13 if case.is_widening else case.ratio
    net = NetBuilder(types[0], seed=case.seed)
    x = net.input(case.shape, 0.1, zeros[0])
    net.output(net.quantize(x, float32(0.1 / ratio), zeros[1], types[1]))
    assert_exact(net.build(), case.accelerators, case.seed)


test_words, test_words_thoroughly = examples_of(WORDS, check_words)


def test_the_sums_of_a_cpu_operator_are_not_taken_over() -> None:
    net = NetBuilder(seed=1)
    y = net.conv2d(net.input((1, 20, 20, 8)), filters=8, kernel=(65, 64), per_channel=False)
    net.output(y)
    network = partition(net.build())
    assert not network.graphs
    assert any("dilated kernel height is 65" in reason for reason in network.cpu_reasons.values())


@pytest.mark.parametrize(
    ("types", "scales_", "zero_points", "reason"),
    [
        (("int32", "int8"), (0.1, 0.2), (5, 0), "input zero point is 5"),
        (("int8", "int32"), (0.1, 0.2), (0, 5), "output zero point is 5"),
        (("int32", "int8"), (0.2, 0.1), (0, 0), "rescale factor is 2"),
        (("int16", "int32"), (0.1, 2.0**-20), (0, 0), "rescale factor is 104858"),
    ],
)
def test_words_outside(
    types: tuple[str, str], scales_: tuple[float, float], zero_points: tuple[int, int], reason: str
) -> None:
    net = NetBuilder(types[0], seed=1)
    x = net.input((1, 4, 4, 8), scales_[0], zero_points[0])
    net.output(net.quantize(x, scales_[1], zero_points[1], types[1]))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert found.startswith(reason)


def test_words_from_words_stay_on_the_cpu() -> None:
    net = NetBuilder("int32", seed=1)
    x = net.input((1, 4, 4, 8), 0.1, 0)
    net.output(net.quantize(x, 0.2, 0, "int32"), net.quantize(x, 0.2, 0, "int8"))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert found.startswith("output type is int32")
