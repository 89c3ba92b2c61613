"""Operators over limits of the NPU, broken down: exact, whatever they are over together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.equivalence.harness import ACCELERATORS, assert_exact, examples_of
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value


@dataclass(frozen=True)
class Large:
    """A convolution or pooling; ``times`` are groups, or results for each channel."""

    kind: str
    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    times: int
    padding: str
    dtype: str
    accelerator: str
    seed: int


def _large(kind: str) -> st.SearchStrategy[Large]:
    def pairs(most: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(1, most), st.integers(1, most))

    # An average over padding has a limit of its own.
    long = st.integers(1, 4) if kind == "avg_pool" else st.integers(60, 70)
    kernels = pairs(4) | st.tuples(st.just(1), long) | st.tuples(long, st.just(1))
    return st.builds(
        Large,
        st.just(kind),
        st.tuples(st.integers(1, 3), *[st.integers(6, 17)] * 2, st.integers(1, 5)),
        kernels,
        pairs(6),
        pairs(7),
        st.integers(1, 3),
        st.sampled_from(("SAME", "VALID")),
        st.sampled_from(("int8", "int16")),
        st.sampled_from(ACCELERATORS),
        st.integers(0, 2**16),
    )


LARGE = st.sampled_from(("conv2d", "grouped", "depthwise", "max_pool", "avg_pool")).flatmap(_large)


def _made(net: NetBuilder, x: Value, case: Large) -> Value:
    strided = max(case.stride) > 1
    fits = all(
        (k - 1) * d < n for k, d, n in zip(case.kernel, case.dilation, case.shape[1:3], strict=True)
    )
    # TFLite has no dilation beside a stride.
    dilation = (1, 1) if strided or not fits else case.dilation
    padding = "SAME" if max(case.kernel) > min(case.shape[1:3]) else case.padding
    options = {"stride": case.stride, "padding": padding}
    match case.kind:
        case "conv2d":
            return net.conv2d(x, filters=3, kernel=case.kernel, dilation=dilation, **options)
        case "grouped":
            size = (2 * case.times, *case.kernel, x.shape[3] // case.times)
            weights = net.rng.integers(-127, 128, size).astype(np.int8)
            return net.conv2d(x, weights=weights, dilation=dilation, **options)
        case "depthwise":
            made = {"kernel": case.kernel, "multiplier": case.times, "dilation": dilation}
            return net.depthwise(x, **made, **options)
        case _:
            return getattr(net, case.kind)(x, kernel=case.kernel, **options)


def check(case: Large) -> None:
    """Compare one network with TFLite Micro; all of it must be on the NPU."""
    net = NetBuilder(case.dtype, seed=case.seed)
    *image, channels = case.shape
    x = net.input((*image, channels * case.times if case.kind == "grouped" else channels))
    net.output(_made(net, x, case))
    assert_exact(net.build(), (case.accelerator,), case.seed)


test_broken_down, test_broken_down_thoroughly = examples_of(LARGE, check, quick=25)
