"""The factor from accumulator to result, on accumulators next to every tie of the result.

The weights are 0, so the biases are the accumulators. TFLite Micro multiplies the scales of input
and weights in float64; a factor made in float32 differs by about 2**-24 of it, which only
accumulators this close to a tie and this large tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS, Array, float32
from tests.equivalence.harness import assert_exact, examples_of
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

LARGEST = 1.9e9  # accumulators at the ends of the result's range; below 2**31


@dataclass(frozen=True)
class Ties:
    """A layer of one kind whose accumulators lie next to ties; scales come from the seed."""

    kind: str
    seed: int
    per_channel: bool
    accelerators: tuple[str, ...]


def _next_to_ties(factor: float) -> Array:
    halves = (np.arange(-127, 127) + 0.5) / factor
    nearest = np.round(halves).astype(np.int64)
    return np.concatenate([nearest + step for step in (-20, -2, -1, 0, 1, 2, 20)]).astype(np.int32)


def network(case: Ties) -> bytes:
    """Return one layer with an accumulator per output channel."""
    rng = np.random.default_rng(case.seed)
    ifm_scale, ofm_scale = (float32(scale) for scale in np.exp(rng.uniform(-4, 2, 2)))
    weight_scale = float32(127 / LARGEST * ofm_scale / ifm_scale)
    bias = _next_to_ties(ifm_scale * weight_scale / ofm_scale)
    spread = rng.uniform(0.9999, 1.0001, bias.size) if case.per_channel else np.ones(1)
    options: dict[str, Any] = {
        "weight_scales": [float32(weight_scale * factor) for factor in spread],
        "bias": bias,
        "scale": ofm_scale,
        "zero_point": 0,
    }
    net = NetBuilder()
    net.output(_layer(net, case.kind, ifm_scale, bias.size, options))
    return net.build()


def _layer(
    net: NetBuilder, kind: str, ifm_scale: float, channels: int, options: dict[str, Any]
) -> Value:
    """Add a layer of that kind whose weights are 0."""
    if kind == "dense":
        x = net.input((1, 1), ifm_scale, 0)
        return net.dense(x, weights=np.zeros((channels, 1), np.int8), **options)
    if kind == "conv2d":
        x = net.input((1, 1, 1, 1), ifm_scale, 0)
        return net.conv2d(x, weights=np.zeros((channels, 1, 1, 1), np.int8), **options)
    x = net.input((1, 1, 1, channels), ifm_scale, 0)
    return net.depthwise(x, weights=np.zeros((1, 1, 1, channels), np.int8), **options)


def check(case: Ties) -> None:
    """Compare all channels of one layer."""
    assert_exact(network(case), case.accelerators, case.seed)


test_ties, test_ties_thoroughly = examples_of(
    st.builds(
        Ties,
        st.sampled_from(("conv2d", "depthwise", "dense")),
        SEEDS,
        st.booleans(),
        TWO_ACCELERATORS,
    ),
    check,
)


SMALL = np.concatenate([2.0**-k * np.array([1 - 2**-20, 1, 1 + 2**-20]) for k in range(27, 36)])


@pytest.mark.parametrize("kind", ["conv2d", "depthwise", "dense"])
@pytest.mark.parametrize("bias", [2**31 - 1, -(2**31 - 1), -(2**31), 2**30])
def test_factors_around_the_smallest(kind: str, bias: int) -> None:
    """TFLite Micro takes factors below 2**-32 for zero; above, large sums still give 1 or 2."""
    options: dict[str, Any] = {
        "weight_scales": [float32(factor) for factor in SMALL],
        "bias": np.full(SMALL.size, bias, np.int32),
        "scale": 1.0,
        "zero_point": 0,
    }
    net = NetBuilder()
    net.output(_layer(net, kind, 1.0, SMALL.size, options))
    assert_exact(net.build(), ("ethos-u55-32", "ethos-u65-512"))
