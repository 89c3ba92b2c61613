from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.scheduler.builders import chain, operand, residual
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import Constant, NpuGraph, Rescale, Shape, Shared
from tvm_ethosu.scheduler.verify import verify_graph


def _graph() -> NpuGraph:
    return chain([Shape(1, 4, 4, 8)] * 3)


def _with_op(graph: NpuGraph, index: int, **changes: Any) -> NpuGraph:
    ops = list(graph.ops)
    ops[index] = dataclasses.replace(ops[index], **changes)
    return dataclasses.replace(graph, ops=tuple(ops))


def _with_constant(graph: NpuGraph, name: str, data: np.ndarray[Any, Any]) -> NpuGraph:
    constants = dict(graph.constants) | {name: Constant(name, data)}
    return dataclasses.replace(graph, constants=constants)


def test_good_graphs_pass() -> None:
    for graph in (_graph(), residual(Shape(1, 4, 4, 16))):
        assert verify_graph(graph) is graph


BROKEN = {
    "no tensor": _with_op(_graph(), 0, ifm=operand("nobody", Shape(1, 4, 4, 8))),
    "does not cover": _with_op(_graph(), 0, ifm=operand("t0", Shape(1, 4, 4, 9))),
    "batch of": _with_op(_graph(), 0, ifm=operand("t0", Shape(4, 1, 4, 8))),
    "read before written": _with_op(_graph(), 0, ifm=operand("t2", Shape(1, 4, 4, 8))),
    "is written twice": _with_op(_graph(), 1, ofm=operand("t1", Shape(1, 4, 4, 8))),
    "an output that no operator writes": dataclasses.replace(_graph(), outputs=("t0",)),
    "weights .* leave": _with_constant(
        _graph(), "op0_weights", np.full((8, 1, 1, 8), 256, np.int16)
    ),
    "weights .* !=": _with_constant(_graph(), "op0_weights", np.zeros((8, 1, 1, 7), np.int16)),
    "bias .* !=": _with_constant(_graph(), "op0_bias", np.zeros(7, np.int64)),
    "a bias needs": _with_constant(_graph(), "op0_bias", np.full(8, 1 << 39)),
    "one rescale per channel": _with_op(_graph(), 0, rescale=(Rescale(1, 1),)),
    "t2: written while t0 is read": dataclasses.replace(
        _graph(), shared=Shared("t0", "t2"), inputs=("t0",)
    ),
    "does not fit the scale stream": _with_op(_graph(), 0, rescale=(Rescale(1, 64),) * 8),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_promise_is_named(message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_graph(BROKEN[message])
