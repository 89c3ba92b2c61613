"""Subtraction, product, minimum and maximum of two 8-bit operands; one may be broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_ethosu.partition.lower import Lowered, exact_add_quants, operand_shapes
from tvm_ethosu.partition.params import AddParams, OpParams
from tvm_ethosu.partition.quantize import checked_multiplier, quantize_multiplier
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    DType,
    ElementKind,
    ElementWise,
    Operand,
    Quant,
    Rescale,
)

# By how much TFLite's kernel can shift a product up within 32 bits: one of 16 bits, and of 31.
_PRODUCT_HEADROOM_BITS = {"int8": 14, "uint8": 14, "int16": -1}


def _product_factor(params: AddParams) -> float:
    return params.ifm_quant.scale * params.ifm2_quant.scale / params.ofm_quant.scale


def _rescale(params: AddParams) -> Rescale | None:
    """Return the factor of the result; None where the operands' scales decide."""
    match params.kind:
        case ElementKind.SUB:
            return None
        case ElementKind.MUL:
            return checked_multiplier(_product_factor(params))
        case _:
            return Rescale(1, 0)


def lower_arithmetic(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return an element-wise operator whose first operand has the output's shape."""
    assert isinstance(params, AddParams)
    quants: tuple[Quant, Quant] | None = (params.ifm_quant, params.ifm2_quant)
    if params.kind is ElementKind.SUB:
        quants = exact_add_quants(params)
    shapes = operand_shapes(params)
    if quants is None or shapes is None:
        raise InternalError(f"{params.origin}: the operands passed the constraints wrongly")
    dtype = DType(params.ofm.dtype)
    operands = [Operand(ifms[index], shapes[index], dtype, quants[index]) for index in range(2)]
    result = Operand(ofm, shapes[2], dtype, params.ofm_quant)
    swapped = operands[0].shape != result.shape
    first, second = operands[::-1] if swapped else operands
    op = ElementWise(
        name,
        first,
        result,
        params.clamp,
        params.kind,
        second,
        _rescale(params),
        swapped=swapped,
        origin=params.origin,
    )
    return Lowered(op)


def product_scales_fit(params: OpParams) -> Rejection | None:
    """The product of the input scales over the output scale is at most 2**14, 2**-1 for int16."""
    assert isinstance(params, AddParams)
    scales = (params.ifm_quant.scale, params.ifm2_quant.scale, params.ofm_quant.scale)
    value = ", ".join(f"{scale:.6g}" for scale in scales)
    if not all(0 < scale < float("inf") for scale in scales):
        return Rejection("scales", value, "positive numbers")
    factor = _product_factor(params)
    headroom = _PRODUCT_HEADROOM_BITS[params.ofm.dtype]
    if factor > 2.0**headroom or quantize_multiplier(factor) is None:
        limit = f"a positive number up to 2**{headroom}"
        return Rejection("rescale factor", f"{factor:.6g}", limit)
    return None
