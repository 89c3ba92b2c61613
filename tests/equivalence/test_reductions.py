"""MEAN, SUM, REDUCE_MAX and REDUCE_MIN against TFLite Micro, sums next to ties included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS, ZERO_POINTS, scales
from tests.equivalence.harness import (
    ACCELERATORS,
    Array,
    assert_exact,
    examples_of,
    load,
    partition,
    run_on_npu,
)
from tests.equivalence.movement import reduce
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.tflite_builder import NetBuilder

CODES = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
CHOSEN = ("REDUCE_MAX", "REDUCE_MIN")
AXES = ((1, 2), (1,), (2,), (3,), (2, 3), (1, 2, 3))


@dataclass(frozen=True)
class Case:
    """One reduction; ``ratio`` is the output's scale in units of the input's."""

    code: str
    shape: tuple[int, int, int]
    axes: tuple[int, ...]
    keep: bool
    scale: float
    ratio: float
    zero_points: tuple[int, int]
    seed: int
    accelerators: tuple[str, ...]


def cases(code: str) -> st.SearchStrategy[Case]:
    """Draw a reduction; one in three keeps the quantization."""
    sizes = st.one_of(st.integers(1, 9), st.integers(1, 70))
    return st.builds(
        Case,
        st.just(code),
        st.tuples(sizes, st.integers(1, 9), st.integers(1, 20)),
        st.sampled_from(AXES),
        st.booleans(),
        scales(),
        st.sampled_from((0.0, 0.3, 0.77, 1.0, 2.0, 13.1)),
        st.tuples(ZERO_POINTS, ZERO_POINTS),
        SEEDS,
        TWO_ACCELERATORS,
    )


def check(case: Case, dtype: str = "int8") -> None:
    """Compare one reduction with TFLite Micro."""
    net = NetBuilder(dtype, seed=case.seed)
    zero_points = (0, 0) if dtype == "int16" else case.zero_points
    x = net.input((1, *case.shape), case.scale, zero_points[0])
    same = case.ratio == 0 or case.code in CHOSEN
    options = {} if same else {"scale": x.scale * case.ratio, "zero_point": zero_points[1]}
    net.output(reduce(net, case.code, x, case.axes, keep=case.keep, **options))
    assert_exact(net.build(), case.accelerators, case.seed)


test_mean, test_mean_thoroughly = examples_of(cases("MEAN"), check, quick=12)
test_sum, test_sum_thoroughly = examples_of(cases("SUM"), check, quick=12)
test_reduce_max, test_reduce_max_thoroughly = examples_of(cases("REDUCE_MAX"), check, quick=12)
test_reduce_min, test_reduce_min_thoroughly = examples_of(cases("REDUCE_MIN"), check, quick=12)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2)])
def test_reduced_dimensions_of_one_element(code: str, axes: tuple[int, ...]) -> None:
    """Each channel stays for itself."""
    check(Case(code, (1, 1, 5), axes, False, 0.05, 0.77, (3, -7), 1, ("ethos-u55-128",)))


@pytest.mark.parametrize("size", [(64, 64), (65, 63), (1, 4096), (256, 16), (7, 7)])
@pytest.mark.parametrize("code", CODES)
def test_images_up_to_the_limit(code: str, size: tuple[int, int]) -> None:
    net = NetBuilder(seed=5)
    x = net.input((1, *size, 5), 0.05, -7)
    scale = {"MEAN": 0.004, "SUM": 3.1}.get(code)
    net.output(
        reduce(net, code, net.max_pool(x, kernel=(1, 1), stride=(1, 1)), (1, 2), scale=scale)
    )
    assert_exact(net.build(), ("ethos-u55-32", "ethos-u65-512"))


def test_mean_over_more_than_the_window_stays_on_the_cpu() -> None:
    net = NetBuilder(seed=5)
    net.output(reduce(net, "MEAN", net.input((1, 65, 64, 3)), (1, 2)))
    (reason,) = partition(net.build()).cpu_reasons.values()
    assert "reduced elements is 4160" in reason


@pytest.mark.parametrize("code", CODES)
def test_two_dimensions(code: str) -> None:
    net = NetBuilder(seed=6)
    net.output(reduce(net, code, net.input((37, 19)), (1,)))
    assert_exact(net.build(), ACCELERATORS[:1])


@pytest.mark.parametrize(("code", "choose"), [("REDUCE_MAX", np.max), ("REDUCE_MIN", np.min)])
def test_chosen_values_of_int16(code: str, choose: Callable[..., Array]) -> None:
    # TFLite Micro takes int8 only; numpy's means the same.
    net = NetBuilder("int16", seed=6)
    net.output(reduce(net, code, net.input((1, 6, 7, 20)), (1, 2)))
    data = np.random.default_rng(6).integers(-(1 << 15), 1 << 15, (1, 6, 7, 20)).astype(np.int16)
    network = partition(net.build())
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [data])
    np.testing.assert_array_equal(result, choose(data, (1, 2)))


def test_minimum_of_uint8() -> None:
    net = NetBuilder(seed=6)
    net.output(reduce(net, "REDUCE_MIN", net.input((1, 6, 7, 20)), (1, 2)))
    assert_exact_in_uint8(net, ("ethos-u55-128",))
