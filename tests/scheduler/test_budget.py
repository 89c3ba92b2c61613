from __future__ import annotations

from tvm_ethosu.scheduler.budget import CallSite, budget_bytes


def test_no_limit_gives_no_budget() -> None:
    assert budget_bytes(None, [CallSite(100)]) is None


def test_a_function_may_use_what_the_others_leave() -> None:
    assert budget_bytes(1000, [CallSite(300)]) == 700


def test_the_functions_own_scratch_is_not_held_by_others() -> None:
    assert budget_bytes(1000, [CallSite(800, scratch_bytes=500)]) == 700


def test_inputs_and_outputs_outside_of_the_pool_are_held_all_the_time() -> None:
    assert budget_bytes(1000, [CallSite(300, idle_io_bytes=50)]) == 650


def test_a_function_called_twice_takes_the_smaller_budget() -> None:
    assert budget_bytes(1000, [CallSite(300), CallSite(450)]) == 550


def test_a_network_that_does_not_fit_at_all_has_a_negative_budget() -> None:
    assert budget_bytes(200, [CallSite(300)]) == -100
