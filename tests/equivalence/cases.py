"""What the operator tests draw: shapes, windows, scales, zero points, constants, accelerators.

A case is a small frozen dataclass, so that a failing example prints as what to build. Weights come
from a seeded generator: hypothesis draws the seed, not the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tests.equivalence.harness import ACCELERATORS
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

Array = npt.NDArray[Any]
Pair = tuple[int, int]

INT32_MAX = (1 << 31) - 1
# What an accumulator of 40 bits has left beside the largest sum of products.
WIDE_BIAS_MAX = (1 << 38) - 1
# Around the sizes that matter inside: 4, 8, 16 and 32 channels.
CHANNELS = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 65))
ZERO_POINTS = st.one_of(st.sampled_from((-128, 127, 0)), st.integers(-128, 127))
SEEDS = st.integers(0, 1 << 16)
ACTIVATIONS = st.sampled_from(("NONE", "RELU", "RELU6", "RELU_N1_TO_1"))
TWO_ACCELERATORS = st.lists(st.sampled_from(ACCELERATORS), min_size=2, max_size=2, unique=True).map(
    tuple
)


def float32(value: float) -> float:
    """Round to what a TFLite file can say."""
    return float(np.float32(value))


def scales(low_exponent: int = -12, high_exponent: int = 4) -> st.SearchStrategy[float]:
    """Return scales: exact powers of two, common ones, and arbitrary ones."""
    exponents = st.integers(low_exponent, high_exponent)
    return st.one_of(
        exponents.map(lambda e: 2.0**e),
        st.floats(low_exponent, high_exponent).map(lambda e: float32(2.0**e)),
        st.sampled_from((0.05, 1 / 255, 6 / 255, 6 / 127.5, 0.1)).map(float32),
    )


# --- windows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """Input size and how a window goes over it."""

    size: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: str


@st.composite
def windows(draw: st.DrawFn, largest: int = 7, dilated: bool = True) -> Window:
    """Draw a window that gives at least one output."""
    kernel = draw(st.tuples(st.integers(1, largest), st.integers(1, largest)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    spread = st.integers(1, 2) if dilated else st.just(1)
    dilation = draw(st.tuples(spread, spread))
    padding = draw(st.sampled_from(("SAME", "VALID")))
    reach = [
        (k - 1) * d + 1 if padding == "VALID" else 1 for k, d in zip(kernel, dilation, strict=True)
    ]
    size = draw(st.tuples(*(st.integers(least, least + 12) for least in reach)))
    return Window(size, kernel, stride, dilation, padding)


# --- convolutions and dense layers ----------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """Everything about weights, biases and scales of a layer, but their shape.

    ``factor`` names how large the factor from accumulator to output is:
    "usual" (results fill the range), "two" (a power of two, with many ties), "tiny" (per channel,
    down to below 2**-32), "large" (as far above 1 as TFLite Micro's 32-bit arithmetic allows).
    """

    seed: int
    ifm_scale: float
    ofm_scale: float
    zero_points: Pair
    activation: str
    per_channel: bool
    weights: str
    bias: str
    factor: str


def filters() -> st.SearchStrategy[Filter]:
    """Draw weights, biases and scales."""
    return st.builds(
        Filter,
        SEEDS,
        scales(),
        scales(-8, 0),
        st.tuples(ZERO_POINTS, ZERO_POINTS),
        ACTIVATIONS,
        st.booleans(),
        st.sampled_from(("random", "random", "ends", "small")),
        st.sampled_from(("none", "random", "random", "ends")),
        st.sampled_from(("usual", "usual", "two", "tiny", "large")),
    )


def _weights(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if kind == "ends":
        return rng.choice(np.array([-128, -127, 127], np.int8), shape)
    limit = 2 if kind == "small" else 127
    return rng.integers(-limit, limit, shape, np.int8, endpoint=True)


def _biases(
    kind: str, spread: Array, bounds: Array, rng: np.random.Generator, wide: bool
) -> Array | bool:
    """Return biases; those at the ends leave just enough for all products."""
    dtype = np.int64 if wide else np.int32
    if kind == "none":
        return False
    if kind == "ends":
        largest = WIDE_BIAS_MAX if wide else INT32_MAX - bounds
        return np.asarray(rng.choice([-1, 1], bounds.shape) * largest, dtype)
    return np.asarray(rng.normal(0, spread).round(), dtype)


def _factors(case: Filter, usual: float, largest: float, channels: int, wide: bool) -> Array:
    """Return the factor from accumulator to output of each channel."""
    rng = np.random.default_rng(case.seed + 1)
    match case.factor:
        case "two":
            return np.full(channels, 2.0 ** round(math.log2(usual)))
        case "tiny":
            # 2**-32 is the smallest that TFLite Micro does not take for zero.
            exact = 2.0 ** -rng.integers(24, 35, channels)
            return np.asarray(rng.choice([exact, usual * 2.0 ** rng.uniform(-40, 3, channels)]))
        case "large":
            # TFLite Micro shifts the accumulator up before it multiplies, in 32 bits; for int16 by
            # at most 7 bits, and the result has 32.
            headroom = math.floor(math.log2(INT32_MAX / largest))
            headroom = min(7, headroom) if wide else headroom
            return np.asarray(2.0 ** rng.uniform(headroom - 2, headroom - 0.01, channels))
        case _:
            return np.asarray(usual * rng.uniform(0.4, 2.0, channels))


def filter_options(
    case: Filter, shape: tuple[int, ...], axis: int, dtype: str = "int8"
) -> dict[str, Any]:
    """Return the builder's options for weights of this shape, with output channels at ``axis``."""
    wide = dtype == "int16"
    unit = 256 if wide else 1
    rng = np.random.default_rng(case.seed)
    weights = _weights(case.weights, shape, rng)
    others = tuple(i for i in range(len(shape)) if i != axis)
    whole = weights.astype(np.int64)
    bounds = 255 * unit * np.abs(whole).sum(axis=others) + 1
    spread = 74 * unit * np.sqrt((whole**2).sum(axis=others)) + 1
    bias = _biases(case.bias, spread, bounds, rng, wide)
    sizes = np.zeros(bounds.shape) if isinstance(bias, bool) else np.abs(bias.astype(np.int64))
    usual = 60 * unit / float((spread + sizes).max())
    largest = float((bounds + sizes).max())
    factors = _factors(case, usual, largest, bounds.size, wide)
    ofm_scale = case.ofm_scale
    if case.factor == "two":  # then every scale is one, up to the input's
        ofm_scale = float32(case.ifm_scale * 2.0 ** round(math.log2(ofm_scale / case.ifm_scale)))
    kept = factors if case.per_channel else factors[:1]
    return {
        "weights": weights,
        "weight_scales": [float32(factor * ofm_scale / case.ifm_scale) for factor in kept],
        "bias": bias,
        "scale": ofm_scale,
        "zero_point": case.zero_points[1],
    }


@dataclass(frozen=True)
class Conv:
    """A convolution, depthwise where ``filters`` is 0."""

    window: Window
    channels: int
    filters: int
    filter: Filter
    accelerators: tuple[str, ...]

    def input(self, net: NetBuilder) -> Value:
        shape = (1, *self.window.size, self.channels)
        return net.input(shape, self.filter.ifm_scale, self.filter.zero_points[0])

    def add_to(self, net: NetBuilder, x: Value) -> Value:
        """Add the convolution to a network."""
        window: dict[str, Any] = {
            "stride": self.window.stride,
            "dilation": self.window.dilation,
            "padding": self.window.padding,
            "activation": self.filter.activation,
        }
        if self.filters:
            shape = (self.filters, *self.window.kernel, self.channels)
            return net.conv2d(x, **window, **filter_options(self.filter, shape, 0, net.dtype))
        shape = (1, *self.window.kernel, self.channels)
        return net.depthwise(x, **window, **filter_options(self.filter, shape, 3, net.dtype))


CONVS = st.builds(Conv, windows(), CHANNELS, CHANNELS, filters(), TWO_ACCELERATORS)
DEPTHWISE = st.builds(Conv, windows(), CHANNELS, st.just(0), filters(), TWO_ACCELERATORS)


def network(case: Any, dtype: str = "int8") -> bytes:
    """Return the network of one operator."""
    net = NetBuilder(dtype)
    net.output(case.add_to(net, case.input(net)))
    return net.build()
