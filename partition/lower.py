"""Operators of the model as operators of the NPU; knows no frontend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ethosu.partition.add_scales import Values, exact_smaller_scale
from tvm_ethosu.partition.params import (
    AddParams,
    ConvParams,
    OpParams,
    PoolParams,
    RequantizeParams,
    TensorType,
)
from tvm_ethosu.partition.quantize import accumulator_factor, quantize_multiplier, reduced
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Add,
    Constant,
    Conv2D,
    DepthwiseConv2D,
    DType,
    ElementKind,
    Kernel,
    NpuOp,
    Operand,
    Pool,
    Quant,
    Requantize,
    Rescale,
    Rounding,
    Shape,
    Tensor,
)


@dataclass(frozen=True)
class Lowered:
    """The NPU operator that writes the result, and the constants that it brings along.

    Where it takes several operators, ``before`` are the others in order and ``tensors`` what they
    pass on, constant feature maps included.
    """

    op: NpuOp
    constants: tuple[Constant, ...] = ()
    before: tuple[NpuOp, ...] = ()
    tensors: tuple[Tensor, ...] = ()


def to_shape(dims: Sequence[int]) -> Shape:
    """Return dimensions as NHWC: missing ones are 1, at the front; more than 4 are joined there."""
    padded = (1,) * (4 - len(dims)) + tuple(dims)
    return Shape(math.prod(padded[:-3]), *padded[-3:])


def stored_shape(dims: Sequence[int]) -> Shape:
    """Return how dimensions lie in memory: images of a batch are one below the other."""
    shape = to_shape(dims)
    return Shape(1, shape.n * shape.h, shape.w, shape.c)


def elementwise_shape(shape: Shape) -> Shape | None:
    """Return the same elements without a batch, for work that may see them in any shape.

    Neighbouring dimensions are joined; where that makes one too large, the number of elements is
    taken apart. None if it has a prime factor that is too large, or is 0.
    """
    candidates = (
        Shape(1, shape.n * shape.h, shape.w, shape.c),
        Shape(1, shape.n, shape.h * shape.w, shape.c),
        Shape(1, shape.n, shape.h, shape.w * shape.c),
    )
    return next(filter(_fits, candidates), None) or _factored(shape.elements)


def _fits(shape: Shape) -> bool:
    return all(1 <= extent <= MAX_DIM for extent in (shape.h, shape.w, shape.c))


def _factored(elements: int) -> Shape | None:
    """Return a shape of so many elements in which no dimension is too large, if there is one."""
    extents = [1, 1, 1]
    for factor in sorted(_prime_factors(elements), reverse=True):
        extents.sort()
        extents[0] *= factor
    shape = Shape(1, *sorted(extents))
    return shape if elements and _fits(shape) else None


def _prime_factors(number: int) -> Iterator[int]:
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1
    if number > 1:
        yield number


def flat_shape(params: OpParams) -> Shape:
    """Return ``elementwise_shape`` of the output, for an operator that has passed its limits.

    Raises:
        InternalError: there is none.
    """
    shape = elementwise_shape(to_shape(params.ofm.dims))
    if shape is None:
        raise InternalError(f"{params.origin}: {params.ofm.dims} passed the constraints wrongly")
    return shape


def _operand(tensor: str, of: TensorType, quant: Quant, shape: Shape | None = None) -> Operand:
    return Operand(tensor, shape or to_shape(of.dims), DType(of.dtype), quant)


def _rescales(params: ConvParams) -> tuple[Rescale, ...]:
    channels = params.weights.shape[0]
    scales = params.weight_scales
    in_float32 = params.ifm.dtype == "uint8"
    if len(scales) == 1:
        scales = scales * channels
    factors = [
        quantize_multiplier(
            accumulator_factor(
                params.ifm_quant.scale, scale, params.ofm_quant.scale, product_in_float32=in_float32
            )
        )
        for scale in scales
    ]
    found = tuple(factor for factor in factors if factor is not None)
    if len(found) != channels:
        raise InternalError(f"{params.origin}: a rescale factor passed the constraints wrongly")
    return tuple(map(reduced, found)) if params.wide_sums else found


def _without_idle_stride(kernel: Kernel, ofm: Shape) -> Kernel:
    """Return the kernel with stride 1 along an axis with a single output."""
    return Kernel(
        kernel.h,
        kernel.w,
        kernel.stride_h if ofm.h > 1 else 1,
        kernel.stride_w if ofm.w > 1 else 1,
        kernel.dilation_h if kernel.h > 1 else 1,
        kernel.dilation_w if kernel.w > 1 else 1,
    )


def lower_conv(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return a convolution; a dense layer is a 1x1 convolution over its batch as a row."""
    assert isinstance(params, ConvParams)
    channels = params.weights.shape[0]
    bias = np.zeros(channels, np.int64) if params.bias is None else params.bias
    constants = (
        Constant(f"{name}_weights", params.weights.astype(np.int16)),
        Constant(f"{name}_bias", bias.astype(np.int64)),
    )
    ofm_operand = _operand(ofm, params.ofm, params.ofm_quant)
    kind = DepthwiseConv2D if params.kind == "depthwise" else Conv2D
    op = kind(
        name,
        _operand(ifms[0], params.ifm, params.ifm_quant),
        ofm_operand,
        params.clamp,
        constants[0].name,
        constants[1].name,
        _without_idle_stride(params.kernel, ofm_operand.shape),
        params.padding,
        _rescales(params),
        Rounding.NATURAL if params.wide_sums else Rounding.TWICE,
        origin=params.origin,
    )
    return Lowered(op, constants)


def lower_pool(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return a pooling operator."""
    assert isinstance(params, PoolParams)
    ofm_operand = _operand(ofm, params.ofm, Quant())
    op = Pool(
        name,
        _operand(ifms[0], params.ifm, Quant()),
        ofm_operand,
        params.clamp,
        params.kind,
        _without_idle_stride(params.kernel, ofm_operand.shape),
        params.padding,
        origin=params.origin,
    )
    return Lowered(op)


def operand_shapes(params: AddParams) -> tuple[Shape, Shape, Shape] | None:
    """Return the shapes of both inputs and the output, without a batch.

    Where nothing is broadcast any three dimensions will do; else neighbours along which the same
    input is are joined. None if more than three are left, or one of them is too large.
    """
    dims = (params.ifm.dims, params.ifm2.dims, params.ofm.dims)
    if len(set(dims)) == 1:
        folded = elementwise_shape(to_shape(dims[0]))
        return None if folded is None else (folded, folded, folded)
    shapes = [to_shape(each) for each in dims]
    if any(shape.n != 1 for shape in shapes):
        joined = _joined(dims)
        if len(joined[0]) > 3:
            return None
        shapes = [to_shape(each) for each in joined]
    return (shapes[0], shapes[1], shapes[2]) if all(map(_fits, shapes)) else None


def _joined(dims: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return dimensions of tensors with neighbours joined that are broadcast in the same way."""
    rank = max(map(len, dims))
    padded = [(1,) * (rank - len(each)) + each for each in dims]
    joined: list[list[int]] = [[] for _ in dims]
    kinds: list[tuple[bool, ...]] = []
    for extents in zip(*padded, strict=True):
        if max(extents) == 1:
            continue
        kind = tuple(extent == 1 for extent in extents)
        same = bool(kinds) and kinds[-1] == kind
        for column, extent in zip(joined, extents, strict=True):
            if same:
                column[-1] *= extent
            else:
                column.append(extent)
        kinds.append(kind)
    return joined


def exact_add_quants(params: AddParams) -> tuple[Quant, Quant] | None:
    """Return the inputs' quantisation with scales for which the NPU adds as TFLite does."""
    quants = (params.ifm_quant, params.ifm2_quant)
    small, large = sorted((0, 1), key=lambda index: quants[index].scale)
    dtype = DType(params.ifm.dtype)
    if dtype is DType.I16:
        # The 16 bits that come first leave nothing to choose: only one reading equals TFLite's.
        return quants

    def values(quant: Quant, low: int, high: int) -> Values:
        return Values(quant.scale, low - quant.zero_point, high - quant.zero_point)

    inputs = [values(quant, dtype.minimum, dtype.maximum) for quant in quants]
    ofm = values(params.ofm_quant, params.clamp.minimum, params.clamp.maximum)
    sign = 1
    if params.kind is ElementKind.SUB:
        # Values are rounded before they are subtracted; those of the larger scale are exact.
        subtracted = inputs[1]
        inputs[1] = Values(subtracted.scale, -subtracted.high, -subtracted.low)
        if small == 1:
            inputs[1], sign = subtracted, -1
    scale = exact_smaller_scale(inputs[small], inputs[large], ofm, sign)
    if scale is None:
        return None
    moved = Quant(scale, quants[small].zero_point)
    return (moved, quants[1]) if small == 0 else (quants[0], moved)


def lower_add(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return an addition whose first operand has the output's shape."""
    assert isinstance(params, AddParams)
    quants, shapes = exact_add_quants(params), operand_shapes(params)
    if quants is None or shapes is None:
        raise InternalError(f"{params.origin}: the operands passed the constraints wrongly")
    first = _operand(ifms[0], params.ifm, quants[0], shapes[0])
    second = _operand(ifms[1], params.ifm2, quants[1], shapes[1])
    ofm_operand = _operand(ofm, params.ofm, params.ofm_quant, shapes[2])
    if first.shape != ofm_operand.shape:
        first, second = second, first
    return Lowered(Add(name, first, ofm_operand, params.clamp, second, origin=params.origin))


def lower_requantize(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return an element-wise change of quantisation."""
    assert isinstance(params, RequantizeParams)
    shape = flat_shape(params)
    op = Requantize(
        name,
        _operand(ifms[0], params.ifm, params.ifm_quant, shape),
        _operand(ofm, params.ofm, params.ofm_quant, shape),
        params.clamp,
        origin=params.origin,
    )
    return Lowered(op)
