"""Rows of the table that are not tried, because their calls are not in the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tvm

from tests.conftest import MLPERF_TINY, shared_folder
from tests.partition.networks import residual, two_functions
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.relay.partition import _bind, _possible_rules, _split
from tvm_ethosu.partition.rules import RULES
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite
from tvm_ethosu.scheduler.errors import UserError

SUITES = ("models", "conformance/single_op")


def _networks() -> list[str]:
    shared = shared_folder()
    found = [] if shared is None else [p for s in SUITES for p in (shared / s).rglob("*.tflite")]
    return sorted(str(path.relative_to(shared)) for path in found) or ["the networks"]


def _assert_same_partition(file: TfliteFile) -> None:
    bound = _bind(*to_relay(file))
    fewer, every = _split(bound, "default"), _split(bound, "default", lambda _: RULES)
    assert len(list(_possible_rules(bound))) < len(RULES) / 2
    assert tvm.ir.structural_equal(fewer, every)
    assert str(fewer) == str(every)


@pytest.mark.parametrize("make", [two_functions, residual])
def test_rules_without_their_calls_change_nothing(make: Callable[[], TfliteFile]) -> None:
    _assert_same_partition(make())


def test_they_change_nothing_in_a_trained_network(shared: Path) -> None:
    _assert_same_partition(load_tflite(shared / "models" / f"{MLPERF_TINY[1]}.tflite"))


@pytest.mark.slow
@pytest.mark.parametrize("name", _networks())
def test_they_change_nothing_anywhere(name: str, shared: Path) -> None:
    try:
        file = load_tflite(shared / name)
        to_relay(file)
    except UserError as error:
        pytest.skip(str(error))
    _assert_same_partition(file)
