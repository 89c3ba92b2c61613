"""What the NPU can't do, one function per limit; a docstring's first line names the limit.

Each takes an operator's parameters and returns None or the Rejection that the user reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tvm_ethosu.partition.lower import (
    elementwise_shape,
    exact_add_quants,
    operand_shapes,
    to_shape,
)
from tvm_ethosu.partition.params import (
    AddParams,
    ClipParams,
    ConvParams,
    OpParams,
    PoolParams,
    RequantizeParams,
    ReshapeParams,
)
from tvm_ethosu.partition.quantize import (
    MAX_WIDE_EXPONENT,
    accumulator_factor,
    quantize_multiplier,
)
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.scheduler import arch
from tvm_ethosu.scheduler.ir import Padding, PoolKind, Quant

Constraint = Callable[[OpParams], Rejection | None]

ACTIVATIONS = ("int8", "uint8", "int16")
MAX_RANK = 4


def _dims(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims)) or "scalar"


def _types(params: OpParams) -> list[tuple[str, str]]:
    types = [("input", params.ifm), ("output", params.ofm)]
    if isinstance(params, AddParams):
        types.insert(1, ("second input", params.ifm2))
    return [(name, of.dtype) for name, of in types]


def _shapes(params: OpParams) -> list[tuple[str, tuple[int, ...]]]:
    shapes = [("input", params.ifm.dims), ("output", params.ofm.dims)]
    if isinstance(params, AddParams):
        shapes.insert(1, ("second input", params.ifm2.dims))
    return shapes


def types_are_activations(params: OpParams) -> Rejection | None:
    """Inputs and outputs are int8, uint8 or int16."""
    for name, dtype in _types(params):
        if dtype not in ACTIVATIONS:
            return Rejection(f"{name} type", dtype, "int8, uint8 or int16")
    return None


def types_are_equal(params: OpParams) -> Rejection | None:
    """Inputs and outputs have the same type."""
    first, *others = _types(params)
    for name, dtype in others:
        if dtype != first[1]:
            return Rejection(f"{name} type", dtype, f"the input's type, {first[1]}")
    return None


def is_quantized(params: OpParams) -> Rejection | None:
    """The operator is quantized itself, not a float one between DEQUANTIZE and QUANTIZE."""
    if params.is_float:
        return Rejection("operator", "float32 between DEQUANTIZE and QUANTIZE", "a quantized one")
    return None


def dims_fit(params: OpParams) -> Rejection | None:
    """Each dimension is at most 65536."""
    for name, dims in _shapes(params):
        if any(not 1 <= dim <= arch.MAX_DIM for dim in dims):
            return Rejection(f"{name} shape", _dims(dims), f"1 to {arch.MAX_DIM} in a dimension")
    return None


def batch_is_one(params: OpParams) -> Rejection | None:
    """4-D tensors have batch 1."""
    for name, dims in _shapes(params):
        if len(dims) == MAX_RANK and dims[0] != 1:
            return Rejection(f"{name} batch", str(dims[0]), "batch 1")
    return None


def operands_have_three_dims(params: OpParams) -> Rejection | None:
    """The elements can be seen as three dimensions of at most 65536, each broadcast or not."""
    assert isinstance(params, AddParams)
    if operand_shapes(params) is None:
        limit = "three dimensions, with neighbours joined that are broadcast alike"
        return Rejection("output shape", _dims(params.ofm.dims), limit)
    return None


def layout_is_nhwc(params: OpParams) -> Rejection | None:
    """The data layout is NHWC."""
    assert isinstance(params, ConvParams | PoolParams)
    if params.layout != "NHWC":
        return Rejection("layout", params.layout, "NHWC")
    return None


def strides_fit(params: OpParams) -> Rejection | None:
    """Strides are 1 to 3, except where one output row or column makes the stride meaningless."""
    assert isinstance(params, ConvParams | PoolParams)
    _, ofm_h, ofm_w, _ = params.ofm.dims
    kernel = params.kernel
    for axis, stride, outputs in (
        ("height", kernel.stride_h, ofm_h),
        ("width", kernel.stride_w, ofm_w),
    ):
        if outputs > 1 and not 1 <= stride <= arch.MAX_STRIDE:
            return Rejection(f"stride in {axis}", str(stride), f"1 to {arch.MAX_STRIDE}")
    return None


def channels_are_last(params: OpParams) -> Rejection | None:
    """Bias and per-channel scales apply to the last dimension."""
    assert isinstance(params, ConvParams)
    last = len(params.ofm.dims) - 1
    for axis in params.channel_axes:
        if axis != last:
            return Rejection("axis of bias or scales", str(axis), f"the last, {last}")
    return None


def dilation_fits(params: OpParams) -> Rejection | None:
    """Dilation is 1 or 2."""
    assert isinstance(params, ConvParams)
    kernel = params.kernel
    for axis, dilation in (("height", kernel.dilation_h), ("width", kernel.dilation_w)):
        if not 1 <= dilation <= arch.MAX_DILATION:
            return Rejection(f"dilation in {axis}", str(dilation), f"1 to {arch.MAX_DILATION}")
    return None


def kernel_fits(params: OpParams) -> Rejection | None:
    """The dilated kernel is at most 64 high and covers at most 4096 elements."""
    assert isinstance(params, ConvParams)
    height, width = params.kernel.dilated_h, params.kernel.dilated_w
    if height > arch.MAX_KERNEL_H:
        return Rejection("dilated kernel height", str(height), f"1 to {arch.MAX_KERNEL_H}")
    if height * width > arch.MAX_KERNEL_ELEMENTS:
        limit = f"an area of up to {arch.MAX_KERNEL_ELEMENTS}"
        return Rejection("dilated kernel", f"{height}x{width}", limit)
    return None


def _padding_fits(padding: Padding, limits: Padding) -> Rejection | None:
    sides = (
        ("top", padding.top, limits.top),
        ("left", padding.left, limits.left),
        ("bottom", padding.bottom, limits.bottom),
        ("right", padding.right, limits.right),
    )
    for side, amount, limit in sides:
        if not 0 <= amount <= limit:
            return Rejection(f"padding at the {side}", str(amount), f"0 to {limit}")
    return None


def conv_padding_fits(params: OpParams) -> Rejection | None:
    """Padding is at most 31 at the top and left, 32 at the bottom and right."""
    assert isinstance(params, ConvParams)
    before, after = arch.MAX_PAD_TOP_LEFT, arch.MAX_PAD_BOTTOM_RIGHT
    return _padding_fits(params.padding, Padding(before, before, after, after))


def pad_can_be_folded(params: OpParams) -> Rejection | None:
    """A pad in front is constant, spatial, of the zero point, and narrower than the kernel."""
    assert isinstance(params, ConvParams)
    if params.folded_pad:
        return Rejection("pad", params.folded_pad, "the convolution's own padding")
    vertical, horizontal = params.kernel.dilated_h - 1, params.kernel.dilated_w - 1
    return _padding_fits(params.padding, Padding(vertical, horizontal, vertical, horizontal))


def groups_fit(params: OpParams) -> Rejection | None:
    """The convolution has one group, or one group per input channel."""
    assert isinstance(params, ConvParams)
    if params.kind != "depthwise" and params.groups != 1:
        return Rejection("groups", str(params.groups), "1 or one per input channel")
    return None


def depth_multiplier_is_one(params: OpParams) -> Rejection | None:
    """Depthwise convolutions have one output channel per input channel."""
    assert isinstance(params, ConvParams)
    if params.kind == "depthwise" and params.depth_multiplier != 1:
        return Rejection("depth multiplier", str(params.depth_multiplier), "1")
    return None


def weights_fit(params: OpParams) -> Rejection | None:
    """Weights less their zero point are -255 to 255, and their sums fit the accumulator."""
    assert isinstance(params, ConvParams)
    low, high = int(params.weights.min()), int(params.weights.max())
    if low < arch.MIN_WEIGHT or high > arch.MAX_WEIGHT:
        limit = f"{arch.MIN_WEIGHT} to {arch.MAX_WEIGHT}"
        return Rejection("weights less zero point", f"{low} to {high}", limit)
    largest = int(np.abs(params.weights).sum(axis=(1, 2, 3)).max())
    if largest > arch.MAX_WEIGHT_SUM:
        limit = f"at most {arch.MAX_WEIGHT_SUM}"
        return Rejection("sum of a channel's absolute weights", str(largest), limit)
    return None


def bias_fits(params: OpParams) -> Rejection | None:
    """Biases need at most 32 bits, the width of the accumulator; 39 bits for int16."""
    assert isinstance(params, ConvParams)
    if params.bias is None:
        return None
    bits = arch.WIDE_BIAS_BITS if params.ifm.dtype == "int16" else arch.ACCUMULATOR_BITS
    limit = 1 << (bits - 1)
    for value in (int(params.bias.min()), int(params.bias.max())):
        if not -limit <= value < limit:
            return Rejection("bias", str(value), f"{bits} bits with sign")
    return None


def conv_scales_fit(params: OpParams) -> Rejection | None:
    """The factor from accumulator to output is at most 2**31, 2**7 where sums have 64 bits."""
    assert isinstance(params, ConvParams)
    exponent = MAX_WIDE_EXPONENT if params.wide_sums else 31
    for weight_scale in params.weight_scales:
        factor = accumulator_factor(
            params.ifm_quant.scale, weight_scale, params.ofm_quant.scale, product_in_float32=False
        )
        found = quantize_multiplier(factor)
        if found is None or found.shift < 31 - exponent:
            limit = f"a positive number up to 2**{exponent}"
            return Rejection("rescale factor", f"{factor:.6g}", limit)
    return None


def accumulator_scale_is_product(params: OpParams) -> Rejection | None:
    """The accumulator's scale is input scale times weight scale, with zero point 0."""
    assert isinstance(params, ConvParams)
    if params.requantize_zero_point != 0:
        return Rejection("accumulator zero point", str(params.requantize_zero_point), "0")
    given = np.asarray(params.requantize_scales)
    product = params.ifm_quant.scale * np.asarray(params.weight_scales)
    if given.size not in (1, product.size) or not np.allclose(given, product, rtol=1e-5, atol=0):
        value = f"{given.flat[0]:.6g}"
        limit = f"input scale times weight scale, {product.flat[0]:.6g}"
        return Rejection("accumulator scale", value, limit)
    return None


def pool_window_fits(params: OpParams) -> Rejection | None:
    """The window is at most 256 high and 65536 elements; 8x8 when averaging with padding."""
    assert isinstance(params, PoolParams)
    height, width = params.kernel.h, params.kernel.w
    if height > arch.MAX_POOL_H or height * width > arch.MAX_POOL_ELEMENTS:
        limit = f"up to {arch.MAX_POOL_H} high and {arch.MAX_POOL_ELEMENTS} elements"
        return Rejection("pooling window", f"{height}x{width}", limit)
    largest = arch.MAX_PADDED_AVERAGE_KERNEL
    averaged_and_padded = params.kind is PoolKind.AVERAGE and params.padding.any
    if averaged_and_padded and max(height, width) > largest:
        limit = f"up to {largest}x{largest} when averaging with padding"
        return Rejection("pooling window", f"{height}x{width}", limit)
    return None


def pool_padding_fits(params: OpParams) -> Rejection | None:
    """Padding is smaller than the window and at most 127."""
    assert isinstance(params, PoolParams)
    limit = arch.MAX_POOL_PAD
    vertical, horizontal = min(limit, params.kernel.h - 1), min(limit, params.kernel.w - 1)
    return _padding_fits(params.padding, Padding(vertical, horizontal, vertical, horizontal))


def pool_counts_valid_elements(params: OpParams) -> Rejection | None:
    """An average counts only elements inside of the input."""
    assert isinstance(params, PoolParams)
    if params.kind is PoolKind.AVERAGE and params.count_include_pad and params.padding.any:
        return Rejection("count_include_pad", "True", "False when there is padding")
    return None


def pool_rounds_down(params: OpParams) -> Rejection | None:
    """The output size is rounded down, and windows are not dilated."""
    assert isinstance(params, PoolParams)
    if params.ceil_mode:
        return Rejection("ceil_mode", "True", "False")
    if (params.kernel.dilation_h, params.kernel.dilation_w) != (1, 1):
        value = f"{params.kernel.dilation_h}x{params.kernel.dilation_w}"
        return Rejection("pooling dilation", value, "1x1")
    return None


def one_side_broadcasts(params: OpParams) -> Rejection | None:
    """At most one input is broadcast, from extents of 1."""
    assert isinstance(params, AddParams)
    out = params.ofm.dims
    if out not in (params.ifm.dims, params.ifm2.dims):
        value = f"{_dims(params.ifm.dims)} with {_dims(params.ifm2.dims)}"
        return Rejection("broadcast", value, "one input in the output's shape")
    return None


def _ratio_fits(one: float, other: float) -> bool:
    return quantize_multiplier(one / other) is not None


def add_scales_fit(params: OpParams) -> Rejection | None:
    """Scales are positive and the factors between them can be written with a 6-bit shift."""
    assert isinstance(params, AddParams)
    scales = (params.ifm_quant.scale, params.ifm2_quant.scale, params.ofm_quant.scale)
    value = ", ".join(f"{scale:.6g}" for scale in scales)
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        return Rejection("scales", value, "positive numbers")
    larger, smaller = max(scales[:2]), min(scales[:2])
    # The NPU shifts both inputs up by 20 bits before it adds (TFLite's kernel does the same).
    in_range = _ratio_fits(smaller, 2 * larger) and _ratio_fits(2 * larger, scales[2] * 2**20)
    if not in_range or smaller / larger < 2.0**-30:
        return Rejection("scales", value, "factors from 2**-30 to 2**31 between them")
    if exact_add_quants(params) is None:
        return Rejection("scales", value, "scales for which its rounding is certain")
    return None


def elementwise_extents_fit(params: OpParams) -> Rejection | None:
    """The elements can be seen as three dimensions of at most 65536, in whatever way."""
    if elementwise_shape(to_shape(params.ofm.dims)) is None:
        limit = "elements that can be seen as three dimensions of up to 65536"
        return Rejection("output shape", _dims(params.ofm.dims), limit)
    return None


def scales_are_per_tensor(params: OpParams) -> Rejection | None:
    """There is one scale and zero point per tensor."""
    assert isinstance(params, AddParams | RequantizeParams)
    if params.per_channel:
        return Rejection("scales", "one per channel", "one per tensor")
    return None


def zero_points_fit(params: OpParams) -> Rejection | None:
    """Zero points are values of the tensor's type, and 0 for int16."""
    assert isinstance(params, ConvParams | AddParams | RequantizeParams)
    quants = [("input", params.ifm.dtype, params.ifm_quant)]
    if isinstance(params, AddParams):
        quants.append(("second input", params.ifm2.dtype, params.ifm2_quant))
    quants.append(("output", params.ofm.dtype, params.ofm_quant))
    return unfit_zero_point(*quants)


def unfit_zero_point(*quants: tuple[str, str, Quant]) -> Rejection | None:
    """Return what is wrong with the first zero point that is; each with its tensor and dtype."""
    for name, dtype, quant in quants:
        limits = np.iinfo(dtype)
        if not limits.min <= quant.zero_point <= limits.max:
            limit = f"{limits.min} to {limits.max}"
            return Rejection(f"{name} zero point", str(quant.zero_point), limit)
        if dtype == "int16" and quant.zero_point != 0:
            return Rejection(f"{name} zero point", str(quant.zero_point), "0 for int16")
    return None


def limits_stand_alone(params: OpParams) -> Rejection | None:
    """The limits belong to no operator that stays on the CPU."""
    assert isinstance(params, ClipParams)
    if params.limited:
        return Rejection("limited operator", params.limited, "limits of what it has made")
    return None


def average_sums_int32(params: OpParams) -> Rejection | None:
    """An average is summed in int32, as TFLite does."""
    assert isinstance(params, PoolParams)
    if params.accumulator != "int32":
        return Rejection("type of the sum", params.accumulator, "int32")
    return None


def requantize_scales_fit(params: OpParams) -> Rejection | None:
    """The factor from input to output can be written with a 6-bit shift."""
    assert isinstance(params, RequantizeParams)
    factor = params.ifm_quant.scale / params.ofm_quant.scale
    if quantize_multiplier(factor) is None:
        return Rejection("rescale factor", f"{factor:.6g}", "a positive number up to 2**31")
    return None


def reshape_keeps_elements(params: OpParams) -> Rejection | None:
    """A reshape keeps the number of elements."""
    assert isinstance(params, ReshapeParams)
    if math.prod(params.ifm.dims) != math.prod(params.ofm.dims):
        return Rejection("elements", str(math.prod(params.ofm.dims)), _dims(params.ifm.dims))
    return None
