"""Quantized operators that TVM's importer takes for float, or refuses: how we write them in Relay.

EXP, LOG and RSQRT are written unlike a float operator between DEQUANTIZE and QUANTIZE, for which
TFLite's numbers are others. Each operator has two functions: what it looks like in Relay on
dequantized values, and the pattern of that between a dequantize and a quantize.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op

from tvm_ethosu.partition.params import AddParams, CurveParams
from tvm_ethosu.partition.relay.islands import (
    curve_params,
    dequantized,
    number,
    pair_params,
    quantized,
)
from tvm_ethosu.partition.relay.parse import call_name

_EXP = (math.e,)
_LOG = (math.log(2),)
_RSQRT = (1.0,)
_ELU = (0.0, 1.0)
_GELU = (math.sqrt(0.5), 0.5, 0.5)
_GELU_APPROXIMATE = (0.5, 0.044715, math.sqrt(2 / math.pi), 1.0)


def _constants(values: tuple[float, ...]) -> list[relay.Constant]:
    return [relay.const(value, "float32") for value in values]


def write_exp(x: relay.Expr) -> relay.Expr:
    """Return e to the power of x."""
    return relay.power(*_constants(_EXP), x)


def exp() -> DFPattern:
    """Return what ``write_exp`` writes, quantized."""
    return quantized(is_op("power")(is_constant(), dequantized()))


def write_log(x: relay.Expr) -> relay.Expr:
    """Return the logarithm of x by the one to base 2."""
    return relay.multiply(relay.log2(x), *_constants(_LOG))


def log() -> DFPattern:
    """Return what ``write_log`` writes, quantized."""
    return quantized(is_op("multiply")(is_op("log2")(dequantized()), is_constant()))


def write_rsqrt(x: relay.Expr) -> relay.Expr:
    """Return the inverse of the square root of x."""
    return relay.divide(*_constants(_RSQRT), relay.sqrt(x))


def rsqrt() -> DFPattern:
    """Return what ``write_rsqrt`` writes, quantized."""
    return quantized(is_op("divide")(is_constant(), is_op("sqrt")(dequantized())))


def write_elu(x: relay.Expr) -> relay.Expr:
    """Return x, or exp(x) - 1 where x is negative."""
    zero, one = _constants(_ELU)
    return relay.where(relay.less(x, zero), relay.subtract(relay.exp(x), one), x)


def elu() -> DFPattern:
    """Return what ``write_elu`` writes, quantized."""
    x = dequantized()
    exp = is_op("subtract")(is_op("exp")(x), is_constant())
    return quantized(is_op("where")(is_op("less")(x, is_constant()), exp, x))


def write_gelu(x: relay.Expr, approximate: bool) -> relay.Expr:
    """Return x times the normal distribution up to x, or its approximation by tanh."""
    if not approximate:
        root, half, offset = _constants(_GELU)
        share = relay.add(offset, relay.multiply(relay.erf(relay.multiply(x, root)), half))
        return relay.multiply(x, share)
    half, cubic, root, one = _constants(_GELU_APPROXIMATE)
    cube = relay.multiply(relay.multiply(relay.multiply(cubic, x), x), x)
    tanh = relay.tanh(relay.multiply(root, relay.add(x, cube)))
    return relay.multiply(relay.multiply(half, x), relay.add(one, tanh))


def gelu() -> DFPattern:
    """Return what ``write_gelu`` writes without approximation, quantized."""
    x = dequantized()
    erf = is_op("erf")(is_op("multiply")(x, is_constant()))
    share = is_op("add")(is_constant(), is_op("multiply")(erf, is_constant()))
    return quantized(is_op("multiply")(x, share))


def gelu_approximate() -> DFPattern:
    """Return what ``write_gelu`` writes with approximation, quantized."""
    x = dequantized()
    cube = is_op("multiply")(is_op("multiply")(is_op("multiply")(is_constant(), x), x), x)
    tanh = is_op("tanh")(is_op("multiply")(is_constant(), is_op("add")(x, cube)))
    share = is_op("add")(is_constant(), tanh)
    return quantized(is_op("multiply")(is_op("multiply")(is_constant(), x), share))


def write_prelu(x: relay.Expr, slopes: relay.Expr) -> relay.Expr:
    """Return x, times its slope where it is negative."""
    (zero,) = _constants((0.0,))
    return relay.where(relay.less(x, zero), relay.multiply(x, slopes), x)


def prelu() -> DFPattern:
    """Return what ``write_prelu`` writes, quantized."""
    x = dequantized()
    below = is_op("multiply")(x, dequantized())
    return quantized(is_op("where")(is_op("less")(x, is_constant()), below, x))


def parse_prelu(body: relay.Call) -> AddParams:
    """Parse what ``prelu`` matches."""
    return pair_params(body, *body.args[0].args[1].args)


_EXPECTED = {
    "exp": _EXP,
    "log": _LOG,
    "rsqrt": _RSQRT,
    "elu": _ELU,
    "gelu": _GELU,
    "gelu_approximate": _GELU_APPROXIMATE,
}


def parse_written(function: str) -> Callable[[relay.Call], CurveParams]:
    """Return the parser of a function of one value that is written above."""

    def parse(body: relay.Call) -> CurveParams:
        constants, inner = _island(body.args[0])
        own, expected = sorted(constants), sorted(_EXPECTED[function])
        is_known = len(own) == len(expected) and np.allclose(own, expected, rtol=1e-6)
        name = function if is_known else f"{function} with constants {own}"
        return curve_params(body, inner, name)

    return parse


def _island(expr: relay.Expr) -> tuple[list[float], relay.Call]:
    """Return the constants of an island of one input, and the dequantize before it."""
    constants: dict[relay.Expr, float] = {}
    inner: list[relay.Call] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Constant):
            constants[expr] = float(number(expr))
        elif call_name(expr) == "qnn.dequantize":
            inner.append(expr)
        else:
            for argument in expr.args:
                visit(argument)

    visit(expr)
    return list(constants.values()), inner[0]
