"""Operators that the network builder has no method for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tflite import TensorType

from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Fields, Tensor, Value


def _result_like(net: NetBuilder, x: Value, shape: Sequence[int]) -> Value:
    return net._result(shape, x.scale, x.zero_point, "")


def squeeze(net: NetBuilder, x: Value, axes: tuple[int, ...] = ()) -> Value:
    """Add SQUEEZE; without axes it takes away all dimensions of 1."""
    rank = len(x.shape)
    gone = {axis % rank for axis in axes} if axes else {i for i, n in enumerate(x.shape) if n == 1}
    result = _result_like(net, x, [n for i, n in enumerate(x.shape) if i not in gone])
    return net._add("SQUEEZE", (x.index,), result, "SqueezeOptions", {}, shape=axes)


def expand_dims(net: NetBuilder, x: Value, axis: int) -> Value:
    """Add EXPAND_DIMS."""
    shape = list(x.shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
    inputs = (x.index, net._constant(np.array(axis, np.int32)).index)
    return net._add("EXPAND_DIMS", inputs, _result_like(net, x, shape), "ExpandDimsOptions", {})


def relu(net: NetBuilder, x: Value, code: str = "RELU", scale: float | None = None) -> Value:
    """Add RELU or RELU6 as an operator of its own; by default in the quantization of its input."""
    result = net._result(x.shape, scale or x.scale, x.zero_point, "")
    return net._add(code, (x.index,), result, "NONE", {})


def arg_max(net: NetBuilder, x: Value, axis: int = -1) -> Value:
    """Add ARG_MAX with an int32 result."""
    shape = [n for index, n in enumerate(x.shape) if index != axis % len(x.shape)]
    result = Value(len(net._tensors), tuple(shape), "int32", (), 0)
    net._tensors.append(Tensor(result, f"t{result.index}", b"", 0, ()))
    inputs = (x.index, net._constant(np.array(axis, np.int32)).index)
    fields: Fields = {0: ("Int8", TensorType.INT32)}
    return net._add("ARG_MAX", inputs, result, "ArgMaxOptions", fields)


def batch_matmul(
    net: NetBuilder,
    a: Value,
    b: Value,
    *,
    scale: float,
    zero_point: int,
    turned: tuple[bool, bool] = (False, False),
) -> Value:
    """Add BATCH_MATMUL; ``turned`` says which of the inputs are given transposed."""
    rows = a.shape[-1] if turned[0] else a.shape[-2]
    columns = b.shape[-2] if turned[1] else b.shape[-1]
    result = net._result((*a.shape[:-2], rows, columns), scale, zero_point, "")
    fields: Fields = {0: ("Bool", turned[0]), 1: ("Bool", turned[1])}
    return net._add("BATCH_MATMUL", (a.index, b.index), result, "BatchMatMulOptions", fields)


def dense_keeping_dimensions(net: NetBuilder, x: Value, units: int, **options: Any) -> Value:
    """Add a dense layer over the last dimension."""
    rows = int(np.prod(x.shape[:-1]))
    flat = Value(x.index, (rows, x.shape[-1]), x.dtype, x.scales, x.zero_point)
    y = net.dense(flat, units, **options)
    value = replace(y, shape=(*x.shape[:-1], units))
    net._tensors[y.index] = replace(net._tensors[y.index], value=value)
    operator = net._operators[-1]
    fields = {**operator.fields, 2: ("Bool", True)}
    net._operators[-1] = replace(operator, fields=fields)
    return value
