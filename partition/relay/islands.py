"""Operators that TVM's TFLite importer calculates in float, between a dequantize and a quantize.

The NPU takes such an island as a whole, in integers; what is in it says which operator it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard

from tvm_ethosu.partition.params import SoftmaxParams
from tvm_ethosu.partition.relay.parse import call_name, span_name, tensor_type
from tvm_ethosu.scheduler.ir import Quant


def _dequantized() -> DFPattern:
    return is_op("qnn.dequantize")(wildcard(), is_constant(), is_constant())


def _quantized(value: DFPattern) -> DFPattern:
    return is_op("qnn.quantize")(value, is_constant(), is_constant())


def softmax() -> DFPattern:
    """Return ``dequantize [multiply] nn.softmax quantize``; the factor is beta."""
    scaled = _dequantized().optional(lambda x: is_op("multiply")(x, is_constant()))
    return _quantized(is_op("nn.softmax")(scaled))


def _number(expr: relay.Expr) -> Any:
    return np.asarray(expr.data.numpy()).reshape(-1)[0]


def _quant(call: relay.Call) -> Quant:
    """Return the quantization that a quantize or dequantize works with."""
    return Quant(float(_number(call.args[1])), int(_number(call.args[2])))


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
        beta=float(_number(scaled.args[1])) if has_beta else 1.0,
    )
