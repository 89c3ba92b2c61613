"""The search for transfers looks only at what a change moves; the whole schedule says the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import HARDWARE, random_chain
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.plan import plan_whole_tensors
from tvm_ethosu.scheduler.prefetch import _Prefetch
from tvm_ethosu.scheduler.timeline import Timeline


@given(st.integers(0, 100_000))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_changed_transfer_costs_what_the_whole_schedule_then_takes(seed: int) -> None:
    estimator = Estimator(choose_layouts(random_chain(seed)), HARDWARE)
    search = _Prefetch(plan_whole_tensors(estimator.layouts), estimator, None)
    rng = np.random.default_rng(seed)
    movable = [op for op, choices in enumerate(search.ops) if choices.buffered is not None]
    moves: dict[int, int] = {}
    for _ in range(8):
        op = int(rng.choice(movable))
        before = int(rng.integers(0, search.schedule.segment_of[op] + 1))
        found = search._cycles_with(search.trace(moves), op, before)
        moves[op] = before
        assert found == pytest.approx(search.cycles(moves), abs=1e-2)


COMMANDS = st.lists(st.tuples(st.booleans(), st.integers(1, 100), st.integers(0, 300)), max_size=12)


@given(COMMANDS, COMMANDS, st.integers(1, 3))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_a_timeline_goes_on_from_its_state(
    first: list[tuple[bool, int, int]], then: list[tuple[bool, int, int]], slots: int
) -> None:
    line = Timeline(slots)
    _run(line, first)
    other = Timeline.at(line.state)
    for one in (line, other):
        _run(one, then)
    assert line.state == other.state
    assert line.end == other.end


def _run(line: Timeline, commands: list[tuple[bool, int, int]]) -> None:
    for is_transfer, cycles, after in commands:
        if is_transfer:
            line.transfer(cycles)
        else:
            line.kernels(cycles, after)
