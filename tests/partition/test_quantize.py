from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_ethosu.partition.quantize import accumulator_factor, quantize_multiplier
from tvm_ethosu.scheduler.ir import Rescale


@given(st.floats(2.0**-32, 2.0**30))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_a_factor_is_kept_to_half_a_unit_of_31_bits(real: float) -> None:
    rescale = quantize_multiplier(real)
    assert rescale is not None
    if rescale.multiplier == 0:
        assert real < 2.0**-32 * (1 + 2.0**-31)
        return
    assert 1 << 30 <= rescale.multiplier < 1 << 31
    exact = Fraction(rescale.multiplier, 1 << rescale.shift)
    assert abs(exact - Fraction(real)) <= Fraction(1, 2 << rescale.shift) + exact / (1 << 30)


def test_a_factor_that_rounds_up_to_a_power_of_two_keeps_31_bits() -> None:
    assert quantize_multiplier(1 - 2.0**-40) == Rescale(1 << 30, 30)


@pytest.mark.parametrize("real", [0.0, -1.0, math.inf, math.nan, 2.0**31, 1e30])
def test_what_no_shift_can_express_is_refused(real: float) -> None:
    assert quantize_multiplier(real) is None


@pytest.mark.parametrize("real", [2.0**-33, 1e-20])
def test_what_is_too_small_to_matter_becomes_zero(real: float) -> None:
    rescale = quantize_multiplier(real)
    assert rescale is not None
    assert rescale.multiplier == 0


def test_uint8_multiplies_its_scales_in_float32() -> None:
    scales = (0.1, 0.3, 1.0)
    assert accumulator_factor(*scales, product_in_float32=False) == 0.1 * 0.3
    assert accumulator_factor(*scales, product_in_float32=True) != 0.1 * 0.3
