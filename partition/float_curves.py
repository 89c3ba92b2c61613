"""Functions of one value that TFLite's kernels calculate in float32, once for a table.

The tables are those of TFLite's LUTPopulate (kernels/internal/common.h): one result for each int8
value, or 513 results for int16, 128 values apart, between which both TFLite and the NPU interpolate
alike. TFLite Micro has such a kernel for ELU only, the others are TFLite's own. Logistic and tanh
are tables of this kind for uint8 only. What is named ``float_`` is a float operator of the model
between DEQUANTIZE and QUANTIZE, whose results are not always those of the quantized operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_ethosu.partition.params import CurveParams, Factors
from tvm_ethosu.scheduler.ir import DType, Quant

Reals = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Function = Callable[[Reals, CurveParams], Reals]

_STEPS = 512
_INT32_MAX = 2.0**31
_SQRT_HALF = np.float32(math.sqrt(0.5))
_SQRT_2_OVER_PI = np.float32(math.sqrt(2 / math.pi))


def in_double(function: Callable[..., Any], x: Reals) -> Reals:
    """Return a function rounded to float32 once."""
    with np.errstate(over="ignore"):
        return np.asarray(function(x.astype(np.float64)), np.float32)


def _exp(x: Reals, _: CurveParams) -> Reals:
    return in_double(np.exp, x)


def _log(x: Reals, params: CurveParams) -> Reals:
    """Return the logarithm; the least value of the output where there is none."""
    quant, positive = params.ofm_quant, x > 0
    steps = np.float32(DType(params.ofm.dtype).minimum - quant.zero_point)
    least = steps * np.float32(quant.scale)
    return np.where(positive, in_double(np.log, np.where(positive, x, 1)), least)


def _elu(x: Reals, _: CurveParams) -> Reals:
    return np.where(x < 0, in_double(np.exp, np.minimum(x, 0)) - np.float32(1), x)


def _gelu(x: Reals, _: CurveParams) -> Reals:
    complement = in_double(np.vectorize(math.erfc), x * -_SQRT_HALF)
    return np.float32(0.5) * x * complement


def _gelu_approximate(x: Reals, _: CurveParams) -> Reals:
    inner = _SQRT_2_OVER_PI * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + in_double(np.tanh, inner))


def _logistic(x: Reals, _: CurveParams) -> Reals:
    return np.float32(1) / (np.float32(1) + in_double(np.exp, -x))


def _tanh(x: Reals, _: CurveParams) -> Reals:
    return in_double(np.tanh, x)


def _negative(x: Reals, _: CurveParams) -> Reals:
    return -x


# --- float operators of TFLite (kernels/internal/reference) ---------------------------------------


def _float_logistic(x: Reals, params: CurveParams) -> Reals:
    """Return exp(x) and 1 themselves far from zero."""
    near = np.where(x < -9, in_double(np.exp, np.minimum(x, 0)), _logistic(x, params))
    return np.where(x > np.float32(16.619047164916992188), np.float32(1), near)


def _float_hard_swish(x: Reals, _: CurveParams) -> Reals:
    gate = np.clip(x + np.float32(3), np.float32(0), np.float32(6))
    return np.asarray(x * gate / np.float32(6), np.float32)


def _float_leaky_relu(x: Reals, params: CurveParams) -> Reals:
    return np.where(x > 0, x, x * np.float32(params.alpha))


def _float_abs(x: Reals, _: CurveParams) -> Reals:
    return np.abs(x)


@dataclass(frozen=True)
class FloatCurve:
    """A function of reals, and of what else the operator says.

    A table is filled by multiplying with the inverse of the output's scale. A float operator
    between DEQUANTIZE and QUANTIZE is ``divided`` by the scale.
    """

    function: Function
    divided: bool = False


FLOAT_CURVES: dict[str, FloatCurve] = {
    "exp": FloatCurve(_exp),
    "log": FloatCurve(_log),
    "elu": FloatCurve(_elu),
    "gelu": FloatCurve(_gelu),
    "gelu_approximate": FloatCurve(_gelu_approximate),
    "logistic": FloatCurve(_logistic),
    "tanh": FloatCurve(_tanh),
    "float_exp": FloatCurve(_exp, divided=True),
    "float_log": FloatCurve(_log, divided=True),
    "float_neg": FloatCurve(_negative, divided=True),
    "float_logistic": FloatCurve(_float_logistic, divided=True),
    "float_tanh": FloatCurve(_tanh, divided=True),
    "float_hard_swish": FloatCurve(_float_hard_swish, divided=True),
    "float_leaky_relu": FloatCurve(_float_leaky_relu, divided=True),
    "float_abs": FloatCurve(_float_abs, divided=True),
}


def _round(x: Reals) -> Reals:
    """Round to nearest, ties away from zero; in float32 the sum would round up to it at times."""
    return np.asarray(np.copysign(np.floor(np.abs(x).astype(np.float64) + 0.5), x), np.float32)


def _results(params: CurveParams) -> Reals:
    """Return the results in steps of the output's scale, before zero point and limits."""
    curve, quant = FLOAT_CURVES[params.function], params.ofm_quant
    dtype = DType(params.ifm.dtype)
    steps = np.arange(dtype.minimum, dtype.maximum + 1) - params.ifm_quant.zero_point
    scale = np.float32(quant.scale)
    x = np.float32(params.ifm_quant.scale) * steps.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        y = curve.function(x, params)
        y = y / scale if curve.divided else y * (np.float32(1) / scale)
    return _round(y)


def float_factors(params: CurveParams) -> Factors:
    """Return the number that decides whether a table of int8 can be filled."""
    largest = float(np.max(np.abs(_results(params))))
    return [("largest result in steps of the output's scale", largest, largest < _INT32_MAX)]


def float_table(params: CurveParams) -> list[int]:
    """Return the results of all int8 values."""
    dtype = DType(params.ofm.dtype)
    values = (_results(params) + np.float32(params.ofm_quant.zero_point)).astype(np.int64)
    return [int(value) for value in np.clip(values, dtype.minimum, dtype.maximum)]


# --- int16 ----------------------------------------------------------------------------------------


def _at_steps(function: Callable[[Reals], Reals], ifm_quant: Quant, ofm_quant: Quant) -> Reals:
    """Return results at -32768, -32640, ..., 32640 and 32767, moved to halve the error between."""
    dtype = DType.I16
    ends = np.array([dtype.minimum, dtype.maximum])
    low, high = np.float32(ifm_quant.scale) * (ends - ifm_quant.zero_point).astype(np.float32)
    bottom, top = np.float32(ofm_quant.scale) * (ends - ofm_quant.zero_point).astype(np.float32)
    step = (high - low) / np.float32(_STEPS)
    inverse = np.float32(1 << 16) / (top - bottom)
    index = np.arange(_STEPS, dtype=np.float32)
    here = function(low + index * step) * inverse
    middle = function(low + index * step + step / np.float32(2)) * inverse
    after = function(low + (index + np.float32(1)) * step) * inverse
    between = _round((after + _round(here)) / np.float32(2))
    bias = _round((between - _round(middle)) / np.float32(2))
    last = _round(function(np.array([high], np.float32)) * inverse)
    return np.concatenate([_round(here) - bias, last])


def interpolated_results(
    function: Callable[[Reals], Reals], ifm_quant: Quant, ofm_quant: Quant
) -> Integers:
    """Return the 513 results of a table of int16."""
    every = _at_steps(function, ifm_quant, ofm_quant)
    return np.asarray(np.clip(every, DType.I16.minimum, DType.I16.maximum), np.int64)


def interpolation_words(results: Integers) -> npt.NDArray[np.uint32]:
    """Return the NPU's table: each result beside its distance to the next one, 16 bits both."""
    bases, slopes = results[:-1], np.diff(results)
    return (((slopes & 0xFFFF) << 16) | (bases & 0xFFFF)).astype(np.uint32)


def wide_table(params: CurveParams) -> npt.NDArray[np.uint32]:
    """Return the NPU's table of a function of int16."""
    function = _wide_function(params)
    return interpolation_words(interpolated_results(function, params.ifm_quant, params.ofm_quant))


def wide_factors(params: CurveParams) -> Factors:
    """Return the number that decides whether a table of int16 can be filled."""
    with np.errstate(over="ignore", invalid="ignore"):
        reals = _at_steps(_wide_function(params), params.ifm_quant, params.ofm_quant)
    largest = float(np.max(np.abs(reals)))
    fits = bool(np.all(np.isfinite(reals)))
    return [("largest result in steps of the output's scale", largest, fits)]


def _wide_function(params: CurveParams) -> Callable[[Reals], Reals]:
    function = FLOAT_CURVES[params.function].function
    return lambda x: function(x, params)
