"""Operators that TVM's TFLite importer calculates in float, between a dequantize and a quantize.

The NPU takes such an island as a whole, in integers; what is in it says which operator it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard

from tvm_ethosu.partition.bilinear import BilinearParams
from tvm_ethosu.partition.params import AddParams, CurveParams, SoftmaxParams
from tvm_ethosu.partition.relay.parse import call_name, span_name, tensor_type
from tvm_ethosu.scheduler.ir import Clamp, DType, Quant


def dequantized() -> DFPattern:
    """Return the pattern of a dequantized value."""
    return is_op("qnn.dequantize")(wildcard(), is_constant(), is_constant())


def quantized(value: DFPattern) -> DFPattern:
    """Return the pattern of a value that is quantized."""
    return is_op("qnn.quantize")(value, is_constant(), is_constant())


def softmax() -> DFPattern:
    """Return ``dequantize [multiply] nn.softmax quantize``; the factor is beta."""
    scaled = dequantized().optional(lambda x: is_op("multiply")(x, is_constant()))
    return quantized(is_op("nn.softmax")(scaled))


def number(expr: relay.Expr) -> Any:
    """Return the first number of a constant."""
    return np.asarray(expr.data.numpy()).reshape(-1)[0]


def _quant(call: relay.Call) -> Quant:
    """Return the quantization that a quantize or dequantize works with."""
    return Quant(float(number(call.args[1])), int(number(call.args[2])))


def is_float_operator(body: relay.Call, dequantize: relay.Call) -> bool:
    """Return whether an island is a float operator of the model between two others.

    The importer names what it writes for one operator alike. Without names it is taken for one
    quantized operator, as the importer writes most of them.
    """
    names = span_name(dequantize), span_name(body)
    return all(names) and names[0] != names[1]


def parse_softmax(body: relay.Call) -> SoftmaxParams:
    """Parse what ``softmax`` matches."""
    main = body.args[0]
    scaled = main.args[0]
    has_beta = call_name(scaled) == "multiply"
    dequantize = scaled.args[0] if has_beta else scaled
    ifm = tensor_type(dequantize.args[0])
    rank = len(ifm.dims)
    return SoftmaxParams(
        origin=span_name(body),
        ifm=ifm,
        ofm=tensor_type(body),
        ifm_quant=_quant(dequantize),
        ofm_quant=_quant(body),
        axis=int(main.attrs.axis) % rank,
        beta=float(number(scaled.args[1])) if has_beta else 1.0,
        is_float=is_float_operator(body, dequantize),
    )


# --- functions of one value -----------------------------------------------------------------------


def curve(call: str) -> Callable[[], DFPattern]:
    """Return the pattern ``dequantize call quantize``."""
    return lambda: quantized(is_op(call)(dequantized()))


def hard_swish() -> DFPattern:
    """Return ``x * clip(x + constant) / constant`` of a dequantized x, quantized."""
    x = dequantized()
    gate = is_op("clip")(is_op("add")(x, is_constant()))
    return quantized(is_op("divide")(is_op("multiply")(x, gate), is_constant()))


def parse_curve(function: str) -> Callable[[relay.Call], CurveParams]:
    """Return the parser of what ``curve`` matches."""

    def parse(body: relay.Call) -> CurveParams:
        main = body.args[0]
        alpha = float(main.attrs.alpha) if function == "leaky_relu" else 0.0
        return curve_params(body, main.args[0], _name_of(function, body, main.args[0]), alpha)

    return parse


def _name_of(function: str, body: relay.Call, dequantize: relay.Call) -> str:
    """Return the name of a function whose float operator gives other numbers."""
    is_other = not function.startswith("float_") and is_float_operator(body, dequantize)
    return f"float_{function}" if is_other else function


def parse_hard_swish(body: relay.Call) -> CurveParams:
    """Parse what ``hard_swish`` matches; with other constants it is another function."""
    divide = body.args[0]
    multiply = divide.args[0]
    clip = multiply.args[1]
    add = clip.args[0]
    limits = (float(clip.attrs.a_min), float(clip.attrs.a_max))
    constants = (float(number(add.args[1])), *limits, float(number(divide.args[1])))
    is_known = constants == (3.0, 0.0, 6.0, 6.0)
    function = "x * clip(x + {}, {}, {}) / {}".format(*constants)
    if is_known:
        function = _name_of("hard_swish", body, multiply.args[0])
    return curve_params(body, multiply.args[0], function)


def curve_params(
    body: relay.Call, dequantize: relay.Call, function: str, alpha: float = 0.0
) -> CurveParams:
    """Return the parameters of a function between a dequantize and a quantize."""
    return CurveParams(
        span_name(body),
        tensor_type(dequantize.args[0]),
        tensor_type(body),
        function,
        _quant(dequantize),
        _quant(body),
        alpha,
    )


# --- two operands ---------------------------------------------------------------------------------


def squared_difference() -> DFPattern:
    """Return the square of a difference of dequantized values, quantized."""
    difference = is_op("subtract")(dequantized(), dequantized())
    return quantized(is_op("multiply")(difference, difference))


def parse_squared_difference(body: relay.Call) -> AddParams:
    """Parse what ``squared_difference`` matches."""
    return pair_params(body, *body.args[0].args[0].args)


def pair_params(body: relay.Call, first: relay.Call, second: relay.Call) -> AddParams:
    """Return the parameters of an operator of two dequantized values."""
    ofm = tensor_type(body)
    limits = DType(ofm.dtype)
    given = (first, second, body)
    return AddParams(
        origin=span_name(body),
        ifm=tensor_type(first.args[0]),
        ofm=ofm,
        per_channel=any(np.size(call.args[1].data.numpy()) > 1 for call in given),
        ifm2=tensor_type(second.args[0]),
        ifm_quant=_quant(first),
        ifm2_quant=_quant(second),
        ofm_quant=_quant(body),
        clamp=Clamp(limits.minimum, limits.maximum),
        is_float=any(is_float_operator(body, call) for call in (first, second)),
    )


# --- resizing -------------------------------------------------------------------------------------


def resize_bilinear() -> DFPattern:
    """Return ``dequantize image.resize2d quantize`` with linear interpolation."""
    resize = is_op("image.resize2d")(dequantized()).has_attr({"method": "linear"})
    return quantized(resize)


def parse_resize_bilinear(body: relay.Call) -> BilinearParams:
    """Parse what ``resize_bilinear`` matches."""
    resize = body.args[0]
    dequantize = resize.args[0]
    return BilinearParams(
        span_name(body),
        tensor_type(dequantize.args[0]),
        tensor_type(body),
        str(resize.attrs.coordinate_transformation_mode),
        str(resize.attrs.layout),
        _quant(dequantize) == _quant(body),
        is_float=is_float_operator(body, dequantize),
    )
