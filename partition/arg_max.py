"""ARG_MAX over the last dimension: the largest of numbers that hold value and position.

With x a value and c its channel, 128 x + 63 - c has 16 bits, and the largest of these belongs to
the largest value and, among equal ones, to the first channel. Its part below 128 tells c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ethosu.partition.constraints import Constraint
from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.partition.params import OpParams
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.sequence import OpSequence
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.ir import DType, ElementKind, Operand, Shape

_POSITION_BITS = 7
_STEP = 1 << _POSITION_BITS
_LARGEST_POSITION = _STEP // 2 - 1


@dataclass(frozen=True)
class ArgMaxParams(OpParams):
    """The position of the largest value along ``axes``; ``last_of_equals`` if not the first."""

    axes: tuple[int, ...]
    last_of_equals: bool


def arg_max_types_fit(params: OpParams) -> Rejection | None:
    """The input is int8 or uint8, the output int32."""
    if params.ifm.dtype not in ("int8", "uint8"):
        return Rejection("input type", params.ifm.dtype, "int8 or uint8")
    if params.ofm.dtype != "int32":
        return Rejection("output type", params.ofm.dtype, "int32")
    return None


def arg_max_is_over_channels(params: OpParams) -> Rejection | None:
    """The largest of up to 128 values of the last dimension is sought, the first of equal ones."""
    assert isinstance(params, ArgMaxParams)
    last = len(params.ifm.dims) - 1
    if params.axes != (last,):
        return Rejection("axis", ", ".join(map(str, params.axes)), f"the last, {last}")
    if params.ifm.dims[last] > _STEP:
        return Rejection("values to compare", str(params.ifm.dims[last]), f"up to {_STEP}")
    if params.last_of_equals:
        return Rejection("choice among equal values", "the last", "the first")
    return None


def arg_max_positions_fit(params: OpParams) -> Rejection | None:
    """There are at most 65536 positions."""
    count = math.prod(params.ifm.dims[:-1])
    return None if count <= MAX_DIM else Rejection("positions", str(count), f"up to {MAX_DIM}")


def lower_arg_max(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the largest combined number of each position, and its channel taken out of it."""
    *outer, channels = params.ifm.dims
    positions = math.prod(outer)
    ops = OpSequence(name, params.origin)
    source = Operand(ifms[0], Shape(1, positions, 1, channels), DType(params.ifm.dtype))
    combined = ops.tensor(source.shape, DType.I16)
    ops.scale_channels(source, combined, _STEP, _LARGEST_POSITION - np.arange(channels))

    largest = ops.largest_channel(combined)
    word = ops.scale_channels(largest, ops.tensor(largest.shape, DType.I32), 1, np.zeros(1))
    # -64 to 63 rounds to nothing, so this is the value alone.
    value = ops.shift_right(word, ops.scalar(_POSITION_BITS))
    without_position = ops.words(ElementKind.MUL, value, ops.scalar(_STEP))
    channel = ops.words(ElementKind.SUB, without_position, word)
    result = Operand(ofm, largest.shape, DType.I32)
    ops.elements(ElementKind.ADD, channel, ops.scalar(_LARGEST_POSITION), result)
    return ops.lowered()


ARG_MAX_CONSTRAINTS: tuple[Constraint, ...] = (
    arg_max_types_fit,
    arg_max_is_over_channels,
    arg_max_positions_fit,
)
