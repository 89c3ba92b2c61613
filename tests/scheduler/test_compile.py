from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import HARDWARE, chain, plan, random_chain, residual
from tvm_ethosu.scheduler.compile import decisions_of, repeat
from tvm_ethosu.scheduler.errors import Infeasible
from tvm_ethosu.scheduler.ir import Shape
from tvm_ethosu.scheduler.search import Objective


def test_a_budget_of_just_enough_is_enough() -> None:
    graph = residual(Shape(1, 4, 4, 16))
    assert plan(graph, 512).scratch_bytes == 512
    assert plan(graph, None).scratch_bytes == 512


def test_a_budget_too_small_says_what_is_needed_and_where() -> None:
    with pytest.raises(Infeasible) as caught:
        plan(residual(Shape(1, 4, 4, 16)), 100)
    error = caught.value
    # Three rows of the first tensor, whose third is read last, and a row of the second.
    assert (error.required_bytes, error.available_bytes, error.excess_bytes) == (256, 100, 156)
    for part in ("needs 256 bytes", "100 bytes are left", "156 bytes too few", "operator 'first'"):
        assert part in str(error)
    assert "rows of 1x4x4x16 int8" in str(error)


def test_a_negative_budget_is_told_as_nothing_left() -> None:
    with pytest.raises(Infeasible, match="0 bytes are left"):
        plan(residual(Shape(1, 4, 4, 16)), -100)


def test_a_function_without_inner_tensors_fits_a_budget_of_zero() -> None:
    assert plan(chain([Shape(1, 4, 4, 16)] * 2), 0).scratch_bytes == 0


def test_the_same_graph_gives_the_same_addresses() -> None:
    graphs = [chain([Shape(1, 5, 7, c) for c in (3, 16, 17, 32, 8)]) for _ in range(3)]
    addresses = [dict(plan(graph, None).addresses) for graph in graphs]
    assert addresses[0] == addresses[1] == addresses[2]


@given(st.integers(0, 10_000), st.sampled_from(Objective))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_a_plan_is_made_again_from_its_decisions(seed: int, objective: Objective) -> None:
    graph = random_chain(seed)
    least = plan(graph, None, Objective.SIZE).scratch_bytes
    for budget in (None, least, 2 * least):
        first = plan(graph, budget, objective)
        again = repeat(graph, decisions_of(first.schedule), HARDWARE)
        assert again.schedule.steps == first.schedule.steps
        assert again.schedule.timed == first.schedule.timed
        assert again.schedule.transfers == first.schedule.transfers
        assert (again.addresses, again.homes) == (first.addresses, first.homes)
        assert again.scratch_bytes == first.scratch_bytes
