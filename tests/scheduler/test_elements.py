"""Element-wise operators, sums over channels, tables: their text and their invariants."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tvm_ethosu.scheduler.arch import Layout
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    Curve,
    DType,
    ElementKind,
    ElementWise,
    NpuGraph,
    NpuOp,
    Operand,
    Quant,
    Requantize,
    Rescale,
    Rounding,
    Shape,
    SumChannels,
    Tensor,
)
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.stripes import Rows, cut_op
from tvm_ethosu.scheduler.verify import verify_graph

MAP = Shape(1, 4, 2, 16)
SHORT, WORDS = Clamp(-128, 127), Clamp(DType.I32.minimum, DType.I32.maximum)


def _operand(name: str, shape: Shape = MAP, dtype: DType = DType.I32) -> Operand:
    return Operand(name, shape, dtype)


def _graph() -> NpuGraph:
    """Return ``sum of table[in - row]`` shifted right by a constant; row is broadcast."""
    row = Shape(1, 4, 2, 1)
    tensors = (
        Tensor("in", MAP, DType.I8),
        Tensor("row", row, DType.I8),
        Tensor("exp", MAP, DType.I32),
        Tensor("total", row, DType.I32),
        Tensor("twelve", Shape(1, 1, 1, 1), DType.I32),
        Tensor("out", row, DType.I8),
    )
    ops = (
        ElementWise(
            "sub",
            _operand("in", dtype=DType.I8),
            Operand("exp", MAP, DType.I32, Quant(1.0, 127)),
            WORDS,
            ElementKind.SUB,
            _operand("row", row, DType.I8),
            table="exponentials",
        ),
        SumChannels("sum", _operand("exp"), _operand("total", row), WORDS),
        ElementWise(
            "shr",
            _operand("total", row),
            _operand("out", row, DType.I8),
            SHORT,
            ElementKind.SHIFT_RIGHT,
            _operand("twelve", Shape(1, 1, 1, 1)),
            rounding=Rounding.NATURAL,
        ),
    )
    constants = {
        "exponentials": Constant("exponentials", np.arange(256, dtype=np.int32)),
        "twelve": Constant("twelve", np.full((1, 1, 1, 1), 12, np.int32)),
    }
    by_name = {tensor.name: tensor for tensor in tensors}
    return NpuGraph("graph", ops, by_name, constants, ("in", "row"), ("out",))


def _with(index: int, **changes: Any) -> NpuGraph:
    graph = _graph()
    ops = list(graph.ops)
    ops[index] = dataclasses.replace(ops[index], **changes)
    return dataclasses.replace(graph, ops=tuple(ops))


def _with_table(data: np.ndarray[Any, Any]) -> NpuGraph:
    graph = _graph()
    table = {"exponentials": Constant("exponentials", data)}
    return dataclasses.replace(graph, constants=dict(graph.constants) | table)


def test_its_text() -> None:
    assert str(verify_graph(_graph())).splitlines()[1:-1] == [
        "  %exp[1x4x2x16 int32 zp=127] = sub(%in[1x4x2x16 int8], %row[1x4x2x1 int8]) "
        "rescale=1>>0 twice clamp=[-2147483648,2147483647] table=@exponentials[256 int32]",
        "  %total[1x4x2x1 int32] = sum_channels(%exp[1x4x2x16 int32]) "
        "clamp=[-2147483648,2147483647]",
        "  %out[1x4x2x1 int8] = shr(%total[1x4x2x1 int32], %twelve[1x1x1x1 int32]) "
        "rescale=1>>0 natural clamp=[-128,127]",
    ]


def test_what_is_summed_over_channels_lies_row_by_row() -> None:
    """Although it has 16 channels: the NPU takes no bricks of 32-bit numbers there."""
    assert choose_layouts(_graph()).by_tensor["exp"] is Layout.NHWC


def test_stripes_cut_what_is_broadcast_along_rows_only_where_it_has_rows() -> None:
    sub, _, shr = (cut_op(op, Rows(1, 3)) for op in _graph().ops)
    assert [operand.shape.h for operand in (*sub.inputs, sub.ofm)] == [2, 2, 2]
    assert [operand.shape.h for operand in (*shr.inputs, shr.ofm)] == [2, 1, 2]


def _ends(dtype: DType) -> tuple[Operand, Operand]:
    return _operand("in", dtype=dtype), _operand("out", dtype=dtype)


def _unary(dtype: DType) -> ElementWise:
    return ElementWise("unary", *_ends(dtype), SHORT, ElementKind.ABS)


def _alone(op: NpuOp, dtype: DType = DType.I32, *constants: Constant) -> NpuGraph:
    """Return a graph of one operator from "in" to "out"."""
    tensors = {name: Tensor(name, MAP, dtype) for name in ("in", "out")}
    named = {constant.name: constant for constant in constants}
    return NpuGraph("graph", (op,), tensors, named, ("in",), ("out",))


_SCALED = dict.fromkeys(["rescale"], Rescale(1 << 30, 31))
BROKEN = {
    "sub with a wrong arity": _with(0, ifm2=None),
    "operands of different types": _with(0, ifm2=_operand("twelve", Shape(1, 1, 1, 1))),
    "shl needs int32": _with(0, kind=ElementKind.SHIFT_LEFT),
    "can't be broadcast": _with(0, ifm2=_operand("row", Shape(1, 2, 4, 1), DType.I8)),
    "is broadcast to": _with(2, ifm=_operand("total", Shape(1, 8, 1, 1))),
    "does not fit its register": _with(0, rescale=Rescale(1, 64)),
    "shr has a factor": _with(2, **_SCALED),
    "shr of .* needs a factor": _with(2, rescale=None),
    "the sum of .* is not": _with(1, ofm=_operand("total", Shape(1, 8, 1, 1))),
    "sums are made of int16 or int32": _with(1, ifm=_operand("in", dtype=DType.I8)),
    "abs of .* with": _alone(_unary(DType.I32)),
    "a curve of": _alone(Requantize("curve", *_ends(DType.I8), SHORT, curve=Curve.TANH), DType.I8),
    "table of 256 uint32 for": _alone(
        Requantize("copy", *_ends(DType.I16), SHORT, table="curve"),
        DType.I16,
        Constant("curve", np.zeros(256, np.uint32)),
    ),
    "no table none": _with(0, table="none"),
    "table of 255 int32": _with_table(np.zeros(255, np.int32)),
    "table of 256 int8 for": _with_table(np.zeros(256, np.int8)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_promise_is_named(message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_graph(BROKEN[message])


def test_a_table_belongs_to_any_operator() -> None:
    copy = Requantize("copy", *_ends(DType.I8), SHORT, table="curve")
    graph = _alone(copy, DType.I8, Constant("curve", np.zeros(256, np.int8)))
    assert verify_graph(graph) is graph


def test_the_text_of_curves_and_absolute_values() -> None:
    curve = Requantize("curve", *_ends(DType.I16), SHORT, curve=Curve.TANH)
    text = str(verify_graph(_alone(curve, DType.I16)))
    assert "%out[1x4x2x16 int16] = tanh(%in[1x4x2x16 int16] scale=1) scale=1 " in text
    text = str(verify_graph(_alone(_unary(DType.I16), DType.I16)))
    assert "%out[1x4x2x16 int16] = abs(%in[1x4x2x16 int16]) rescale=1>>0 twice" in text
