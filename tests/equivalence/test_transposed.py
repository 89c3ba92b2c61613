"""TRANSPOSE_CONV against TFLite Micro: strides, kernels smaller and larger, both paddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.equivalence.cases import (
    CHANNELS,
    TWO_ACCELERATORS,
    Filter,
    Pair,
    filter_options,
    filters,
)
from tests.equivalence.harness import assert_exact, examples_of, plan_for_size, plan_for_speed
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Fields, Value


@dataclass(frozen=True)
class Case:
    """One transposed convolution."""

    size: Pair
    channels: Pair
    kernel: Pair
    stride: Pair
    same: bool
    filter: Filter
    accelerators: tuple[str, ...]


CASES = st.builds(
    Case,
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(CHANNELS, st.integers(1, 17)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
    filters(),
    TWO_ACCELERATORS,
)


def transposed(net: NetBuilder, x: Value, case: Case) -> Value:
    """Add TRANSPOSE_CONV."""
    # TVM's importer takes kernels narrower than the stride in VALID padding only.
    kernel = [
        max(k, step) if case.same else k for k, step in zip(case.kernel, case.stride, strict=True)
    ]
    shape = (case.channels[1], *kernel, case.channels[0])
    options = filter_options(case.filter, shape, 0, net.dtype)
    inputs, scaling, name = net._filter(x, shape, 0, int(np.prod(shape[1:])), options)
    size = [
        n * step if case.same else (n - 1) * step + k
        for n, step, k in zip(case.size, case.stride, kernel, strict=True)
    ]
    out = (1, *size, case.channels[1])
    result = net._result(out, *scaling, name)
    where = net._constant(np.array(out, np.int32)).index
    fields: Fields = {
        0: ("Int8", 0 if case.same else 1),
        1: ("Int32", case.stride[1]),
        2: ("Int32", case.stride[0]),
    }
    operands = (where, inputs[1], inputs[0], *inputs[2:])
    return net._add("TRANSPOSE_CONV", operands, result, "TransposeConvOptions", fields)


def check(case: Case, dtype: str = "int8") -> None:
    """Compare one transposed convolution with TFLite Micro."""
    net = NetBuilder(dtype, seed=case.filter.seed)
    x = net.input(
        (1, *case.size, case.channels[0]), case.filter.ifm_scale, case.filter.zero_points[0]
    )
    net.output(transposed(net, x, case))
    assert_exact(net.build(), case.accelerators, plans=(plan_for_speed, plan_for_size))


test_transposed, test_transposed_thoroughly = examples_of(CASES, check)
