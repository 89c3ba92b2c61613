"""Columns of an input seen as channels, so that a window with a stride has fewer positions.

With stride s, s neighbouring columns of a dense NHWC row are one column with s times the channels;
the window then goes on by one column. The NPU's channels come in groups of 8 or more, of which an
image fills few. Weights are spread the same way, with zeros where the window does not begin or end
between two of the wide columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import Constant, Conv2D, NpuGraph, Padding, Shape
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.ports import Hardware


@dataclass(frozen=True)
class _Folding:
    """A convolution whose columns are folded, and its weights."""

    op: Conv2D
    weights: Constant


def fold_columns(graph: NpuGraph, hardware: Hardware) -> NpuGraph:
    """Return the graph with folded convolutions of inputs where the NPU is faster for it."""
    foldings = {
        index: _fold(graph, op)
        for index, op in enumerate(graph.ops)
        if isinstance(op, Conv2D) and _can_be_folded(graph, op)
    }
    if not foldings:
        return graph
    before = Estimator(choose_layouts(graph), hardware)
    after = Estimator(choose_layouts(_with(graph, foldings)), hardware)
    faster = {
        index: folding
        for index, folding in foldings.items()
        if after.whole_cycles(index) < before.whole_cycles(index)
    }
    return _with(graph, faster)


def _with(graph: NpuGraph, foldings: dict[int, _Folding]) -> NpuGraph:
    ops = tuple(
        foldings[index].op if index in foldings else op for index, op in enumerate(graph.ops)
    )
    constants = {folding.weights.name: folding.weights for folding in foldings.values()}
    return replace(graph, ops=ops, constants={**graph.constants, **constants})


def _can_be_folded(graph: NpuGraph, op: Conv2D) -> bool:
    """Return whether a convolution reads an argument, which is dense, in whole wide columns."""
    kernel, shape = op.kernel, op.ifm.shape
    stride = kernel.stride_w
    return (
        op.ifm.tensor in graph.inputs
        and stride > 1
        and kernel.dilation_w == 1
        and shape.w % stride == 0
        and shape.c * stride <= MAX_DIM
    )


def _fold(graph: NpuGraph, op: Conv2D) -> _Folding:
    stride, shape, padding = op.kernel.stride_w, op.ifm.shape, op.padding
    left = ceil_div(padding.left, stride)
    weights = _folded(graph.constants[op.weights].data, stride, left * stride - padding.left)
    width, columns = shape.w // stride, weights.shape[2]
    right = max(0, op.ofm.shape.w - 1 + columns - left - width)
    folded = replace(
        op,
        ifm=replace(op.ifm, shape=Shape(1, shape.h, width, shape.c * stride)),
        kernel=replace(op.kernel, w=columns, stride_w=1),
        padding=Padding(padding.top, left, padding.bottom, right),
        weights=f"{op.weights} folded by {stride} for {op.name}",
        model_macs=op.macs,
    )
    return _Folding(folded, Constant(folded.weights, weights))


def _folded(weights: npt.NDArray[np.generic], stride: int, before: int) -> npt.NDArray[np.generic]:
    """Return weights OHWI with ``stride`` columns side by side, ``before`` zeros at their left."""
    channels, rows, columns, depth = weights.shape
    behind = -(before + columns) % stride
    wide = np.pad(weights, ((0, 0), (0, 0), (before, behind), (0, 0)))
    return wide.reshape(channels, rows, (before + columns + behind) // stride, depth * stride)
