"""BATCH_MATMUL, and FULLY_CONNECTED with calculated weights, against TFLite Micro."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from tflite import ActivationFunctionType

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS, ZERO_POINTS, float32, scales
from tests.equivalence.harness import assert_exact, examples_of, partition
from tests.equivalence.operators import batch_matmul
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Fields


@dataclass(frozen=True)
class Case:
    """One product; ``ratio`` is the factor from sums to the output."""

    batch: tuple[int, ...]
    extents: tuple[int, int, int]
    turned: tuple[bool, bool]
    scales: tuple[float, float]
    ratio: float
    zero_points: tuple[int, int, int]
    seed: int
    accelerators: tuple[str, ...]


EXTENTS = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 40))
CASES = st.builds(
    Case,
    st.sampled_from(((), (1,), (1, 1), (3,), (1, 2))),
    EXTENTS,
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(scales(-8, 0), scales(-8, 0)),
    st.floats(-14, -1).map(lambda e: 2.0**e),
    st.tuples(ZERO_POINTS, ZERO_POINTS, ZERO_POINTS),
    SEEDS,
    TWO_ACCELERATORS,
)


def check(case: Case) -> None:
    """Compare one product of two inputs."""
    rows, columns, depth = case.extents
    net = NetBuilder(seed=case.seed)
    shapes = (rows, depth), (depth, columns)
    one, other = (
        net.input((*case.batch, *(shape[::-1] if turned else shape)), scale, zero)
        for shape, turned, scale, zero in zip(
            shapes, case.turned, case.scales, case.zero_points[:2], strict=True
        )
    )
    scale = float32(case.scales[0] * case.scales[1] / case.ratio)
    net.output(
        batch_matmul(
            net, one, other, scale=scale, zero_point=case.zero_points[2], turned=case.turned
        )
    )
    assert_exact(net.build(), case.accelerators, case.seed)


test_batch_matmul, test_batch_matmul_thoroughly = examples_of(CASES, check, quick=12)


def test_attention() -> None:
    """Queries times keys, softmax, times values: on the NPU as a whole."""
    net = NetBuilder(seed=4)
    x = net.input((12, 16))
    query, key, value = (net.dense(x, units=8) for _ in range(3))
    weights = batch_matmul(net, query, key, scale=0.1, zero_point=3, turned=(False, True))
    net.output(batch_matmul(net, net.softmax(weights), value, scale=0.05, zero_point=-9))
    network = assert_exact(net.build(), ("ethos-u55-32", "ethos-u65-512"))
    assert len(network.graphs) == 1


@pytest.mark.parametrize(
    ("dtype", "shapes", "scale", "reason"),
    [
        ("int8", ((70, 8), (8, 70)), 0.1, "copies of a matrix is 70"),
        ("int8", ((8, 513), (513, 32)), 0.1, "products is 131328"),
        ("int8", ((1, 33026), (33026, 1)), 50.0, "matrices is 1x33026 by 1x33026"),
        ("int8", ((4, 8), (8, 4)), 0.0025, "rescale factor is 1"),
        ("uint8", ((4, 8), (8, 4)), 0.1, "input type is uint8"),
    ],
)
def test_what_stays_on_the_cpu(
    dtype: str, shapes: tuple[tuple[int, int], tuple[int, int]], scale: float, reason: str
) -> None:
    net = NetBuilder(dtype, seed=4)
    x, y = (net.input(shape, 0.05) for shape in shapes)
    net.output(batch_matmul(net, x, y, scale=scale, zero_point=3))
    assert any(reason in found for found in partition(net.build()).cpu_reasons.values())


@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_dense_layer_with_calculated_weights(activation: str) -> None:
    net = NetBuilder(seed=4)
    x = net.input((5, 24), 0.04, -3)
    y = net.max_pool(net.input((1, 1, 9, 24), 0.03, 0), kernel=(1, 1), stride=(1, 1))
    weights = net.reshape(y, (9, 24))
    result = net._result((5, 9), 0.02, 4, "")
    fields: Fields = {0: ("Int8", getattr(ActivationFunctionType, activation))}
    net.output(
        net._add(
            "FULLY_CONNECTED", (x.index, weights.index), result, "FullyConnectedOptions", fields
        )
    )
    assert_exact(net.build(), ("ethos-u55-128",))
