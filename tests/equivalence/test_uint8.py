"""uint8 networks; the reference is TFLite Micro on the same network shifted to int8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence import test_add as adds
from tests.equivalence import test_dense as dense
from tests.equivalence import test_pool as pools
from tests.equivalence.cases import CONVS, DEPTHWISE, SEEDS, TWO_ACCELERATORS, Array
from tests.equivalence.harness import (
    assert_equal,
    examples_of,
    input_sets,
    load,
    partition,
    run_on_npu,
)
from tests.equivalence.shifted import assert_exact_in_uint8, build_uint8
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.reference import Reference


def _per_tensor_with_exact_product(case: Any, exponent: int) -> Any:
    return replace(case, filter=replace(case.filter, ifm_scale=2.0**exponent, per_channel=False))


def _layers() -> st.SearchStrategy[Any]:
    layers = st.one_of(CONVS, DEPTHWISE, dense.LAYERS)
    return st.builds(_per_tensor_with_exact_product, layers, st.integers(-10, 2))


def check(case: Any) -> None:
    """Compare one operator with filters."""
    net = NetBuilder()
    net.output(case.add_to(net, case.input(net)))
    assert_exact_in_uint8(net, case.accelerators, case.filter.seed)


test_layers, test_layers_thoroughly = examples_of(_layers(), check)


def check_max_pool(case: pools.Pool) -> None:
    """Compare a maximum."""
    net = NetBuilder()
    net.output(case.add_to(net, case.input(net)))
    assert_exact_in_uint8(net, case.accelerators, case.seed)


test_max_pool, test_max_pool_thoroughly = examples_of(pools.pools(True), check_max_pool, quick=10)


def check_all_pairs(case: adds.Quantization) -> None:
    """Compare an addition on all pairs of values."""
    net = adds.add_all_pairs(case)
    reasons = partition(build_uint8(net)).cpu_reasons
    if reasons:
        assert all("scales is" in reason for reason in reasons.values()), reasons
        return
    assert_exact_in_uint8(net, ("ethos-u55-128",), inputs=[[adds.LEFT, adds.RIGHT]])


test_add, test_add_thoroughly = examples_of(adds.quantizations(), check_all_pairs, quick=10)


# --- averages: no value is negative, so no shift --------------------------------------------------


def check_average_pool(case: pools.Pool) -> None:
    """Compare an average over values from 0 to 127, which int8 and uint8 write alike."""
    case = replace(case, zero_point=abs(case.zero_point) % 128)
    nets = []
    for dtype in ("int8", "uint8"):
        net = NetBuilder(dtype)
        net.output(case.add_to(net, case.input(net)))
        nets.append(net.build())
    network = partition(nets[1], case.accelerators[0])
    assert not network.cpu_reasons
    programs = load(network, case.accelerators[0])
    for (data,) in input_sets(nets[0], case.seed):
        values = data & 127
        (expected,) = Reference(nets[0]).run([values])
        (actual,) = run_on_npu(network, programs, [values.view(np.uint8)])
        # Activations of the int8 network end at 127.
        ours = np.minimum(actual, np.uint8(127))
        assert_equal([ours], [expected.view(np.uint8)], case.accelerators[0])


test_average_pool, test_average_pool_thoroughly = examples_of(
    pools.pools(False), check_average_pool
)


@pytest.mark.parametrize("kernel", [(1, 2), (2, 2), (3, 3), (7, 9), (63, 65), (256, 256)])
def test_averages_next_to_ties(kernel: tuple[int, int]) -> None:
    elements = kernel[0] * kernel[1]
    sums = pools.sums_next_to_ties(elements, 255 if elements <= 4096 else 32) + 128 * elements
    least, more = np.divmod(sums, elements)
    values = least + (np.arange(elements)[:, None] < more)
    shape = (1, *kernel, sums.size)
    net = NetBuilder("uint8")
    net.output(net.avg_pool(net.input(shape), kernel=kernel, stride=(1, 1)))
    network = partition(net.build())
    programs = load(network, "ethos-u55-64")
    (actual,) = run_on_npu(network, programs, [values.astype(np.uint8).reshape(shape)])
    # TFLite's reference kernel (reference_ops::AveragePool, uint8): (sum + count / 2) / count.
    np.testing.assert_array_equal(actual.reshape(-1), (sums + elements // 2) // elements)


# --- weights of nine bits -------------------------------------------------------------------------


def _thirds(weights: Array) -> Array:
    """Return int8 weights for three times the channels, which add up to these on equal inputs."""
    third = weights // 3
    return np.concatenate([third, third, weights - 2 * third], axis=3).astype(np.int8)


def check_wide_weights(case: dense.WideWeights) -> None:
    """Compare a convolution whose weights are -255 to 0, or 0 to 255, with one of a third."""
    rng = np.random.default_rng(case.seed)
    zero_point = case.weight_zero_point
    weights = rng.integers(0, 256, (9, 3, 2, 11))
    weights[0], weights[1] = 0, 255
    options: dict[str, Any] = {"weight_scales": (1 / 128,), "scale": 8.0, "bias": False}
    net = NetBuilder("uint8")
    x = net.input((1, 6, 7, 11), 0.5, 100)
    net.output(
        net.conv2d(
            x,
            weights=weights.astype(np.uint8),
            weight_zero_point=zero_point,
            zero_point=128 + 3,
            **options,
        )
    )
    reference = NetBuilder()
    y = reference.input((1, 6, 7, 33), 0.5, 100 - 128)
    reference.output(
        reference.conv2d(y, weights=_thirds(weights - zero_point), zero_point=3, **options)
    )
    network = partition(net.build(), case.accelerators[0])
    assert not network.cpu_reasons
    data = rng.integers(0, 256, (1, 6, 7, 11)).astype(np.uint8)
    shifted = (data ^ 0x80).view(np.int8)
    (expected,) = Reference(reference.build()).run([np.concatenate([shifted] * 3, axis=3)])
    for accelerator in case.accelerators:
        actual = run_on_npu(network, load(network, accelerator), [data])
        assert_equal(actual, [(expected.view(np.uint8) ^ 0x80)], accelerator)


test_wide_weights, test_wide_weights_thoroughly = examples_of(
    st.builds(dense.WideWeights, SEEDS, st.sampled_from((0, 255, 1, 128, 37)), TWO_ACCELERATORS),
    check_wide_weights,
    quick=8,
)


def check_wide_dense(case: dense.WideWeights) -> None:
    """Compare a dense layer; TFLite Micro knows its weights' zero point in int8."""
    assert_exact_in_uint8(dense.wide_layer(case), case.accelerators, case.seed)


test_wide_dense, test_wide_dense_thoroughly = examples_of(
    st.builds(dense.WideWeights, SEEDS, st.sampled_from((-128, 127, 0, 9)), TWO_ACCELERATORS),
    check_wide_dense,
    quick=8,
)
