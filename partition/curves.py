"""Functions of one value; of int8 as tables of all results, calculated as TFLite's kernels do.

The kernels are those of kernels/internal/reference (integer_ops for logistic and tanh).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tvm_ethosu.partition import fixed_point as fp
from tvm_ethosu.partition.constraints import (
    Constraint,
    elementwise_extents_fit,
    types_are_equal,
)
from tvm_ethosu.partition.float_curves import FLOAT_CURVES, float_factors, float_table
from tvm_ethosu.partition.lower import Lowered, flat_shape
from tvm_ethosu.partition.params import CurveParams, Factors, OpParams
from tvm_ethosu.partition.quantize import checked_multiplier, quantize_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.wide_curves import (
    WIDE_CURVES,
    lower_wide_curve,
)
from tvm_ethosu.partition.wide_rsqrt import FRACTION_BITS, rsqrt_factor, rsqrt_factors
from tvm_ethosu.scheduler.ir import Clamp, Constant, DType, Operand, Requantize, Rescale

# Logistic and tanh take their argument in Q4.27.
_INTEGER_BITS = 4


def _values(params: CurveParams) -> range:
    dtype = DType(params.ifm.dtype)
    return range(dtype.minimum, dtype.maximum + 1)


def _limited(params: CurveParams, value: int) -> int:
    dtype = DType(params.ofm.dtype)
    return max(dtype.minimum, min(dtype.maximum, value))


def _is_near_one_or_more(real: float) -> bool:
    """Return whether a factor needs no right shift, and a left one of at most 31 bits."""
    return math.isfinite(real) and 0.5 <= real < 2.0**31


def _saturating_curve(
    params: CurveParams, function: Callable[[int], int], result_shift: int
) -> list[int]:
    """Return ``function`` in Q0.31 shifted right, and the ends of the range far from zero."""
    factor = checked_multiplier(_argument_factor(params))
    radius = fp.input_radius(_INTEGER_BITS, 31 - factor.shift)

    def result(value: int) -> int:
        x = value - params.ifm_quant.zero_point
        if abs(x) >= radius:
            return DType.I8.maximum if x > 0 else DType.I8.minimum
        argument = fp.rescaled(x, factor.multiplier, factor.shift)
        shifted = fp.divide_by_power(function(argument), result_shift)
        return _limited(params, shifted + params.ofm_quant.zero_point)

    return [result(value) for value in _values(params)]


def _argument_factor(params: CurveParams) -> float:
    return params.ifm_quant.scale * (1 << (31 - _INTEGER_BITS))


def _is_unsigned_float(params: CurveParams) -> bool:
    """Return whether TFLite fills a table in float32 because the type is uint8."""
    return params.ofm.dtype == "uint8" and params.function in FLOAT_CURVES


def _logistic(params: CurveParams) -> list[int]:
    if _is_unsigned_float(params):
        return float_table(params)
    return _saturating_curve(params, fp.logistic, 23)


def _tanh(params: CurveParams) -> list[int]:
    if _is_unsigned_float(params):
        return float_table(params)
    return _saturating_curve(params, fp.tanh, 24)


def _scaled_values(params: CurveParams, slope: Callable[[int], tuple[int, Rescale]]) -> list[int]:
    """Return values times a factor; ``slope`` gives both for a value less its zero point."""

    def result(value: int) -> int:
        x, factor = slope(value - params.ifm_quant.zero_point)
        scaled = fp.rescaled(x, factor.multiplier, factor.shift)
        return _limited(params, scaled + params.ofm_quant.zero_point)

    return [result(value) for value in _values(params)]


def _leaky_relu(params: CurveParams) -> list[int]:
    identity, lower = map(checked_multiplier, params.slopes)
    return _scaled_values(params, lambda x: (x, identity if x >= 0 else lower))


def _abs(params: CurveParams) -> list[int]:
    factor = checked_multiplier(params.ratio)
    return _scaled_values(params, lambda x: (abs(x), factor))


# --- inverse square root --------------------------------------------------------------------------


def _rsqrt(params: CurveParams) -> list[int]:
    """Return 1 / sqrt(x); the largest value where x is not positive, which TFLite refuses."""
    factor = checked_multiplier(rsqrt_factor(params))

    def result(value: int) -> int:
        x = value - params.ifm_quant.zero_point
        if x <= 0:
            return DType.I8.maximum
        multiplier, shift = fp.inverse_root(x)
        inverse = fp.rescaled(1, multiplier, shift - FRACTION_BITS)
        scaled = fp.rescaled(inverse, factor.multiplier, factor.shift + FRACTION_BITS)
        return _limited(params, scaled + params.ofm_quant.zero_point)

    return [result(value) for value in _values(params)]


# --- hard-swish: 16 bits --------------------------------------------------------------------------

_MAX16 = (1 << 15) - 1


def _short_factor(real: float) -> tuple[int, int]:
    """Return a factor as a multiplier of 15 bits and a left shift."""
    factor = checked_multiplier(real)
    return min(_MAX16, (factor.multiplier + (1 << 15)) >> 16), 31 - factor.shift


def _saturate16(value: int) -> int:
    return max(-_MAX16 - 1, min(_MAX16, value))


def _high_multiply16(a: int, b: int) -> int:
    return _saturate16((a * b + (1 << 14)) >> 15)


def _swish_factors(params: CurveParams) -> tuple[float, float]:
    """Return the factors to the result, and to units of 3 / 2**15, in float32 as TFLite does."""
    fine = np.float32(1 / 128) * np.float32(params.ifm_quant.scale)
    unit = np.float32(3) / np.float32(32768)
    return float(fine / np.float32(params.ofm_quant.scale)), float(fine / unit)


def _gate(fine: int, multiplier: int, exponent: int) -> int:
    """Return (x + 3) / 6 limited to 0..1, in units of 2**-15."""
    value = fine
    if exponent > 0:
        value = _saturate16(value << (exponent - 1))
    value = _high_multiply16(value, multiplier)
    if exponent > 0:
        value = _saturate16(value << 1)
    value = fp.divide_by_power(value, max(0, -exponent))
    return (value + (1 << 15)) >> 1


def _hard_swish(params: CurveParams) -> list[int]:
    to_result, to_gate = _swish_factors(params)
    multiplier, exponent = _short_factor(to_result)
    gate_factor = _short_factor(to_gate)

    def result(value: int) -> int:
        fine = (value - params.ifm_quant.zero_point) << 7
        product = _gate(fine, *gate_factor) * _high_multiply16(fine, multiplier)
        high = _saturate16((abs(product) >> 15) * (1 if product >= 0 else -1))
        scaled = fp.divide_by_power(high, -exponent)
        return _limited(params, scaled + params.ofm_quant.zero_point)

    return [result(value) for value in _values(params)]


_TABLES: dict[str, Callable[[CurveParams], list[int]]] = {
    **dict.fromkeys(FLOAT_CURVES, float_table),
    "logistic": _logistic,
    "tanh": _tanh,
    "leaky_relu": _leaky_relu,
    "abs": _abs,
    "hard_swish": _hard_swish,
    "rsqrt": _rsqrt,
}


def lower_curve(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return a copy of the input whose values are looked up in a table, if they have 8 bits."""
    assert isinstance(params, CurveParams)
    if params.ifm.dtype == "int16":
        return lower_wide_curve(params, name, ifms, ofm)
    dtype = DType(params.ofm.dtype)
    table = Constant(f"{name}_table", np.array(_TABLES[params.function](params), dtype.value))
    shape = flat_shape(params)
    op = Requantize(
        name,
        Operand(ifms[0], shape, dtype),
        Operand(ofm, shape, dtype),
        Clamp(dtype.minimum, dtype.maximum),
        origin=params.origin,
        table=table.name,
    )
    return Lowered(op, (table,))


# Functions for which TFLite has kernels of uint8; logistic and tanh are tables there.
_UNSIGNED = ("logistic", "tanh", "leaky_relu", "hard_swish", "gelu", "gelu_approximate")


# --- limits ---------------------------------------------------------------------------------------


def curve_types_fit(params: OpParams) -> Rejection | None:
    """Inputs and outputs are int8, or one of uint8 and int16 that TFLite has the function for."""
    assert isinstance(params, CurveParams)
    types = ["int8"]
    if params.function in _UNSIGNED:
        types.append("uint8")
    if params.function in WIDE_CURVES:
        types.append("int16")
    for name, dtype in (("input type", params.ifm.dtype), ("output type", params.ofm.dtype)):
        if dtype not in types:
            return Rejection(name, dtype, " or ".join(types))
    return None


def wide_zero_points_are_zero(params: OpParams) -> Rejection | None:
    """Zero points are 0 for int16."""
    assert isinstance(params, CurveParams)
    for name, quant in (("input", params.ifm_quant), ("output", params.ofm_quant)):
        if params.ifm.dtype == "int16" and quant.zero_point != 0:
            return Rejection(f"{name} zero point", str(quant.zero_point), "0 for int16")
    return None


def curve_is_known(params: OpParams) -> Rejection | None:
    """The function is one that TFLite has."""
    assert isinstance(params, CurveParams)
    if params.function not in _TABLES:
        return Rejection("function", params.function, ", ".join(_TABLES))
    return None


def curve_scales_fit(params: OpParams) -> Rejection | None:
    """Scales are those of TFLite's kernel: logistic 1/256, tanh 1/128, both 1/32768 for int16."""
    assert isinstance(params, CurveParams)
    fixed = _fixed_quant(params)
    ofm = (params.ofm_quant.scale, params.ofm_quant.zero_point)
    if fixed is not None and ofm != fixed:
        value = f"{ofm[0]:.6g} with zero point {ofm[1]}"
        return Rejection("output scale", value, f"1/{round(1 / fixed[0])} with {fixed[1]}")
    for what, factor, fits in _factors(params):
        if not fits:
            return Rejection(what, f"{factor:.6g}", "one that TFLite's kernel can use")
    return None


def _fixed_quant(params: CurveParams) -> tuple[float, int] | None:
    """Return the output's scale and zero point where the function has only one."""
    if params.ofm.dtype == "int16":
        scale = WIDE_CURVES[params.function].ofm_scale
        return None if scale is None else (scale, 0)
    steps = {"logistic": (256, -128), "tanh": (128, 0)}.get(params.function)
    shift = 128 if params.ofm.dtype == "uint8" else 0
    return None if steps is None else (1 / steps[0], steps[1] + shift)


def _factors(params: CurveParams) -> Factors:
    """Return the factors that a table needs: name, value, whether it can be used."""
    if params.ofm.dtype == "int16":
        return WIDE_CURVES[params.function].factors(params)
    if _TABLES[params.function] is float_table or _is_unsigned_float(params):
        return float_factors(params)
    if params.function in ("logistic", "tanh"):
        factor = _argument_factor(params)
        return [("factor to the argument", factor, _is_near_one_or_more(factor))]
    if params.function == "hard_swish":
        to_result, to_gate = _swish_factors(params)
        return [
            ("factor to the output", to_result, 0 < to_result < 1),
            ("factor to the gate", to_gate, quantize_multiplier(to_gate) is not None),
        ]
    if params.function == "rsqrt":
        return rsqrt_factors(params)
    named = [("factor to the output", params.ratio)]
    if params.function == "leaky_relu":
        named = list(zip(("upper slope", "lower slope"), params.slopes, strict=True))
    return [(name, factor, quantize_multiplier(factor) is not None) for name, factor in named]


CURVE_CONSTRAINTS: tuple[Constraint, ...] = (
    curve_is_known,
    types_are_equal,
    curve_types_fit,
    wide_zero_points_are_zero,
    elementwise_extents_fit,
    curve_scales_fit,
)
