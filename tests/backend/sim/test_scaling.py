"""Scaling against the same arithmetic in Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.sim import slow
from tvm_ethosu.backend.sim import AmbiguousError, LimitError
from tvm_ethosu.backend.sim.operations import Rounding
from tvm_ethosu.backend.sim.scaling import scale

ROUNDINGS = st.sampled_from(Rounding)
SHIFTS = st.integers(0, 63)


@given(
    rounding=ROUNDINGS,
    rows=st.lists(
        st.tuples(
            st.integers(-(1 << 40), 1 << 40),
            st.one_of(st.sampled_from([0, 1, 1 << 30, 1 << 31]), st.integers(0, (1 << 32) - 1)),
            SHIFTS,
        ),
        min_size=1,
        max_size=20,
    ),
)
def test_per_channel(rounding: Rounding, rows: list[tuple[int, int, int]]) -> None:
    acc, multiplier, shift = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    result = scale(acc, multiplier, shift, rounding, strict=False)
    assert result.dtype == np.int64
    assert result.tolist() == [_saturated(slow.scale(*row, rounding)) for row in rows]


@given(
    rounding=ROUNDINGS,
    values=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1),
    multiplier=st.integers(0, (1 << 31) - 1),
    shift=SHIFTS,
)
def test_one_scale(rounding: Rounding, values: list[int], multiplier: int, shift: int) -> None:
    result = scale(np.array(values), multiplier, shift, rounding, strict=False)
    expected = [slow.scale(value, multiplier, shift, rounding) for value in values]
    assert result.tolist() == expected


@pytest.mark.parametrize("shift", [1, 2, 30, 31, 32, 33, 40])
@pytest.mark.parametrize("rounding", Rounding)
def test_ties(rounding: Rounding, shift: int) -> None:
    """Every multiple of a quarter of the last place around zero, ties included."""
    quarters = np.arange(-16, 17) << (shift - 1) if shift > 1 else np.arange(-16, 17)
    result = scale(quarters, 1, shift, rounding, strict=False)
    expected = [slow.scale(int(value), 1, shift, rounding) for value in quarters]
    assert result.tolist() == expected


def test_known_ties() -> None:
    halves = np.array([-3, -1, 1, 3]) << 32
    assert scale(halves, 1, 33, Rounding.NATURAL).tolist() == [-1, 0, 1, 2]
    assert scale(halves, 1, 33, Rounding.DOUBLE).tolist() == [-2, -1, 1, 2]
    assert scale(halves >> 2, 1, 31, Rounding.DOUBLE).tolist() == [-1, 0, 1, 2]
    assert scale(halves, 1, 33, Rounding.TRUNCATE, strict=False).tolist() == [-1, 0, 0, 1]


def test_truncation_is_ambiguous() -> None:
    with pytest.raises(AmbiguousError, match="TRUNCATE"):
        scale(np.array([1]), 1, 1, Rounding.TRUNCATE)


def _saturated(value: int) -> int:
    return max(-(1 << 63), min((1 << 63) - 1, value))


def test_scaling_one_by_one_is_limited() -> None:
    with pytest.raises(LimitError, match="one by one"):
        scale(np.full((1 << 22) + 1, 1 << 40), 1 << 30, 8, Rounding.NATURAL)
