"""A checked TFLite file as Relay, through TVM's importer; what it refuses becomes a UserError."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tflite
import tvm
from tvm import relay
from tvm.ir import diagnostics
from tvm.relay.frontend.tflite import OperatorConverter

from tvm_ethosu.partition.relay import own_islands
from tvm_ethosu.partition.relay.quiet import quiet_tuning_logs
from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteOperator

_REASON_LENGTH = 240
_CUSTOM_NAMES = {"CUSTOM TFLite_Detection_PostProcess": "DETECTION_POSTPROCESS"}


def to_relay(file: TfliteFile) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Return the network as a typed Relay module and its constants by parameter name.

    Inputs carry the names of ``file.tensors``, and so do the spans of the operators' results.

    Raises:
        UserError: TVM's importer takes no such operator or parameter, or the shapes and types
            that follow from the operators are not those that the file states.
    """
    messages: list[str] = []
    results: list[_Result] = []
    with _quiet(messages), quiet_tuning_logs():
        try:
            mod, params = relay.frontend.from_tflite(
                _NamedModel.of(file), op_converter=partial(_Converter, file, results)
            )
            typed = relay.transform.InferType()(mod)
            _check_results(file, results)
        except UserError as error:
            raise UserError(f"{file.path}: {error}") from None
        except Exception as error:
            raise UserError(
                f"{file.path}: TVM cannot import the network: {_reason(error, messages)}"
            ) from None
    return typed, dict(params)


@dataclass(frozen=True, eq=False)
class _Result:
    """What the importer made of one operator's output."""

    operator: TfliteOperator
    tensor: int
    expr: relay.Expr


class _NamedModel(tflite.Model):  # type: ignore[misc]
    """The file's accessor, with unique names for tensors: the importer tells them apart by name."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: TfliteFile) -> _NamedModel:
        raw = tflite.Model.GetRootAs(file.data)._tab
        model = cls()
        model.Init(raw.Bytes, raw.Pos)
        model.names = tuple(tensor.name for tensor in file.tensors)
        return model

    def Subgraphs(self, j: int) -> _NamedSubgraph:  # noqa: N802
        raw = super().Subgraphs(j)._tab
        subgraph = _NamedSubgraph()
        subgraph.Init(raw.Bytes, raw.Pos)
        subgraph.names = self.names
        return subgraph


class _NamedSubgraph(tflite.SubGraph):  # type: ignore[misc]
    names: tuple[str, ...] = ()

    def Tensors(self, j: int) -> _NamedTensor:  # noqa: N802
        raw = super().Tensors(j)._tab
        tensor = _NamedTensor()
        tensor.Init(raw.Bytes, raw.Pos)
        tensor.name = self.names[j]
        return tensor


class _NamedTensor(tflite.Tensor):  # type: ignore[misc]
    name: str = ""

    def Name(self) -> bytes:  # noqa: N802
        return self.name.encode("utf-8")


class _Converter(OperatorConverter):  # type: ignore[misc]
    """TVM's converter; says which operator it was at when something fails."""

    convert_map: dict[str, Callable[[Any], Any]]

    def __init__(self, file: TfliteFile, results: list[_Result], *args: Any) -> None:
        super().__init__(*args)
        self.file = file
        self.results = results
        # What the importer asks of tensors without data that the file answers elsewhere.
        self.stated: dict[int, Any] = {}
        self.convert_map = {
            name: partial(self._convert, convert) for name, convert in self.convert_map.items()
        }

    def check_unsupported_ops(self) -> None:
        for operator in self.file.operators:
            if _CUSTOM_NAMES.get(operator.name, operator.name) not in self.convert_map:
                raise UserError(f"{_describe(operator)}: TVM's importer has no such operator")
        super().check_unsupported_ops()

    def _convert(self, convert: Callable[[Any], Any], op: Any) -> Any:
        operator = self._operator(op)
        try:
            made = convert(op)
        except Exception as error:
            raise UserError(
                f"{_describe(operator)}: TVM cannot import it: {_reason(error, [])}"
            ) from None
        outputs = tuple(int(index) for index in op.OutputsAsNumpy())
        if made is not None:  # else it was a constant, folded into its readers
            parts = (made,) if len(outputs) == 1 else tuple(made[i] for i in range(len(outputs)))
            self.results += map(partial(_Result, operator), outputs, parts)
        return made

    def get_input_tensors(self, op: Any) -> list[Any]:
        """Return an operator's inputs without optional ones that are left out at the end."""
        tensors = list(super().get_input_tensors(op))
        while tensors and tensors[-1].tensor_idx == -1:
            tensors.pop()
        return tensors

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        """Return a constant's data, or what the file states elsewhere of a tensor without data."""
        stated = self.stated.get(tensor_wrapper.tensor_idx)
        return super().get_tensor_value(tensor_wrapper, is_sparse) if stated is None else stated

    def convert_transpose_conv(self, op: Any) -> relay.Expr:
        """Convert a transposed convolution; a shape that is calculated is that of the result."""
        shape, (result,) = self.get_input_tensors(op)[0], self.get_output_tensors(op)
        if not self.file.tensors[shape.tensor_idx].is_constant:
            self.stated[shape.tensor_idx] = result.tensor.ShapeAsNumpy()
        return super().convert_transpose_conv(op)

    def convert_squeeze(self, op: Any) -> relay.Expr:
        """Convert a squeeze; without axes it takes away all dimensions of extent 1."""
        options = tflite.SqueezeOptions()
        table = op.BuiltinOptions()
        if table is not None:
            options.Init(table.Bytes, table.Pos)
        if table is not None and options.SqueezeDimsLength():
            return super().convert_squeeze(op)
        return relay.squeeze(self.get_tensor_expr(self.get_input_tensors(op)[0]))

    def convert_reverse_v2(self, op: Any) -> relay.Expr:
        """Convert a reversal of one or several dimensions; TVM's own conversion takes a number."""
        data, axes = self.get_input_tensors(op)
        out = self.get_tensor_expr(data)
        for axis in np.ravel(self.get_tensor_value(axes)):
            out = relay.reverse(out, int(axis))
        return out

    def convert_batch_matmul(self, op: Any) -> relay.Expr:
        """Convert a product of matrices; TVM's own conversion drops scales and zero points."""
        inputs, (result,) = self.get_input_tensors(op), self.get_output_tensors(op)
        if any(not tensor.qnn_params for tensor in (*inputs, result)):
            return super().convert_batch_matmul(op)
        options = tflite.BatchMatMulOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        shapes = [tuple(int(n) for n in tensor.tensor.ShapeAsNumpy()) for tensor in inputs]
        if shapes[0][:-2] != shapes[1][:-2]:
            raise UserError(f"batches of {list(shapes[0])} and {list(shapes[1])} differ")
        one, other = (
            self._matrices(tensor, shape, is_turned)
            for tensor, shape, is_turned in zip(
                inputs, shapes, (options.AdjX(), not options.AdjY()), strict=True
            )
        )
        quantized = [tensor.qnn_params for tensor in inputs]
        zeros = [each["zero_point"] for each in quantized]
        scales = [each["scale"] for each in quantized]
        out = relay.qnn.op.batch_matmul(one, other, *zeros, *scales, out_dtype="int32")
        scale = scales[0].data.numpy() * scales[1].data.numpy()
        out = self._requantized(out, scale, result, tflite.ActivationFunctionType.NONE)
        return relay.reshape(out, [int(dim) for dim in result.tensor.ShapeAsNumpy()])

    def _matrices(self, tensor: Any, shape: tuple[int, ...], is_turned: bool) -> relay.Expr:
        """Return a tensor as batch x rows x columns, rows and columns exchanged if turned."""
        data = relay.reshape(self.get_tensor_expr(tensor), (-1, *shape[-2:]))
        return relay.transpose(data, (0, 2, 1)) if is_turned else data

    def convert_softmax(self, op: Any) -> relay.Expr:
        """Convert a softmax; TVM's own conversion leaves out the factor beta."""
        options = tflite.SoftmaxOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        if options.Beta() == 1.0:
            return super().convert_softmax(op)
        data, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        out = self.get_tensor_expr(data)
        if data.qnn_params:
            out = self.dequantize(out, data)
        beta = relay.const(options.Beta(), "float32")
        out = relay.nn.softmax(relay.multiply(out, beta), axis=-1)
        return self.quantize(out, result) if result.qnn_params else out

    def convert_exp(self, op: Any) -> relay.Expr:
        """Convert an EXP, a quantized one such that it is not taken for a float one."""
        return self._of_reals(op, super().convert_exp, own_islands.write_exp)

    def convert_log(self, op: Any) -> relay.Expr:
        """Convert a LOG, a quantized one such that it is not taken for a float one."""
        return self._of_reals(op, super().convert_log, own_islands.write_log)

    def convert_rsqrt(self, op: Any) -> relay.Expr:
        """Convert an RSQRT, a quantized one such that it is not taken for a float one."""
        return self._of_reals(op, super().convert_rsqrt, own_islands.write_rsqrt)

    def convert_elu(self, op: Any) -> relay.Expr:
        """Convert an ELU; TVM's own conversion takes quantized values for reals."""
        return self._of_reals(op, super().convert_elu, own_islands.write_elu)

    def convert_gelu(self, op: Any) -> relay.Expr:
        """Convert a GELU; TVM's own conversion takes no quantized one."""
        options = tflite.GeluOptions()
        table = op.BuiltinOptions()
        if table is not None:
            options.Init(table.Bytes, table.Pos)
        approximate = table is not None and options.Approximate()
        write = partial(own_islands.write_gelu, approximate=approximate)
        return self._of_reals(op, super().convert_gelu, write)

    def convert_prelu(self, op: Any) -> relay.Expr:
        """Convert a PRELU; TVM's own conversion takes quantized values for reals."""
        data, slopes = self.get_input_tensors(op)
        if data.qnn_params is None or slopes.qnn_params is None:
            return super().convert_prelu(op)
        # Slopes of int16 networks are int8; the NPU takes two operands of one type.
        kind = self.get_tensor_type_str(data.tensor.Type())
        factors = self.get_tensor_expr(slopes)
        if isinstance(factors, relay.Var) and not self.has_expr(slopes.tensor_idx):
            factors = relay.const(self.get_tensor_value(slopes).astype(kind))
        reals = self.dequantize(self.get_tensor_expr(data), data)
        out = own_islands.write_prelu(reals, self.dequantize(factors, slopes))
        return self.quantize(out, self.get_output_tensors(op)[0])

    def _of_reals(
        self,
        op: Any,
        convert: Callable[[Any], relay.Expr],
        write: Callable[[relay.Expr], relay.Expr],
    ) -> relay.Expr:
        """Return what ``write`` makes of dequantized input, quantized; else TVM's conversion."""
        data, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        if data.qnn_params is None or result.qnn_params is None:
            return convert(op)
        return self.quantize(write(self.dequantize(self.get_tensor_expr(data), data)), result)

    def convert_fully_connected(self, op: Any) -> relay.Expr:
        """Convert a dense layer; TVM's own conversion takes one weight scale only."""
        weights = self.get_input_tensors(op)[1]
        if weights.qnn_params is None or not weights.qnn_params["scale"].data.shape:
            return super().convert_fully_connected(op)
        return self._dense_per_channel(op)

    def _dense_per_channel(self, op: Any) -> relay.Expr:
        data, weights, *bias = self.get_input_tensors(op)
        (result,) = self.get_output_tensors(op)
        units, width = (int(dim) for dim in weights.tensor.ShapeAsNumpy())
        out = relay.qnn.op.dense(
            relay.reshape(self.get_tensor_expr(data), (-1, width)),
            self.get_tensor_expr(weights),
            input_zero_point=data.qnn_params["zero_point"],
            kernel_zero_point=weights.qnn_params["zero_point"],
            input_scale=data.qnn_params["scale"],
            kernel_scale=weights.qnn_params["scale"],
            units=units,
            out_dtype="int64" if result.tensor.Type() == tflite.TensorType.INT16 else "int32",
        )
        if bias and bias[0].tensor_idx != -1:
            out = relay.nn.bias_add(out, self.get_tensor_expr(bias[0]))
        scales = data.qnn_params["scale"].data.numpy() * weights.qnn_params["scale"].data.numpy()
        options = tflite.FullyConnectedOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        out = self._requantized(out, scales, result, options.FusedActivationFunction())
        if options.KeepNumDims():
            out = relay.reshape(out, [int(dim) for dim in result.tensor.ShapeAsNumpy()])
        return out

    def _requantized(
        self, sums: relay.Expr, scales: Any, result: Any, activation: int
    ) -> relay.Expr:
        """Return sums of the scales given, one per column, as the result's type, activated."""
        scale, zero_point = result.qnn_params["scale"], result.qnn_params["zero_point"]
        dtype = self.get_tensor_type_str(result.tensor.Type())
        out = relay.qnn.op.requantize(
            sums,
            input_scale=relay.const(scales, "float32"),
            input_zero_point=relay.const(0, "int32"),
            output_scale=scale,
            output_zero_point=zero_point,
            axis=1,
            out_dtype=dtype,
        )
        return self.convert_qnn_fused_activation_function(
            expr=out,
            fused_activation_fn=activation,
            scale=float(scale.data.numpy()),
            zero_point=int(zero_point.data.numpy()),
            dtype=dtype,
        )

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: float, dtype: str
    ) -> Any:
        """Clip as TFLite's kernels do: limits divided in float32, halves rounded away from zero."""
        limits = _ACTIVATION_LIMITS.get(fused_activation_fn)
        if limits is None:
            return super().convert_qnn_fused_activation_function(
                expr, fused_activation_fn, scale, zero_point, dtype
            )
        info = np.iinfo(dtype)
        low, high = (_quantized_limit(limit, scale) + zero_point for limit in limits)
        return relay.op.clip(expr, max(float(info.min), low), min(float(info.max), high))

    def _operator(self, op: Any) -> TfliteOperator:
        names = {self.file.tensors[index].name for index in op.OutputsAsNumpy()}
        return next(o for o in self.file.operators if names & set(o.outputs))


_ACTIVATION_LIMITS = {
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}


def _quantized_limit(limit: float, scale: float) -> float:
    """Return a real limit in steps of ``scale`` (TFLite: kernels/kernel_util.cc, Quantize)."""
    steps = float(np.float32(limit) / np.float32(scale))
    return math.copysign(math.floor(abs(steps) + 0.5), steps) if math.isfinite(steps) else steps


def _describe(operator: TfliteOperator) -> str:
    return f"{operator}, which writes {', '.join(repr(name) for name in operator.outputs)}"


def _reason(error: Exception, messages: list[str]) -> str:
    """Return what went wrong on one line: an own message, or the last line of TVM's."""
    if messages:
        text = messages[0]
    else:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[-1] if lines else ""
    text = text.removeprefix("TVMError: ").removeprefix("InternalError: ")
    if not isinstance(error, tvm.TVMError | NotImplementedError) or not text:
        text = f"{type(error).__name__} {text}".rstrip()
    return " ".join(text.split())[:_REASON_LENGTH]


@contextlib.contextmanager
def _quiet(messages: list[str]) -> Iterator[None]:
    """Collect the type checker's complaints, which TVM prints to stderr otherwise."""

    def collect(context: Any) -> None:
        messages.extend(str(diagnostic.message) for diagnostic in context.diagnostics)

    diagnostics.override_renderer(collect)
    try:
        yield
    finally:
        diagnostics.override_renderer(None)


def _check_results(file: TfliteFile, results: list[_Result]) -> None:
    """Check that each operator gives what the file says: TFLite's kernels believe the file."""
    every = relay.Tuple([result.expr for result in results])
    function = relay.Function(relay.analysis.free_vars(every), every)
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    for result, actual in zip(results, typed["main"].ret_type.fields, strict=True):
        tensor = file.tensors[result.tensor]
        shape = tuple(int(dim) if hasattr(dim, "value") else -1 for dim in actual.shape)
        if (shape, str(actual.dtype)) != (tensor.shape, tensor.dtype):
            raise UserError(
                f"{_describe(result.operator)}: gives {actual.dtype} of shape {list(shape)}, but "
                f"the file says {tensor.dtype} of shape {list(tensor.shape)} for {tensor.name!r}"
            )
