from __future__ import annotations

from dataclasses import replace

from tests.scheduler.builders import CLAMP, HARDWARE, chain, operand, plan, residual
from tvm_ethosu.scheduler.arch import Layout
from tvm_ethosu.scheduler.compile import decisions_of, repeat
from tvm_ethosu.scheduler.estimator import Estimator, worth_padding
from tvm_ethosu.scheduler.ir import Kernel, Padding, Pool, PoolKind, Shape
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
    flat = replace(graph.ops[1], ifm=operand("t1", Shape(1, 1, 16, 16)))
    reshaped = replace(graph, ops=(graph.ops[0], flat))
    assert choose_layouts(reshaped).by_tensor["t1"] is Layout.NHWC


def test_a_tensor_lives_from_writer_to_last_reader() -> None:
    assert uses(residual(Shape(1, 4, 4, 16))) == {
        "a": LiveRange(0, 3),
        "b": LiveRange(1, 3),
    }


def test_sizes_are_rounded_to_sixteen() -> None:
    assert [align(size) for size in (0, 1, 16, 17)] == [0, 16, 16, 32]


def test_bricks_may_be_padded_on_request() -> None:
    graph = chain([Shape(1, 4, 4, 8)] * 4)
    layouts = choose_layouts(graph, ["t1", "t3"])
    assert layouts.padded == {"t1"}, "the output stays as TVM reads it"
    assert [layouts.size_bytes(name) for name in ("t1", "t2")] == [256, 128]
    assert [layouts.row_bytes(name) for name in ("t1", "t2")] == [64, 32]


def test_padding_is_worth_it_where_memory_is_the_bottleneck() -> None:
    """A window per channel moves more than it computes; a wide convolution computes more."""
    shape = Shape(1, 48, 48, 8)
    pooled = replace(chain([shape] * 3), ops=())
    ops = tuple(
        Pool(f"p{i}", operand(f"t{i}", shape), operand(f"t{i + 1}", shape), CLAMP, PoolKind.MAX,
             Kernel(3, 3), Padding(1, 1, 1, 1))
        for i in range(2)
    )  # fmt: skip
    moving = worth_padding(Estimator(choose_layouts(replace(pooled, ops=ops)), HARDWARE))
    assert moving is not None
    assert moving.padded == {"t1"}
    busy = chain([Shape(1, 16, 16, c) for c in (64, 17, 64)], kernel=5)
    assert worth_padding(Estimator(choose_layouts(busy), HARDWARE)) is None


def test_the_decisions_repeat_the_layouts() -> None:
    graph = chain([Shape(1, 48, 48, c) for c in (8, 8, 8, 16)], kernel=3)
    first = plan(graph, None)
    assert first.schedule.layouts.padded
    again = repeat(graph, decisions_of(first.schedule), HARDWARE)
    assert again.schedule.layouts.by_tensor == first.schedule.layouts.by_tensor
    assert again.addresses == first.addresses
