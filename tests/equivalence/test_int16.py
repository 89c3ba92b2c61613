"""Networks of int16 activations against TFLite Micro: the operators that int8 has, case by case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.equivalence import test_dense, test_pool, test_reductions, test_transposed
from tests.equivalence.cases import (
    ACTIVATIONS,
    CONVS,
    DEPTHWISE,
    SEEDS,
    float32,
    network,
    scales,
)
from tests.equivalence.harness import assert_exact, examples_of, load, partition, run_on_npu
from tests.equivalence.movement import reduce
from tests.tflite_builder import NetBuilder


def check(case: Any) -> None:
    """Build, compile, run and compare one operator of int16."""
    seed = case.filter.seed if hasattr(case, "filter") else case.seed
    assert_exact(network(case, "int16"), case.accelerators, seed)


test_conv2d, test_conv2d_thoroughly = examples_of(CONVS, check, quick=8)
test_depthwise, test_depthwise_thoroughly = examples_of(DEPTHWISE, check, quick=8)
test_dense_layer, test_dense_layer_thoroughly = examples_of(test_dense.LAYERS, check, quick=8)
test_max_pool, test_max_pool_thoroughly = examples_of(test_pool.pools(True), check, quick=8)
test_average_pool, test_average_pool_thoroughly = examples_of(
    test_pool.pools(False), check, quick=8
)
test_transposed_conv, test_transposed_conv_thoroughly = examples_of(
    test_transposed.CASES, partial(test_transposed.check, dtype="int16"), quick=5
)


def _reduction(code: str) -> tuple[Callable[..., None], Callable[..., None]]:
    check_int16 = partial(test_reductions.check, dtype="int16")
    return examples_of(test_reductions.cases(code), check_int16, quick=5)


test_mean, test_mean_thoroughly = _reduction("MEAN")
test_sum, test_sum_thoroughly = _reduction("SUM")


def test_reduce_max() -> None:
    """TFLite Micro has no such kernel for int16; a maximum has one meaning."""
    net = NetBuilder("int16", seed=1)
    x = net.input((1, 7, 9, 20))
    net.output(reduce(net, "REDUCE_MAX", x, (1, 2), keep=True))
    network_ = partition(net.build())
    (values,) = net.random_inputs()
    (actual,) = run_on_npu(network_, load(network_, "ethos-u65-512"), [values])
    np.testing.assert_array_equal(actual, values.max(axis=(1, 2), keepdims=True))


# --- element by element ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Random pairs of values, one operand broadcast along its rows or not."""

    code: str
    scales: tuple[float, float, float]
    activation: str
    broadcast: bool
    swapped: bool
    seed: int

    def build(self) -> bytes:
        net = NetBuilder("int16", seed=self.seed)
        part = (1, 1, 1, 15) if self.broadcast else (1, 16, 17, 15)
        a, b = (
            net.input(shape, scale)
            for shape, scale in zip(((1, 16, 17, 15), part), self.scales, strict=False)
        )
        a, b = (b, a) if self.swapped else (a, b)
        options: dict[str, Any] = {"scale": self.scales[2], "zero_point": 0}
        if self.code in ("ADD", "SUB", "MUL"):
            options["activation"] = self.activation
        add = net.add if self.code == "ADD" else partial(net.arithmetic, self.code)
        net.output(add(a, b, **options))
        return net.build()


@st.composite
def pairs(draw: st.DrawFn, code: str) -> Pairs:
    """Draw operands whose results fill the range, or less."""
    first = draw(scales(-16, 0))
    second = float32(first * draw(st.one_of(st.just(1.0), scales(-3, 3), scales(-12, 12))))
    result = max(first, second) * draw(scales(-4, 4))
    if code == "MUL":
        # The kernel shifts products of 31 bits up by nothing.
        second = draw(scales(-16, 0))
        result = first * second * draw(st.one_of(st.just(2.0**15), st.floats(2.01, 1e6)))
    if code in ("MINIMUM", "MAXIMUM"):
        second = result = first
    quantized = (first, second, float32(result))
    options = draw(ACTIVATIONS), draw(st.booleans()), draw(st.booleans()), draw(SEEDS)
    return Pairs(code, quantized, *options)


def check_pairs(case: Pairs) -> None:
    """Compare many pairs of values; no scales are refused."""
    assert_exact(case.build(), ("ethos-u55-128",), case.seed)


test_add, test_add_thoroughly = examples_of(pairs("ADD"), check_pairs, quick=8)
test_sub, test_sub_thoroughly = examples_of(pairs("SUB"), check_pairs, quick=8)
test_mul, test_mul_thoroughly = examples_of(pairs("MUL"), check_pairs, quick=8)
test_minimum, test_minimum_thoroughly = examples_of(pairs("MINIMUM"), check_pairs, quick=3)
test_maximum, test_maximum_thoroughly = examples_of(pairs("MAXIMUM"), check_pairs, quick=3)


@st.composite
def requantizations(draw: st.DrawFn) -> tuple[tuple[str, str], tuple[float, float], int]:
    """Draw a change of type or of scale with int16 at one end at least."""
    types = draw(st.sampled_from((("int16", "int16"), ("int8", "int16"), ("int16", "int8"))))
    scale = draw(scales())
    unit = {("int8", "int16"): 1 / 256, ("int16", "int8"): 256}.get(types, 1)
    return types, (scale, float32(scale * unit * draw(scales(-4, 4)))), draw(SEEDS)


def check_requantize(case: tuple[tuple[str, str], tuple[float, float], int]) -> None:
    """Compare all values of the input's type."""
    (source, target), (scale, result), seed = case
    net = NetBuilder(source, seed=seed)
    x = net.input((1, 256, 256, 1), scale, 3)
    net.output(net.quantize(x, result, 0 if target == "int16" else -5, target))
    info = np.iinfo(source)
    values = np.resize(np.arange(info.min, info.max + 1), x.shape).astype(source)
    assert_exact(net.build(), ("ethos-u55-128",), inputs=[[values]])


test_requantize, test_requantize_thoroughly = examples_of(
    requantizations(), check_requantize, quick=6
)
