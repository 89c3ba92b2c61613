"""Functions of one int16 value by the operators that the NPU has for them.

TFLite Micro's kernels (kernels/internal/reference/integer_ops/tanh.h and logistic.h, leaky_relu.h,
micro/kernels/elementwise.cc) and the NPU use the same arithmetic for these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_ethosu.partition.float_curves import wide_factors, wide_table
from tvm_ethosu.partition.lower import Lowered, flat_shape
from tvm_ethosu.partition.params import CurveParams, Factors
from tvm_ethosu.partition.quantize import checked_multiplier, quantize_multiplier
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.partition.wide_rsqrt import lower_wide_rsqrt, rsqrt_factor, rsqrt_factors
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    Curve,
    DType,
    ElementKind,
    Operand,
    Requantize,
    Rescale,
)

Values = npt.NDArray[np.int64]
_LIMITS = Clamp(DType.I16.minimum, DType.I16.maximum)
_ALL = np.arange(DType.I16.minimum, DType.I16.maximum + 1)

# Tanh and logistic count their argument in steps of 1/12288, with a multiplier of 15 bits.
_STEPS = 3 * 4096
_LARGEST_STEP = (2**15 - 1) / _STEPS
_SMALLEST_STEP = 2.0**-31 / _STEPS
# Within this distance of these logarithms a scale is one of two powers, with simpler arithmetic.
_POWERS_OF_TWO = (-12, -11)
_POWER_OF_TWO = 0.001
_LOGARITHM_ERROR = 1e-5


def _ends(params: CurveParams, ifm: str, ofm: str) -> tuple[Operand, Operand]:
    shape = flat_shape(params)
    source = Operand(ifm, shape, DType.I16, params.ifm_quant)
    return source, Operand(ofm, shape, DType.I16, params.ofm_quant)


def _bare_ends(params: CurveParams, ifm: str, ofm: str) -> tuple[Operand, Operand]:
    """Return input and output as integers that no scale belongs to."""
    shape = flat_shape(params)
    return Operand(ifm, shape, DType.I16), Operand(ofm, shape, DType.I16)


# --- the NPU's own functions ----------------------------------------------------------------------


def _argument_factors(params: CurveParams) -> Factors:
    scale = params.ifm_quant.scale
    in_range = _SMALLEST_STEP <= scale <= _LARGEST_STEP
    return [("input scale", scale, in_range and _kind_of_scale_is_certain(scale))]


def _kind_of_scale_is_certain(scale: float) -> bool:
    """Return whether TFLite and Vela agree on what is a power of two."""
    distances = (abs(math.log2(scale) - power) for power in _POWERS_OF_TWO)
    return all(abs(distance - _POWER_OF_TWO) > _LOGARITHM_ERROR for distance in distances)


def _curve(curve: Curve) -> Callable[[CurveParams, str, str, str], Lowered]:
    def lower(params: CurveParams, name: str, ifm: str, ofm: str) -> Lowered:
        ends = _ends(params, ifm, ofm)
        return Lowered(Requantize(name, *ends, _LIMITS, origin=params.origin, curve=curve))

    return lower


# --- factors --------------------------------------------------------------------------------------

# By how much a value of 16 bits can be shifted up within 32 bits.
_HEADROOM = 2.0**15


def _fits(real: float) -> bool:
    found = quantize_multiplier(real) if real < _HEADROOM else None
    return found is not None and found.multiplier > 0


def _scaled(values: Values, factor: Rescale) -> Values:
    """Return the values times the factor, rounded twice as TFLite's kernels do."""
    left, right = max(31 - factor.shift, 0), max(factor.shift - 31, 0)
    high = ((values << left) * factor.multiplier + (1 << 30)) >> 31
    half = (1 << right) >> 1
    magnitude = (np.abs(high) + half) >> right
    return np.asarray(np.where(high < 0, -magnitude, magnitude))


def _abs_factors(params: CurveParams) -> Factors:
    return [("factor to the output", params.ratio, _fits(params.ratio))]


def _abs(params: CurveParams, name: str, ifm: str, ofm: str) -> Lowered:
    ops = OpSequence(name, params.origin)
    ends = _ends(params, ifm, ofm)
    ops.elements(ElementKind.ABS, ends[0], None, ends[1], rescale=checked_multiplier(params.ratio))
    return ops.lowered()


# --- leaky ReLU -----------------------------------------------------------------------------------


def _which_is_leaky_relu(upper: Rescale, lower: Rescale) -> ElementKind | None:
    """Return whether the larger or the smaller of both products is the result for all values."""
    above, below = _scaled(_ALL, upper), _scaled(_ALL, lower)
    expected = np.where(_ALL >= 0, above, below)
    for kind, chosen in ((ElementKind.MAX, np.maximum), (ElementKind.MIN, np.minimum)):
        if np.array_equal(chosen(above, below), expected):
            return kind
    return None


def _leaky_relu_factors(params: CurveParams) -> Factors:
    upper, lower = params.slopes
    fitting = _fits(upper) and _fits(lower)
    found = [("upper slope", upper, _fits(upper)), ("lower slope", lower, _fits(lower))]
    if fitting and upper != 1:
        certain = (
            _which_is_leaky_relu(checked_multiplier(upper), checked_multiplier(lower)) is not None
        )
        found.append(("lower slope over the upper one", lower / upper, certain))
    return found


def _leaky_relu(params: CurveParams, name: str, ifm: str, ofm: str) -> Lowered:
    """Return the NPU's own leaky ReLU where scales are equal, else the larger of two products."""
    slopes = params.slopes
    upper, lower = map(checked_multiplier, slopes)
    ops = OpSequence(name, params.origin)
    source, result = _bare_ends(params, ifm, ofm)
    if slopes[0] == 1:
        ops.elements(ElementKind.LEAKY_RELU, source, None, result, rescale=lower)
        return ops.lowered()
    kind = _which_is_leaky_relu(upper, lower)
    if kind is None:
        raise InternalError(f"{params.origin}: the slopes passed the constraints wrongly")
    one = ops.scalar(1, DType.I16)
    above, below = (
        ops.elements(
            ElementKind.MUL, source, one, ops.tensor(source.shape, DType.I16), rescale=factor
        )
        for factor in (upper, lower)
    )
    ops.elements(kind, above, below, result)
    return ops.lowered()


# --- all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WideCurve:
    """How a function of int16 is realised, and the numbers that it needs.

    ``factors`` returns name, value and whether it can be used; ``ofm_scale`` is None where the
    output's scale is free.
    """

    lower: Callable[[CurveParams, str, str, str], Lowered]
    factors: Callable[[CurveParams], Factors]
    ofm_scale: float | None = None


def _rsqrt(params: CurveParams, name: str, ifm: str, ofm: str) -> Lowered:
    ends = _bare_ends(params, ifm, ofm)
    return lower_wide_rsqrt(name, params.origin, *ends, checked_multiplier(rsqrt_factor(params)))


def _interpolated(params: CurveParams, name: str, ifm: str, ofm: str) -> Lowered:
    table = Constant(f"{name}_table", wide_table(params))
    source, result = _bare_ends(params, ifm, ofm)
    op = Requantize(name, source, result, _LIMITS, origin=params.origin, table=table.name)
    return Lowered(op, (table,))


WIDE_CURVES: dict[str, WideCurve] = {
    "logistic": WideCurve(_curve(Curve.SIGMOID), _argument_factors, 2.0**-15),
    "tanh": WideCurve(_curve(Curve.TANH), _argument_factors, 2.0**-15),
    "abs": WideCurve(_abs, _abs_factors),
    "leaky_relu": WideCurve(_leaky_relu, _leaky_relu_factors),
    "rsqrt": WideCurve(_rsqrt, rsqrt_factors),
    "exp": WideCurve(_interpolated, wide_factors),
    "log": WideCurve(_interpolated, wide_factors),
}


def lower_wide_curve(params: CurveParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the operators of a function of int16 values."""
    return WIDE_CURVES[params.function].lower(params, name, ifms[0], ofm)
