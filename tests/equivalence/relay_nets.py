"""Hand-made Relay: what TVM's other importers write, and what none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relay

Array = npt.NDArray[Any]


def number(value: Any, dtype: str = "float32") -> relay.Constant:
    """Return a constant of exactly that type."""
    return relay.const(np.asarray(value, dtype), dtype)


def module(result: relay.Expr, *params: relay.Var) -> tvm.IRModule:
    """Return a module of one function."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, result)))


def conv(
    shape: tuple[int, ...],
    weights: Array,
    *,
    bias: Array | None = None,
    bias_axis: int = 3,
    weight_scale: Any = 0.01,
    accumulator_scale: Any = None,
    accumulator_zero_point: int = 0,
    accumulator_type: str = "int32",
    zero_points: tuple[int, int] = (3, -4),
    weight_zero_point: int = 0,
    weight_type: str = "int8",
    scales_axis: int = 3,
    clip: tuple[float, float] | None = None,
    **attributes: Any,
) -> tvm.IRModule:
    """Return a convolution with its requantization; ``attributes`` go to qnn.conv2d."""
    x = relay.var("x", shape=shape, dtype="int8")
    options = {
        "data_layout": "NHWC",
        "kernel_layout": "HWIO",
        "channels": weights.shape[3],
        "kernel_size": weights.shape[:2],
        "out_dtype": accumulator_type,
    } | attributes
    y = relay.qnn.op.conv2d(
        x,
        number(weights, weight_type),
        number(zero_points[0], "int32"),
        number(weight_zero_point, "int32"),
        number(0.05),
        number(weight_scale),
        **options,
    )
    if bias is not None:
        y = relay.nn.bias_add(y, number(bias, accumulator_type), axis=bias_axis)
    product = np.float32(0.05) * np.asarray(weight_scale, np.float32)
    y = relay.qnn.op.requantize(
        y,
        number(product if accumulator_scale is None else accumulator_scale),
        number(accumulator_zero_point, "int32"),
        number(0.3),
        number(zero_points[1], "int32"),
        axis=scales_axis,
        out_dtype="int8",
    )
    return module(y if clip is None else relay.clip(y, *clip), x)


def max_pool(shape: tuple[int, ...], **attributes: Any) -> tvm.IRModule:
    """Return a maximum over 3x3."""
    x = relay.var("x", shape=shape, dtype="int8")
    options = {"pool_size": (3, 3), "strides": (2, 2), "layout": "NHWC"} | attributes
    return module(relay.nn.max_pool2d(x, **options), x)


def average_pool(
    shape: tuple[int, ...], accumulator: str = "int32", result: str = "int8", **attributes: Any
) -> tvm.IRModule:
    """Return an average over 3x3."""
    x = relay.var("x", shape=shape, dtype="int8")
    options = {"pool_size": (3, 3), "strides": (2, 2), "layout": "NHWC"} | attributes
    return module(relay.cast(relay.nn.avg_pool2d(relay.cast(x, accumulator), **options), result), x)


def requantize(
    shape: tuple[int, ...],
    scales: tuple[Any, float] = (0.1, 0.2),
    zero_points: tuple[Any, int] = (0, 1),
    **attributes: Any,
) -> tvm.IRModule:
    """Return a change of quantization."""
    x = relay.var("x", shape=shape, dtype="int8")
    y = relay.qnn.op.requantize(
        x,
        number(scales[0]),
        number(zero_points[0], "int32"),
        number(scales[1]),
        number(zero_points[1], "int32"),
        out_dtype="int8",
        **attributes,
    )
    return module(y, x)


def add(shape: tuple[int, ...], scale: Any, zero_point: Any, **attributes: Any) -> tvm.IRModule:
    """Return ``x + x``."""
    x = relay.var("x", shape=shape, dtype="int8")
    common = [number(0.2), number(2, "int32"), number(0.3), number(3, "int32")]
    y = relay.qnn.op.add(x, x, number(scale), number(zero_point, "int32"), *common, **attributes)
    return module(y, x)


def one_call(shape: tuple[int, ...], make: Callable[[relay.Expr], relay.Expr]) -> tvm.IRModule:
    """Return what ``make`` makes of an int8 input."""
    x = relay.var("x", shape=shape, dtype="int8")
    return module(make(x), x)


def reduction(
    shape: tuple[int, ...],
    reduce: Callable[..., relay.Expr],
    axes: tuple[int, ...],
    scale: float,
    *,
    dtype: str = "int8",
    zero_point: int = 0,
) -> tvm.IRModule:
    """Return a reduction of an input of scale 0.1 and zero point 0 to a result of these."""
    x = relay.var("x", shape=shape, dtype=dtype)
    sums = reduce(relay.cast(x, "int32"), axis=axes)
    y = relay.qnn.op.requantize(
        *(sums, number(0.1), number(0, "int32"), number(scale), number(zero_point, "int32")),
        out_dtype=dtype,
    )
    return module(y, x)


def concatenate(shape: tuple[int, ...], scales: tuple[float, float]) -> tvm.IRModule:
    """Return the input beside itself, of one scale and then of another."""
    x = relay.var("x", shape=shape, dtype="int8")
    zero = number(0, "int32")
    inputs = [number(scale) for scale in scales]
    y = relay.qnn.op.concatenate(
        relay.Tuple([x, x]), relay.Tuple(inputs), relay.Tuple([zero] * 2), inputs[0], zero, axis=3
    )
    return module(y, x)


def transposed_conv(shape: tuple[int, ...], stride: int) -> tvm.IRModule:
    """Return a transposed convolution with a kernel of 5x5 and one output channel."""
    x = relay.var("x", shape=shape, dtype="int8")
    zero = number(0, "int32")
    y = relay.qnn.op.conv2d_transpose(
        x,
        number(np.ones((shape[3], 1, 5, 5)), "int8"),
        zero,
        zero,
        number(0.05),
        number(0.01),
        strides=(stride, stride),
        channels=1,
        kernel_size=(5, 5),
        data_layout="NHWC",
        out_dtype="int32",
    )
    scales = number(np.float32(0.05) * np.float32(0.01)), zero, number(0.3), zero
    return module(relay.qnn.op.requantize(y, *scales, axis=3, out_dtype="int8"), x)


def island(
    shape: tuple[int, ...],
    make: Callable[[relay.Expr], relay.Expr],
    *,
    scale: float = 1 / 256,
    zero_point: int = -128,
) -> tvm.IRModule:
    """An operator in float between a dequantize and a quantize to int8."""
    data = relay.var("data", shape=shape, dtype="int8")
    real = relay.qnn.op.dequantize(data, number(0.05), number(3, "int32"))
    quantized = relay.qnn.op.quantize(
        make(real), number(scale), number(zero_point, "int32"), out_dtype="int8"
    )
    return module(quantized, data)
