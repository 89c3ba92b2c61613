"""Relay calls as plain parameters; the only place that looks into a composite's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relay

from tvm_ethosu.partition.arg_max import ArgMaxParams
from tvm_ethosu.partition.matmul import MatmulParams
from tvm_ethosu.partition.params import (
    AddParams,
    ClipParams,
    ConvParams,
    PoolParams,
    RequantizeParams,
    ReshapeParams,
    TensorType,
)
from tvm_ethosu.partition.reductions import ReduceParams
from tvm_ethosu.scheduler.ir import Clamp, DType, ElementKind, Kernel, Padding, PoolKind, Quant


def tensor_type(expr: relay.Expr) -> TensorType:
    """Return static dimensions and type of a tensor; a dynamic dimension becomes -1."""
    of = expr.checked_type
    dims = tuple(int(dim) if hasattr(dim, "value") else -1 for dim in of.shape)
    return TensorType(dims, str(of.dtype))


def span_name(expr: relay.Expr) -> str:
    """Return the name that the importer gave the expression's value, or an empty string."""
    span = getattr(expr, "span", None)
    if span is None:
        return ""
    sources = getattr(span, "spans", None)
    first = sources[0] if sources else span
    return str(first.source_name.name) if first.source_name is not None else ""


def call_name(expr: relay.Expr) -> str:
    """Return the operator's name of a call, or an empty string."""
    named = isinstance(expr, relay.Call) and hasattr(expr.op, "name")
    return str(expr.op.name) if named else ""


@dataclass(frozen=True)
class _Accumulated:
    """The calls of ``[clip] requantize [bias_add] main``; the optional ones may be None."""

    clip: relay.Call | None
    requantize: relay.Call
    bias_add: relay.Call | None
    main: relay.Call


def _peel(expr: relay.Expr, name: str) -> tuple[relay.Call | None, relay.Expr]:
    """Return a call of that operator and its first argument, or None and the expression."""
    return (expr, expr.args[0]) if call_name(expr) == name else (None, expr)


def _accumulated(body: relay.Call) -> _Accumulated:
    clip, requantize = _peel(body, "clip")
    bias_add, main = _peel(requantize.args[0], "nn.bias_add")
    return _Accumulated(clip, requantize, bias_add, main)


def _array(expr: relay.Expr) -> npt.NDArray[Any]:
    return np.asarray(expr.data.numpy())


def _scalar(expr: relay.Expr) -> float:
    return float(_array(expr).reshape(-1)[0])


def _quant(scale: relay.Expr, zero_point: relay.Expr) -> Quant:
    return Quant(_scalar(scale), int(_scalar(zero_point)))


def _clamp(clip: relay.Call | None, dtype: str) -> Clamp:
    """Return the limits of a type, narrowed by a clip."""
    of = DType(dtype) if dtype in {d.value for d in DType} else DType.I32
    if clip is None:
        return Clamp(of.minimum, of.maximum)
    low, high = np.ceil(clip.attrs.a_min), np.floor(clip.attrs.a_max)
    return Clamp(max(of.minimum, int(low)), min(of.maximum, int(high)))


def _padding(amounts: Any) -> Padding:
    values = [int(amount) for amount in amounts]
    if len(values) == 1:
        return Padding(*(values * 4))
    if len(values) == 2:
        return Padding(values[0], values[1], values[0], values[1])
    return Padding(*values)


def _ohwi(conv: relay.Call, zero_point: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return weights OHWI less their zero point; HWOI's multiplier axis ends up in O."""
    weights = _array(conv.args[1]).astype(np.int64)
    zero_point = zero_point.astype(np.int64).reshape(-1)
    if conv.attrs.kernel_layout == "HWOI":
        height, width, channels, multiplier = weights.shape
        weights = weights.reshape(height, width, channels * multiplier, 1).transpose(2, 0, 1, 3)
    else:
        weights = weights.transpose(3, 0, 1, 2)
    return weights - zero_point.reshape(-1, 1, 1, 1)


def _channel_axes(calls: _Accumulated, rank: int) -> tuple[int, ...]:
    """Return the axes of the bias and of per-channel scales, counted from the front."""
    axes = [int(calls.bias_add.attrs.axis)] if calls.bias_add is not None else []
    if any(_array(arg).size > 1 for arg in calls.requantize.args[1:5]):
        axes.append(int(calls.requantize.attrs.axis))
    return tuple(axis % rank for axis in axes)


def _reached(padding: Padding, kernel: Kernel, ifm: TensorType, ofm: TensorType) -> Padding:
    """Return the padding less the rows and columns behind the last window.

    The NPU derives the input's extent from the output's, so padding that no window reads would
    be taken for the input's last rows (PyTorch pads both sides alike, whatever the stride).
    """
    if len(ifm.dims) != 4 or len(ofm.dims) != 4:
        return padding

    def after(axis: int, stride: int, dilated: int, before: int) -> int:
        return max(0, (ofm.dims[axis] - 1) * stride + dilated - before - ifm.dims[axis])

    return Padding(
        padding.top,
        padding.left,
        min(padding.bottom, after(1, kernel.stride_h, kernel.dilated_h, padding.top)),
        min(padding.right, after(2, kernel.stride_w, kernel.dilated_w, padding.left)),
    )


def _sums_in_64_bits(calls: _Accumulated) -> bool:
    """Return whether TFLite's kernel sums in 64 bits: int16 inputs without a bias of int32."""
    if tensor_type(calls.main.args[0]).dtype != "int16":
        return False
    return calls.bias_add is None or str(_array(calls.bias_add.args[1]).dtype) == "int64"


def _layout(attrs: Any, data_layout: Any) -> str:
    """Return the layout of the data; two joined by an arrow where input and output differ."""
    out = str(getattr(attrs, "out_layout", ""))
    return str(data_layout) if out in ("", str(data_layout)) else f"{data_layout}->{out}"


def _common_conv(body: relay.Call, calls: _Accumulated) -> dict[str, Any]:
    main, requantize, bias_add = calls.main, calls.requantize, calls.bias_add
    scales = _array(main.args[5]).reshape(-1)
    given = _array(requantize.args[1]).reshape(-1)
    ofm = tensor_type(body)
    return {
        "origin": span_name(body),
        "ifm": tensor_type(main.args[0]),
        "ofm": ofm,
        "bias": None if bias_add is None else _array(bias_add.args[1]).astype(np.int64),
        "ifm_quant": _quant(main.args[4], main.args[2]),
        "ofm_quant": _quant(requantize.args[3], requantize.args[4]),
        "weight_scales": tuple(float(scale) for scale in scales),
        "requantize_scales": tuple(float(scale) for scale in given),
        "requantize_zero_point": int(np.max(np.abs(_array(requantize.args[2])))),
        "channel_axes": _channel_axes(calls, len(ofm.dims)),
        "wide_sums": _sums_in_64_bits(calls),
        "clamp": _clamp(calls.clip, ofm.dtype),
    }


def parse_conv(body: relay.Call) -> ConvParams:
    """Parse ``[clip] requantize [bias_add] qnn.conv2d``; depthwise ones are told by kind."""
    calls = _accumulated(body)
    conv, attrs = calls.main, calls.main.attrs
    ifm_channels = tensor_type(conv.args[0]).dims[-1]
    weights = _ohwi(conv, _array(conv.args[3]))
    groups, kernel_layout = int(attrs.groups), str(attrs.kernel_layout)
    # With one input channel a depthwise convolution is an ordinary one, whatever its multiplier.
    depthwise = kernel_layout == "HWOI" and groups == ifm_channels != 1
    is_known = kernel_layout == "HWIO" or (
        kernel_layout == "HWOI" and (depthwise or ifm_channels == 1)
    )
    kernel = Kernel(
        *weights.shape[1:3],
        *(int(stride) for stride in attrs.strides),
        *(int(dilation) for dilation in attrs.dilation),
    )
    common = _common_conv(body, calls)
    return ConvParams(
        **common,
        kind="depthwise" if depthwise else "conv2d",
        weights=weights,
        kernel=kernel,
        padding=_reached(_padding(attrs.padding), kernel, common["ifm"], common["ofm"]),
        groups=1 if ifm_channels == 1 else groups,
        depth_multiplier=weights.shape[0] // ifm_channels if depthwise else 1,
        layout=_layout(attrs, attrs.data_layout) + ("" if is_known else f" with {kernel_layout}"),
    )


def parse_padded_conv(body: relay.Call) -> ConvParams:
    """Parse ``[clip] requantize [bias_add] qnn.conv2d pad``; both paddings become one."""
    params = parse_conv(body)
    conv = _accumulated(body).main
    pad = conv.args[0]
    pairs = [(int(low), int(high)) for low, high in pad.attrs.pad_width]
    (top, bottom), (left, right) = pairs[1:3] if len(pairs) == 4 else ((0, 0), (0, 0))
    own = _padding(conv.attrs.padding)
    padding = Padding(own.top + top, own.left + left, own.bottom + bottom, own.right + right)
    ifm = tensor_type(pad.args[0])
    return replace(
        params,
        ifm=ifm,
        padding=_reached(padding, params.kernel, ifm, params.ofm),
        folded_pad=_why_not_folded(pad, pairs, params.ifm_quant.zero_point),
    )


def _why_not_folded(pad: relay.Call, pairs: list[tuple[int, int]], zero_point: int) -> str:
    """Say what keeps a pad from being the convolution's padding; empty if nothing does."""
    value, mode = _scalar(pad.args[1]), str(pad.attrs.pad_mode)
    if mode != "constant":
        return f"of mode {mode}"
    if value != zero_point:
        return f"with {value:g}, not the zero point {zero_point}"
    if len(pairs) != 4 or any(pairs[0] + pairs[3]):
        return "of batch or channels"
    return "of negative size" if min(map(min, pairs)) < 0 else ""


def parse_transposed_conv(body: relay.Call) -> ConvParams:
    """Parse ``[clip] requantize [bias_add] qnn.conv2d_transpose``; strides are the output's."""
    calls = _accumulated(body)
    conv, attrs = calls.main, calls.main.attrs
    zero_point = _array(conv.args[3]).astype(np.int64).reshape(-1, 1, 1, 1)
    weights = _array(conv.args[1]).astype(np.int64).transpose(1, 2, 3, 0) - zero_point
    strides = (int(stride) for stride in attrs.strides)
    dilation = (int(step) for step in attrs.dilation)
    known = str(attrs.kernel_layout) == "IOHW"
    return ConvParams(
        **_common_conv(body, calls),
        kind="transposed",
        weights=weights,
        kernel=Kernel(*weights.shape[1:3], *strides, *dilation),
        padding=_padding(attrs.padding),
        groups=int(attrs.groups),
        depth_multiplier=1,
        layout=_layout(attrs, attrs.data_layout)
        + ("" if known else f" with {attrs.kernel_layout}"),
    )


def parse_dense(body: relay.Call) -> ConvParams:
    """Parse ``[clip] requantize [bias_add] qnn.dense``."""
    calls = _accumulated(body)
    dense = calls.main
    weights = _array(dense.args[1]).astype(np.int64)
    zero_point = _array(dense.args[3]).astype(np.int64).reshape(-1, 1)
    return ConvParams(
        **_common_conv(body, calls),
        kind="dense",
        weights=(weights - zero_point)[:, None, None, :],
        kernel=Kernel(1, 1),
        padding=Padding(),
        groups=1,
        depth_multiplier=1,
        layout="NHWC",
    )


def _pool_params(
    body: relay.Call, clip: relay.Call | None, pool: relay.Call, ifm: relay.Expr, kind: PoolKind
) -> PoolParams:
    """Return what both poolings have; ``ifm`` is the input before any cast."""
    attrs = pool.attrs
    ofm = tensor_type(body)
    kernel = Kernel(
        *(int(size) for size in attrs.pool_size),
        *(int(stride) for stride in attrs.strides),
        *(int(dilation) for dilation in attrs.dilation),
    )
    return PoolParams(
        origin=span_name(body),
        ifm=tensor_type(ifm),
        ofm=ofm,
        kind=kind,
        kernel=kernel,
        padding=_reached(_padding(attrs.padding), kernel, tensor_type(ifm), ofm),
        layout=_layout(attrs, attrs.layout),
        accumulator=tensor_type(pool.args[0]).dtype,
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=kind is PoolKind.AVERAGE and bool(attrs.count_include_pad),
        clamp=_clamp(clip, ofm.dtype),
    )


def parse_average_pool(body: relay.Call) -> PoolParams:
    """Parse ``[clip] cast nn.avg_pool2d cast``."""
    clip, cast = _peel(body, "clip")
    pool = cast.args[0]
    return _pool_params(body, clip, pool, pool.args[0].args[0], PoolKind.AVERAGE)


def parse_max_pool(body: relay.Call) -> PoolParams:
    """Parse ``[clip] nn.max_pool2d``."""
    clip, pool = _peel(body, "clip")
    return _pool_params(body, clip, pool, pool.args[0], PoolKind.MAX)


def parse_arithmetic(kind: ElementKind) -> Callable[[relay.Call], AddParams]:
    """Return the parser of ``[clip] qnn.subtract`` and the like."""
    return lambda body: replace(parse_add(body), kind=kind)


def parse_comparison(kind: ElementKind) -> Callable[[relay.Call], AddParams]:
    """Return the parser of ``minimum`` or ``maximum``, which compare values as they are."""

    def parse(body: relay.Call) -> AddParams:
        ofm, quant = tensor_type(body), Quant()
        return AddParams(
            origin=span_name(body),
            ifm=tensor_type(body.args[0]),
            ofm=ofm,
            per_channel=False,
            ifm2=tensor_type(body.args[1]),
            ifm_quant=quant,
            ifm2_quant=quant,
            ofm_quant=quant,
            clamp=_clamp(None, ofm.dtype),
            kind=kind,
        )

    return parse


# What the importer lets a fused activation follow. On the NPU it is in a composite by now.
_LIMITED = ("qnn.requantize", "qnn.add", "qnn.subtract", "qnn.mul", "nn.max_pool2d", "cast")


def parse_clip(body: relay.Call) -> ClipParams:
    """Parse ``clip``."""
    ofm, quant = tensor_type(body), Quant()
    before = call_name(body.args[0])
    return ClipParams(
        origin=span_name(body),
        ifm=tensor_type(body.args[0]),
        ofm=ofm,
        ifm_quant=quant,
        ofm_quant=quant,
        per_channel=False,
        clamp=_clamp(body, ofm.dtype),
        limited=before if before in _LIMITED else "",
    )


def parse_add(body: relay.Call) -> AddParams:
    """Parse ``[clip] qnn.add``."""
    clip, add = _peel(body, "clip")
    ofm = tensor_type(body)
    return AddParams(
        origin=span_name(body),
        ifm=tensor_type(add.args[0]),
        ofm=ofm,
        per_channel=any(_array(arg).size > 1 for arg in add.args[2:8]),
        ifm2=tensor_type(add.args[1]),
        ifm_quant=_quant(add.args[2], add.args[3]),
        ifm2_quant=_quant(add.args[4], add.args[5]),
        ofm_quant=_quant(add.args[6], add.args[7]),
        clamp=_clamp(clip, ofm.dtype),
    )


def parse_requantize(body: relay.Call) -> RequantizeParams:
    """Parse ``[clip] qnn.requantize``."""
    clip, requantize = _peel(body, "clip")
    ifm, ofm = tensor_type(requantize.args[0]), tensor_type(body)
    before = call_name(requantize.args[0]) if ifm.dtype == "int32" else ""
    return RequantizeParams(
        origin=span_name(body),
        ifm=ifm,
        ofm=ofm,
        ifm_quant=_quant(requantize.args[1], requantize.args[2]),
        ofm_quant=_quant(requantize.args[3], requantize.args[4]),
        per_channel=any(_array(arg).size > 1 for arg in requantize.args[1:5]),
        clamp=_clamp(clip, ofm.dtype),
        accumulator_of="" if before == "qnn.requantize" else before,
    )


def parse_reduction(body: relay.Call) -> ReduceParams:
    """Parse ``[clip] requantize mean cast``, or with sum or max."""
    clip, requantize = _peel(body, "clip")
    reduce = requantize.args[0]
    ifm, ofm = tensor_type(reduce.args[0].args[0]), tensor_type(body)
    rank = len(ifm.dims)
    given = reduce.attrs.axis
    named = {int(axis) % rank for axis in (range(rank) if given is None else given)}
    axes = set(range(rank)) - named if reduce.attrs.exclude else named
    return ReduceParams(
        origin=span_name(body),
        ifm=ifm,
        ofm=ofm,
        kind=call_name(reduce),
        axes=tuple(sorted(axes)),
        ifm_quant=_quant(requantize.args[1], requantize.args[2]),
        ofm_quant=_quant(requantize.args[3], requantize.args[4]),
        clamp=_clamp(clip, ofm.dtype),
    )


def parse_arg_max(body: relay.Call) -> ArgMaxParams:
    """Parse ``argmax``."""
    ifm, attrs = tensor_type(body.args[0]), body.attrs
    rank = len(ifm.dims)
    given = range(rank) if attrs.axis is None else attrs.axis
    axes = tuple(sorted(int(axis) % rank for axis in given))
    return ArgMaxParams(
        span_name(body), ifm, tensor_type(body), axes, bool(attrs.select_last_index)
    )


def parse_matmul(body: relay.Call) -> MatmulParams:
    """Parse ``[clip] requantize`` of ``qnn.batch_matmul`` or ``qnn.dense``."""
    clip, requantize = _peel(body, "clip")
    product = requantize.args[0]
    ofm = tensor_type(body)
    return MatmulParams(
        origin=span_name(body),
        ifm=tensor_type(product.args[0]),
        ofm=ofm,
        ifm2=tensor_type(product.args[1]),
        ifm_quant=_quant(product.args[4], product.args[2]),
        ifm2_quant=_quant(product.args[5], product.args[3]),
        ofm_quant=_quant(requantize.args[3], requantize.args[4]),
        clamp=_clamp(clip, ofm.dtype),
    )


def parse_reshape(body: relay.Call) -> ReshapeParams:
    """Parse ``reshape``, ``squeeze`` or ``expand_dims``."""
    return ReshapeParams(span_name(body), tensor_type(body.args[0]), tensor_type(body))
