"""A table is looked up by the operator before it where that gives the same bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.compiling import compile_graph
from tests.scheduler.builders import chain, operand
from tvm_ethosu.backend.host import load_program, run_on
from tvm_ethosu.scheduler.arch import ARCHS, Arch
from tvm_ethosu.scheduler.ir import Clamp, Constant, NpuGraph, Requantize, Shape
from tvm_ethosu.scheduler.tables import fuse_tables

SHAPE = Shape(1, 9, 7, 24)
SEED = 4


def _with_table(*, least: int = -128, keeps: bool = False) -> NpuGraph:
    """Two convolutions with a table between; with ``keeps`` its argument is an output too."""
    graph = chain([SHAPE] * 4)
    first, second, third = graph.ops
    table = Constant("table", np.random.default_rng(SEED).permutation(256).astype(np.int8))
    look_up = Requantize(
        "table",
        operand("t1", SHAPE),
        operand("t2", SHAPE),
        Clamp(least, 127),
        origin="table",
        table=table.name,
    )
    last = dataclasses.replace(third, ifm=operand("t2", SHAPE))
    outputs = ("t1", "t3") if keeps else ("t3",)
    constants = {**graph.constants, table.name: table}
    del second
    return dataclasses.replace(
        graph, ops=(first, look_up, last), constants=constants, outputs=outputs
    )


def test_the_convolution_before_looks_up() -> None:
    fused = fuse_tables(_with_table())
    assert [op.name for op in fused.ops] == ["op0", "op2"]
    assert (fused.ops[0].table, fused.ops[0].ofm.tensor) == ("table", "t2")
    assert "t1" not in fused.tensors


def test_an_argument_that_others_read_is_kept() -> None:
    graph = _with_table(keeps=True)
    assert fuse_tables(graph) is graph


def test_a_table_after_limits_of_its_own_stays() -> None:
    graph = _with_table(least=-5)
    assert fuse_tables(graph) is graph


@pytest.mark.parametrize("arch", ARCHS, ids=lambda arch: arch.accelerator.value)
def test_the_bytes_are_those_of_two_operators(arch: Arch) -> None:
    graph = _with_table()
    apart = _with_table(keeps=True)
    data = np.random.default_rng(SEED).integers(0, 256, SHAPE.elements).astype(np.uint8)
    (fused,) = run_on(load_program(compile_graph(graph, arch)), [data])
    _, expected = run_on(load_program(compile_graph(apart, arch)), [data])
    np.testing.assert_array_equal(fused, expected)
    assert len(set(fused.tolist())) > 3
