"""ARG_MAX against TFLite Micro, equal values among the largest included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS
from tests.equivalence.harness import Array, assert_exact, examples_of, input_sets, partition
from tests.equivalence.operators import arg_max
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.tflite_builder import NetBuilder


@dataclass(frozen=True)
class Case:
    """One ARG_MAX; ``values`` is how many different values there are."""

    shape: tuple[int, ...]
    values: int
    seed: int
    accelerators: tuple[str, ...]


CHANNELS = st.one_of(st.integers(1, 128), st.sampled_from((1, 2, 127, 128)))
SHAPES = st.one_of(
    st.tuples(CHANNELS),
    st.tuples(st.integers(1, 40), CHANNELS),
    st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 9), CHANNELS),
)
CASES = st.builds(Case, SHAPES, st.sampled_from((2, 5, 256)), SEEDS, TWO_ACCELERATORS)


def _inputs(case: Case, data: bytes) -> list[list[Array]]:
    rng = np.random.default_rng(case.seed)
    some = rng.choice(np.arange(-128, 128), case.values).astype(np.int8)
    return [[rng.choice(some, case.shape)], *input_sets(data, case.seed, count=1)]


def check(case: Case) -> None:
    """Compare one operator."""
    net = NetBuilder(seed=case.seed)
    net.output(arg_max(net, net.input(case.shape)))
    data = net.build()
    assert_exact(data, case.accelerators, inputs=_inputs(case, data))


test_arg_max, test_arg_max_thoroughly = examples_of(CASES, check)


def test_arg_max_of_uint8_behind_a_convolution() -> None:
    net = NetBuilder(seed=2)
    x = net.max_pool(net.input((1, 9, 9, 100)), kernel=(2, 2), stride=(1, 1))
    net.output(arg_max(net, x, axis=3))
    assert_exact_in_uint8(net, ("ethos-u55-32", "ethos-u65-512"))


@pytest.mark.parametrize(
    ("shape", "axis", "reason"),
    [
        ((1, 4, 4, 129), 3, "values to compare is 129"),
        ((1, 4, 4, 8), 1, "axis is 1, the NPU takes the last, 3"),
        ((257, 256, 2), 2, "positions is 65792"),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_what_stays_on_the_cpu(dtype: str, shape: tuple[int, ...], axis: int, reason: str) -> None:
    net = NetBuilder(dtype, seed=2)
    reason = reason if dtype == "int8" else "input type is int16"
    net.output(arg_max(net, net.input(shape), axis))
    (found,) = partition(net.build()).cpu_reasons.values()
    assert reason in found
