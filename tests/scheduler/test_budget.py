from __future__ import annotations

import pytest

from tvm_ethosu.scheduler.budget import CallSite, IoPlace, budget_bytes, disposable_arguments


def test_no_limit_gives_no_budget() -> None:
    assert budget_bytes(None, [CallSite(100)]) is None


def test_a_function_may_use_what_the_others_leave() -> None:
    assert budget_bytes(1000, [CallSite(300)]) == 700


def test_the_functions_own_scratch_is_not_held_by_others() -> None:
    assert budget_bytes(1000, [CallSite(800, scratch_bytes=500)]) == 700


@pytest.mark.parametrize(
    ("place", "budget"),
    [
        # 300 bytes live, 40 of them network input; 50 bytes of network output not live yet.
        (IoPlace.IN_POOL, 1000 - 300),
        (IoPlace.BESIDE_POOL, 1000 - 300 - 50),
        (IoPlace.ELSEWHERE, 1000 - (300 - 40)),
    ],
)
def test_inputs_and_outputs_count_by_where_they_lie(place: IoPlace, budget: int) -> None:
    site = CallSite(300, live_io_bytes=40, idle_io_bytes=50)
    assert budget_bytes(1000, [site], place) == budget


def test_a_function_called_twice_takes_the_smaller_budget() -> None:
    assert budget_bytes(1000, [CallSite(300), CallSite(450)]) == 550


def test_functions_of_one_program_do_not_share_a_budget() -> None:
    # The old in-tree backend added both up and gave each 1000 - (300 + 450).
    assert [budget_bytes(1000, [CallSite(used)]) for used in (300, 450)] == [700, 550]


def test_a_tensor_that_lives_across_the_call_is_held_by_others() -> None:
    own, across = 200, 350
    assert budget_bytes(1000, [CallSite(own + across)]) == 1000 - own - across


def test_what_lies_in_another_pool_leaves_room_in_this_one() -> None:
    assert budget_bytes(1000, [CallSite(900, other_pool_bytes=600)]) == 700


def test_a_network_that_does_not_fit_at_all_has_a_negative_budget() -> None:
    assert budget_bytes(200, [CallSite(300)]) == -100


@pytest.mark.parametrize(
    ("inputs", "place", "expected"),
    [
        (False, IoPlace.BESIDE_POOL, {2}),
        (True, IoPlace.BESIDE_POOL, {0, 2}),
        (False, IoPlace.IN_POOL, {0, 2}),
    ],
)
def test_only_what_no_caller_needs_may_be_overwritten(
    inputs: bool, place: IoPlace, expected: set[int]
) -> None:
    """Arguments 0 and 1 are inputs of the network; another call still reads 1 and 3 later."""
    everything = CallSite(300, ending=frozenset({0, 1, 2, 3}), ending_inputs=frozenset({0, 1}))
    other = CallSite(300, ending=frozenset({0, 2}), ending_inputs=frozenset({0}))
    assert disposable_arguments([everything, other], inputs=inputs, io=place) == expected


def test_a_function_that_nobody_calls_may_overwrite_nothing() -> None:
    assert disposable_arguments([], inputs=True) == frozenset()
