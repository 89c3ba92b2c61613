"""Products of two matrices that are both calculated: element by element, then summed.

A matrix of constants would be the weights of a convolution. Here rows of the first matrix are
multiplied with rows of the second (which is transposed), each with each, in 32 bits. An operand of
the NPU's multiplication can be broadcast, the other one is repeated in memory before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ethosu.partition.constraints import Constraint
from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.partition.moves import MAX_PARTS, Axis, Box, parts_of
from tvm_ethosu.partition.params import OpParams, TensorType
from tvm_ethosu.partition.quantize import (
    accumulator_factor,
    checked_multiplier,
    quantize_multiplier,
)
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.ir import Clamp, DType, ElementKind, Operand, Quant, Shape

# Whose product of 32 bits has 512 KiB when it is whole.
MAX_PRODUCTS = 1 << 17
# So many products of 9 bits each have a sum of 32 bits.
_LONGEST_ROW = ((1 << 31) - 1) // (255 * 255)


@dataclass(frozen=True)
class MatmulParams(OpParams):
    """``ifm`` [batch] x rows x depth times the transposed ``ifm2`` [batch] x columns x depth."""

    ifm2: TensorType
    ifm_quant: Quant
    ifm2_quant: Quant
    ofm_quant: Quant
    clamp: Clamp

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Return batch, rows, columns and depth."""
        *batch, rows, depth = self.ifm.dims
        return math.prod(batch), rows, self.ifm2.dims[-2], depth

    @property
    def repeats_second(self) -> bool:
        """Return whether the second matrix is repeated, else the first; the fewer copies decide.

        With a batch only the first one can be broadcast.
        """
        batch, rows, columns, _ = self.extents
        return batch > 1 or rows <= columns

    @property
    def factor(self) -> float:
        """Return the real factor from sums to the output."""
        return accumulator_factor(
            self.ifm_quant.scale,
            self.ifm2_quant.scale,
            self.ofm_quant.scale,
            product_in_float32=False,
        )


def matmul_types_fit(params: OpParams) -> Rejection | None:
    """Both inputs and the output are int8."""
    assert isinstance(params, MatmulParams)
    for name, of in (("input", params.ifm), ("second input", params.ifm2), ("output", params.ofm)):
        if of.dtype != "int8":
            return Rejection(f"{name} type", of.dtype, "int8")
    return None


def matmul_extents_fit(params: OpParams) -> Rejection | None:
    """At most 131072 products are summed, 33025 for one result, and 64 copies of a matrix do."""
    assert isinstance(params, MatmulParams)
    batch, rows, columns, depth = params.extents
    products = batch * rows * columns * depth
    if products > MAX_PRODUCTS:
        return Rejection("products", str(products), f"up to {MAX_PRODUCTS}")
    if depth > _LONGEST_ROW or max(batch * rows, columns) > MAX_DIM:
        value = f"{batch * rows}x{depth} by {columns}x{depth}"
        return Rejection(
            "matrices", value, f"rows of up to {_LONGEST_ROW}, up to {MAX_DIM} of them"
        )
    copies = rows if params.repeats_second else columns
    if copies > MAX_PARTS:
        return Rejection("copies of a matrix", str(copies), f"up to {MAX_PARTS}")
    return None


def matmul_scale_fits(params: OpParams) -> Rejection | None:
    """The factor from sums to the output is positive and below 1."""
    assert isinstance(params, MatmulParams)
    # From 1 on TFLite's kernel shifts sums to the left, out of their 32 bits.
    if quantize_multiplier(params.factor) is None or params.factor >= 1:
        return Rejection("rescale factor", f"{params.factor:.6g}", "a positive number below 1")
    return None


def lower_matmul(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return repetition, products, sums over the depth, and the scale."""
    assert isinstance(params, MatmulParams)
    batch, rows, columns, depth = params.extents
    ops = OpSequence(name, params.origin)
    first = Operand(ifms[0], Shape(1, batch * rows, 1, depth), DType.I8, params.ifm_quant)
    second = Operand(ifms[1], Shape(1, batch, columns, depth), DType.I8, params.ifm2_quant)
    grid = Shape(1, batch * rows, columns, depth)
    if params.repeats_second:
        matrix = columns * depth
        axes = (Axis(batch, matrix, rows * matrix), Axis(rows, 0, matrix), Axis(matrix, 1, 1))
        whole, other = _repeated(ops, second, grid, axes), first
    else:
        axes = (Axis(rows, depth, columns * depth), Axis(columns, 0, depth), Axis(depth, 1, 1))
        whole, other = _repeated(ops, first, grid, axes), second
    products = ops.elements(ElementKind.MUL, whole, other, ops.tensor(grid, DType.I32))
    per_result = Shape(1, batch * rows, columns, 1)
    total = ops.sum_channels(products, ops.tensor(per_result, DType.I32))
    result = Operand(ofm, per_result, DType.I8, params.ofm_quant)
    ops.times(total, checked_multiplier(params.factor), result, params.clamp)
    return ops.lowered()


def _repeated(ops: OpSequence, source: Operand, grid: Shape, axes: tuple[Axis, ...]) -> Operand:
    """Return a matrix repeated over the grid; itself where there is nothing to repeat."""
    if source.shape.elements == grid.elements:
        return Operand(source.tensor, grid, source.dtype, source.quant)
    parts = tuple(parts_of(Box(0, axes, 0, 0)))
    return ops.move(source, ops.tensor(grid, source.dtype, source.quant), parts)


MATMUL_CONSTRAINTS: tuple[Constraint, ...] = (
    matmul_types_fit,
    matmul_extents_fit,
    matmul_scale_fits,
)
