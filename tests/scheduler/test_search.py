"""The search against all plans there are, on small graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import HARDWARE, plan, random_chain
from tvm_ethosu.scheduler.errors import Infeasible
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.plan import Segment
from tvm_ethosu.scheduler.search import Edge, Objective, PlanSearch

GRAPHS = st.builds(random_chain, st.integers(0, 10_000))


def _all_edges(graph: NpuGraph, budget_bytes: int) -> dict[int, list[Edge]]:
    """Every segment with every power of two as stripe height, fine or not, by its first one."""
    edges = PlanSearch(Estimator(choose_layouts(graph), HARDWARE))
    found: dict[int, list[Edge]] = {}
    for start in range(len(graph.ops)):
        for stop in range(start + 1, len(graph.ops) + 1):
            height = graph.ops[stop - 1].ofm.shape.h
            rows = [1 << power for power in range(height.bit_length()) if 1 << power < height]
            if stop == start + 1:
                rows.append(height)
            found.setdefault(start, []).extend(
                edges.edge(Segment(start, stop, r, fine), budget_bytes)
                for r in rows
                for fine in (False, True)
            )
    return found


def _paths(edges: dict[int, list[Edge]], start: int, count: int) -> Iterator[tuple[int, float]]:
    """Peak and cycles of every way from a cut to the end."""
    if start == count:
        yield 0, 0
        return
    for edge in edges[start]:
        for peak, cycles in _paths(edges, edge.segment.stop, count):
            yield max(peak, edge.peak_bytes), cycles + edge.cycles


def _cost(graph: NpuGraph, segments: tuple[Segment, ...], budget_bytes: int) -> tuple[int, float]:
    search = PlanSearch(Estimator(choose_layouts(graph), HARDWARE))
    edges = [search.edge(segment, budget_bytes) for segment in segments]
    return max(edge.peak_bytes for edge in edges), sum(edge.cycles for edge in edges)


@given(st.integers(0, 2_000), st.integers(1, 4))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_no_plan_within_the_budget_is_faster(seed: int, quarter: int) -> None:
    graph = random_chain(seed)
    if len(graph.ops) > 6:
        return
    plans = list(_paths(_all_edges(graph, 0), 0, len(graph.ops)))
    lowest, highest = min(p for p, _ in plans), max(p for p, _ in plans)
    assert PlanSearch(Estimator(choose_layouts(graph), HARDWARE)).lowest()[0] == lowest
    budget = lowest + (highest - lowest) * quarter // 4
    plans = list(_paths(_all_edges(graph, budget), 0, len(graph.ops)))
    best = min(cycles for peak, cycles in plans if peak <= budget)
    segments = PlanSearch(Estimator(choose_layouts(graph), HARDWARE)).find(budget)
    assert segments is not None
    peak, cycles = _cost(graph, segments, budget)
    assert peak <= budget
    assert cycles == pytest.approx(best)


@given(GRAPHS)
@settings(derandomize=True, deadline=None, max_examples=25)
def test_a_larger_budget_never_has_a_slower_path(graph: NpuGraph) -> None:
    search = PlanSearch(Estimator(choose_layouts(graph), HARDWARE))
    least = plan(graph, None, Objective.SIZE).scratch_bytes
    whole = plan(graph, None).scratch_bytes
    last = None
    for share in range(5):
        budget = least + (whole - least) * share // 4
        segments = search.find(budget)
        if segments is None:
            continue
        cycles = _cost(graph, segments, budget)[1]
        assert last is None or cycles <= last
        last = cycles


@given(GRAPHS)
@settings(derandomize=True, deadline=None, max_examples=18)
def test_a_plan_is_placed_within_its_budget(graph: NpuGraph) -> None:
    least = plan(graph, None, Objective.SIZE).scratch_bytes
    whole = plan(graph, None).scratch_bytes
    for share in range(5):
        budget = least + (whole - least) * share // 4
        assert plan(graph, budget).scratch_bytes <= budget


@given(GRAPHS)
@settings(derandomize=True, deadline=None, max_examples=40)
def test_below_the_least_memory_there_is_no_plan(graph: NpuGraph) -> None:
    least = plan(graph, None, Objective.SIZE).scratch_bytes
    if least:
        with pytest.raises(Infeasible):
            plan(graph, least - 1)
