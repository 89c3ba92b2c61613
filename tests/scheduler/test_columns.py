from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import HARDWARE, chain
from tvm_ethosu.scheduler.columns import fold_columns
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.ir import Constant, Conv2D, Kernel, NpuGraph, Padding, Shape
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.verify import verify_graph


def _network(shape: Shape, kernel: Kernel, padding: tuple[int, int], channels: int) -> NpuGraph:
    """Return one convolution; ``padding`` is at the left and at the right."""
    left, right = padding
    columns = (shape.w + left + right - kernel.dilated_w) // kernel.stride_w + 1
    rows = (shape.h - kernel.h) // kernel.stride_h + 1
    graph = chain([shape, Shape(1, rows, columns, channels)])
    op = graph.ops[0]
    assert isinstance(op, Conv2D)
    unread = shape.w + left + right - ((columns - 1) * kernel.stride_w + kernel.dilated_w)
    padding_right = max(0, right - unread)
    weights = np.random.default_rng(shape.w).integers(
        -128, 128, (channels, kernel.h, kernel.w, shape.c), np.int16
    )
    conv = replace(op, kernel=kernel, padding=Padding(0, left, 0, padding_right))
    constants = {**graph.constants, op.weights: Constant(op.weights, weights)}
    return replace(graph, ops=(conv,), constants=constants)


def _convolved(graph: NpuGraph, image: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the accumulators of a convolution, window by window."""
    (op,) = graph.ops
    assert isinstance(op, Conv2D)
    kernel, pad = op.kernel, op.padding
    seen = image.reshape(op.ifm.shape.h, op.ifm.shape.w, op.ifm.shape.c)
    seen = np.pad(seen, ((pad.top, pad.bottom), (pad.left, pad.right), (0, 0)))
    weights = graph.constants[op.weights].data.astype(np.int64)
    result = np.zeros((op.ofm.shape.h, op.ofm.shape.w, op.ofm.shape.c), np.int64)
    for y in range(op.ofm.shape.h):
        for x in range(op.ofm.shape.w):
            top, left = y * kernel.stride_h, x * kernel.stride_w
            window = seen[top : top + kernel.h, left : left + kernel.w]
            result[y, x] = np.tensordot(weights, window, 3)
    return result


@given(
    stride=st.integers(2, 3),
    wide=st.integers(2, 6),
    columns=st.integers(1, 6),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    depth=st.integers(1, 4),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_a_folded_convolution_computes_the_same(
    stride: int, wide: int, columns: int, padding: tuple[int, int], depth: int
) -> None:
    width = stride * wide
    padding = min(padding[0], columns - 1), min(padding[1], columns - 1)
    if width + sum(padding) < columns:
        return
    shape = Shape(1, 5, width, depth)
    graph = verify_graph(_network(shape, Kernel(2, columns, 1, stride), padding, 3))
    folded = verify_graph(fold_columns(graph, HARDWARE))
    image = np.random.default_rng(columns).integers(-128, 128, shape.elements)
    np.testing.assert_array_equal(_convolved(folded, image), _convolved(graph, image))
    assert folded.macs == graph.macs


def test_columns_are_folded_where_that_is_faster() -> None:
    graph = _network(Shape(1, 80, 80, 1), Kernel(5, 5, 2, 2), (1, 2), 16)
    folded = fold_columns(graph, HARDWARE)
    assert folded.ops[0].ifm.shape == Shape(1, 80, 40, 2)
    cycles = [Estimator(choose_layouts(one), HARDWARE).whole_cycles(0) for one in (graph, folded)]
    assert cycles[1] < cycles[0]


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        (Shape(1, 80, 80, 1), Kernel(5, 5, 1, 1)),
        (Shape(1, 80, 81, 1), Kernel(5, 5, 2, 2)),
        (Shape(1, 80, 80, 1), Kernel(5, 5, 2, 2, dilation_w=2)),
    ],
    ids=["no stride", "odd width", "dilation"],
)
def test_what_can_not_be_folded_stays(shape: Shape, kernel: Kernel) -> None:
    graph = _network(shape, kernel, (0, 0), 16)
    assert fold_columns(graph, HARDWARE) is graph


def test_only_inputs_are_folded() -> None:
    """An inner tensor would have to be dense for it."""
    graph = chain([Shape(1, 40, 40, 16)] * 3)
    first, second = graph.ops
    assert isinstance(second, Conv2D)
    strided = replace(
        second,
        kernel=Kernel(1, 1, 2, 2),
        ofm=replace(second.ofm, shape=Shape(1, 20, 20, 16)),
    )
    tensor = replace(graph.tensors[strided.ofm.tensor], shape=strided.ofm.shape)
    graph = replace(graph, ops=(first, strided), tensors={**graph.tensors, tensor.name: tensor})
    assert fold_columns(graph, HARDWARE) is graph
