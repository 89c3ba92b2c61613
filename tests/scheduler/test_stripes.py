"""Stripes: every row once, from rows that are there; nothing read is overwritten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import chain, random_chain, residual
from tvm_ethosu.scheduler.allocate import allocate
from tvm_ethosu.scheduler.ir import DType, NpuGraph, Shape, Tensor
from tvm_ethosu.scheduler.layouts import Layouts, choose_layouts
from tvm_ethosu.scheduler.liveness import kept_tensors
from tvm_ethosu.scheduler.plan import Overlap, Segment, StepsOfSegments, plan_segment, plan_segments
from tvm_ethosu.scheduler.stripes import (
    DOWNWARDS,
    UPWARDS,
    Direction,
    Rows,
    Step,
    Stripes,
    cut_op,
    input_rows,
    rolling_rows,
    row_use,
    segment_steps,
)

GRAPHS = st.builds(random_chain, st.integers(0, 10_000))
STRIPES = st.builds(Stripes, st.integers(1, 4), st.booleans())
DIRECTIONS = st.sampled_from([DOWNWARDS, UPWARDS])


def _steps(graph: NpuGraph, stripes: Stripes, direction: Direction) -> tuple[Step, ...]:
    kept = kept_tensors(graph, 0, len(graph.ops))
    return segment_steps(graph, 0, len(graph.ops), stripes, kept, direction)


@given(GRAPHS, STRIPES, DIRECTIONS)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_rows_are_made_once_and_before_they_are_read(
    graph: NpuGraph, stripes: Stripes, direction: Direction
) -> None:
    made: dict[str, set[int]] = {name: set() for name in graph.tensors}
    made["x"] = set(range(graph.tensors["x"].shape.h))
    for step in _steps(graph, stripes, direction):
        op = graph.ops[step.op]
        for operand in op.inputs:
            read = input_rows(op, operand, step.rows)
            assert set(range(read.start, read.stop)) <= made[operand.tensor]
        rows = set(range(step.rows.start, step.rows.stop))
        assert not rows & made[op.ofm.tensor]
        made[op.ofm.tensor] |= rows
    (output,) = graph.outputs
    assert made[output] == set(range(graph.tensors[output].shape.h))


@given(GRAPHS, STRIPES, DIRECTIONS)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_a_rolling_buffer_never_loses_a_row_that_is_read_later(
    graph: NpuGraph, stripes: Stripes, direction: Direction
) -> None:
    steps = _steps(graph, stripes, direction)
    depth = rolling_rows(row_use(graph, steps, direction))
    held: dict[str, dict[int, int]] = {name: {} for name in graph.tensors}
    for step in steps:
        op = graph.ops[step.op]
        for operand in op.inputs:
            if operand.tensor == "x":
                continue
            read = input_rows(op, operand, step.rows)
            for row in range(read.start, read.stop):
                assert held[operand.tensor][row % depth[operand.tensor]] == row
        for row in range(step.rows.start, step.rows.stop):
            held[op.ofm.tensor][row % depth[op.ofm.tensor]] = row


def _check_overlap(layouts: Layouts, overlap: Overlap, steps: tuple[Step, ...]) -> None:
    """Replay the steps on addresses and see that no live row of the source is written over."""
    graph, source, target = layouts.graph, overlap.source, overlap.target
    if overlap.direction.upwards:
        shift = layouts.size_bytes(source) - layouts.size_bytes(target) + overlap.distance_bytes
    else:
        shift = -overlap.distance_bytes
    reads = [
        input_rows(graph.ops[step.op], operand, step.rows)
        for step in steps
        for operand in graph.ops[step.op].inputs
        if operand.tensor == source
    ]
    positions = [
        position
        for position, step in enumerate(steps)
        for operand in graph.ops[step.op].inputs
        if operand.tensor == source
    ]
    for position, step in enumerate(steps):
        if graph.ops[step.op].ofm.tensor != target:
            continue
        start = shift + step.rows.start * layouts.row_bytes(target)
        stop = shift + step.rows.stop * layouts.row_bytes(target)
        for at, rows in zip(positions, reads, strict=True):
            if at >= position:
                row = layouts.row_bytes(source)
                first, last = rows.start * row, rows.stop * row
                assert stop <= first or start >= last


@given(st.integers(0, 10_000), STRIPES, DIRECTIONS, st.booleans())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_a_tensor_grows_into_dead_rows_only(
    seed: int, stripes: Stripes, direction: Direction, padded: bool
) -> None:
    graph = random_chain(seed, elementwise=False)
    layouts = choose_layouts(graph, graph.tensors if padded else ())
    known = StepsOfSegments(graph)
    for start in range(len(graph.ops) - 1):
        for stop in range(start + 1, len(graph.ops)):
            segment = Segment(start, stop, stripes.rows, stripes.fine)
            plan = plan_segment(layouts, segment, known, direction)
            if plan.overlap is not None:
                _check_overlap(layouts, plan.overlap, plan.steps)


def test_a_cut_operator_pads_only_where_it_meets_the_edge() -> None:
    op = residual(Shape(1, 8, 8, 16)).ops[1]
    cuts = [cut_op(op, rows) for rows in (Rows(0, 2), Rows(2, 6), Rows(6, 8))]
    assert [(cut.padding.top, cut.padding.bottom) for cut in cuts] == [(1, 0), (0, 0), (0, 1)]
    assert [cut.ifm.shape.h for cut in cuts] == [3, 6, 3]


def test_the_rows_of_a_fine_segment_are_made_few_at_a_time() -> None:
    """A chain of 3x3 windows asks for ever more rows at once, unless each waits for the next."""
    graph = chain([Shape(1, 32, 4, 16)] * 6, kernel=3)
    coarse, fine = (_steps(graph, Stripes(1, fine), DOWNWARDS) for fine in (False, True))
    assert max(step.rows.height for step in coarse) == 5
    assert {step.rows.height for step in fine} == {1}
    rows = [rolling_rows(row_use(graph, steps)) for steps in (coarse, fine)]
    assert sum(rows[1].values()) < sum(rows[0].values())


def test_a_result_follows_in_the_place_of_the_input() -> None:
    """The first convolution runs ahead by what the rows of the result overwrite."""
    graph = chain([Shape(1, 16, 4, 16)] * 4, kernel=3)
    graph = replace(graph, disposable=frozenset(graph.inputs))
    layouts = choose_layouts(graph)
    plan = plan_segment(layouts, Segment(0, 2, 1), StepsOfSegments(graph))
    assert plan.overlap is not None
    assert (plan.overlap.source, plan.overlap.distance_bytes) == (graph.inputs[0], 0)
    _check_overlap(layouts, plan.overlap, plan.steps)
    keeping = replace(graph, disposable=frozenset())
    kept = plan_segment(choose_layouts(keeping), Segment(0, 2, 1), StepsOfSegments(keeping))
    assert kept.overlap is None


def test_an_input_that_lends_nothing_is_not_written_over() -> None:
    """With more arguments than base pointers no run of the NPU is sure to reach it."""
    graph = chain([Shape(1, 16, 4, 16)] * 4, kernel=3)
    others = {f"y{index}": Shape(1, 1, 1, 16) for index in range(6)}
    tensors = {name: Tensor(name, shape, DType.I8) for name, shape in others.items()}
    inputs = (*graph.inputs, *others)
    crowded = replace(
        graph, inputs=inputs, tensors={**graph.tensors, **tensors}, disposable=frozenset(inputs)
    )
    assert (
        plan_segment(choose_layouts(crowded), Segment(0, 2, 1), StepsOfSegments(crowded)).overlap
        is None
    )
    segments = [Segment(0, 2, 1), Segment(2, 3, 16)]
    plans = [plan_segments(choose_layouts(one), segments) for one in (graph, crowded)]
    homes = [dict(allocate(plan).homes) for plan in plans]
    assert homes == [{"t1": "t3"}, {}]


def test_dead_rows_are_not_made() -> None:
    graph = random_chain(0, strides=True)
    made = {}
    for step in _steps(graph, Stripes(1), DOWNWARDS):
        made[step.op] = made.get(step.op, 0) + step.rows.height
    assert all(made[i] <= op.ofm.shape.h for i, op in enumerate(graph.ops))
