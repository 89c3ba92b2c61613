"""Small quantized TFLite networks from Python, for tests that have no network at hand.

    net = NetBuilder(seed=1)
    x = net.input((1, 8, 8, 3))
    y = net.conv2d(x, filters=8, activation="RELU")
    net.output(net.add(y, net.max_pool(y, kernel=(3, 3), stride=(1, 1))))
    data = net.build()

Weights, biases and scales that are not given come from the seeded generator; an output's scale is
then chosen so that the results fill most of the range of the type without sticking to its ends.
Type "uint8" gives asymmetric per-tensor weights, "int16" int8 weights and int64 biases with zero
points of 0, "float32" the same network without quantization.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tflite.ActivationFunctionType import ActivationFunctionType
from tflite.Padding import Padding

from tests.tflite_writer import Fields, Operator, Tensor, Value, write_tflite

Array = npt.NDArray[Any]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Filter:
    """What a caller may say about weights and result; None: chosen by the builder.

    ``bias``: True for random, False for none, or one whole number per output channel. By default
    scales are per channel, save for dense layers and type uint8.
    """

    weights: Array | None = None
    weight_scales: Sequence[float] | None = None
    weight_zero_point: int | None = None
    per_channel: bool | None = None
    bias: Array | bool = True
    scale: float | None = None
    zero_point: int | None = None
    name: str | None = ""


class NetBuilder:
    """One network; each method adds an operator and returns its result."""

    def __init__(self, dtype: str = "int8", seed: int = 0) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []

    # --- ends ------------------------------------------------------------------------------------

    def input(
        self,
        shape: Sequence[int],
        scale: float = 0.05,
        zero_point: int | None = None,
        *,
        name: str | None = "",
        signature: Sequence[int] = (),
    ) -> Value:
        zero = self._zero_point(zero_point)
        value = self._result(shape, scale, zero, name, signature=tuple(signature))
        self._inputs.append(value.index)
        return value

    def output(self, *values: Value) -> None:
        self._outputs.extend(value.index for value in values)

    def constant(self, data: Array, scale: float = 0.05, zero_point: int = 0) -> Value:
        """Add a constant activation, for example the second operand of an addition."""
        return self._constant(data, (scale,), zero_point)

    def random_inputs(self) -> list[Array]:
        """Return one random array per input of the network."""
        return [self._random(self._tensors[index].value.shape) for index in self._inputs]

    # --- operators -------------------------------------------------------------------------------

    def conv2d(
        self,
        x: Value,
        *,
        filters: int = 0,
        kernel: Pair = (3, 3),
        stride: Pair = (1, 1),
        dilation: Pair = (1, 1),
        padding: str = "SAME",
        activation: str = "NONE",
        **filter_options: Any,
    ) -> Value:
        """Add a convolution; weights are OHWI. For ``filter_options`` see Filter."""
        given = filter_options.get("weights")
        shape = (filters, *kernel, x.shape[3]) if given is None else given.shape
        fields = _conv_fields(padding, stride, activation) | {
            4: ("Int32", dilation[1]),
            5: ("Int32", dilation[0]),
        }
        size = _spatial(x.shape, shape[1:3], stride, dilation, padding)
        inputs, scaling, name = self._filter(x, shape, 0, math.prod(shape[1:]), filter_options)
        result = self._result((x.shape[0], *size, shape[0]), *scaling, name)
        return self._add("CONV_2D", inputs, result, "Conv2DOptions", fields)

    def depthwise(
        self,
        x: Value,
        *,
        multiplier: int = 1,
        kernel: Pair = (3, 3),
        stride: Pair = (1, 1),
        dilation: Pair = (1, 1),
        padding: str = "SAME",
        activation: str = "NONE",
        **filter_options: Any,
    ) -> Value:
        """Add a depthwise convolution; weights are 1HWC, C = channels times multiplier."""
        given = filter_options.get("weights")
        shape = (1, *kernel, x.shape[3] * multiplier) if given is None else given.shape
        fields = {
            0: ("Int8", getattr(Padding, padding)),
            1: ("Int32", stride[1]),
            2: ("Int32", stride[0]),
            3: ("Int32", shape[3] // x.shape[3]),
            4: ("Int8", getattr(ActivationFunctionType, activation)),
            5: ("Int32", dilation[1]),
            6: ("Int32", dilation[0]),
        }
        size = _spatial(x.shape, shape[1:3], stride, dilation, padding)
        inputs, scaling, name = self._filter(x, shape, 3, math.prod(shape[1:3]), filter_options)
        result = self._result((x.shape[0], *size, shape[3]), *scaling, name)
        return self._add("DEPTHWISE_CONV_2D", inputs, result, "DepthwiseConv2DOptions", fields)

    def dense(
        self, x: Value, units: int = 0, activation: str = "NONE", **filter_options: Any
    ) -> Value:
        """Add a fully connected layer on the flattened input; weights are OI, per tensor."""
        given = filter_options.get("weights")
        width = math.prod(x.shape[1:])
        shape = (units, width) if given is None else given.shape
        options = {"per_channel": False} | filter_options
        inputs, scaling, name = self._filter(x, shape, 0, width, options)
        result = self._result((x.shape[0], shape[0]), *scaling, name)
        fields = {0: ("Int8", getattr(ActivationFunctionType, activation))}
        return self._add("FULLY_CONNECTED", inputs, result, "FullyConnectedOptions", fields)

    def avg_pool(self, x: Value, **options: Any) -> Value:
        """Add an average pool; options: kernel, stride, padding, activation, name."""
        return self._pool("AVERAGE_POOL_2D", x, **options)

    def max_pool(self, x: Value, **options: Any) -> Value:
        """Add a maximum pool; options: kernel, stride, padding, activation, name."""
        return self._pool("MAX_POOL_2D", x, **options)

    def add(
        self,
        a: Value,
        b: Value,
        *,
        activation: str = "NONE",
        scale: float | None = None,
        zero_point: int | None = None,
        name: str | None = "",
    ) -> Value:
        shape = np.broadcast_shapes(a.shape, b.shape)
        scale = math.hypot(a.scale, b.scale) if scale is None else scale
        result = self._result(shape, scale, self._zero_point(zero_point), name)
        fields = {0: ("Int8", getattr(ActivationFunctionType, activation))}
        return self._add("ADD", (a.index, b.index), result, "AddOptions", fields)

    def quantize(
        self, x: Value, scale: float, zero_point: int, dtype: str = "", name: str | None = ""
    ) -> Value:
        result = self._result(x.shape, scale, zero_point, name, dtype=dtype)
        return self._add("QUANTIZE", (x.index,), result, "QuantizeOptions", {})

    def reshape(self, x: Value, shape: Sequence[int], name: str | None = "") -> Value:
        result = self._result(shape, x.scale, x.zero_point, name)
        new_shape = self._constant(np.array(shape, np.int32))
        inputs = (x.index, new_shape.index)
        return self._add("RESHAPE", inputs, result, "ReshapeOptions", {}, shape=tuple(shape))

    def softmax(self, x: Value, beta: float = 1.0, name: str | None = "") -> Value:
        zero = {"uint8": 0, "int16": 0}.get(self.dtype, -128)
        scale = 1 / 32768 if self.dtype == "int16" else 1 / 256
        result = self._result(x.shape, scale, zero, name)
        fields = {0: ("Float32", beta)}
        return self._add("SOFTMAX", (x.index,), result, "SoftmaxOptions", fields)

    def arithmetic(
        self,
        code: str,
        a: Value,
        b: Value,
        *,
        scale: float,
        zero_point: int,
        activation: str = "NONE",
        name: str | None = "",
    ) -> Value:
        """Add SUB, MUL, MINIMUM or MAXIMUM of two operands."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        result = self._result(shape, scale, zero_point, name)
        if code in ("MINIMUM", "MAXIMUM"):
            return self._add(code, (a.index, b.index), result, "MaximumMinimumOptions", {})
        fields: Fields = {0: ("Int8", getattr(ActivationFunctionType, activation))}
        return self._add(code, (a.index, b.index), result, f"{code.title()}Options", fields)

    def curve(
        self,
        code: str,
        x: Value,
        scale: float,
        zero_point: int,
        fields: Fields | None = None,
        name: str | None = "",
    ) -> Value:
        """Add an operator of one value by its code, such as TANH."""
        result = self._result(x.shape, scale, zero_point, name)
        options = {"LEAKY_RELU": "LeakyReluOptions", "ABS": "AbsOptions"}.get(code, "NONE")
        return self._add(code, (x.index,), result, options, fields or {})

    def tile(self, x: Value, multiples: Sequence[int]) -> Value:
        """Repeat ``x`` along each axis."""
        shape = [size * count for size, count in zip(x.shape, multiples, strict=True)]
        result = self._result(shape, x.scale, x.zero_point, "")
        times = self._constant(np.array(multiples, np.int32))
        return self._add("TILE", (x.index, times.index), result, "TileOptions", {})

    def log_softmax(self, x: Value, name: str | None = "") -> Value:
        """Add an operator that the NPU does not take: an example of work for the CPU."""
        result = self._result(x.shape, 16 / 256, 255 if self.dtype == "uint8" else 127, name)
        return self._add("LOG_SOFTMAX", (x.index,), result, "LogSoftmaxOptions", {})

    # --- parts of operators ----------------------------------------------------------------------

    def _pool(
        self,
        code: str,
        x: Value,
        *,
        kernel: Pair = (2, 2),
        stride: Pair = (2, 2),
        padding: str = "VALID",
        activation: str = "NONE",
        name: str | None = "",
    ) -> Value:
        size = _spatial(x.shape, kernel, stride, (1, 1), padding)
        result = self._result((x.shape[0], *size, x.shape[3]), x.scale, x.zero_point, name)
        fields = {
            0: ("Int8", getattr(Padding, padding)),
            1: ("Int32", stride[1]),
            2: ("Int32", stride[0]),
            3: ("Int32", kernel[1]),
            4: ("Int32", kernel[0]),
            5: ("Int8", getattr(ActivationFunctionType, activation)),
        }
        return self._add(code, (x.index,), result, "Pool2DOptions", fields)

    def _filter(
        self, x: Value, shape: tuple[int, ...], axis: int, depth: int, options: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[float, int], str | None]:
        """Return (inputs of the operator, (scale, zero point) of its result, its name).

        ``axis`` is the filter's of the output channels, ``depth`` the number of products per
        output, ``options`` the fields of Filter.
        """
        given = Filter(**options)
        unit = 256 if self.dtype == "int16" else 1
        spread = 74 * 74 * math.sqrt(depth)  # standard deviation of the sums, in units of steps
        scales = self._weight_scales(given, shape[axis], spread)
        default_zero = 121 if self.dtype == "uint8" else 0
        weights = given.weights
        if weights is None:
            weights = self._random(shape, lowest=-127, dtype="int8" if unit > 1 else "")
        zero = default_zero if given.weight_zero_point is None else given.weight_zero_point
        inputs = [x.index, self._constant(weights, scales, zero, axis).index]
        if given.bias is not False:
            bias = given.bias
            if isinstance(bias, bool):
                bias = self.rng.normal(0, unit * spread / 2, shape[axis]).round()
            bias_dtype = {"float32": "float32", "int16": "int64"}.get(self.dtype, "int32")
            bias_scales = tuple(x.scale * scale for scale in scales)
            inputs.append(self._constant(bias.astype(bias_dtype), bias_scales).index)
        scale = given.scale or x.scale * float(np.mean(scales)) * spread / 45
        return tuple(inputs), (scale, self._zero_point(given.zero_point)), given.name

    def _weight_scales(self, given: Filter, channels: int, spread: float) -> tuple[float, ...]:
        """Return scales as given, or such that the result is about as large as the input."""
        scales = given.weight_scales
        if scales is None:
            by_channel = self.dtype != "uint8" if given.per_channel is None else given.per_channel
            scales = self.rng.uniform(0.5, 1.5, channels if by_channel else 1) * 45 / spread
        return tuple(float(np.float32(scale)) for scale in scales)

    def _zero_point(self, given: int | None = None) -> int:
        if self.dtype == "int16":
            return 0
        middle = 128 if self.dtype == "uint8" else 0
        return middle + int(self.rng.integers(-20, 20)) if given is None else given

    def _random(self, shape: Sequence[int], lowest: int | None = None, dtype: str = "") -> Array:
        dtype = dtype or self.dtype
        if dtype == "float32":
            return self.rng.normal(size=shape).astype(np.float32)
        info = np.iinfo(dtype)
        low = info.min if lowest is None else max(info.min, lowest)
        return self.rng.integers(low, info.max + 1, shape).astype(dtype)

    # --- tensors and operators -------------------------------------------------------------------

    def _result(
        self,
        shape: Sequence[int],
        scale: float,
        zero_point: int,
        name: str | None,
        *,
        dtype: str = "",
        signature: tuple[int, ...] = (),
    ) -> Value:
        dtype = dtype or self.dtype
        scales = () if dtype == "float32" else (float(np.float32(scale)),)
        name = name if name or name is None else f"t{len(self._tensors)}"
        value = Value(len(self._tensors), tuple(shape), dtype, scales, zero_point)
        self._tensors.append(Tensor(value, name, b"", 0, signature))
        return value

    def _constant(
        self, data: Array, scales: tuple[float, ...] = (), zero_point: int = 0, axis: int = 0
    ) -> Value:
        scales = () if self.dtype == "float32" else scales
        value = Value(len(self._tensors), data.shape, data.dtype.name, scales, zero_point)
        name = f"c{value.index}"
        raw = np.ascontiguousarray(data).tobytes()
        self._tensors.append(Tensor(value, name, raw, axis, ()))
        return value

    def _add(
        self,
        code: str,
        inputs: tuple[int, ...],
        result: Value,
        options: str,
        fields: Fields,
        *,
        shape: tuple[int, ...] = (),
    ) -> Value:
        self._operators.append(Operator(code, inputs, (result.index,), options, fields, shape))
        return result

    def build(self, subgraphs: int = 1) -> bytes:
        """Return the file; with ``subgraphs`` above 1 the network is in it several times."""
        return write_tflite(self._tensors, self._operators, self._inputs, self._outputs, subgraphs)


def _conv_fields(padding: str, stride: Pair, activation: str) -> Fields:
    return {
        0: ("Int8", getattr(Padding, padding)),
        1: ("Int32", stride[1]),
        2: ("Int32", stride[0]),
        3: ("Int8", getattr(ActivationFunctionType, activation)),
    }


def _spatial(
    shape: Sequence[int], kernel: Sequence[int], stride: Pair, dilation: Pair, padding: str
) -> Pair:
    """Return the height and width of a window operator's result."""
    sizes = []
    for size, width, step, spacing in zip(shape[1:3], kernel, stride, dilation, strict=True):
        reach = 0 if padding == "SAME" else (width - 1) * spacing
        sizes.append(-((reach - size) // step))
    return (sizes[0], sizes[1])
