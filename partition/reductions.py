"""Means, sums, maxima and minima over dimensions: convolutions with weights of 1, and pooling.

The NPU pools maxima only: a minimum is the maximum of -1 - x, turned round again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ethosu.partition.constraints import unfit_zero_point
from tvm_ethosu.partition.lower import Lowered, to_shape
from tvm_ethosu.partition.params import OpParams
from tvm_ethosu.partition.quantize import quantize_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler import arch
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    Conv2D,
    DepthwiseConv2D,
    DType,
    Kernel,
    Operand,
    Padding,
    PoolKind,
    Quant,
    Rescale,
    Shape,
)

# What an 8-bit value less its zero point is at most, and from how many elements on a window is
# better split.
_LARGEST_STEP = 255
_LARGE_WINDOW = 32


@dataclass(frozen=True)
class ReduceParams(OpParams):
    """A reduction over some dimensions; ``kind`` is "mean", "sum", "max" or "min"."""

    kind: str
    axes: tuple[int, ...]
    ifm_quant: Quant
    ofm_quant: Quant
    clamp: Clamp

    @property
    def is_chosen(self) -> bool:
        """Return whether the result is one of the values, a maximum or a minimum."""
        return self.kind in ("max", "min")


@dataclass(frozen=True)
class _Seen:
    """A reduction's input and result as the NPU sees them, and the window between them."""

    ifm: Shape
    ofm: Shape
    kernel: Kernel


def _split(params: ReduceParams) -> tuple[int, int, int] | None:
    """Return the elements before, in and behind the reduced dimensions; None if they are apart."""
    dims = params.ifm.dims
    axes = [axis for axis in params.axes if dims[axis] > 1]
    if not axes:
        return math.prod(dims), 1, 1
    between = dims[axes[0] : axes[-1] + 1]
    if math.prod(between) != math.prod(dims[axis] for axis in axes):
        return None
    return math.prod(dims[: axes[0]]), math.prod(between), math.prod(dims[axes[-1] + 1 :])


def _seen(params: ReduceParams, highest: int) -> _Seen:
    """Return the natural image where the window fits, else rows of what is reduced."""
    split = _split(params)
    if split is None:
        raise InternalError(f"{params.origin}: a reduction passed the constraints wrongly")
    outer, reduced, inner = split
    ifm = to_shape(params.ifm.dims)
    if len(params.ifm.dims) == 4 and set(params.axes) == {1, 2} and ifm.n == 1 and ifm.h <= highest:
        return _Seen(ifm, Shape(1, 1, 1, ifm.c), Kernel(ifm.h, ifm.w))
    if inner == 1 and not params.is_chosen:
        return _Seen(Shape(1, outer, 1, reduced), Shape(1, outer, 1, 1), Kernel(1, 1))
    return _Seen(Shape(1, outer, reduced, inner), Shape(1, outer, 1, inner), Kernel(1, reduced))


def reduced_dimensions_touch(params: OpParams) -> Rejection | None:
    """The reduced dimensions are neighbours."""
    assert isinstance(params, ReduceParams)
    if _split(params) is None:
        return Rejection("axes", ", ".join(map(str, params.axes)), "neighbours")
    return None


def reduced_elements_fit(params: OpParams) -> Rejection | None:
    """At most 4096 elements are added, 65536 compared or added over the last dimension."""
    assert isinstance(params, ReduceParams)
    split = _split(params)
    assert split is not None
    outer, reduced, inner = split
    over_channels = inner == 1 or params.is_chosen
    limit = arch.MAX_DIM if over_channels else arch.MAX_KERNEL_ELEMENTS
    if reduced > limit:
        return Rejection("reduced elements", str(reduced), f"up to {limit}")
    if max(outer, inner) > arch.MAX_DIM:
        return Rejection("other elements", str(max(outer, inner)), f"up to {arch.MAX_DIM}")
    return None


def reduced_zero_points_fit(params: OpParams) -> Rejection | None:
    """Zero points are values of the tensor's type, and 0 for int16."""
    assert isinstance(params, ReduceParams)
    return unfit_zero_point(
        ("input", params.ifm.dtype, params.ifm_quant),
        ("output", params.ofm.dtype, params.ofm_quant),
    )


def maximum_keeps_quantization(params: OpParams) -> Rejection | None:
    """A maximum or minimum has the scale and zero point of its input."""
    assert isinstance(params, ReduceParams)
    if params.is_chosen and params.ifm_quant != params.ofm_quant:
        return Rejection("scales and zero points", "different", "those of the input")
    return None


def reduction_scale_fits(params: OpParams) -> Rejection | None:
    """The factor from input to output can be written with a 6-bit shift."""
    assert isinstance(params, ReduceParams)
    if not params.is_chosen and _rescale(params) is None:
        factor = params.ifm_quant.scale / params.ofm_quant.scale
        return Rejection("rescale factor", f"{factor:.6g}", "2**-31 to 2**31")
    return None


def _rescale(params: ReduceParams) -> Rescale | None:
    """Return the factor of the sum.

    TFLite's kernel divides the multiplier, not the factor, by the number of elements
    (QuantizedMeanOrSum of reduce.h): shifted up by as much as keeps it large, then truncated.
    """
    factor = quantize_multiplier(params.ifm_quant.scale / params.ofm_quant.scale)
    split = _split(params)
    if factor is None or split is None or params.kind == "sum":
        return factor
    count = math.prod(params.ifm.dims[axis] for axis in params.axes)
    # The kernel's exponent is 31 - shift, and may not fall below -31.
    up = min(count.bit_length() - 1, 32, 31 + 31 - factor.shift)
    shift = factor.shift + up
    if up < 0 or shift > arch.MAX_RESCALE_SHIFT:
        return None
    return Rescale((factor.multiplier << up) // count, shift)


def lower_reduction(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return a maximum as pooling, a sum as a convolution with weights of 1."""
    assert isinstance(params, ReduceParams)
    seen = _seen(params, arch.MAX_POOL_H if params.is_chosen else arch.MAX_KERNEL_H)
    if params.is_chosen:
        return _chosen(params, name, ifms[0], ofm, seen)
    ifm_operand = Operand(ifms[0], seen.ifm, DType(params.ifm.dtype), params.ifm_quant)
    ofm_operand = Operand(ofm, seen.ofm, DType(params.ofm.dtype), params.ofm_quant)
    if _is_better_in_two(ifm_operand, seen.kernel):
        return _sum_in_two(params, name, ifm_operand, ofm_operand)
    return _sum(params, name, ifm_operand, ofm_operand, seen.kernel)


def _chosen(params: ReduceParams, name: str, ifm: str, ofm: str, seen: _Seen) -> Lowered:
    """Return the maximum over a window, of values turned round for a minimum."""
    dtype, ops = DType(params.ifm.dtype), OpSequence(name, params.origin)
    source, result = Operand(ifm, seen.ifm, dtype), Operand(ofm, seen.ofm, dtype)
    if params.kind == "max":
        ops.pool(PoolKind.MAX, source, result, seen.kernel, params.clamp)
        return ops.lowered()
    # All values are kept: -128 becomes 127, and the other way round.
    mirror = dtype.minimum + dtype.maximum

    def turned(operand: Operand, into: Operand, limits: Clamp | None = None) -> Operand:
        offsets = np.full(operand.shape.c, mirror)
        return ops.scale_channels(operand, into, -1, offsets, limits)

    source = turned(source, ops.tensor(seen.ifm, dtype))
    largest = ops.pool(PoolKind.MAX, source, ops.tensor(seen.ofm, dtype), seen.kernel)
    turned(largest, result, params.clamp)
    return ops.lowered()


def _is_better_in_two(ifm: Operand, kernel: Kernel) -> bool:
    """Return whether rows and columns are better summed one after the other.

    A window as large as the plane leaves one position per channel, for which the NPU is slow; the
    sums of columns are many positions, and their window is short.
    """
    is_plane = kernel.h > 1 and kernel.w > 1
    holds_columns = ifm.dtype.size_bytes == 1 and kernel.h * _LARGEST_STEP <= DType.I16.maximum
    return is_plane and holds_columns and kernel.elements >= _LARGE_WINDOW


def _sum_in_two(params: ReduceParams, name: str, ifm: Operand, ofm: Operand) -> Lowered:
    """Return the sum of each column in 16 bits, of these in 32, and the product with the factor."""
    rescale = _rescale(params)
    if rescale is None:
        raise InternalError(f"{params.origin}: a rescale factor passed the constraints wrongly")
    shape, ops = ifm.shape, OpSequence(name, params.origin)
    columns = ops.tensor(Shape(1, 1, shape.w, shape.c), DType.I16)
    ops.sum_window(ifm, columns, Kernel(shape.h, 1))
    total = ops.tensor(ofm.shape, DType.I32)
    ops.sum_window(columns, total, Kernel(1, shape.w))
    ops.times(total, rescale, ofm, params.clamp)
    return ops.lowered()


def _sum(params: ReduceParams, name: str, ifm: Operand, ofm: Operand, kernel: Kernel) -> Lowered:
    rescale = _rescale(params)
    if rescale is None:
        raise InternalError(f"{params.origin}: a rescale factor passed the constraints wrongly")
    over_channels = ifm.shape.c != ofm.shape.c
    kind = Conv2D if over_channels else DepthwiseConv2D
    channels = ofm.shape.c
    shape = (channels, kernel.h, kernel.w, ifm.shape.c if over_channels else 1)
    constants = (
        Constant(f"{name}_weights", np.ones(shape, np.int16)),
        Constant(f"{name}_bias", np.zeros(channels, np.int64)),
    )
    op = kind(
        name,
        ifm,
        ofm,
        params.clamp,
        constants[0].name,
        constants[1].name,
        kernel,
        Padding(),
        (rescale,) * channels,
        origin=params.origin,
    )
    return Lowered(op, constants)


REDUCTION_CONSTRAINTS = (
    reduced_dimensions_touch,
    reduced_elements_fit,
    reduced_zero_points_fit,
    maximum_keeps_quantization,
    reduction_scale_fits,
)
