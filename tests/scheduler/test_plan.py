from __future__ import annotations

import dataclasses

from tests.scheduler.builders import chain, operand, residual
from tvm_ethosu.scheduler.arch import Layout
from tvm_ethosu.scheduler.ir import Shape
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.liveness import LiveRange, align, uses


def test_bricks_only_where_no_channel_is_wasted_and_nobody_else_looks() -> None:
    graph = chain([Shape(1, 4, 4, c) for c in (16, 32, 17, 16)])
    layouts = choose_layouts(graph).by_tensor
    assert layouts == {
        "t0": Layout.NHWC,
        "t1": Layout.NHCWB16,
        "t2": Layout.NHWC,
        "t3": Layout.NHWC,
    }


def test_a_tensor_seen_under_another_shape_stays_nhwc() -> None:
    graph = chain([Shape(1, 4, 4, 16)] * 3)
    flat = dataclasses.replace(graph.ops[1], ifm=operand("t1", Shape(1, 1, 16, 16)))
    reshaped = dataclasses.replace(graph, ops=(graph.ops[0], flat))
    assert choose_layouts(reshaped).by_tensor["t1"] is Layout.NHWC


def test_a_tensor_lives_from_writer_to_last_reader() -> None:
    assert uses(residual(Shape(1, 4, 4, 16))) == {
        "a": LiveRange(0, 3),
        "b": LiveRange(1, 3),
    }


def test_sizes_are_rounded_to_sixteen() -> None:
    assert [align(size) for size in (0, 1, 16, 17)] == [0, 16, 16, 32]
